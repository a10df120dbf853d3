package http2

import (
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// orderedPumpOwner records the errors with which its pumps end.
type orderedPumpOwner struct{ ended []string }

func (p *orderedPumpOwner) pumpEnded(_ *batch, _ *muxConn, _ uint64, err error) {
	p.ended = append(p.ended, err.Error())
}

// TestEffectsKickSourcesBeforeDestinations verifies that the pump of a request reports why the
// request failed before its response is reset.
func TestEffectsKickSourcesBeforeDestinations(t *testing.T) {
	e := New(nil, nil)
	defer e.Close()
	var mc muxConn
	mc.engine, mc.writeQueue = e, network.NewWriteQueue(new(network.Conn), e.goroutines.Start)
	owner := new(orderedPumpOwner)
	var source recvBody
	source.start(&muxStream{conn: &mc}, nil, 0)
	failedPump := func(detail string) *pump {
		ms := &muxStream{conn: &mc, sendErr: protocol.Faultf(protocol.StreamIdle, "%s", detail)}
		mc.waitingPumps.linksOf = func(p *pump) *links[pump] { return &p.waitLinks }
		ms.out.start(&source, ms, owner, 0)
		return &ms.out
	}
	b := &batch{now: time.Now()}
	var fx effects
	fx.sendable = append(fx.sendable, failedPump("destination"))
	fx.kickReceived(nil)
	fx.kickReceived(failedPump("source"))
	if fx.empty() {
		t.Error("empty() = true with two pumps to kick, want false")
	}
	fx.apply(b)
	if len(owner.ended) != 2 || !strings.HasSuffix(owner.ended[0], "source") || !strings.HasSuffix(owner.ended[1], "destination") {
		t.Errorf("pumps ended in the order %q, want the source before the destination", owner.ended)
	}
	if !fx.empty() {
		t.Error("empty() = false after apply, want true")
	}
	fx.apply(b)
	if len(owner.ended) != 2 {
		t.Errorf("a second apply ended %d pumps, want 0", len(owner.ended)-2)
	}
}

// TestCallFailure verifies the effects of the failure of a call, which depend on its state.
func TestCallFailure(t *testing.T) {
	e := New(nil, nil)
	defer e.Close()
	for _, tt := range []struct {
		name    string
		async   bool
		state   callState
		resumed bool
		wakes   bool
	}{
		{"asynchronous, owned", true, callWorking, false, false},
		{"asynchronous, waiting", true, callWaiting, true, false},
		{"asynchronous, queued", true, callQueued, true, false},
		{"asynchronous, resolved", true, callResolved, false, false},
		{"blocking, waiting", false, callWaiting, false, true},
		{"blocking, opened", false, callOpened, false, true},
		{"blocking, resolved", false, callResolved, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := &UpstreamConn{opts: stream.UpstreamConnOptions{}}
			u.engine = e
			u.pending.linksOf = func(c *call) *links[call] { return &c.pendingLinks }
			c := e.newCall()
			c.init(u, new(protocol.Exchange), nil, tt.async)
			c.state = tt.state
			var fx effects
			c.fail(protocol.Faultf(protocol.UpstreamReset, "failed"), &fx)
			if got := len(fx.resumed) == 1; got != tt.resumed {
				t.Errorf("resumes its exchange: %t, want %t", got, tt.resumed)
			}
			if got := len(c.wake) == 1; got != tt.wakes {
				t.Errorf("wakes its goroutine: %t, want %t", got, tt.wakes)
			}
			if !c.state.resolved() {
				t.Error("the call is not resolved")
			}
		})
	}
}
