package http2

import (
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// arm makes onTimer run at t or earlier. A zero t has no effect. mu is held.
func (w *muxConn) arm(t time.Time) {
	if w.lostErr == nil {
		w.timer.Arm(t)
	}
}

// stopTimer stops the timer if the connection has no streams. mu is held.
func (w *muxConn) stopTimer() {
	if w.state.Len() == 0 {
		w.timer.Stop()
	}
}

// onTimer ends the streams whose deadline or idle timeout has passed. The timer runs it on a
// separate goroutine.
func (w *muxConn) onTimer() {
	b := &batch{now: time.Now()}
	var fx effects
	if !w.expire(b, &fx) {
		return
	}
	defer w.timer.Done()
	defer w.engine.goroutines.Contain("expiring a stream")
	fx.apply(b)
	b.flush()
}

// expire ends the streams and the side's calls that are due, and arms the timer again. It returns
// false if the connection has ended; otherwise the caller calls timer.Done.
func (w *muxConn) expire(b *batch, fx *effects) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Fired(w.lostErr != nil)
	if w.lostErr != nil {
		return false
	}
	next := w.expireStreams(b.now, fx)
	at := w.side.expireSide(b, fx)
	w.arm(next)
	w.arm(at)
	return true
}

// expireStreams calls expire of the streams whose deadline or idle timeout has passed, and returns
// the earliest remaining deadline. mu is held.
func (w *muxConn) expireStreams(now time.Time, fx *effects) (next time.Time) {
	for s := range w.state.Streams() {
		l := muxStreamOf(s)
		if l == nil || l.sendErr != nil {
			continue
		}
		at, why := l.deadline, protocol.UpstreamTimeout
		if w.streamIdleTimeout > 0 {
			if quiet := l.lastActive.Add(w.streamIdleTimeout); at.IsZero() || quiet.Before(at) {
				at, why = quiet, w.side.idleReason()
			}
		}
		quiet := l.responseIdleDeadline(now)
		if !quiet.IsZero() && (at.IsZero() || quiet.Before(at)) {
			at = quiet
		}
		switch {
		case at.IsZero():
		case !at.After(now):
			fault := protocol.Faultf(why, "stream deadline exceeded")
			if at.Equal(quiet) {
				fault = idleFault(l.responseIdleTimeout)
			}
			l.owner.expire(fault, fx)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return next
}

// responseIdleDeadline returns the time at which the idle timeout of the host's response passes, or
// zero if there is none. The idle time starts again while some of the response is unread, or all of
// it has arrived. muxConn.mu is held.
func (l *muxStream) responseIdleDeadline(now time.Time) time.Time {
	if l.responseIdleTimeout <= 0 {
		return time.Time{}
	}
	if l.in.awaitsReader() {
		l.lastActive = now
	}
	return l.lastActive.Add(l.responseIdleTimeout)
}

// errResponseIdle marks the faults of idleFault.
var errResponseIdle = errors.New("stream_idle_timeout")

// idleFault returns the Fault of a response for which the host sent nothing for the duration idle.
func idleFault(idle time.Duration) *protocol.Fault {
	return protocol.Faultf(protocol.StreamIdle, "no byte of the response for %v (%w)", idle, errResponseIdle)
}
