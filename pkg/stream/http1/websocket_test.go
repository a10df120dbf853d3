package http1

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http1"
	"github.com/weft-proxy/weft/pkg/stream"
)

// TestUpstreamHandshakeForHTTP2Client verifies the WebSocket handshake with an HTTP/1.1 host for an
// HTTP/2 client that sent an extended CONNECT (RFC 8441).
func TestUpstreamHandshakeForHTTP2Client(t *testing.T) {
	newHTTP2Exchange := func() *protocol.Exchange {
		x := newExchange("GET", nil)
		x.Meta.Version, x.Request.Upgrade = "HTTP/2.0", "websocket"
		x.Request.Header.Add("sec-websocket-version", "13")
		return x
	}
	keyOf := func(head string) string {
		_, after, _ := strings.Cut(head, "Sec-WebSocket-Key: ")
		key, _, _ := strings.Cut(after, "\r\n")
		return key
	}
	const switchingProtocols = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: chat\r\n"
	t.Run("valid accept key", func(t *testing.T) {
		local, host := tcpPair(t)
		c, reusable := newTestUpstreamConn(local)
		head := make(chan string, 1)
		go func() {
			request := host.head()
			head <- request
			host.send(switchingProtocols + "Sec-WebSocket-Accept: " + syntax.WebSocketAccept(keyOf(request)) + "\r\n\r\nearly")
		}()
		x := newHTTP2Exchange()
		if err := c.Serve(context.Background(), x); err != nil {
			t.Fatal(err)
		}
		request := <-head
		if !syntax.IsWebSocketKey(keyOf(request)) || !strings.HasPrefix(request, "GET / HTTP/1.1\r\n") ||
			!strings.Contains(request, "Connection: upgrade\r\nUpgrade: websocket\r\n") {
			t.Errorf("the host got %q, want a handshake with a key", request)
		}
		if x.Request.Header.Len() != 1 {
			t.Errorf("the request has %d headers after Serve, want 1: another attempt needs its own key", x.Request.Header.Len())
		}
		if _, ok := x.Response.Header.Lookup("Sec-WebSocket-Accept"); ok || x.Response.Status != 101 {
			t.Errorf("status %d with Sec-WebSocket-Accept: %t; want 101 without it", x.Response.Status, ok)
		}
		if got := x.Response.Header.Get("Sec-WebSocket-Protocol"); got != "chat" {
			t.Errorf("Sec-WebSocket-Protocol: %q, want chat", got)
		}
		earlyBytes := make([]byte, len("early"))
		if _, err := io.ReadFull(x.Response.Tunnel, earlyBytes); err != nil || string(earlyBytes) != "early" {
			t.Errorf("the tunnel began with %q, %v; want \"early\"", earlyBytes, err)
		}
		x.ResetResponse()
		<-reusable
	})
	for name, acceptHeader := range map[string]string{
		"wrong accept key": "Sec-WebSocket-Accept: " + syntax.WebSocketAccept("another") + "\r\n",
		"no accept key":    "",
	} {
		t.Run(name, func(t *testing.T) {
			local, host := tcpPair(t)
			c, reusable := newTestUpstreamConn(local)
			go func() {
				host.head()
				host.send(switchingProtocols + acceptHeader + "\r\n")
			}()
			if err := c.Serve(context.Background(), newHTTP2Exchange()); protocol.ReasonOf(err) != protocol.UpstreamMalformed {
				t.Errorf("Serve = %v, want a Fault with reason %v", err, protocol.UpstreamMalformed)
			}
			if <-reusable {
				t.Error("the connection was considered reusable")
			}
		})
	}
}

func TestHandshakeKeysAreUnique(t *testing.T) { // RFC 6455 4.1
	x := newExchange("GET", nil)
	x.Meta.Version, x.Request.Upgrade = "HTTP/2.0", "websocket"
	first, second := newWebSocketKey(x), newWebSocketKey(x)
	if first == second || !syntax.IsWebSocketKey(first) || !syntax.IsWebSocketKey(second) {
		t.Errorf("keys %q and %q, want two different valid keys", first, second)
	}
}

func TestOtherUpgradesGetNoWebSocketKey(t *testing.T) {
	for _, test := range []struct{ name, upgrade, version string }{
		{"HTTP/1.1 client with its own key", "websocket", "HTTP/1.1"},
		{"another protocol", "connect-udp", "HTTP/2.0"},
		{"no upgrade", "", "HTTP/2.0"},
	} {
		x := newExchange("GET", nil)
		x.Meta.Version, x.Request.Upgrade = test.version, test.upgrade
		if got := newWebSocketKey(x); got != "" {
			t.Errorf("%s: key %q, want none", test.name, got)
		}
	}
}

// echoTunnel is an upstream tunnel that echoes its input.
type echoTunnel struct {
	*io.PipeReader
	w      *io.PipeWriter
	closed chan struct{}
}

func newEchoTunnel() *echoTunnel {
	r, w := io.Pipe()
	return &echoTunnel{r, w, make(chan struct{}, 2)}
}

func (e *echoTunnel) Write(p []byte) (int, error) { return e.w.Write(p) }

func (e *echoTunnel) CloseWrite() error { return e.w.Close() }

func (e *echoTunnel) Close() error {
	e.closed <- struct{}{}
	return e.w.Close()
}

// TestDownstreamHandshakeForHTTP2Host verifies that an HTTP/1.1 client gets a 101 when the upstream
// accepted an extended CONNECT over HTTP/2.
func TestDownstreamHandshakeForHTTP2Host(t *testing.T) {
	const key = "dGhlIHNhbXBsZSBub25jZQ=="
	for _, test := range []struct{ name, headers, want string }{
		{"WebSocket", "Upgrade: WebSocket\r\nSec-WebSocket-Key: " + key + "\r\n", "HTTP/1.1 101 Switching Protocols\r\nsec-websocket-protocol: chat\r\n" +
			"Upgrade: WebSocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nConnection: upgrade\r\n\r\n"},
		{"another protocol", "Upgrade: connect-udp\r\n", "HTTP/1.1 101 Switching Protocols\r\nsec-websocket-protocol: chat\r\n" +
			"Upgrade: connect-udp\r\nConnection: upgrade\r\n\r\n"},
		{"no key", "Upgrade: websocket\r\n", "HTTP/1.1 400 Bad Request\r\n"},
		{"invalid key", "Upgrade: websocket\r\nSec-WebSocket-Key: aGVsbG8=\r\n", "HTTP/1.1 400 Bad Request\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tunnel := newEchoTunnel()
			proxy := newTestProxy(t, func(o *stream.ServerOptions) {
				o.Service = protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
					r := &x.Response
					r.Status, r.Version, r.Tunnel = 101, "HTTP/2.0", tunnel
					r.Header.Add("sec-websocket-protocol", "chat")
					return nil
				})
			})
			c := proxy.dial()
			defer c.Close()
			c.send("GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n" + test.headers + "\r\n")
			if c.expect(test.want); strings.HasPrefix(test.want, "HTTP/1.1 101") {
				c.send("ping")
				c.expect("ping")
				c.CloseWrite()
			}
			if record := <-proxy.records; (record.Reason == protocol.ReasonNone) != strings.HasPrefix(test.want, "HTTP/1.1 101") {
				t.Errorf("recorded %v, want a reason only without status 101", record.Reason)
			}
			<-tunnel.closed
		})
	}
}
