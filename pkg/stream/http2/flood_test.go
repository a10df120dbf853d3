package http2

import (
	"testing"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// TestFloodsAreReported verifies that each flood ends the connection and is reported to the
// engine's callback.
func TestFloodsAreReported(t *testing.T) {
	for _, tt := range []struct {
		flood syntax.Flood
		send  func(p *peer, i uint32) error
	}{
		{syntax.FloodRapidReset, func(p *peer, i uint32) error {
			p.request(2*i+1, true)
			return p.fr.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		}},
		{syntax.FloodMadeYouReset, func(p *peer, i uint32) error {
			p.request(2*i+1, false)
			return p.fr.WriteWindowUpdate(2*i+1, 1<<31-1)
		}},
		{syntax.FloodSettings, func(p *peer, _ uint32) error { return p.fr.WriteSettings() }},
		{syntax.FloodPing, func(p *peer, _ uint32) error { return p.fr.WritePing(false, [8]byte{1}) }},
		{syntax.FloodPriority, func(p *peer, _ uint32) error {
			return p.fr.WritePriority(1, http2.PriorityParam{StreamDep: 0, Weight: 1})
		}},
		{syntax.FloodEmptyData, func(p *peer, i uint32) error {
			if i == 0 {
				p.request(1, false)
			}
			return p.fr.WriteData(1, false, nil)
		}},
		{syntax.FloodContinuation, func(p *peer, i uint32) error {
			if i == 0 {
				return p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.enc.block([]string{":method", "GET"})})
			}
			return p.fr.WriteContinuation(1, false, nil)
		}},
	} {
		t.Run(tt.flood.String(), func(t *testing.T) {
			h := &heldService{make(chan struct{}, 10_000), make(chan struct{}, 10_000), make(chan struct{})}
			defer close(h.release)
			r := newRig(t, h, nil)
			p := r.dial()
			for i := range uint32(3000) {
				if tt.send(p, i) != nil {
					break // the connection has ended
				}
			}
			if got := <-r.floods; got != tt.flood {
				t.Errorf("reported %v, want %v", got, tt.flood)
			}
		})
	}
}

// TestPanicInFloodCallbackClosesConnection verifies that the exchanges of the connection have ended
// when the flood callback panics, and that other connections are served afterwards.
func TestPanicInFloodCallbackClosesConnection(t *testing.T) {
	called := make(chan struct{}, 1)
	r := newRigOn(t, heldPathService(), nil, func(e *Engine) {
		e.onFlood = func(syntax.Flood) {
			called <- struct{}{}
			panic(injected)
		}
	})
	p := r.dial()
	p.request(1, true, ":path", "/held")
	for range 3000 {
		if p.fr.WriteSettings() != nil {
			break // the connection has ended
		}
	}
	receiveOrFail(t, called)
	if o := r.awaitRecord(); o.reason != protocol.ReasonDownstreamDisconnect {
		t.Errorf("the exchange in flight: recorded %+v, want %v", o, protocol.ReasonDownstreamDisconnect)
	}
	p2 := r.dial()
	p2.request(1, true)
	if got := p2.awaitFields(1)[":status"]; got != "200" {
		t.Errorf("another connection: status %s, want 200", got)
	}
}
