package http1

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// TestOnReleasePanicEndsAtMostOneExchange verifies that a panic of OnRelease ends at most one
// exchange. OnRelease panics after a response, a failure or a tunnel. newTestProxy checks buffers
// and connections.
func TestOnReleasePanicEndsAtMostOneExchange(t *testing.T) {
	const okResponse = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\n\r\nhello"
	const upgrade = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
	for name, test := range map[string]struct {
		request, host string // host: bytes that the host sends before it closes the connection
		want          string // prefix of the response
		reusable      bool   // the downstream connection serves another request
	}{
		"complete response":      {get, okResponse, okResponse, true},
		"no response":            {get, "", "HTTP/1.1 500 ", false},
		"truncated response":     {get, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhell", "HTTP/1.1 200 ", false},
		"after an unread upload": {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 50000\r\n\r\nhello", okResponse, "HTTP/1.1 200 ", false},
		"tunnel":                 {upgrade, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "HTTP/1.1 101 ", false},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			upstream := newTestProxy(t, nil)
			proxy := newTestProxy(t, func(o *stream.ServerOptions) {
				o.Service = protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
					conn, err := network.Dialer{}.Dial(ctx, "tcp", upstream.host.Addr().String(), x.Deadline)
					if err != nil {
						return err
					}
					panics := x.Request.Path != "/ok"
					c := newUpstreamConn(conn, stream.UpstreamConnOptions{HTTP1: config.DefaultHTTP1Options(), OnRelease: func(bool) {
						_ = conn.Close()
						calls.Add(1)
						if panics {
							panic("a defect of the pool")
						}
					}})
					return c.Serve(ctx, x)
				})
			})
			upstream.serve(func(c *peer) {
				if strings.HasPrefix(c.head(), "GET /ok") {
					c.send(okResponse)
					return
				}
				c.send(test.host)
			})
			c := proxy.dial()
			c.send(test.request)
			if test.reusable {
				c.expect(test.want)
			} else {
				if test.want == "HTTP/1.1 101 " {
					_ = c.CloseWrite()
				}
				if got := c.rest(); !strings.HasPrefix(got, test.want) {
					t.Errorf("the client got %q, want %q", got, test.want)
				}
				_ = c.Close()
				c = proxy.dial()
			}
			c.send("GET /ok HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			if got := c.rest(); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				t.Errorf("response to the next request = %q, want status 200", got)
			}
			_ = c.Close()
			wait(t, "the exchange to be recorded", proxy.records)
			wait(t, "the next exchange to be recorded", proxy.records)
			if n := calls.Load(); n != 2 {
				t.Errorf("connections were released %d times, want once for each exchange", n)
			}
		})
	}
}
