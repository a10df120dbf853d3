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
	"time"
	"unsafe"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// injected is the value of every panic of these tests.
const injected = "injected by a test"

// hooks is a service that panics at one point of exchanges whose path is /panic.
type hooks struct {
	forward
	point  string
	forked bool // the exchange is served on a worker
}

func (h *hooks) at(point string) {
	if h.point == point {
		panic(injected)
	}
}

func (h *hooks) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, h, x)
}

func (h *hooks) Start(ctx context.Context, x *protocol.Exchange) error {
	if x.Request.Path != "/panic" {
		return h.forward.Start(ctx, x)
	}
	h.at("Start")
	x.PushFinisher(h)
	switch {
	case h.point == "Watch":
		return x.RunBlocking(ctx, waitForever{})
	case h.point == "worker":
		return x.RunBlocking(ctx, panics{})
	case h.point == "request field":
		x.Request.Header.Add("x-bad", unreadable())
	case strings.HasPrefix(h.point, "request body") && x.Request.Body != nil:
		x.Request.Body = &brokenBody{x.Request.Body, h, "request body "}
	}
	if h.forked {
		return x.RunBlocking(ctx, blocking{&h.forward})
	}
	return h.forward.Start(ctx, x)
}

func (h *hooks) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	h.at("Finish")
	switch {
	case err != nil:
	case h.point == "response field":
		x.Response.Header.Add("x-seen", "twice")
		x.Response.Header.Add("x-seen", "twice")
		x.Response.Header.Add("x-bad", unreadable())
	case h.point == "interim field":
		var header protocol.Header
		header.Add("x-bad", unreadable())
		if x.Caller.SendInterim(103, &header) == nil {
			return errors.New("the interim response was sent")
		}
	case h.point == "trailer":
		x.Response.Body = &brokenBody{x.Response.Body, h, ""}
		x.Response.ContentLength = -1
		x.Response.Trailer.Add("x-bad", unreadable())
	case h.point == "response body Whole":
		x.Response.Body = wholeBody{&brokenBody{x.Response.Body, h, "response body "}}
	case strings.HasPrefix(h.point, "response body"):
		x.Response.Body = &brokenBody{x.Response.Body, h, "response body "}
	case x.Response.Tunnel != nil && strings.HasPrefix(h.point, "tunnel"):
		x.Response.Tunnel = &brokenTunnel{x.Response.Tunnel, h}
	}
	return err
}

func (h *hooks) observe(x *protocol.Exchange) {
	if x.Request.Path == "/panic" {
		h.at("Observe")
	}
}

type waitForever struct{}

func (waitForever) Serve(_ context.Context, x *protocol.Exchange) error {
	gone := make(chan struct{})
	defer x.Caller.OnDisconnect(func() {
		defer close(gone)
		panic(injected)
	})()
	<-gone
	return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "client closed its connection")
}

type panics struct{}

func (panics) Serve(context.Context, *protocol.Exchange) error { panic(injected) }

// brokenBody is a body of a filter that wraps another, and panics at the point of h.
type brokenBody struct {
	protocol.Body
	h    *hooks
	side string
}

func (b *brokenBody) Read(p []byte) (int, error) {
	b.h.at(b.side + "Read")
	return b.Body.Read(p)
}

func (b *brokenBody) Buffered() int {
	b.h.at(b.side + "Buffered")
	return b.Body.Buffered()
}

// wholeBody is a brokenBody that implements protocol.CompleteBody.
type wholeBody struct{ *brokenBody }

func (b wholeBody) Complete() (whole, empty bool) {
	b.h.at(b.side + "Whole")
	return false, false
}

func (b *brokenBody) Close() error {
	b.h.at(b.side + "Close")
	return b.Body.Close()
}

type brokenTunnel struct {
	protocol.Tunnel
	h *hooks
}

func (t *brokenTunnel) Read(p []byte) (int, error) {
	t.h.at("tunnel Read")
	return t.Tunnel.Read(p)
}

func (t *brokenTunnel) Write(p []byte) (int, error) {
	t.h.at("tunnel Write")
	return t.Tunnel.Write(p)
}

func (t *brokenTunnel) Close() error {
	t.h.at("tunnel Close")
	return t.Tunnel.Close()
}

func (t *brokenTunnel) CloseWrite() error {
	t.h.at("tunnel CloseWrite")
	return t.Tunnel.CloseWrite()
}

// unreadable returns a string that panics when it is read: its bytes are at address 0.
func unreadable() string {
	fake := struct {
		at  uintptr
		len int
	}{0, 8}
	return *(*string)(unsafe.Pointer(&fake))
}

// logged is a log that tests can search.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// panicRig returns a rig whose service is h in front of an HTTP/2 host, the number of exchanges on
// the host's connection, and the log.
func panicRig(t *testing.T, h *hooks, address string) (r *rig, calls *atomic.Int64, log *logged) {
	t.Helper()
	calls, log = new(atomic.Int64), new(logged)
	r = newRigOn(t, counted{h, calls}, func(o *stream.ServerOptions) {
		observe := o.Observe
		o.Observe = func(x *protocol.Exchange) {
			defer observe(x)
			h.observe(x)
		}
	}, func(e *Engine) { e.log = slog.New(slog.NewTextHandler(log, nil)) })
	h.client.Store(r.client(address, func(o *stream.UpstreamConnOptions) {
		o.OnRelease = func(bool) {
			calls.Add(-1)
			h.at("Released")
		}
	}))
	return r, calls, log
}

// counted counts the calls that start.
type counted struct {
	h     *hooks
	calls *atomic.Int64
}

