package http2

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

// rig is an engine with a listener whose requests are served by a service of the test.
type rig struct {
	t       testing.TB
	engine  *Engine
	address string
	ln      *network.Listener

	mu       sync.Mutex
	observed []observation
	recorded chan struct{} // receives a value for each observation

	floods chan syntax.Flood // reported by the engine
}

// observation is the record of an exchange.
type observation struct {
	reason   protocol.Reason
	status   int
	detail   string
	in, out  int64
	trailers int
}

func newRig(t testing.TB, service protocol.Service, change func(o *stream.ServerOptions)) *rig {
	t.Helper()
	return newRigOn(t, service, change, func(*Engine) {})
}

// newRigOn is like newRig, and calls prepare with the engine before it serves.
func newRigOn(t testing.TB, service protocol.Service, change func(o *stream.ServerOptions), prepare func(e *Engine)) *rig {
	t.Helper()
	buffersBefore := buffer.Outstanding()
	r := &rig{t: t, recorded: make(chan struct{}, 10_000), floods: make(chan syntax.Flood, 100)}
	r.engine = New(slog.New(slog.DiscardHandler), func(f syntax.Flood) { r.floods <- f })
	prepare(r.engine)
	o := stream.ServerOptions{
		Listener: "test", Service: service, Observe: r.observe, Log: slog.New(slog.DiscardHandler),
		HTTP1: config.DefaultHTTP1Options(), HTTP2: config.DefaultHTTP2Options(),
	}
	if change != nil {
		change(&o)
	}
	server := r.engine.Protocol().NewServer(o)
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	r.ln, err = network.Listen(ctx, network.ListenOptions{Name: "test", Network: "tcp", Address: "127.0.0.1:0"}, server)
	if err != nil {
		t.Fatal(err)
	}
	r.address = r.ln.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.ln.Serve(ctx) // returns after Drain
	}()
	t.Cleanup(func() {
		drainCtx, cancelDrain := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancelDrain()
		r.ln.Drain(drainCtx)
		cancel()
		<-done
		r.engine.Close()
		// Connections of other rigs may still be ending.
		if invariants.Enabled && !eventually(func() bool { return buffer.Outstanding() == buffersBefore }) {
			t.Errorf("%d buffers are in use, want %d as before the test", buffer.Outstanding(), buffersBefore)
		}
	})
	return r
}

func (r *rig) observe(x *protocol.Exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observed = append(r.observed, observation{
		x.Record.Reason, x.Response.Status, x.Record.Detail,
		x.Record.RequestBytes, x.Record.ResponseBytes, x.Response.Trailer.Len(),
	})
	select {
	case r.recorded <- struct{}{}:
	default:
	}
}

// awaitRecord waits for the next exchange to end and returns the latest record.
func (r *rig) awaitRecord() observation {
	r.t.Helper()
	select {
	case <-r.recorded:
	case <-time.After(5 * time.Second):
		r.t.Fatal("timeout waiting for the end of an exchange")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.observed[len(r.observed)-1]
}

// dialUpstream opens an upstream connection of the engine to address.
func (r *rig) dialUpstream(address string, change func(o *stream.UpstreamConnOptions)) *UpstreamConn {
	r.t.Helper()
	conn, err := network.Dialer{}.Dial(context.Background(), "tcp", address, time.Now().Add(5*time.Second))
	if err != nil {
		r.t.Fatal(err)
	}
	o := stream.UpstreamConnOptions{
		HTTP1: config.DefaultHTTP1Options(), HTTP2: config.DefaultHTTP2Options(), OnRelease: func(bool) {},
	}
	if change != nil {
		change(&o)
	}
	u := newUpstreamConn(r.engine, conn, o)
	r.t.Cleanup(func() { _ = u.Close() })
	return u
}

// newProxyRig returns a rig whose service sends all requests on one connection to address.
func newProxyRig(t testing.TB, address string, change func(o *stream.ServerOptions), changeUpstream func(o *stream.UpstreamConnOptions)) *rig {
	t.Helper()
	service := new(forward)
	r := newRig(t, service, change)
	service.conn.Store(r.dialUpstream(address, changeUpstream))
	return r
}

// forward is a service that sends exchanges to one upstream connection.
type forward struct{ conn atomic.Pointer[UpstreamConn] }

func (f *forward) Start(ctx context.Context, x *protocol.Exchange) error {
	return f.conn.Load().Start(ctx, x)
}

// blocking serves with next on a goroutine that may wait.
type blocking struct{ next protocol.Service }

func (b blocking) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, b)
}
func (b blocking) Serve(ctx context.Context, x *protocol.Exchange) error { return x.Serve(ctx, b.next) }

// newHTTP2Client returns the HTTP/2 client of net/http.
func newHTTP2Client(t testing.TB) *http.Client {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// startOrigin starts the HTTP/2 server of net/http and returns its address.
func startOrigin(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// get sends a GET request and returns status and body.
func get(t testing.TB, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("GET %s: body: %v", url, err)
	}
	return resp.StatusCode, string(body)
}

// peer is the test's side of a connection, client or server. It sends and receives single frames.
type peer struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
	fr   *http2.Framer
	enc  *encoder

	readTimeout time.Duration // timeout of next; 0: 5 s
}

