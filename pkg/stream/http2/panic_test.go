package http2

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// injected is the value of the explicit panics of these tests.
const injected = "injected by a test"

// panicService is a service that panics at one point of exchanges whose path is /panic.
type panicService struct {
	forward
	point    string
	onWorker bool          // exchanges are served on a worker
	watching chan struct{} // closed when the point Watch watches for a disconnect
}

func (h *panicService) panicIfAt(point string) {
	if h.point == point {
		panic(injected)
	}
}

func (h *panicService) Start(ctx context.Context, x *protocol.Exchange) error {
	if x.Request.Path != "/panic" {
		return h.forward.Start(ctx, x)
	}
	h.panicIfAt("Start")
	x.PushFinisher(h)
	switch {
	case h.point == "Watch":
		return x.RunBlocking(ctx, panickingWatcher{h.watching})
	case h.point == "worker":
		return x.RunBlocking(ctx, panickingService{})
	case h.point == "request field":
		x.Request.Header.Add("x-bad", unreadable())
	case strings.HasPrefix(h.point, "request body") && x.Request.Body != nil:
		x.Request.Body = &brokenBody{x.Request.Body, h, "request body "}
	}
	if h.onWorker {
		return x.RunBlocking(ctx, blocking{&h.forward})
	}
	return h.forward.Start(ctx, x)
}

func (h *panicService) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	h.panicIfAt("Finish")
	switch {
	case err != nil:
	case h.point == "response field":
		x.Response.Header.Add("x-seen", "twice")
		x.Response.Header.Add("x-seen", "twice")
		x.Response.Header.Add("x-bad", unreadable())
	case h.point == "interim field":
		var header protocol.Header
		header.Add("x-bad", unreadable())
		if x.Downstream.SendInterim(103, &header) == nil {
			return errors.New("the interim response was sent")
		}
	case h.point == "trailer":
		x.Response.Body = &brokenBody{x.Response.Body, h, ""}
		x.Response.ContentLength = -1
		x.Response.Trailer.Add("x-bad", unreadable())
	case h.point == "response body Complete":
		x.Response.Body = completeBrokenBody{&brokenBody{x.Response.Body, h, "response body "}}
	case strings.HasPrefix(h.point, "response body"):
		x.Response.Body = &brokenBody{x.Response.Body, h, "response body "}
	case x.Response.Tunnel != nil && strings.HasPrefix(h.point, "tunnel"):
		x.Response.Tunnel = &brokenTunnel{x.Response.Tunnel, h}
	}
	return err
}

func (h *panicService) observe(x *protocol.Exchange) {
	if x.Request.Path == "/panic" {
		h.panicIfAt("Observe")
	}
}

type panickingWatcher struct{ watching chan struct{} }

func (p panickingWatcher) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, p)
}

func (p panickingWatcher) Serve(_ context.Context, x *protocol.Exchange) error {
	disconnected := make(chan struct{})
	defer x.Downstream.OnDisconnect(func() {
		defer close(disconnected)
		panic(injected)
	})()
	close(p.watching)
	<-disconnected
	return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client closed its connection")
}

type panickingService struct{}

func (p panickingService) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, p)
}

func (panickingService) Serve(context.Context, *protocol.Exchange) error { panic(injected) }

// brokenBody is a filter's body. It wraps another body and panics in the method that h.point names.
type brokenBody struct {
	protocol.Body
	h    *panicService
	side string
}

func (b *brokenBody) Read(p []byte) (int, error) {
	b.h.panicIfAt(b.side + "Read")
	return b.Body.Read(p)
}

func (b *brokenBody) Buffered() int {
	b.h.panicIfAt(b.side + "Buffered")
	return b.Body.Buffered()
}

// completeBrokenBody is a brokenBody that implements protocol.CompleteBody.
type completeBrokenBody struct{ *brokenBody }

func (b completeBrokenBody) Complete() (complete, empty bool) {
	b.h.panicIfAt(b.side + "Complete")
	return false, false
}

func (b *brokenBody) Close() error {
	b.h.panicIfAt(b.side + "Close")
	return b.Body.Close()
}

