package http2

import (
	"context"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// closableTunnel is a tunnel that reports its Close.
type closableTunnel struct {
	protocol.Tunnel
	closed chan struct{}
}

func (t closableTunnel) Close() error {
	close(t.closed)
	return nil
}

// TestAPanicOfTheHeadOfATunnelClosesIt verifies that the upstream tunnel is closed if the encoder
// panics in the response head that opens the downstream tunnel.
func TestAPanicOfTheHeadOfATunnelClosesIt(t *testing.T) {
	closed := make(chan struct{})
	r := newRig(t, protocol.ServiceFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.Response.Header.Add("x-bad", unreadable())
		x.Response.Status, x.Response.Source = 200, protocol.UpstreamResponse
		x.Response.Tunnel = closableTunnel{closed: closed}
		return nil
	}), nil)
	p := r.dial()
	p.headers(1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "shop.test", ":path", "/")
	if code := p.resetOf(1); code != http2.ErrCodeInternal {
		t.Errorf("reset with %v, want INTERNAL_ERROR", code)
	}
	wait(t, closed)
}

// TestAPanicAtTheEndOfATunnelLeavesNothingBehind makes Close of a filter's tunnel or OnRelease
// panic: after host and client have ended the tunnel, and after the client has reset it while the
// host still sends. It verifies that no call stays on the host's connection, and that another
// tunnel works.
func TestAPanicAtTheEndOfATunnelLeavesNothingBehind(t *testing.T) {
	for _, point := range []string{"tunnel Close", "Released"} {
		for _, resets := range []bool{false, true} {
			name := point + " behind the end"
			if resets {
				name = point + " behind a reset"
			}
			t.Run(name, func(t *testing.T) {
				address := host(t, func(p *peer) {
					for id := p.awaitHead(); id != 0; id = p.awaitHead() {
						p.headers(id, false, ":status", "200")
						if p.fr.WriteData(id, !resets, []byte("greeting")) != nil {
							return
						}
					}
				}, http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
				h := &hooks{point: point}
				r, calls, log := panicRig(t, h, address)
				p := r.dial()
				for _, id := range []uint32{1, 3} {
					p.headers(id, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "shop.test", ":path", "/panic")
					if got := p.head(id)[":status"]; got != "200" {
						t.Fatalf("the tunnel is answered with %s", got)
					}
					if resets {
						p.ok(p.fr.WriteRSTStream(id, http2.ErrCodeCancel))
					} else {
						p.ok(p.fr.WriteData(id, true, []byte("up")))
					}
					r.last()
				}
				idle(t, calls)
				if !log.has(injected) {
					t.Error("the panic was not logged")
				}
			})
		}
	}
}