func (c counted) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, c, x)
}

func (c counted) Start(ctx context.Context, x *protocol.Exchange) error {
	if x.Request.Path != "/panic" || c.h.point != "Start" && c.h.point != "worker" && c.h.point != "Watch" {
		c.calls.Add(1) // OnRelease decrements it
	}
	return c.h.Start(ctx, x)
}

// TestAPanicCostsOneExchange panics at every point at which the engine calls code of others, on
// each goroutine that makes the call. It verifies that only the exchange fails, that both
// connections continue, and that no call stays on the host's connection.
func TestAPanicCostsOneExchange(t *testing.T) {
	address := origin(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the result does not matter
		w.Header().Set("x-seen", "twice")
		_, _ = w.Write(bytes.Repeat([]byte("fine "), 4000))
	})
	const unharmed = 200 // the exchange gets its response
	for point, status := range map[string]int{
		"Start": 500, "Finish": 500, "worker": 500,
		"request field":         500,
		"request body Read":     500,
		"request body Close":    unharmed,
		"request body Buffered": 500,
		// 0 stands for a stream that is reset.
		"response field": 0, "interim field": unharmed, "trailer": 0,
		"response body Read": 0, "response body Buffered": 0, "response body Whole": 0,
		"response body Close": unharmed,
		"Observe":             unharmed,
		"Released":            unharmed,
	} {
		for _, forked := range []bool{false, true} {
			name := point
			if forked {
				name += " on a worker"
			}
			t.Run(name, func(t *testing.T) {
				h := &hooks{point: point, forked: forked}
				r, calls, log := panicRig(t, h, address)
				c := judge(t)
				fine := func() {
					t.Helper()
					if got, text := get(t, c, "http://"+r.address+"/"); got != 200 || len(text) != 20_000 {
						t.Fatalf("GET /: %d with %d bytes, want 200 with 20000", got, len(text))
					}
				}
				fine()
				for range 3 {
					var body io.Reader = strings.NewReader("content")
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
					fine()
				}
				until := time.Now().Add(soon)
				for calls.Load() != 0 && time.Now().Before(until) {
					<-time.After(time.Millisecond)
				}
				if n := calls.Load(); n != 0 {
					t.Errorf("%d calls are still on the host's connection", n)
				}
				if point == "Observe" && !log.has(injected) {
					t.Error("the panic was not logged")
				}
			})
		}
	}
}

// TestAPanicOfAWatchIsContained verifies that a panic of a service's disconnect watch is logged,
// and that the connection continues.
func TestAPanicOfAWatchIsContained(t *testing.T) {
	h := &hooks{point: "Watch"}
	r, _, log := panicRig(t, h, origin(t, func(http.ResponseWriter, *http.Request) {}))
	p := r.dial()
	p.request(1, true, ":path", "/panic")
	p.ok(p.fr.WritePing(false, [8]byte{1})) // when it is acknowledged, the request is in flight
	if _, ok := p.next().(*http2.PingFrame); !ok {
		t.Fatal("no answer to PING")
	}
	p.ok(p.fr.WriteRSTStream(1, http2.ErrCodeCancel))
	p.request(3, true)
	if got := p.head(3)[":status"]; got != "200" {
		t.Errorf("the next request is answered with %s, want 200", got)
	}
	r.last()
	r.last()
	if !log.has(injected) {
		t.Error("the panic was not logged")
	}
}

// TestAPanicOfATunnelEndsIt verifies that a panic of a filter's tunnel ends that tunnel.
func TestAPanicOfATunnelEndsIt(t *testing.T) {
	address := host(t, func(p *peer) {
		for id := p.awaitHead(); id != 0; id = p.awaitHead() {
			p.headers(id, false, ":status", "200")
			if p.fr.WriteData(id, false, []byte("greeting")) != nil {
				return
			}
		}
	}, http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
	for _, point := range []string{"tunnel Read", "tunnel Write", "tunnel CloseWrite"} {
		t.Run(point, func(t *testing.T) {
			h := &hooks{point: point}
			r, calls, log := panicRig(t, h, address)
			p := r.dial()
			for _, id := range []uint32{1, 3} {
				p.headers(id, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "shop.test", ":path", "/panic")
				if got := p.head(id)[":status"]; got != "200" {
					t.Fatalf("the tunnel is answered with %s", got)
				}
				p.ok(p.fr.WriteData(id, true, []byte("up")))
				p.resetOf(id)
			}
			until := time.Now().Add(soon)
			for calls.Load() != 0 && time.Now().Before(until) {
				<-time.After(time.Millisecond)
			}
			if n := calls.Load(); n != 0 || !log.has(injected) {
				t.Errorf("%d tunnels are on the host's connection; logged: %v", n, log.has(injected))
			}
		})
	}
}

// TestAPanicOfTheReaderCostsItsConnection makes the reader of a connection panic within a frame,
// with the lock held. It verifies that the connection ends with INTERNAL_ERROR, and that other
// connections are served.
func TestAPanicOfTheReaderCostsItsConnection(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	r := newRigOn(t, reply(200, "fine"), nil, func(e *Engine) {
		e.exchanges.New = func() any {
			if broken.Swap(false) {
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
		if away, ok := f.(*http2.GoAwayFrame); ok {
			if away.ErrCode != http2.ErrCodeInternal {
				t.Errorf("GOAWAY with %v, want %v", away.ErrCode, http2.ErrCodeInternal)
			}
			break
		}
	}
	q := r.dial()
	q.request(1, true)
	if got := q.head(1)[":status"]; got != "200" {
		t.Errorf("another connection is answered with %s", got)
	}
}
