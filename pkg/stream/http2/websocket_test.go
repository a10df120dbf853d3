package http2

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// setWebSocketRequest makes x a WebSocket request of an HTTP/1.1 client.
func setWebSocketRequest(x *protocol.Exchange) {
	x.Meta.Version = "HTTP/1.1"
	x.Request.Upgrade = "websocket"
	x.Request.Header.Add("Sec-WebSocket-Version", "13")
	x.Request.Header.Add("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	x.Request.Header.Add("Sec-WebSocket-Protocol", "chat")
}

// openWebSocket sends a WebSocket request on u.
func openWebSocket(u *UpstreamConn, deadline time.Time) (*protocol.Exchange, error) {
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path = "GET", "http", "shop.test", "/chat"
	setWebSocketRequest(x)
	x.Deadline = deadline
	return x, x.Serve(context.Background(), u)
}

// awaitRequest waits for the head of a request and returns its stream and fields, or 0 at the end
// of the connection.
func (p *peer) awaitRequest() (uint32, map[string]string) {
	for {
		switch f := p.next().(type) {
		case nil:
			return 0, nil
		case *http2.MetaHeadersFrame:
			fields := make(map[string]string)
			for _, f := range f.Fields {
				fields[f.Name] = f.Value
			}
			return f.StreamID, fields
		}
	}
}

// TestFirstUpgradeAwaitsHostSettings verifies that an upgrade on a new connection waits for the
// host's settings, and becomes an extended CONNECT.
func TestFirstUpgradeAwaitsHostSettings(t *testing.T) { // RFC 8441 3
	request := make(chan map[string]string, 1)
	address := startHost(t, func(p *peer) {
		id, fields := p.awaitRequest()
		if id == 0 {
			return
		}
		request <- fields
		p.headers(id, false, ":status", "200", "sec-websocket-accept", "unused", "sec-websocket-protocol", "chat")
		p.next()
	}, http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
	r := newRig(t, nil, nil)
	x, err := openWebSocket(r.dialUpstream(address, nil), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.ResetResponse()
	got := <-request
	for name, want := range map[string]string{
		":method": "CONNECT", ":protocol": "websocket", ":scheme": "http", ":path": "/chat", ":authority": "shop.test",
		"sec-websocket-version": "13", "sec-websocket-protocol": "chat", "sec-websocket-key": "", "upgrade": "", "connection": "",
	} {
		if got[name] != want {
			t.Errorf("request at the host: %s is %q, want %q", name, got[name], want)
		}
	}
	if _, ok := x.Response.Header.Lookup("sec-websocket-accept"); ok || x.Response.Status != 101 || x.Response.Tunnel == nil {
		t.Errorf("response %d, Sec-WebSocket-Accept: %t; want 101 without it and with a tunnel", x.Response.Status, ok)
	}
}

func TestUpgradeWithoutExtendedConnectFails(t *testing.T) { // RFC 8441 3
	address := startHost(t, func(p *peer) {
		if id, fields := p.awaitRequest(); id != 0 {
			t.Errorf("the host received the request %v, want none", fields)
		}
	})
	r := newRig(t, nil, nil)
	if _, err := openWebSocket(r.dialUpstream(address, nil), time.Time{}); protocol.ReasonOf(err) != protocol.NotImplemented {
		t.Errorf("Serve = %v, want a Fault with reason %v", err, protocol.NotImplemented)
	}
}

func TestRejectedUpgradeIsForwarded(t *testing.T) {
	address := startHost(t, func(p *peer) {
		id, _ := p.awaitRequest()
		p.headers(id, true, ":status", "403")
		p.next()
	}, http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
	r := newRig(t, nil, nil)
	x, err := openWebSocket(r.dialUpstream(address, nil), time.Time{})
	if err != nil || x.Response.Status != 403 || x.Response.Tunnel != nil {
		t.Errorf("response %d, tunnel: %t, error %v; want 403 without a tunnel", x.Response.Status, x.Response.Tunnel != nil, err)
	}
	x.ResetResponse()
}

// TestTunnelHasNoDeadline verifies that a tunnel continues after the deadline of its exchange,
// which applies only to the response.
func TestTunnelHasNoDeadline(t *testing.T) {
	const timeout = time.Minute
	inBubble(t, func(o *stream.ServerOptions, _ *stream.UpstreamConnOptions) {
		next := o.Service
		o.Service = protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
			x.Deadline = time.Now().Add(timeout)
			return x.Serve(ctx, next)
		})
	}, func(b *bubble) {
		b.host.must(b.host.fr.WriteSettings(http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1}))
		go func() {
			b.awaitPreface()
			id, _ := b.host.awaitRequest()
			b.host.headers(id, false, ":status", "200")
			for {
				switch f := b.host.next().(type) {
				case nil:
					return
				case *http2.DataFrame:
					b.host.must(b.host.fr.WriteData(id, f.StreamEnded(), f.Data()))
				}
			}
		}()
		synctest.Wait() // the engine has the host's settings
		p := b.dial()
		p.request(1, false, ":method", "CONNECT", ":protocol", "websocket")
		if fields := p.awaitFields(1); fields[":status"] != "200" {
			t.Fatalf("response %v to CONNECT, want status 200", fields)
		}
		time.Sleep(2 * timeout)
		p.must(p.fr.WriteData(1, true, []byte("late")))
		for got := ""; ; {
			f, ok := p.next().(*http2.DataFrame)
			if !ok {
				t.Fatal("the tunnel ended before its last bytes")
			}
			if got += string(f.Data()); f.StreamEnded() {
				if got != "late" {
					t.Errorf("the tunnel echoed %q, want \"late\"", got)
				}
				break
			}
		}
	})
}

// TestResponseWithoutTunnelIsNot2xx verifies that a 2xx response without a tunnel is not sent in
// response to an extended CONNECT: the client would interpret it as the start of a tunnel.
func TestResponseWithoutTunnelIsNot2xx(t *testing.T) { // RFC 8441 4
	for status, want := range map[int]string{200: "501", 204: "501", 404: "404", 302: "302"} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			r := newRig(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
				x.LocalReply(status, "text/plain", "a page")
				return nil
			}), nil)
			p := r.dial()
			p.request(1, false, ":method", "CONNECT", ":protocol", "websocket")
			if fields := p.awaitFields(1); fields[":status"] != want {
				t.Errorf("response %d was sent as %v, want %s", status, fields, want)
			}
		})
	}
}
