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

// TestAPanicOfAWebSocketTunnelEndsBothConnections: whichever direction panics, caller and
// host see the end, the host's connection leaves its pool once, and others are served.
func TestAPanicOfAWebSocketTunnelEndsBothConnections(t *testing.T) {
	const shake = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	for name, test := range map[string]struct {
		at  string
		end func(caller *peer) // what the caller does behind what it has sent
	}{
		"towards the caller":            {"Read", func(*peer) {}},
		"towards the host":              {"Write", func(*peer) {}},
		"the end towards the host":      {"CloseWrite", func(c *peer) { _ = c.CloseWrite() }},
		"Close behind the end":          {"Close", func(c *peer) { _ = c.CloseWrite() }},
		"Close when the caller is gone": {"Close", func(c *peer) { _ = c.SetLinger(0); _ = c.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			var fired atomic.Bool
			b := newBench(t, func(o *stream.ServerOptions) {
				o.IdleTimeout = 0 // what does not end at once never does
				o.Service = around(o.Service, nil, func(x *protocol.Exchange) {
					if x.Response.Tunnel != nil {
						x.Response.Tunnel = faultyTunnel{x.Response.Tunnel, test.at, &fired}
					}
				})
			})
			hostEnded := make(chan struct{}, 1)
			leaves := name == "Close behind the end"
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
				t.Fatalf("the handshake is answered with %q", got)
			}
			test.end(c)
			c.rest()
			wait(t, "the host to see the end", hostEnded)
			if wait(t, "the host's connection to be released", b.released) {
				t.Error("the tunnel's connection passed for reusable")
			}
			if len(b.released) > 0 {
				t.Error("the tunnel's connection was released twice")
			}
			if !fired.Load() {
				t.Errorf("nothing has called %s", test.at)
			}
			wait(t, "the exchange to be recorded", b.records)
			c = b.dial()
			defer c.Close()
			c.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			if got := c.rest(); !strings.HasPrefix(got, "HTTP/1.1 204 ") {
				t.Errorf("the next request is answered with %q", got)
			}
		})
	}
}

// wait receives from c.
func wait[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("waited for %s in vain", what)
	}
	return v
}
