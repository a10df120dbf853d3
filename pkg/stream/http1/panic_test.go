package http1

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// panickingBody is a body that panics after its prefix was read.
type panickingBody struct {
	protocol.Body        // closed by Close; may be nil
	prefix        string // read before the panic
	prefixRead    bool
}

func (b *panickingBody) Read(p []byte) (int, error) {
	if b.prefixRead || b.prefix == "" {
		panic("a defect of a filter")
	}
	b.prefixRead = true
	return copy(p, b.prefix), nil
}

func (b *panickingBody) Buffered() int {
	if b.prefixRead {
		return 0
	}
	return len(b.prefix)
}

func (b *panickingBody) Close() error {
	if b.Body != nil {
		return b.Body.Close()
	}
	return nil
}

// wrapService returns a service that calls before, next and, if next succeeds, after. before and
// after may be nil.
func wrapService(next protocol.Service, before, after func(x *protocol.Exchange)) protocol.Service {
	return protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
		if before != nil {
			before(x)
		}
		err := x.Serve(ctx, next)
		if err == nil && after != nil {
			after(x)
		}
		return err
	})
}

func TestPanicEndsOnlyItsExchange(t *testing.T) {
	const okResponse = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\n\r\nhello"
	for _, test := range []struct {
		name          string
		before, after func(x *protocol.Exchange)
		request       string
		want          string // prefix of the response
	}{
		{"service", func(*protocol.Exchange) { panic("a defect") }, nil, get, "HTTP/1.1 500 "},
		{"after the upstream response", nil, func(*protocol.Exchange) { panic("a defect") }, get, "HTTP/1.1 500 "},
		{"invalid status", nil, func(x *protocol.Exchange) { x.Response.Status = 0 }, get, "HTTP/1.1 500 "},
		{"response body before its first byte", nil,
			func(x *protocol.Exchange) { x.Response.Body = &panickingBody{Body: x.Response.Body} }, get, "HTTP/1.1 200 "},
		{"response body after its first bytes", nil,
			func(x *protocol.Exchange) { x.Response.Body = &panickingBody{Body: x.Response.Body, prefix: "he"} }, get, "HTTP/1.1 200 "},
		{"request body", func(x *protocol.Exchange) {
			x.Request.Body, x.Request.ContentLength = &panickingBody{Body: x.Request.Body, prefix: "he"}, -1
		}, nil, "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 500 "},
	} {
		t.Run(test.name, func(t *testing.T) {
			reusable := make(chan bool, 10)
			upstream := newTestProxy(t, nil)
			proxy := newTestProxy(t, func(o *stream.ServerOptions) {
				o.Service = wrapService(&perClientService{address: upstream.host.Addr().String(), reusable: reusable}, test.before, test.after)
			})
			upstream.serve(func(c *peer) {
				head := c.head()
				if strings.HasPrefix(head, "POST") {
					c.rest()
					return
				}
				c.send(okResponse)
				c.rest()
			})
			c := proxy.dial()
			defer c.Close()
			c.send(test.request)
			got := c.rest()
			if !strings.HasPrefix(got, test.want) || strings.HasSuffix(got, "hello") {
				t.Errorf("the client got %q, want %q", got, test.want)
			}
			if r := <-proxy.records; r.Reason != protocol.Internal {
				t.Errorf("recorded %v, want internal", r.Reason)
			}
			if test.name != "service" {
				<-reusable // otherwise the pool would lose the upstream connection
			}
			if len(reusable) > 0 {
				t.Error("the upstream connection was released twice")
			}
		})
	}
}

// panickingInterim is a Downstream that panics on an interim response.
type panickingInterim struct{}

func (panickingInterim) SendInterim(int, *protocol.Header) error { panic("a defect") }
func (panickingInterim) OnDisconnect(func()) (stop func())       { return func() {} }

func TestPanicInServeReleasesConnectionAndEndsUpload(t *testing.T) {
	local, peer := tcpPair(t)
	c, reusable := newTestUpstreamConn(local)
	go func() {
		peer.head()
		peer.send("HTTP/1.1 103 Early Hints\r\n\r\n")
	}()
	body, w := io.Pipe()
	x := newExchange("POST", pipeBody{body})
	x.Downstream = panickingInterim{}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Serve did not panic")
			}
		}()
		_ = c.Serve(context.Background(), x)
	}()
	if <-reusable {
		t.Error("the connection was considered reusable")
	}
	if _, err := w.Write([]byte("x")); err != io.ErrClosedPipe {
		t.Errorf("write to the request body = %v, want io.ErrClosedPipe", err)
	}
}

// pipeBody is a body that a test writes.
type pipeBody struct{ *io.PipeReader }

func (pipeBody) Buffered() int { return 0 }
