package http1

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// panickingClose is a body whose Close closes the wrapped body and then panics.
type panickingClose struct{ protocol.Body }

func (b panickingClose) Close() error {
	if b.Body != nil {
		_ = b.Body.Close()
	}
	panic("a defect in Close")
}

// panickingOpenBody is a body whose Close panics and leaves the wrapped body open.
type panickingOpenBody struct{ protocol.Body }

func (panickingOpenBody) Close() error { panic("a defect in Close") }

// panickingTunnel is a tunnel that panics in one of its methods.
type panickingTunnel struct {
	method string
	done   chan struct{}
	closed atomic.Bool
}

func newPanickingTunnel(method string) *panickingTunnel {
	return &panickingTunnel{method: method, done: make(chan struct{})}
}

func (t *panickingTunnel) panicIn(method string) {
	if t.method == method {
		panic("a defect in " + method)
	}
}

func (t *panickingTunnel) Read([]byte) (int, error) {
	t.panicIn("Read")
	if t.method == "Close" {
		return 0, io.ErrUnexpectedEOF
	}
	<-t.done
	return 0, io.EOF
}

func (t *panickingTunnel) Write(p []byte) (int, error) {
	t.panicIn("Write")
	return len(p), nil
}

func (t *panickingTunnel) CloseWrite() error {
	t.panicIn("CloseWrite")
	return nil
}

func (t *panickingTunnel) Close() error {
	if !t.closed.Swap(true) {
		close(t.done)
	}
	t.panicIn("Close")
	return nil
}

// panickingUpgrader panics in ServeConn if inServe is set, otherwise in Upgrade.
type panickingUpgrader struct{ inServe bool }

func (u panickingUpgrader) Upgrade(*network.Conn, stream.Upgrade) network.Handler {
	if u.inServe {
		return u
	}
	panic("a defect in Upgrade")
}

func (panickingUpgrader) ServeConn(context.Context, *network.Conn) error {
	panic("a defect in ServeConn")
}

