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

// panickingTunnel is a tunnel that panics at one of its methods.
type panickingTunnel struct {
	at     string
	ended  chan struct{}
	closed atomic.Bool
}

func newPanickingTunnel(at string) *panickingTunnel {
	return &panickingTunnel{at: at, ended: make(chan struct{})}
}

func (b *panickingTunnel) boom(at string) {
	if b.at == at {
		panic("a defect in " + at)
	}
}

func (b *panickingTunnel) Read([]byte) (int, error) {
	b.boom("Read")
	if b.at == "Close" {
		return 0, io.ErrUnexpectedEOF
	}
	<-b.ended
	return 0, io.EOF
}

func (b *panickingTunnel) Write(p []byte) (int, error) {
	b.boom("Write")
	return len(p), nil
}

func (b *panickingTunnel) CloseWrite() error {
	b.boom("CloseWrite")
	return nil
}

func (b *panickingTunnel) Close() error {
	if !b.closed.Swap(true) {
		close(b.ended)
	}
	b.boom("Close")
	return nil
}

// h2cBomb panics when it takes over a connection or serves it.
type h2cBomb struct{ serves bool }

func (b h2cBomb) Upgrade(*network.Conn, stream.Upgrade) network.Handler {
	if b.serves {
		return b
	}
	panic("a defect in Upgrade")
}

func (h2cBomb) ServeConn(context.Context, *network.Conn) error { panic("a defect in ServeConn") }

// TestCallbackPanicEndsAtMostOneConnection verifies that a panic of a callback ends at most its
// connection: the client gets a response if one is possible, the exchange releases its resources
// (newTestProxy checks the buffers), and the listener accepts further connections.
func TestCallbackPanicEndsAtMostOneConnection(t *testing.T) {
	const fine = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\n\r\nhello"
	const closing = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	const upgrade = "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
	tunnel := func(at string) func(x *protocol.Exchange) {
		return func(x *protocol.Exchange) {
			x.ResetResponse()
			x.Response.Status = 101
			x.Response.Header.Add("Upgrade", "x")
			x.Response.Tunnel = newPanickingTunnel(at)
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
		}, nil, nil, closing, fine[:len("HTTP/1.1 200 OK\r\n")]},
		"observer of a malformed request": {func(o *stream.ServerOptions, armed *atomic.Bool) {
			o.Observe = func(*protocol.Exchange) {
				if armed.Swap(false) {
					panic("a defect of the observer")
				}
			}
		}, nil, nil, "G@T / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		"Close of the response body": {nil, nil,
			func(x *protocol.Exchange) { x.Response.Body = panickingClose{x.Response.Body} }, closing, "HTTP/1.1 200 OK\r\n"},
		"Close of the response body, which stays open": {nil, nil,
			func(x *protocol.Exchange) { x.Response.Body = panickingOpenBody{x.Response.Body} }, closing, "HTTP/1.1 200 OK\r\n"},
		"Close of a replaced response": {nil, nil, func(x *protocol.Exchange) {
			x.Response.Body = panickingClose{x.Response.Body}
			panic("a defect of a filter")
		}, closing, "HTTP/1.1 500 "},
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
		"upgrade to HTTP/2": {func(o *stream.ServerOptions, _ *atomic.Bool) { o.H2C = h2cBomb{} },
			nil, nil, "GET /a HTTP/1.1\r\n" + askH2C + "\r\n", ""},
		"HTTP/2 engine after the upgrade": {func(o *stream.ServerOptions, _ *atomic.Bool) { o.H2C = h2cBomb{serves: true} },
			nil, nil, "GET /a HTTP/1.1\r\n" + askH2C + "\r\n", "HTTP/1.1 101 "},
	} {
		t.Run(name, func(t *testing.T) {
			var armed atomic.Bool
			armed.Store(true)
			released := make(chan bool, 10)
			origin := newTestProxy(t, nil)
			origin.serve(func(c *peer) {
				for head := c.head(); head != ""; head = c.head() {
					c.send(fine)
				}
			})
			b := newTestProxy(t, func(o *stream.ServerOptions) {
				next := &onePerClient{address: origin.origin.Addr().String(), released: released}
				faulty := wrapService(next, test.before, test.after)
				o.Service = protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
					if x.Request.Path == "/fine" {
						return x.Serve(ctx, next)
					}
					return x.Serve(ctx, faulty)
				})
				if test.change != nil {
					test.change(o, &armed)
				}
			})
			c := b.dial()
			c.send(test.request)
			if strings.HasPrefix(test.request, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade") {
				_ = c.CloseWrite()
			}
			if got := c.rest(); !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
				t.Errorf("the client got %q, want %q", got, test.want)
			}
			_ = c.Close()
			c = b.dial()
			defer c.Close()
			c.send("GET /fine HTTP/1.1\r\nHost: h\r\n\r\n")
			c.expect(fine)
			releases := 1
			if name == "observer" || strings.HasPrefix(name, "Close of") && !strings.HasSuffix(name, "tunnel") {
				releases++ // release of the exchange that panicked
			}
			for range releases {
				select {
				case <-released:
				case <-time.After(20 * time.Second):
					t.Fatal("the upstream connection was not released to its pool")
				}
			}
		})
	}
}

// TestOnDisconnectPanicIsContained verifies that the engine contains a panic of an
// OnDisconnect callback, which runs on its own goroutine.
func TestOnDisconnectPanicIsContained(t *testing.T) {
	notified := make(chan struct{})
	b := newTestProxy(t, func(o *stream.ServerOptions) {
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
	c := b.dial()
	c.send(get)
	_ = c.Close()
	select {
	case r := <-b.records:
		if r.Reason != protocol.ReasonDownstreamDisconnect {
			t.Errorf("recorded %v, want the client disconnect", r.Reason)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the exchange did not end")
	}
}
