// Package conformance tests Weft as an intermediary against the HTTP/1.1 specifications. It
// observes Weft from outside: a complete server runs, a client and an origin connect to it over
// sockets, and the tests compare the received bytes exactly.
//
// The tables are in the *_cases_test.go files; TestHTTP1 runs them and logs a report. Other tests
// use varnishtest, curl, slowhttptest and Python's websockets.
package conformance

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/proxy"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/stream/http1"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

// waitTimeout is the timeout of every expected event.
const waitTimeout = 5 * time.Second

// setup holds the configuration of a case. Its options start with the defaults.
type setup struct {
	config.HTTP1Options
	network      string        // of listener and origin: "tcp" (default) or "unix"
	idle         time.Duration // idle timeout of the listener
	timeout      time.Duration // timeout of the route to the origin
	upstreamIdle time.Duration
	extra        []*config.Route // routes before the route to the origin
}

// plain returns a setup with the defaults.
func plain() *setup {
	return &setup{
		HTTP1Options: config.DefaultHTTP1Options(),
		network:      "tcp",
		idle:         time.Minute,
		timeout:      time.Minute,
		upstreamIdle: time.Minute,
	}
}

// direct returns a route with a direct response for a path.
func direct(path string, status int, body string) *config.Route {
	return &config.Route{
		Name:           "direct" + path,
		Match:          config.RouteMatch{PathKind: config.PathExact, Path: path},
		DirectResponse: &config.DirectResponse{Status: status, Body: body},
	}
}

// snapshot returns a configuration with a listener and one route that forwards everything to the
// origin.
func (s *setup) snapshot(listen, origin string) *config.Snapshot {
	route := &config.Route{Name: "all", Forward: &config.Forward{Cluster: "origin", Timeout: s.timeout}}
	return &config.Snapshot{
		Server: config.Server{GracefulTimeout: waitTimeout},
		Listeners: []*config.Listener{{
			Name: "front", Network: s.network, Address: listen, Bind: true, IdleTimeout: s.idle,
			FilterChains: []*config.FilterChain{{Proxy: &config.Proxy{
				Downstream: []config.Protocol{config.HTTP1},
				RouteTable: "table",
				HTTP1:      s.HTTP1Options,
			}}},
		}},
		Routes: []*config.RouteTable{{Name: "table", VirtualHosts: []*config.VirtualHost{{
			Name: "all", Domains: []string{"*"}, Routes: append(s.extra, route),
		}}}},
		Clusters: []*config.Cluster{{
			Name: "origin", Type: config.ClusterStatic, LBPolicy: config.RoundRobin,
			ConnectTimeout: waitTimeout, IdleTimeout: s.upstreamIdle,
			Hosts: []config.Host{{Address: origin, Weight: 1}},
		}},
	}
}

// harness is a Weft server between a client and an origin. All three run in this process. The
// goroutine that runs the script acts as client and as origin, so the order of events is
// deterministic.
type harness struct {
	testing.TB
	byteByByte bool // client and origin send each byte separately

	listen string // address of Weft's listener
	ln     net.Listener
	client net.Conn
	origin net.Conn // nil: Weft has not connected yet
	method string   // of the last request; determines how a response is read
}

// newHarness starts a server; change may be nil.
func newHarness(t testing.TB, change func(s *setup)) *harness {
	t.Helper()
	s := plain()
	if change != nil {
		change(s)
	}
	listen, origin := "127.0.0.1:0", "127.0.0.1:0"
	if s.network == "unix" {
		dir := t.TempDir()
		listen, origin = filepath.Join(dir, "front"), filepath.Join(dir, "origin")
	}
	ln, err := net.Listen(s.network, origin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	h := &harness{TB: t, ln: ln}
	h.listen = serve(t, s.snapshot(listen, ln.Addr().String()))
	t.Cleanup(h.closeConnections)
	return h
}

// serve runs a server until the end of the test and returns the address of its listener "front".
func serve(t testing.TB, c *config.Snapshot) string {
	t.Helper()
	log := slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelError}))
	registry := metrics.New(metricsOptions())
	server := proxy.NewServer(proxy.Options{
		Protocols: []stream.Protocol{http1.Protocol()},
		Upstream: upstream.Options{
			Policies: map[config.LBPolicy]balance.NewFunc{config.RoundRobin: balance.RoundRobin},
			Meter:    proxy.Meter{Registry: registry},
			Log:      log,
		},
		Logs:    logfile.NewSet(logfile.SetOptions{Log: log}),
		Metrics: registry,
		Log:     log,
	})
	if err := server.Apply(context.Background(), config.FullDelta(c)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		server.Drain(ctx)
		if ctx.Err() != nil {
			t.Errorf("the server has open connections %v after the start of the drain, want none", waitTimeout)
		}
	})
	for _, l := range server.Describe() {
		if l.Name == "front" {
			return l.Address
		}
	}
	t.Fatal("listener \"front\" is not open")
	return ""
}

func metricsOptions() metrics.Options {
	o := metrics.Options{Reasons: []string{protocol.ReasonNone.String()}}
	for r := range protocol.Reasons() {
		o.Reasons = append(o.Reasons, r.String())
	}
	for c := range network.CloseReasons() {
		o.CloseReasons = append(o.CloseReasons, c.String())
	}
	return o
}

// testLog fails the test when the server logs an error, such as a panic.
type testLog struct{ testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.Errorf("the server logged: %s", p)
	return len(p), nil
}

// dial connects to an address of either network.
func dial(t testing.TB, address string) net.Conn {
	t.Helper()
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	setDeadline(conn)
	return conn
}

