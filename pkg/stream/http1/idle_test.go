package http1

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// TestIdleExchangeEnds verifies that the client gets a 504, or loses its connection within a
// response, if the host sends nothing for the stream idle timeout. A slow host that is not idle
// does not end the exchange.
func TestIdleExchangeEnds(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
	for _, test := range []struct {
		name        string
		idleTimeout time.Duration
		deadline    time.Duration // of the exchange; 0: none
		sent        []string      // pieces that the host sends, one minute apart
		status      int
		body        string
		reason      protocol.Reason
		after       time.Duration // time when the response or the connection ended
	}{
		{"before the head", 90 * time.Second, 0, nil, 504, "upstream idle for too long\n", protocol.StreamIdle, 90 * time.Second},
		{"within the body", 90 * time.Second, 0, []string{head + "a", "b"}, 200, "ab", protocol.StreamIdle, 210 * time.Second},
		{"slow but not idle", 90 * time.Second, 0, []string{head + "a", "b", "c", "d"}, 200, "abcd", protocol.ReasonNone, 4 * time.Minute},
		{"earlier deadline", time.Hour, 70 * time.Second, nil, 504, "upstream timed out\n", protocol.UpstreamTimeout, 70 * time.Second},
		{"no timeout", 0, 0, []string{head + "abcd"}, 200, "abcd", protocol.ReasonNone, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local, host := net.Pipe()
				go func() {
					if _, err := http.ReadRequest(bufio.NewReader(host)); err != nil {
						return
					}
					for _, text := range test.sent {
						<-time.After(time.Minute)
						if _, err := io.WriteString(host, text); err != nil {
							return
						}
					}
				}()
				client := newUpstreamConn(network.NewConn(local), stream.UpstreamConnOptions{HTTP1: config.DefaultHTTP1Options(), OnRelease: func(bool) {}})
				options := config.DefaultHTTP1Options()
				options.StreamIdleTimeout = test.idleTimeout
				reason := protocol.ReasonNone
				downstream, done := serveInMemory(stream.ServerOptions{
					HTTP1: options,
					Service: protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
						x.Record.UpstreamStart = time.Now()
						if test.deadline > 0 {
							x.Deadline = x.Meta.Start.Add(test.deadline)
						}
						return client.Serve(ctx, x)
					}),
					Observe: func(x *protocol.Exchange) { reason = x.Record.Reason },
				})
				start := time.Now()
				if _, err := io.WriteString(downstream, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				response, err := http.ReadResponse(bufio.NewReader(downstream), nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				if complete := test.reason == protocol.ReasonNone || test.status == 504; (err == nil) != complete {
					t.Errorf("reading the body: %v, want it complete: %v", err, complete)
				}
				elapsed := time.Since(start)
				<-done
				if response.StatusCode != test.status || string(body) != test.body || reason != test.reason || elapsed != test.after {
					t.Errorf("%d %q, %v after %v; want %d %q, %v after %v", response.StatusCode, strings.TrimSpace(string(body)), reason, elapsed,
						test.status, test.body, test.reason, test.after)
				}
				_ = local.Close()
				_ = host.Close()
			})
		})
	}
}