// TestCallbackPanicEndsAtMostOneConnection verifies that a panic of a callback ends at most its
// connection: the client gets a response if one is possible, the exchange releases its resources
// (newTestProxy checks the buffers), and the listener accepts further connections.
func TestCallbackPanicEndsAtMostOneConnection(t *testing.T) {
	const okResponse = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\n\r\nhello"
	const request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	const upgrade = "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
	tunnel := func(method string) func(x *protocol.Exchange) {
		return func(x *protocol.Exchange) {
			x.ResetResponse()
			x.Response.Status = 101
			x.Response.Header.Add("Upgrade", "x")
			x.Response.Tunnel = newPanickingTunnel(method)
		}
	}
	for name, test := range map[string]struct {
		change        func(o *stream.ServerOptions, armed *atomic.Bool)
		before, after func(x *protocol.Exchange)
		request       string
		want          string // prefix of the response; "": no response
	}{
		"observer": {func(o *stream.ServerOptions, armed *atomic.Bool) {
			observe := o.Observe
			o.Observe = func(x *protocol.Exchange) {
				observe(x)
				if armed.Swap(false) {
					panic("a defect of the observer")
				}
			}
		}, nil, nil, request, okResponse[:len("HTTP/1.1 200 OK\r\n")]},
		"observer of a malformed request": {func(o *stream.ServerOptions, armed *atomic.Bool) {
			o.Observe = func(*protocol.Exchange) {
				if armed.Swap(false) {
					panic("a defect of the observer")
				}
			}
		}, nil, nil, "G@T / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		"Close of the response body": {nil, nil,
			func(x *protocol.Exchange) { x.Response.Body = panickingClose{x.Response.Body} }, request, "HTTP/1.1 200 OK\r\n"},
		"Close of the response body, which stays open": {nil, nil,
			func(x *protocol.Exchange) { x.Response.Body = panickingOpenBody{x.Response.Body} }, request, "HTTP/1.1 200 OK\r\n"},
		"Close of a replaced response": {nil, nil, func(x *protocol.Exchange) {
			x.Response.Body = panickingClose{x.Response.Body}
			panic("a defect of a filter")
		}, request, "HTTP/1.1 500 "},
		"Close of the request body": {nil, func(x *protocol.Exchange) {
			x.Request.Body, x.Request.ContentLength = panickingClose{x.Request.Body}, -1
		}, nil, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\nhello", "HTTP/1.1 200 OK\r\n"},
		"Close of the request body, which stays open": {
			func(o *stream.ServerOptions, _ *atomic.Bool) { o.HTTP1.BodyTimeout = 0 }, // no timeout would end the read
			func(x *protocol.Exchange) {
				x.Request.Body, x.Request.ContentLength = panickingOpenBody{x.Request.Body}, -1
			}, nil,
			"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\nhello", "HTTP/1.1 200 OK\r\n"},
		"Read of a tunnel":       {nil, nil, tunnel("Read"), upgrade, "HTTP/1.1 101 "},
		"Write of a tunnel":      {nil, nil, tunnel("Write"), upgrade + "early", "HTTP/1.1 101 "},
		"CloseWrite of a tunnel": {nil, nil, tunnel("CloseWrite"), upgrade, "HTTP/1.1 101 "},
		"Close of a tunnel":      {nil, nil, tunnel("Close"), upgrade, "HTTP/1.1 101 "},
		"upgrade to HTTP/2": {func(o *stream.ServerOptions, _ *atomic.Bool) { o.H2C = panickingUpgrader{} },
			nil, nil, "GET /a HTTP/1.1\r\n" + h2cHeaders + "\r\n", ""},
		"HTTP/2 engine after the upgrade": {func(o *stream.ServerOptions, _ *atomic.Bool) { o.H2C = panickingUpgrader{inServe: true} },
			nil, nil, "GET /a HTTP/1.1\r\n" + h2cHeaders + "\r\n", "HTTP/1.1 101 "},
	} {
		t.Run(name, func(t *testing.T) {
			var armed atomic.Bool
			armed.Store(true)
			reusable := make(chan bool, 10)
			upstream := newTestProxy(t, nil)
			upstream.serve(func(c *peer) {
				for head := c.head(); head != ""; head = c.head() {
					c.send(okResponse)
				}
			})
			proxy := newTestProxy(t, func(o *stream.ServerOptions) {
				next := &perClientService{address: upstream.host.Addr().String(), reusable: reusable}
				faultyService := wrapService(next, test.before, test.after)
				o.Service = protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
					if x.Request.Path == "/ok" {
						return x.Serve(ctx, next)
					}
					return x.Serve(ctx, faultyService)
				})
				if test.change != nil {
					test.change(o, &armed)
				}
			})
			c := proxy.dial()
			c.send(test.request)
			if strings.HasPrefix(test.request, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade") {
				_ = c.CloseWrite()
			}
			if got := c.rest(); !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
				t.Errorf("the client got %q, want %q", got, test.want)
			}
			_ = c.Close()
			c = proxy.dial()
			defer c.Close()
			c.send("GET /ok HTTP/1.1\r\nHost: h\r\n\r\n")
			c.expect(okResponse)
			releases := 1
			if name == "observer" || strings.HasPrefix(name, "Close of") && !strings.HasSuffix(name, "tunnel") {
				releases++ // release of the exchange that panicked
			}
			for range releases {
				select {
				case <-reusable:
				case <-time.After(20 * time.Second):
					t.Fatal("the upstream connection was not released to its pool")
				}
			}
		})
	}
}

// TestOnDisconnectPanicIsContained verifies that the engine contains a panic of an OnDisconnect
// callback, which runs on its own goroutine.
func TestOnDisconnectPanicIsContained(t *testing.T) {
	notified := make(chan struct{})
	proxy := newTestProxy(t, func(o *stream.ServerOptions) {
		o.Service = protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			stop := x.Downstream.OnDisconnect(func() {
				defer close(notified)
				panic("a defect of the callback")
			})
			<-notified
			stop()
			return protocol.NewFault(protocol.ReasonDownstreamDisconnect, nil)
		})
	})
	c := proxy.dial()
	c.send(get)
	_ = c.Close()
	select {
	case r := <-proxy.records:
		if r.Reason != protocol.ReasonDownstreamDisconnect {
			t.Errorf("recorded %v, want the client disconnect", r.Reason)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the exchange did not end")
	}
}