// setDeadline sets the deadline of a connection.
func setDeadline(conn net.Conn) { _ = conn.SetDeadline(time.Now().Add(waitTimeout)) }

// ensureClient returns the client's connection and connects if necessary.
func (h *harness) ensureClient() net.Conn {
	if h.client == nil {
		h.client = dial(h, h.listen)
	}
	return h.client
}

// ensureOrigin returns the origin's connection from Weft and accepts one if necessary.
func (h *harness) ensureOrigin() net.Conn {
	h.Helper()
	if h.origin == nil {
		h.origin = h.accept()
	}
	return h.origin
}

func (h *harness) accept() net.Conn {
	h.Helper()
	_ = h.ln.(interface{ SetDeadline(at time.Time) error }).SetDeadline(time.Now().Add(waitTimeout))
	conn, err := h.ln.Accept()
	if err != nil {
		h.Fatalf("Weft did not connect to the origin: %v", err)
	}
	setDeadline(conn)
	return conn
}

// closeConnections closes the connections of the client and the origin.
func (h *harness) closeConnections() {
	for _, conn := range []net.Conn{h.client, h.origin} {
		if conn != nil {
			_ = conn.Close()
		}
	}
	h.client, h.origin = nil, nil
}

// write sends text. It ignores write errors: the script detects them by the received bytes.
func (h *harness) write(conn net.Conn, text string) {
	h.Helper()
	step := len(text)
	if h.byteByByte {
		step = 1
	}
	for i := 0; i < len(text); i += step {
		if _, err := io.WriteString(conn, text[i:i+step]); err != nil {
			return
		}
	}
}

// expect reads as many bytes as want has and compares them.
func (h *harness) expect(side string, conn net.Conn, want string) {
	h.Helper()
	got := make([]byte, 0, len(want))
	for len(got) < len(want) {
		n, err := conn.Read(got[len(got):cap(got)])
		got = got[:len(got)+n]
		if !strings.HasPrefix(want, string(got)) {
			break
		}
		if err != nil {
			h.Fatalf("%s got\n%s\nthen %v, want\n%s", side, quote(string(got)), err, quote(want))
		}
	}
	if string(got) != want {
		extra := make([]byte, 4<<10)
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		n, _ := conn.Read(extra)
		h.Fatalf("%s got\n%s\nwant\n%s", side, quote(string(got)+string(extra[:n])), quote(want))
	}
}

// readToEnd reads to the end of the connection. A reset counts as an end; orderly is true only for
// a FIN.
func (h *harness) readToEnd(side string, conn net.Conn) (text string, orderly bool) {
	h.Helper()
	got, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		h.Fatalf("the connection of %s did not end; it got\n%s", side, quote(string(got)))
	}
	return string(got), err == nil
}

// quote formats bytes readably, one line per line of the message.
func quote(text string) string {
	const maxLen = 2000
	if len(text) > maxLen {
		text = text[:maxLen] + "…"
	}
	var b strings.Builder
	for line := range strings.SplitAfterSeq(text, "\n") {
		if line != "" {
			b.WriteString("\t")
			b.WriteString(strings.Trim(strconv.Quote(line), `"`))
			b.WriteString("\n")
		}
	}
	return b.String()
}

// checkOriginUntouched fails the case if Weft has opened another connection to the origin or sent
// more bytes.
func (h *harness) checkOriginUntouched() {
	h.Helper()
	if h.origin != nil {
		if n := socketQueueLen(h, h.origin, unix.SIOCINQ); n > 0 {
			h.Fatalf("%d more bytes reached the origin, want none", n)
		}
	}
	if conn := h.unexpectedConn(); conn != nil {
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		got, _ := io.ReadAll(conn)
		h.Fatalf("Weft connected to the origin and sent\n%s", quote(string(got)))
	}
}

// unexpectedConn returns a connection from Weft that the origin has not accepted, or nil if there
// is none. It opens a connection itself: connections are accepted in the order of their arrival.
func (h *harness) unexpectedConn() net.Conn {
	h.Helper()
	marker := h.dialOrigin()
	defer marker.Close()
	conn := h.accept()
	if conn.RemoteAddr().String() == marker.LocalAddr().String() {
		_ = conn.Close()
		return nil
	}
	_ = h.accept().Close() // marker
	return conn
}

// dialOrigin connects to the origin from an address that distinguishes the connection from those of
// Weft.
func (h *harness) dialOrigin() net.Conn {
	h.Helper()
	addr := h.ln.Addr()
	var d net.Dialer
	if addr.Network() == "unix" {
		d.LocalAddr = &net.UnixAddr{Name: addr.String() + ".marker", Net: "unix"}
		defer os.Remove(addr.String() + ".marker")
	}
	conn, err := d.Dial(addr.Network(), addr.String())
	if err != nil {
		h.Fatal(err)
	}
	setDeadline(conn)
	return conn
}

// socketQueueLen returns the length in bytes of a socket's queue: unix.SIOCINQ for unread input,
// unix.SIOCOUTQ for unsent output.
func socketQueueLen(t testing.TB, conn net.Conn, request uint) int {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	var ioctlErr error
	if err := raw.Control(func(fd uintptr) { n, ioctlErr = unix.IoctlGetInt(int(fd), request) }); err != nil {
		t.Fatal(err)
	}
	if ioctlErr != nil {
		t.Fatal(ioctlErr)
	}
	return n
}

// clientHasInput reports whether the client has unread input.
func (h *harness) clientHasInput() bool {
	h.Helper()
	return socketQueueLen(h, h.ensureClient(), unix.SIOCINQ) > 0
}
