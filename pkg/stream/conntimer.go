package stream

import (
	"sync"
	"time"
)

// ConnTimer is the single timer of a multiplexed connection. It fires at the connection's earliest
// deadline or before. Most exchanges end before their deadline, so Arm resets the timer only to an
// earlier time. The owner calls Init before it shares the connection. The caller of any other
// method except Done and Wait holds a lock of the connection.
type ConnTimer struct {
	fire    func()         // immutable after Init
	timer   *time.Timer    // nil until set, and after Shrink
	firesAt time.Time      // zero: the timer is not set
	firing  sync.WaitGroup // runs of fire between Fired and Done
}

// Init sets the function that runs, in a new goroutine, when the timer fires. fire must call Fired
// first, and arm the timer again if deadlines remain.
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

// Fired records that the timer has fired. If the connection has ended, fire must return
// immediately. Otherwise fire must call Done before it returns.
func (t *ConnTimer) Fired(ended bool) {
	t.firesAt = time.Time{}
	if !ended {
		t.firing.Add(1)
	}
}

// Done ends a run of fire.
func (t *ConnTimer) Done() { t.firing.Done() }

// Stop stops the timer. fire may already be running.
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

// Wait waits until no fire runs. The owner calls it after the connection has ended, so no further
// run starts.
func (t *ConnTimer) Wait() { t.firing.Wait() }
