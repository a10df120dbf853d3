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

// TestPanicInTunnelHeadClosesTunnel verifies that the upstream tunnel is closed if the encoder
// panics in the response head that opens the downstream tunnel.
func TestPanicInTunnelHeadClosesTunnel(t *testing.T) {
	closed := make(chan struct{})
	r := newRig(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.Response.Header.Add("x-bad", unreadable())
		x.Response.Status, x.Response.Source = 200, protocol.UpstreamResponse
		x.Response.Tunnel = closableTunnel{closed: closed}
		return nil
	}), nil)
	p := r.dial()
	p.headers(1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "shop.test", ":path", "/")
	if code := p.awaitReset(1); code != http2.ErrCodeInternal {
		t.Errorf("reset with %v, want INTERNAL_ERROR", code)
	}
	receiveOrFail(t, closed)
}

// TestPanicInTunnelCloseReleasesCall makes Close of a filter's tunnel or OnRelease panic: after
// host and client have ended the tunnel, and after the client has reset it while the host is still
// sending. It verifies that no call stays on the host's connection, and that another tunnel works.
func TestPanicInTunnelCloseReleasesCall(t *testing.T) {
	for _, point := range []string{"tunnel Close", "OnRelease"} {
		for _, resets := range []bool{false, true} {
			name := point + " after the end"
			if resets {
				name = point + " after a reset"
			}
			t.Run(name, func(t *testing.T) {
				address := startHost(t, func(p *peer) {
					for id := p.awaitHead(); id != 0; id = p.awaitHead() {
						p.headers(id, false, ":status", "200")
						if p.fr.WriteData(id, !resets, []byte("greeting")) != nil {
							return
						}
					}
				}, http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
				h := &panicService{point: point}
				r, calls, log := panicRig(t, h, address)
				p := r.dial()
				for _, id := range []uint32{1, 3} {
					p.headers(id, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "shop.test", ":path", "/panic")
					if got := p.awaitFields(id)[":status"]; got != "200" {
						t.Fatalf("the tunnel: status %s, want 200", got)
					}
					if resets {
						p.must(p.fr.WriteRSTStream(id, http2.ErrCodeCancel))
					} else {
						p.must(p.fr.WriteData(id, true, []byte("up")))
					}
					r.awaitRecord()
				}
				awaitNoCalls(t, calls)
				if !log.contains(injected) {
					t.Error("the panic was not logged")
				}
			})
		}
	}
}
