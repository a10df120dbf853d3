package http2

import (
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// arm makes onTimer run at t or earlier. A zero t has no effect. The caller holds mu.
func (mc *muxConn) arm(t time.Time) {
	if mc.lostErr == nil {
		mc.timer.Arm(t)
	}
}

// stopTimer stops the timer if the connection has no streams. The caller holds mu.
func (mc *muxConn) stopTimer() {
	if mc.state.Len() == 0 {
		mc.timer.Stop()
	}
}

// onTimer ends the streams whose deadline or idle timeout has passed. The timer calls onTimer on a
// separate goroutine.
func (mc *muxConn) onTimer() {
	b := &batch{now: time.Now()}
	var fx effects
	if !mc.expire(b, &fx) {
		return
	}
	defer mc.timer.Done()
	defer mc.engine.goroutines.Contain("expiring a stream")
	fx.apply(b)
	b.flush()
}

// expire ends the streams and calls whose deadline or idle timeout has passed, and arms the timer
// again. It returns false if the connection has ended; otherwise the caller calls timer.Done.
func (mc *muxConn) expire(b *batch, fx *effects) bool {
	mc.mu.Lock()
	defer mc.mu.Unlock()
	mc.timer.Fired(mc.lostErr != nil)
	if mc.lostErr != nil {
		return false
	}
	mc.arm(mc.expireStreams(b.now, fx))
	mc.side.expireSide(b, fx)
	return true
}

// expireStreams calls owner.expire for the streams whose deadline or idle timeout has passed, and
// returns the earliest remaining deadline. The caller holds mu.
func (mc *muxConn) expireStreams(now time.Time, fx *effects) (next time.Time) {
	for s := range mc.state.Streams() {
		ms := muxStreamOf(s)
		if ms == nil || ms.sendErr != nil {
			continue
		}
		deadline, reason := ms.deadline, protocol.UpstreamTimeout
		if mc.streamIdleTimeout > 0 {
			if idleDeadline := ms.lastActive.Add(mc.streamIdleTimeout); deadline.IsZero() || idleDeadline.Before(deadline) {
				deadline, reason = idleDeadline, mc.side.idleReason()
			}
		}
		idleDeadline := ms.responseIdleDeadline(now)
		if !idleDeadline.IsZero() && (deadline.IsZero() || idleDeadline.Before(deadline)) {
			deadline = idleDeadline
		}
		switch {
		case deadline.IsZero():
		case !deadline.After(now):
			fault := protocol.Faultf(reason, "stream deadline exceeded")
			if deadline.Equal(idleDeadline) {
				fault = idleFault(ms.responseIdleTimeout)
			}
			ms.owner.expire(fault, fx)
		case next.IsZero() || deadline.Before(next):
			next = deadline
		}
	}
	return next
}

// responseIdleDeadline returns the time at which the idle timeout of the host's response passes, or
// zero if there is none. Each call that finds unread bytes or a complete response starts the idle
// time again. The caller holds muxConn.mu.
func (ms *muxStream) responseIdleDeadline(now time.Time) time.Time {
	if ms.responseIdleTimeout <= 0 {
		return time.Time{}
	}
	if ms.in.consumerCanContinue() {
		ms.lastActive = now
	}
	return ms.lastActive.Add(ms.responseIdleTimeout)
}

// errResponseIdle marks the faults of idleFault.
var errResponseIdle = errors.New("stream_idle_timeout")

// idleFault returns the Fault of a response for which the host sent nothing for the duration idle.
func idleFault(idle time.Duration) *protocol.Fault {
	return protocol.Faultf(protocol.StreamIdle, "no byte of the response for %v (%w)", idle, errResponseIdle)
}
