package proxy

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/stream/http2"
)

// lineProtocol returns a protocol of text lines. Each line is a request; the response contains the
// status, the frame limit of the server and the failure reason.
func lineProtocol() stream.Protocol {
	return stream.Protocol{
		Name: config.Bolt,
		Match: func(b []byte) xprotocol.MatchResult {
			if b[0] == 1 {
				return xprotocol.MatchYes
			}
			return xprotocol.MatchNo
		},
		NewServer: func(o stream.ServerOptions) stream.Server { return lineServer{o} },
	}
}

type lineServer struct{ o stream.ServerOptions }

func (s lineServer) ServeConn(ctx context.Context, conn *network.Conn) error {
	var line [2]byte
	for {
		if _, err := io.ReadFull(conn, line[:]); err != nil {
			return err
		}
		x := &protocol.Exchange{}
		x.Reset()
		x.Request.Authority, x.Request.Path = "com.shop.Cart", "/com.shop.Cart/add"
		x.Meta.Protocol, x.Meta.Start = string(config.Bolt), time.Now()
		x.Meta.Conn = &protocol.ConnMeta{Listener: s.o.Listener}
		if err := x.Serve(ctx, s.o.Service); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(conn, "%d of %d, %s\n", x.Response.Status, s.o.RPC.MaxFrameSize, x.Record.Reason); err != nil {
			return err
		}
		x.Record.End = time.Now()
		s.o.Observe(x)
		if conn.Draining() {
			return nil
		}
	}
}

// roundTripLine sends a line and returns the response.
func (c *testClient) roundTripLine() string {
	c.t.Helper()
	c.send("\x01\n")
	text, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatalf("reading a line: %v", err)
	}
	return text
}

// mixedSnapshot returns a configuration with one listener that accepts several protocols.
func mixedSnapshot(t *testing.T, s setup, change func(*config.FilterChain)) *config.Snapshot {
	t.Helper()
	c := s.snapshot(t)
	fc := c.Listeners[0].FilterChains[0]
	fc.Proxy.Downstream = []config.Protocol{config.HTTP1, config.Bolt}
	fc.Proxy.RPC = config.RPCOptions{MaxFrameSize: 5}
	fc.Proxy.DetectTimeout = 10 * time.Second
	if change != nil {
		change(fc)
	}
	return c
}

func mixedRig(t *testing.T) *rig {
	r := newRig(t)
	r.server.o.Protocols = append(r.server.o.Protocols, lineProtocol())
	return r
}

func TestListenerDetectsProtocols(t *testing.T) {
	for name, downstream := range map[string][]config.Protocol{
		"list":          {config.HTTP1, config.Bolt},
		"reverse order": {config.Bolt, config.HTTP1},
		"Auto":          {config.Auto},
	} {
		t.Run(name, func(t *testing.T) {
			r := mixedRig(t)
			r.apply(mixedSnapshot(t, setup{routes: directRoute("hello")}, func(fc *config.FilterChain) { fc.Proxy.Downstream = downstream }))
			address := r.address("front")
			if got := roundTrip(t, address, get("/")); got.body != "hello" {
				t.Errorf("HTTP: response %q, want %q", got.body, "hello")
			}
			if got, want := dialClient(t, address).roundTripLine(), "200 of 5, none\n"; got != want {
				t.Errorf("line: response %q, want %q", got, want)
			}
			r.await(2, "weft_listener_requests_total", "front")
			c := dialClient(t, address)
			c.send("\x16\x03\x01")
			if !c.ended() {
				t.Error("the listener responded to TLS")
			}
			r.await(1, "weft_listener_connections_closed_total", "front", network.ClosedUnknownProtocol.String())
		})
	}
}

func TestSingleProtocolSkipsDetection(t *testing.T) {
	r, address := setup{routes: directRoute("hello")}.run(t)
	if got := roundTrip(t, address, "\x16\x03\x01\r\n\r\n"); got.StatusCode != 400 {
		t.Errorf("status %d, want 400 for a client that does not speak HTTP", got.StatusCode)
	}
	r.await(1, "weft_listener_connections_closed_total", "front", network.ClosedProtocolError.String())
}

