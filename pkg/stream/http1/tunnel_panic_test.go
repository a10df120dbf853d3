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
	at    string
	fired *atomic.Bool
}

func (f faultyTunnel) reach(method string) {
	if f.at == method && !f.fired.Swap(true) {
		panic("a defect in " + method)
	}
}

func (f faultyTunnel) Read(p []byte) (int, error) {
	f.reach("Read")
	return f.Tunnel.Read(p)
}

func (f faultyTunnel) Write(p []byte) (int, error) {
	f.reach("Write")
	return f.Tunnel.Write(p)
}

func (f faultyTunnel) CloseWrite() error {
	f.reach("CloseWrite")
	return f.Tunnel.CloseWrite()
}

func (f faultyTunnel) Close() error {
	f.reach("Close")
	return f.Tunnel.Close()
}

// TestWebSocketTunnelPanicEndsBothConnections verifies that a panic in either direction ends
// both connections, that the upstream connection is released once, and that the listener serves
// other connections.
func TestWebSocketTunnelPanicEndsBothConnections(t *testing.T) {
	const shake = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	for name, test := range map[string]struct {
		at  string
		end func(client *peer) // what the client does after its last bytes
	}{
		"Read toward the client":       {"Read", func(*peer) {}},
		"Write toward the host":        {"Write", func(*peer) {}},
		"CloseWrite toward the host":   {"CloseWrite", func(c *peer) { _ = c.CloseWrite() }},
		"Close after both half-closes": {"Close", func(c *peer) { _ = c.CloseWrite() }},
		"Close after a client reset":   {"Close", func(c *peer) { _ = c.SetLinger(0); _ = c.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			var fired atomic.Bool
			b := newTestProxy(t, func(o *stream.ServerOptions) {
				o.IdleTimeout = 0 // no idle timeout ends the tunnel
				o.Service = wrapService(o.Service, nil, func(x *protocol.Exchange) {
					if x.Response.Tunnel != nil {
						x.Response.Tunnel = faultyTunnel{x.Response.Tunnel, test.at, &fired}
					}
				})
			})
			hostEnded := make(chan struct{}, 1)
			leaves := name == "Close after both half-closes"
			b.serve(func(c *peer) {
				if !strings.Contains(c.head(), "Upgrade") {
					c.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
					return
				}
				c.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\ndown")
				if leaves {
					_ = c.CloseWrite()
				}
				c.rest()
				hostEnded <- struct{}{}
			})
			c := b.dial()
			c.send(shake + "up")
			if got := c.head(); !strings.HasPrefix(got, "HTTP/1.1 101 ") {
				t.Fatalf("response to the handshake = %q", got)
			}
			test.end(c)
			c.rest()
			wait(t, "the host to see the end", hostEnded)
			if wait(t, "the host's connection to be released", b.released) {
				t.Error("the tunnel's connection was considered reusable")
			}
			if len(b.released) > 0 {
				t.Error("the tunnel's connection was released twice")
			}
			if !fired.Load() {
				t.Errorf("%s was not called", test.at)
			}
			wait(t, "the exchange to be recorded", b.records)
			c = b.dial()
			defer c.Close()
			c.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			if got := c.rest(); !strings.HasPrefix(got, "HTTP/1.1 204 ") {
				t.Errorf("response to the next request = %q", got)
			}
		})
	}
}

// wait receives from c.
func wait[T any](t *testing.T, label string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("timed out waiting for %s", label)
	}
	return v
}
