package http1

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

func TestHeadersWithUnderscores(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx_a: 2\r\n_b: 3\r\n\r\n"
	const chunked = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx-t: 1\r\nx_t: 2\r\n\r\n"
	for _, test := range []struct {
		name    string
		action  config.UnderscoreAction
		request string
		want    string // status of the first response, and fields of the served requests
		counted int64
	}{
		{"allowed", config.AllowUnderscores, get + get, "200 X-A x_a _b X-A x_a _b", 0},
		{"dropped", config.DropUnderscores, get + get, "200 X-A X-A", 4},
		{"rejected, with the requests after it", config.RejectUnderscores, get + get, "400", 1},
		{"no underscores", config.RejectUnderscores, "GET / HTTP/1.1\r\nHost: h_h\r\nX-A: _\r\n\r\n", "200 X-A", 0},
		{"trailers, allowed", config.AllowUnderscores, chunked, "200 x-t x_t", 0},
		{"trailers, dropped", config.DropUnderscores, chunked, "200 x-t", 1},
		{"trailers, rejected", config.RejectUnderscores, chunked, "200 x-t", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			served := make(chan string, 10)
			var counted atomic.Int64
			proxy := newTestProxy(t, func(o *stream.ServerOptions) {
				o.HTTP1.Underscores = test.action
				o.CountUnderscores = func(_ config.UnderscoreAction, n int) { counted.Add(int64(n)) }
				o.Service = protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
					if x.Request.Body != nil {
						if _, err := io.Copy(io.Discard, x.Request.Body); err != nil {
							return err
						}
					}
					for _, h := range []*protocol.Header{&x.Request.Header, &x.Request.Trailer} {
						for name := range h.All() {
							served <- strings.Clone(name)
						}
					}
					x.LocalReply(200, "", "")
					return nil
				})
			})
			c := proxy.dial()
			c.send(test.request)
			_ = c.CloseWrite()
			response := c.rest()
			status, _, _ := strings.Cut(strings.TrimPrefix(response, "HTTP/1.1 "), " ")
			parts := []string{status}
			for len(served) > 0 {
				parts = append(parts, <-served)
			}
			if got := strings.Join(parts, " "); got != test.want || counted.Load() != test.counted {
				t.Errorf("status and fields %q, counted %d; want %q, %d", parts, counted.Load(), test.want, test.counted)
			}
			if n := strings.Count(response, "HTTP/1.1 "); status == "400" && n != 1 {
				t.Errorf("%d responses, want 1: the connection must close", n)
			}
		})
	}
}