// TestUnknownBytesGet400 verifies that a listener that accepts HTTP/1.1 and HTTP/2 treats every
// connection without the HTTP/2 preface as HTTP/1.1.
func TestUnknownBytesGet400(t *testing.T) {
	engine := http2.New(slog.New(slog.DiscardHandler), nil)
	for _, downstream := range [][]config.Protocol{{config.HTTP1, config.HTTP2}, {config.HTTP2, config.HTTP1}} {
		r := newRig(t)
		r.server.o.Protocols = append(r.server.o.Protocols, engine.Protocol())
		r.apply(mixedSnapshot(t, setup{routes: directRoute("hello")}, func(fc *config.FilterChain) { fc.Proxy.Downstream = downstream }))
		address := r.address("front")
		for request, want := range map[string]int{
			"G!T / HTTP/1.1\r\nHost: h\r\n\r\n":                        200, // a token (RFC 9110 5.6.2)
			strings.Repeat("X", 40) + " / HTTP/1.1\r\nHost: h\r\n\r\n": 200,
			"M@ / HTTP/1.1\r\nHost: h\r\n\r\n":                         400,
			"\x16\x03\x01\r\n\r\n":                                     400,
		} {
			if got := roundTrip(t, address, request); got.StatusCode != want {
				t.Errorf("%v: %q got %d, want %d", downstream, request, got.StatusCode, want)
			}
		}
	}
}

// serveEach serves connections one at a time and closes each.
func serveEach(t *testing.T, serve func(nc net.Conn)) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			serve(nc)
			_ = nc.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-ended })
	return ln.Addr().String()
}

// echo returns the address of a server that echoes what it receives until EOF.
func echo(t *testing.T) (address string) {
	t.Helper()
	return serveEach(t, func(nc net.Conn) { _, _ = io.Copy(nc, nc) })
}

func TestFallbackRelaysUnknownProtocol(t *testing.T) {
	r := mixedRig(t)
	r.apply(mixedSnapshot(t, setup{routes: directRoute("hello"), clusters: cluster("bytes", echo(t))}, func(fc *config.FilterChain) {
		fc.Proxy.Fallback = true
		fc.TCPProxy = &config.TCPProxy{Cluster: "bytes", MaxConnectAttempts: 1}
	}))
	address := r.address("front")
	if got := roundTrip(t, address, get("/")); got.body != "hello" {
		t.Errorf("HTTP: response %q, want %q", got.body, "hello")
	}
	if got, want := dialClient(t, address).roundTripLine(), "200 of 5, none\n"; got != want {
		t.Errorf("line: response %q, want %q", got, want)
	}
	for _, text := range []string{"\x16\x03\x01\x02", "GE", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00" + strings.Repeat("x", 1<<20)} {
		c := dialClient(t, address)
		sent := make(chan error, 1)
		go func() {
			_, err := io.WriteString(c, text)
			_ = c.CloseWrite()
			sent <- err
		}()
		got, err := io.ReadAll(c)
		if string(got) != text || err != nil || <-sent != nil {
			t.Errorf("%.30q: echoed %d bytes, error %v; want %d", text, len(got), err, len(text))
		}
	}
}

