package http1

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// faultyTunnel is a filter's tunnel. One of its methods panics once, before it calls that method of
// the wrapped tunnel.
type faultyTunnel struct {
	protocol.Tunnel
	method   string
	panicked *atomic.Bool
}

func (t faultyTunnel) panicOnceIn(method string) {
	if t.method == method && !t.panicked.Swap(true) {
		panic("a defect in " + method)
	}
}

func (t faultyTunnel) Read(p []byte) (int, error) {
	t.panicOnceIn("Read")
	return t.Tunnel.Read(p)
}

func (t faultyTunnel) Write(p []byte) (int, error) {
	t.panicOnceIn("Write")
	return t.Tunnel.Write(p)
}

func (t faultyTunnel) CloseWrite() error {
	t.panicOnceIn("CloseWrite")
	return t.Tunnel.CloseWrite()
}

func (t faultyTunnel) Close() error {
	t.panicOnceIn("Close")
	return t.Tunnel.Close()
}

// TestWebSocketTunnelPanicEndsBothConnections verifies that a panic in either direction ends both
// connections, that the upstream connection is released once, and that the listener serves other
// connections.
func TestWebSocketTunnelPanicEndsBothConnections(t *testing.T) {
	const handshake = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	for name, test := range map[string]struct {
		method string
		action func(client *peer) // runs after the last bytes of the client
	}{
		"Read toward the client":       {"Read", func(*peer) {}},
		"Write toward the host":        {"Write", func(*peer) {}},
		"CloseWrite toward the host":   {"CloseWrite", func(c *peer) { _ = c.CloseWrite() }},
		"Close after both half-closes": {"Close", func(c *peer) { _ = c.CloseWrite() }},
		"Close after a client reset":   {"Close", func(c *peer) { _ = c.SetLinger(0); _ = c.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			var panicked atomic.Bool
			proxy := newTestProxy(t, func(o *stream.ServerOptions) {
				o.IdleTimeout = 0 // no idle timeout ends the tunnel
				o.Service = wrapService(o.Service, nil, func(x *protocol.Exchange) {
					if x.Response.Tunnel != nil {
						x.Response.Tunnel = faultyTunnel{x.Response.Tunnel, test.method, &panicked}
					}
				})
			})
			hostEnded := make(chan struct{}, 1)
			halfCloses := name == "Close after both half-closes"
			proxy.serve(func(c *peer) {
				if !strings.Contains(c.head(), "Upgrade") {
					c.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
					return
				}
				c.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\ndown")
				if halfCloses {
					_ = c.CloseWrite()
				}
				c.rest()
				hostEnded <- struct{}{}
			})
			c := proxy.dial()
			c.send(handshake + "up")
			if got := c.head(); !strings.HasPrefix(got, "HTTP/1.1 101 ") {
				t.Fatalf("response to the handshake = %q, want status 101", got)
			}
			test.action(c)
			c.rest()
			wait(t, "the host to read EOF", hostEnded)
			if wait(t, "the host's connection to be released", proxy.reusable) {
				t.Error("the tunnel's connection was considered reusable")
			}
			if len(proxy.reusable) > 0 {
				t.Error("the tunnel's connection was released twice")
			}
			if !panicked.Load() {
				t.Errorf("%s was not called", test.method)
			}
			wait(t, "the exchange to be recorded", proxy.records)
			c = proxy.dial()
			defer c.Close()
			c.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			if got := c.rest(); !strings.HasPrefix(got, "HTTP/1.1 204 ") {
				t.Errorf("response to the next request = %q, want status 204", got)
			}
		})
	}
}

// wait receives from c. It fails the test after 20 s.
func wait[T any](t *testing.T, label string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("timed out waiting for %s", label)
	}
	return v
}
