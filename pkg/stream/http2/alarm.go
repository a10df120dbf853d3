package http2

import (
	"errors"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// connTimer is the one timer of a connection. Most of what it is set to never comes, so
// moving it costs nothing unless it moves to an earlier time.
type connTimer struct {
	timer  *time.Timer    // guarded by wire.mu; nil until first set
	due    time.Time      // guarded by wire.mu; when it fires; zero: it is not set
	firing sync.WaitGroup // wire.expire runs; added to with wire.mu held, while wire.lost is nil
}

// arm sees to it that expire runs at t, or before; the zero time is never. mu is
// held.
func (w *muxConn) arm(t time.Time) {
	a := &w.alarm
	if t.IsZero() || w.lost != nil || !a.due.IsZero() && !t.Before(a.due) {
		return
	}
	a.due = t
	d := max(time.Until(t), 0)
	if a.timer == nil {
		a.timer = time.AfterFunc(d, w.expire)
	} else {
		a.timer.Reset(d)
	}
}

// stopTimer stops the timer of a connection without streams. mu is held.
func (w *muxConn) stopTimer() {
	if a := &w.alarm; a.timer != nil && w.state.Len() == 0 && a.timer.Stop() {
		a.due = time.Time{}
	}
}

// expire ends the streams whose time is up. The timer runs it, on a goroutine of
// its own.
func (w *muxConn) expire() {
	b := &batch{now: time.Now()}
	then, ringing := w.ring(b)
	if !ringing {
		return
	}
	defer w.alarm.firing.Done()
	defer func() {
		if p := recover(); p != nil {
			w.engine.panicked("ending a stream whose time is up", p)
		}
	}()
	for _, f := range then {
		f(b)
	}
	b.flush()
}

// ring returns what expire is to call, and reports false if the connection has ended.
func (w *muxConn) ring(b *batch) (then []func(*batch), ringing bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alarm.due = time.Time{}
	if w.lost != nil {
		return nil, false
	}
	w.alarm.firing.Add(1)
	then, next := w.overdue(b.now)
	also, at := w.side.expired(b)
	then = append(then, also...)
	w.arm(next)
	w.arm(at)
	return then, true
}

// overdue fails the streams whose deadline has passed, or on which nothing went for
// too long, and returns when the next of them will be. mu is held.
func (w *muxConn) overdue(now time.Time) (then []func(*batch), next time.Time) {
	for s := range w.state.Streams() {
		l := muxStreamOf(s)
		if l == nil || l.cut != nil {
			continue
		}
		at, why := l.deadline, protocol.UpstreamTimeout
		if w.idle > 0 {
			if quiet := l.active.Add(w.idle); at.IsZero() || quiet.Before(at) {
				at, why = quiet, w.side.idleReason()
			}
		}
		quiet := l.answerIdleAt(now)
		if !quiet.IsZero() && (at.IsZero() || quiet.Before(at)) {
			at = quiet
		}
		switch {
		case at.IsZero():
		case !at.After(now):
			fault := protocol.Faultf(why, "the stream's time is up")
			if at.Equal(quiet) {
				fault = idleFault(l.answerIdle)
			}
			if f := l.owner.expire(fault); f != nil {
				then = append(then, f)
			}
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return then, next
}

// answerIdleAt returns when the host will have sent nothing of its answer for too long; the
// zero time: it may take as long as it likes. An answer of which the caller has not taken
// everything keeps its host from sending, so its time begins anew. wire.mu is held.
func (l *muxStream) answerIdleAt(now time.Time) time.Time {
	if l.answerIdle <= 0 {
		return time.Time{}
	}
	if l.in.awaitsReader() {
		l.active = now
	}
	return l.active.Add(l.answerIdle)
}

// errAnswerIdle marks the faults of idleFault.
var errAnswerIdle = errors.New("stream_idle_timeout")

// idleFault is the Fault of an answer of which the host sent nothing for so long.
func idleFault(idle time.Duration) *protocol.Fault {
	return protocol.Faultf(protocol.StreamIdle, "nothing of the answer for %v (%w)", idle, errAnswerIdle)
}