func TestDetectionChangeReplacesConnections(t *testing.T) {
	base := func(fc *config.FilterChain) {
		fc.Proxy.Fallback, fc.TCPProxy = true, &config.TCPProxy{Cluster: "bytes"}
	}
	for name, test := range map[string]struct {
		change func(*config.FilterChain)
		want   bool
	}{
		"no change":         {func(*config.FilterChain) {}, true},
		"upstream":          {func(fc *config.FilterChain) { fc.Proxy.Upstream = config.Bolt }, true},
		"RPC limit":         {func(fc *config.FilterChain) { fc.Proxy.RPC.MaxInFlight = 1 }, false},
		"HTTP limit":        {func(fc *config.FilterChain) { fc.Proxy.HTTP1.MaxHeaderCount = 1 }, false},
		"protocol order":    {func(fc *config.FilterChain) { fc.Proxy.Downstream = []config.Protocol{config.Bolt, config.HTTP1} }, false},
		"detection timeout": {func(fc *config.FilterChain) { fc.Proxy.DetectTimeout = time.Second }, false},
		"no fallback":       {func(fc *config.FilterChain) { fc.Proxy.Fallback = false }, false},
		"fallback cluster":  {func(fc *config.FilterChain) { fc.TCPProxy = &config.TCPProxy{Cluster: "other"} }, false},
		"TLS":               {func(fc *config.FilterChain) { fc.TLS = []*config.TLS{{ServerName: "a"}} }, false},
		"plaintext allowed": {func(fc *config.FilterChain) { fc.AllowPlaintext = true }, false},
		"fallback only":     {func(fc *config.FilterChain) { fc.Proxy = nil }, false},
		"Auto":              {func(fc *config.FilterChain) { fc.Proxy.Downstream = []config.Protocol{config.Auto} }, false},
		"upstream protocol with Auto": {func(fc *config.FilterChain) {
			fc.Proxy.Downstream, fc.Proxy.Upstream = []config.Protocol{config.Auto}, config.Bolt
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := mixedSnapshot(t, setup{}, base).Listeners[0], mixedSnapshot(t, setup{}, base).Listeners[0]
			if name == "upstream protocol with Auto" {
				before.FilterChains[0].Proxy.Downstream = []config.Protocol{config.Auto}
			}
			test.change(after.FilterChains[0])
			ca, cb := before.FilterChains[0], after.FilterChains[0]
			if sameEngine(before, after, ca, cb) != test.want || sameEngine(after, before, cb, ca) != test.want {
				t.Errorf("sameEngine = %t, want %t", !test.want, test.want)
			}
		})
	}
}

func TestAutoSkipsIncompatibleProtocols(t *testing.T) {
	r := mixedRig(t)
	r.apply(mixedSnapshot(t, setup{routes: directRoute("hello")}, func(fc *config.FilterChain) {
		fc.Proxy.Downstream, fc.Proxy.Upstream = []config.Protocol{config.Auto}, config.HTTP1
	}))
	c := dialClient(t, r.address("front"))
	c.send("\x01\n")
	if !c.ended() {
		t.Error("the listener responded to a line although the upstream protocol is HTTP")
	}
}

func TestRequestsAreNotTranslated(t *testing.T) {
	r := mixedRig(t)
	app := origin(t, respondText("app"))
	r.apply(mixedSnapshot(t, setup{routes: routeTo("app"), clusters: cluster("app", app)}, func(fc *config.FilterChain) { fc.Proxy.Upstream = config.HTTP1 }))
	address := r.address("front")
	if got := roundTrip(t, address, get("/")); got.body != "app" {
		t.Errorf("HTTP: response %q, want %q", got.body, "app")
	}
	if got, want := dialClient(t, address).roundTripLine(), "501 of 5, not_implemented\n"; got != want {
		t.Errorf("line for an HTTP upstream: response %q, want %q", got, want)
	}
}

func TestUnsupportedProtocolsAreRejected(t *testing.T) {
	for name, test := range map[string]struct {
		downstream []config.Protocol
		upstream   config.Protocol
	}{
		"one of several protocols": {[]config.Protocol{config.HTTP1, config.Tars}, ""},
		"no protocol":              {nil, ""},
		"no protocol for Auto":     {[]config.Protocol{config.Auto}, config.Tars},
	} {
		c := mixedSnapshot(t, setup{routes: directRoute("x")}, func(fc *config.FilterChain) {
			fc.Proxy.Downstream, fc.Proxy.Upstream = test.downstream, test.upstream
		})
		if err := mixedRig(t).server.Apply(t.Context(), config.FullDelta(c)); err == nil || !strings.Contains(err.Error(), "downstream_protocol") {
			t.Errorf("%s: Apply = %v, want an error about downstream_protocol", name, err)
		}
	}
}
