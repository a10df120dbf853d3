package network

import (
	"errors"
	"os"
	"time"
)

// deadline is the deadline of one direction. Telling the runtime of a new deadline
// costs a timer operation; on a connection whose deadline moves on with every
// request, nearly all of them are wasted. So the runtime is told only when the
// deadline comes nearer than what it was told last. When its timer fires too
// early, it is armed again with what is wanted by then.
type deadline struct {
	want  instant // 0: never
	armed instant // what the runtime knows; 0: nothing
}

// set notes t and reports whether the runtime must be told.
func (d *deadline) set(t time.Time) (arm bool) {
	d.want = instantOf(t)
	if d.want == 0 || d.armed != 0 && d.armed <= d.want {
		return false
	}
	d.armed = d.want
	return true
}

// instant is a time in one word of the three that a time.Time has, of which an idle
// connection would keep four: the nanoseconds since epoch. 0 is the zero time.
type instant int64

// epoch is any time of the process.
var epoch = time.Now() //nolint:gochecknoglobals // a constant

func instantOf(t time.Time) instant {
	if t.IsZero() {
		return 0
	}
	if i := instant(t.Sub(epoch)); i != 0 {
		return i
	}
	return 1
}

func (i instant) time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return epoch.Add(time.Duration(i))
}

// SetReadDeadline sets until when Fill and Read wait; the zero time means for
// ever. It costs nothing as long as the deadline only moves on. Called by the
// reading goroutine.
func (c *Conn) SetReadDeadline(t time.Time) {
	if c.reader.deadline.set(t) {
		c.armRead(t)
	}
}

// armRead tells the runtime. Interrupt and Drain set their bit before they
// touch the deadline: either we see the bit here or their deadline comes after
// ours.
func (c *Conn) armRead(t time.Time) {
	_ = c.nc.SetReadDeadline(t) // fails only on a closed connection, as the read will
	if c.wakened() {
		_ = c.nc.SetReadDeadline(longAgo())
	}
}

// readFailed turns an error of the socket into what the reader is to know; nil
// means: read again.
func (c *Conn) readFailed(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	d := &c.reader.deadline
	state := c.state.Load()
	switch {
	case state&stateInterrupted != 0:
		d.armed = 0
		return ErrInterrupted
	case state&(stateDraining|stateIdle) == stateDraining|stateIdle:
		if err := c.drained(); err != nil {
			d.armed = 0
			return err
		}
	case d.want != 0 && instantOf(time.Now()) >= d.want:
		return os.ErrDeadlineExceeded
	}
	d.armed = d.want
	c.armRead(d.want.time())
	return nil
}

func (c *Conn) wakened() bool {
	state := c.state.Load()
	return state&stateInterrupted != 0 || state&(stateDraining|stateIdle) == stateDraining|stateIdle
}

// SetWriteTimeout sets how long a write may go without progress; 0 means for
// ever. Called by the writing goroutine.
func (c *Conn) SetWriteTimeout(d time.Duration) { c.writer.quiet = d }

// SetWriteDeadline sets when writes end, whatever their progress; the zero time
// means never. It costs nothing as long as the deadline only moves on. Called by
// the writing goroutine.
func (c *Conn) SetWriteDeadline(t time.Time) {
	if c.writer.deadline.set(t) {
		_ = c.nc.SetWriteDeadline(t) // fails only on a closed connection, as the write will
	}
}

// beginWrite sees to it that a write which makes no progress ends.
func (c *Conn) beginWrite() {
	if c.writer.quiet > 0 && c.writer.deadline.armed == 0 {
		c.armWrite(time.Now())
	}
}

// writeIsLate decides about a write that the timer ended; stuck says that it made
// no progress since it started the timer itself. If it is not late, the timer is
// started again.
func (c *Conn) writeIsLate(stuck bool) bool {
	now, want := time.Now(), c.writer.deadline.want
	if stuck || want != 0 && instantOf(now) >= want {
		return true
	}
	c.armWrite(now)
	return false
}

