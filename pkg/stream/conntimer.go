package stream

import (
	"sync"
	"time"
)

// ConnTimer is the single timer of a multiplexed connection, which fires at its earliest deadline
// or before. Most deadlines never pass, so the timer is reset only if it moves to an earlier time.
// A lock of the connection guards all methods but Done and Wait.
type ConnTimer struct {
	fire    func()         // immutable after Init
	timer   *time.Timer    // nil until first set
	firesAt time.Time      // zero: it is not set
	firing  sync.WaitGroup // runs of fire that Fired has started
}

// Init sets the function that runs, on a goroutine of its own, when the timer fires. It calls Fired
// first, and then arms the timer again.
func (t *ConnTimer) Init(fire func()) { t.fire = fire }

// Arm makes fire run at the given time or earlier. The zero time has no effect.
func (t *ConnTimer) Arm(at time.Time) {
	if at.IsZero() || !t.firesAt.IsZero() && !at.Before(t.firesAt) {
		return
	}
	t.firesAt = at
	d := max(time.Until(at), 0)
	if t.timer == nil {
		t.timer = time.AfterFunc(d, t.fire)
	} else {
		t.timer.Reset(d)
	}
}

// Fired records that the timer has fired. If the connection has ended, fire returns immediately,
// else it calls Done before it returns.
func (t *ConnTimer) Fired(ended bool) {
	t.firesAt = time.Time{}
	if !ended {
		t.firing.Add(1)
	}
}

// Done ends a run of fire.
func (t *ConnTimer) Done() { t.firing.Done() }

// Stop stops the timer. A run of fire may have begun before.
func (t *ConnTimer) Stop() {
	if t.timer != nil && t.timer.Stop() {
		t.firesAt = time.Time{}
	}
}

// Shrink releases a timer that is not set.
func (t *ConnTimer) Shrink() {
	if t.firesAt.IsZero() {
		t.timer = nil
	}
}

// Wait waits for the runs of fire. The connection has ended, so that no run starts any more.
func (t *ConnTimer) Wait() { t.firing.Wait() }
