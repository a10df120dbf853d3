package http2

import (
	"testing"

	"golang.org/x/net/http2"
)

// TestAPanicAtTheEndOfATunnelLeavesNothingBehind has Close of a filter's tunnel, or what a
// pool does when a tunnel is released, panic: when host and caller have ended the tunnel,
// and when the caller has reset it while the host still sends. Other tunnels go on.
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