// armWrite starts the write timer. It is left running from one write to the
// next, since starting it costs more than a small write's share: so a timer
// that fires may belong to an earlier write, and only one that was started in
// the same write means that the peer is slow.
func (c *Conn) armWrite(now time.Time) {
	d := &c.writer.deadline
	d.armed = d.want
	if quiet := instantOf(now.Add(c.writer.quiet)); c.writer.quiet > 0 && (d.want == 0 || quiet < d.want) {
		d.armed = quiet
	}
	_ = c.nc.SetWriteDeadline(d.armed.time()) // fails only on a closed connection, as the write will
}

// Interrupt makes the reader return ErrInterrupted, now or when it next waits,
// until Resume. Safe from any goroutine.
func (c *Conn) Interrupt() {
	c.state.Or(stateInterrupted)
	_ = c.nc.SetReadDeadline(longAgo())
}

// Resume ends an interruption. Called when no goroutine reads.
func (c *Conn) Resume() {
	c.state.And(^uint32(stateInterrupted))
	d := &c.reader.deadline
	d.armed = d.want
	_ = c.nc.SetReadDeadline(d.want.time())
}

// SetIdle says whether the reader waits between exchanges, where Drain may wake
// it. It returns ErrDraining when the connection is to end instead of waiting.
// Called by the reading goroutine.
func (c *Conn) SetIdle(idle bool) error {
	if !idle {
		c.state.And(^uint32(stateIdle))
		return nil
	}
	if c.Requests > 0 && c.state.Load()&stateFresh != 0 {
		c.hadFirst()
	}
	if c.state.Or(stateIdle)&stateDraining != 0 {
		return c.drained()
	}
	return nil
}

// hadFirst notes that the connection's first exchange is over, which is its last if it
// was waited for.
func (c *Conn) hadFirst() {
	if c.state.And(^uint32(stateFresh))&stateAwaited != 0 {
		c.state.Or(stateDraining)
	}
}

// drained returns ErrDraining for an idle connection that is to end; but if its
// peer has begun another exchange meanwhile, the connection is no longer idle.
func (c *Conn) drained() error {
	if c.reader.unread == nil && !c.hasBytes() {
		return ErrDraining
	}
	c.state.And(^uint32(stateIdle))
	return nil
}

// Drain asks for the connection's end after the exchange that it is in; with
// idleToo an idle one ends now, unless bytes of an exchange have arrived, or its
// first is waited for, else after its next exchange. Safe from any goroutine.
func (c *Conn) Drain(idleToo bool) {
	const first = stateFresh | stateAwaited
	if !idleToo || c.state.Load()&first == first {
		c.state.Or(stateDrainAfterNext)
		return
	}
	if c.state.Or(stateDraining)&stateIdle != 0 {
		_ = c.nc.SetReadDeadline(longAgo())
	}
}

// Draining reports whether the exchange being served is to be the last.
func (c *Conn) Draining() bool { return c.state.Load()&(stateDraining|stateDrainAfterNext) != 0 }

// DrainExpiring reports whether the time to drain is nearly over: whoever has exchanges
// under way reads no more of them.
func (c *Conn) DrainExpiring() bool { return c.state.Load()&stateEnding != 0 }

// forceClose ends a connection that did not drain in time. Safe from any goroutine.
func (c *Conn) forceClose() {
	c.state.Or(stateForceClosed)
	_ = c.closeWithoutNotify() // already closed is as good
}

// effectiveCloseReason returns why the connection has ended, once nobody serves it.
func (c *Conn) effectiveCloseReason() CloseReason {
	switch state := c.state.Load(); {
	case state&stateForceClosed != 0:
		return ClosedDrainTimeout
	case state&stateShed != 0 && c.CloseReason == CauseDrained:
		return CauseOverload
	}
	return c.CloseReason
}

// longAgo is a deadline that has passed, also in a test's time.
func longAgo() time.Time { return time.Unix(1, 0) }