type brokenTunnel struct {
	protocol.Tunnel
	h *panicService
}

func (t *brokenTunnel) Read(p []byte) (int, error) {
	t.h.panicIfAt("tunnel Read")
	return t.Tunnel.Read(p)
}

func (t *brokenTunnel) Write(p []byte) (int, error) {
	t.h.panicIfAt("tunnel Write")
	return t.Tunnel.Write(p)
}

func (t *brokenTunnel) Close() error {
	t.h.panicIfAt("tunnel Close")
	return t.Tunnel.Close()
}

func (t *brokenTunnel) CloseWrite() error {
	t.h.panicIfAt("tunnel CloseWrite")
	return t.Tunnel.CloseWrite()
}

// unreadable returns a string that causes a panic when it is read: its data is at address 0.
func unreadable() string {
	s := struct {
		data uintptr
		len  int
	}{0, 8}
	return *(*string)(unsafe.Pointer(&s))
}

// logBuffer is an io.Writer for a log. Safe for concurrent use.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// panicRig returns a rig with the service h in front of an HTTP/2 host, the number of exchanges on
// the host's connection, and the log.
func panicRig(t *testing.T, h *panicService, address string) (r *rig, calls *atomic.Int64, log *logBuffer) {
	t.Helper()
	calls, log = new(atomic.Int64), new(logBuffer)
	r = newRigOn(t, countedService{h, calls}, func(o *stream.ServerOptions) {
		observe := o.Observe
		o.Observe = func(x *protocol.Exchange) {
			defer observe(x)
			h.observe(x)
		}
	}, func(e *Engine) { e.goroutines.Log = slog.New(slog.NewTextHandler(log, nil)) })
	h.conn.Store(r.dialUpstream(address, func(o *stream.UpstreamConnOptions) {
		o.OnRelease = func(bool) {
			calls.Add(-1)
			h.panicIfAt("OnRelease")
		}
	}))
	return r, calls, log
}

// countedService counts calls in flight: it increments calls when it starts an exchange that will
// reach the host's connection.
type countedService struct {
	h     *panicService
	calls *atomic.Int64
}

func (c countedService) Start(ctx context.Context, x *protocol.Exchange) error {
	if x.Request.Path != "/panic" || c.h.point != "Start" && c.h.point != "worker" && c.h.point != "Watch" {
		c.calls.Add(1) // OnRelease decrements it
	}
	return c.h.Start(ctx, x)
}

// TestPanicFailsOneExchange panics at each point at which the engine calls a service, a body or a
// callback, on each goroutine that makes the call. It verifies that at most the exchange fails,
// that both connections continue, and that no call stays on the host's connection.
func TestPanicFailsOneExchange(t *testing.T) {
	address := startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the error does not matter
		w.Header().Set("x-seen", "twice")
		_, _ = w.Write(bytes.Repeat([]byte("body "), 4000))
	})
	const unaffected = 200 // the client gets the response
	for point, status := range map[string]int{
		"Start": 500, "Finish": 500, "worker": 500,
		"request field":         500,
		"request body Read":     500,
		"request body Close":    unaffected,
		"request body Buffered": 500,
		// Status 0: the stream is reset.
		"response field": 0, "interim field": unaffected, "trailer": 0,
		"response body Read": 0, "response body Buffered": 0, "response body Complete": 0,
		"response body Close": unaffected,
		"Observe":             unaffected,
		"OnRelease":           unaffected,
	} {
		for _, onWorker := range []bool{false, true} {
			name := point
			if onWorker {
				name += " on a worker"
			}
			t.Run(name, func(t *testing.T) {
				h := &panicService{point: point, onWorker: onWorker}
				r, calls, log := panicRig(t, h, address)
				c := newHTTP2Client(t)
				checkGET := func() {
					t.Helper()
					if got, text := get(t, c, "http://"+r.address+"/"); got != 200 || len(text) != 20_000 {
						t.Fatalf("GET /: %d with %d bytes, want 200 with 20000", got, len(text))
					}
				}
				checkGET()
				for range 3 {
					var body io.Reader = strings.NewReader("body")
					if point != "request body Buffered" {
						// The length is unknown.
						body = io.MultiReader(body, strings.NewReader(" in pieces"))
					}
					resp, err := c.Post("http://"+r.address+"/panic", "text/plain", body)
					got := 0
					if err == nil {
						if _, err = io.ReadAll(resp.Body); err == nil {
							got = resp.StatusCode
						}
						_ = resp.Body.Close()
					}
					if got != status {
						t.Errorf("POST /panic: %d (%v), want %d", got, err, status)
					}
					checkGET()
				}
				awaitNoCalls(t, calls)
				if point == "Observe" && !log.contains(injected) {
					t.Error("the panic was not logged")
				}
			})
		}
	}
}