// dial connects to the rig as a client, and sends the preface and settings.
func (r *rig) dial(settings ...http2.Setting) *peer {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	p := newPeer(r.t, conn)
	if _, err := io.WriteString(conn, syntax.Preface); err != nil {
		r.t.Fatal(err)
	}
	p.must(p.fr.WriteSettings(settings...))
	return p
}

func newPeer(t testing.TB, conn net.Conn) *peer {
	t.Cleanup(func() { _ = conn.Close() })
	in := bufio.NewReader(conn)
	p := &peer{t: t, conn: conn, in: in, fr: http2.NewFramer(conn, in), enc: newEncoder()}
	p.fr.ReadMetaHeaders = newDecoder()
	return p
}

func (p *peer) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// request sends the head of a request. fields alternate between name and value; a pseudo-header
// field replaces its default.
func (p *peer) request(id uint32, end bool, fields ...string) {
	p.t.Helper()
	all := []string{":method", "GET", ":scheme", "http", ":authority", "shop.test", ":path", "/"}
	for i := 0; i < len(fields); i += 2 {
		if j := indexOf(all, fields[i]); j >= 0 {
			all[j+1] = fields[i+1]
			continue
		}
		all = append(all, fields[i], fields[i+1])
	}
	p.headers(id, end, all...)
}

func indexOf(fields []string, name string) int {
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == name && strings.HasPrefix(name, ":") {
			return i
		}
	}
	return -1
}

func (p *peer) headers(id uint32, end bool, fields ...string) {
	p.t.Helper()
	p.must(p.fr.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: p.enc.block(fields), EndHeaders: true, EndStream: end,
	}))
}

// next returns the next frame, or nil at the end of the connection. It acknowledges and skips
// SETTINGS, and skips a WINDOW_UPDATE of the connection.
func (p *peer) next() http2.Frame {
	p.t.Helper()
	for {
		// SetReadDeadline fails only on a closed connection.
		_ = p.conn.SetReadDeadline(time.Now().Add(cmp.Or(p.readTimeout, 5*time.Second)))
		f, err := p.fr.ReadFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.t.Fatal("timeout waiting for a frame")
		}
		if err != nil {
			return nil
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() && p.fr.WriteSettingsAck() != nil {
				return nil // the connection has ended meanwhile
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID != 0 {
				return f
			}
		default:
			return f
		}
	}
}

// awaitFields waits for a header section on a stream, and returns its fields. The additional field
// "END" means that it ended the stream.
func (p *peer) awaitFields(id uint32) map[string]string {
	p.t.Helper()
	for {
		frame := p.next()
		if frame == nil {
			p.t.Fatalf("the connection ended before the head on stream %d", id)
		}
		head, ok := frame.(*http2.MetaHeadersFrame)
		if !ok || head.StreamID != id {
			continue
		}
		fields := make(map[string]string)
		for _, frame := range head.Fields {
			fields[frame.Name] = frame.Value
		}
		if head.StreamEnded() {
			fields["END"] = "1"
		}
		return fields
	}
}

// awaitReset waits for RST_STREAM on a stream, and returns its code.
func (p *peer) awaitReset(id uint32) http2.ErrCode {
	p.t.Helper()
	for {
		switch f := p.next().(type) {
		case nil:
			p.t.Fatalf("the connection ended before stream %d was reset", id)
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return f.ErrCode
			}
		}
	}
}

// startHost starts a server and returns its address. script runs for each connection, after the
// client's preface has arrived and the server's settings were sent.
func startHost(t testing.TB, script func(p *peer), settings ...http2.Setting) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var goroutines sync.WaitGroup
	goroutines.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			p := newPeer(t, conn)
			goroutines.Go(func() {
				defer conn.Close()
				preface := make([]byte, len(syntax.Preface))
				if _, err := io.ReadFull(p.in, preface); err != nil {
					return
				}
				if p.fr.WriteSettings(settings...) == nil {
					script(p)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		goroutines.Wait()
	})
	return ln.Addr().String()
}

// awaitHead reads until the head of a request and returns its stream, or 0 at the end of the
// connection.
func (p *peer) awaitHead() uint32 {
	for {
		switch f := p.next().(type) {
		case nil:
			return 0
		case *http2.MetaHeadersFrame:
			return f.StreamID
		}
	}
}

// sendRequest sends a request on u as a client of another protocol, and returns the status and the
// body of the response.
func sendRequest(u *UpstreamConn, change func(x *protocol.Exchange)) (status int, body string, err error) {
	var x protocol.Exchange
	x.Reset()
	x.Meta.Protocol = "test"
	x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path = "GET", "http", "shop.test", "/"
	if change != nil {
		change(&x)
	}
	if err := x.Serve(context.Background(), u); err != nil {
		return 0, "", err
	}
	defer x.ResetResponse()
	b, err := io.ReadAll(x.Response.Body)
	return x.Response.Status, string(b), err
}