// TestPanicInDisconnectWatchIsRecovered verifies that a panic of a service's disconnect watch is
// logged, and that the connection continues.
func TestPanicInDisconnectWatchIsRecovered(t *testing.T) {
	h := &panicService{point: "Watch", watching: make(chan struct{})}
	r, _, log := panicRig(t, h, startOrigin(t, func(http.ResponseWriter, *http.Request) {}))
	p := r.dial()
	p.request(1, true, ":path", "/panic")
	awaitClosed(t, h.watching, "OnDisconnect")
	p.must(p.fr.WriteRSTStream(1, http2.ErrCodeCancel))
	p.request(3, true)
	if got := p.awaitFields(3)[":status"]; got != "200" {
		t.Errorf("the next request: status %s, want 200", got)
	}
	r.awaitRecord()
	r.awaitRecord()
	if !eventually(func() bool { return log.contains(injected) }) {
		t.Error("the panic was not logged")
	}
}

// TestPanicInTunnelEndsTunnel verifies that a panic of a filter's tunnel ends that tunnel.
func TestPanicInTunnelEndsTunnel(t *testing.T) {
	address := startHost(t, func(p *peer) {
		for id := p.awaitHead(); id != 0; id = p.awaitHead() {
			p.headers(id, false, ":status", "200")
			if p.fr.WriteData(id, false, []byte("greeting")) != nil {
				return
			}
		}
	}, http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
	for _, point := range []string{"tunnel Read", "tunnel Write", "tunnel CloseWrite"} {
		t.Run(point, func(t *testing.T) {
			h := &panicService{point: point}
			r, calls, log := panicRig(t, h, address)
			p := r.dial()
			for _, id := range []uint32{1, 3} {
				p.headers(id, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "shop.test", ":path", "/panic")
				if got := p.awaitFields(id)[":status"]; got != "200" {
					t.Fatalf("the tunnel: status %s, want 200", got)
				}
				p.must(p.fr.WriteData(id, true, []byte("up")))
				p.awaitReset(id)
			}
			awaitNoCalls(t, calls)
			if !log.contains(injected) {
				t.Error("the panic was not logged")
			}
		})
	}
}

// TestPanicInReaderClosesConnection makes the reader of a connection panic within a frame, with the
// lock held. It verifies that the connection ends with INTERNAL_ERROR, and that other connections
// are served.
func TestPanicInReaderClosesConnection(t *testing.T) {
	var panics atomic.Bool
	panics.Store(true)
	r := newRigOn(t, reply(200, "fine"), nil, func(e *Engine) {
		e.exchanges.New = func() any {
			if panics.Swap(false) {
				return (*exchange)(nil)
			}
			return nil
		}
	})
	p := r.dial()
	p.request(1, true)
	for f := p.next(); ; f = p.next() {
		if f == nil {
			t.Fatal("the connection did not end with GOAWAY")
		}
		if goAway, ok := f.(*http2.GoAwayFrame); ok {
			if goAway.ErrCode != http2.ErrCodeInternal {
				t.Errorf("GOAWAY with %v, want %v", goAway.ErrCode, http2.ErrCodeInternal)
			}
			break
		}
	}
	p2 := r.dial()
	p2.request(1, true)
	if got := p2.awaitFields(1)[":status"]; got != "200" {
		t.Errorf("another connection: status %s, want 200", got)
	}
}
