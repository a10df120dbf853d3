package network

import (
	"errors"
	"os"
	"time"
)

// deadline is the deadline of one direction. Each new deadline in the runtime costs a timer
// operation; on a connection whose deadline moves later with every request, nearly all of
// them are wasted. So the runtime gets a new deadline only when it is earlier than the armed
// one. When its timer fires too early, the connection arms it again with the wanted
// deadline.
type deadline struct {
	want  instant // 0: never
	armed instant // the deadline in the runtime; 0: none
}

// set stores t and reports whether the caller must arm the runtime's timer.
func (d *deadline) set(t time.Time) (arm bool) {
	d.want = instantOf(t)
	if d.want == 0 || d.armed != 0 && d.armed <= d.want {
		return false
	}
	d.armed = d.want
	return true
}

// instant is a time as nanoseconds since epoch; 0 is the zero time. It takes one word
// instead of the three of a time.Time. An idle connection keeps four instants.
type instant int64

// epoch is an arbitrary time of the process.
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

// SetReadDeadline sets how long Fill and Read wait; the zero time means forever. It costs
// nothing while the deadline only moves later. The reading goroutine calls it.
func (c *Conn) SetReadDeadline(t time.Time) {
	if c.reader.deadline.set(t) {
		c.armRead(t)
	}
}

// armRead sets the deadline in the runtime. Interrupt and Drain set their bit before they
// change the deadline: either armRead sees the bit, or their deadline replaces t.
func (c *Conn) armRead(t time.Time) {
	_ = c.nc.SetReadDeadline(t) // fails only on a closed connection, as the read will
	if c.mustReturn() {
		_ = c.nc.SetReadDeadline(aLongTimeAgo())
	}
}

// readFailed turns an error of the socket into the error for the reader; nil means that the
// reader must read again.
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

func (c *Conn) mustReturn() bool {
	state := c.state.Load()
	return state&stateInterrupted != 0 || state&(stateDraining|stateIdle) == stateDraining|stateIdle
}

// SetWriteTimeout sets how long a write may make no progress; 0 means forever. The writing
// goroutine calls it.
func (c *Conn) SetWriteTimeout(d time.Duration) { c.writer.quiet = d }

// SetWriteDeadline sets when writes end, whatever their progress; the zero time means never.
// It costs nothing while the deadline only moves later. The writing goroutine calls it.
func (c *Conn) SetWriteDeadline(t time.Time) {
	if c.writer.deadline.set(t) {
		_ = c.nc.SetWriteDeadline(t) // fails only on a closed connection, as the write will
	}
}

// beginWrite arms the write timer, so that a write without progress ends.
func (c *Conn) beginWrite() {
	if c.writer.quiet > 0 && c.writer.deadline.armed == 0 {
		c.armWrite(time.Now())
	}
}

// writeTimedOut reports whether a write that the timer ended must fail; if not, it arms the
// timer again. stuck says that the write made no progress since it armed the timer itself.
func (c *Conn) writeTimedOut(stuck bool) bool {
	now, want := time.Now(), c.writer.deadline.want
	if stuck || want != 0 && instantOf(now) >= want {
		return true
	}
	c.armWrite(now)
	return false
}

// armWrite arms the write timer. The timer keeps running from one write to the next, because
// it costs too much to arm it for each small write. So a timer that fires may belong to an
// earlier write; only one that was armed in the same write means that the peer is slow.
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
	_ = c.nc.SetReadDeadline(aLongTimeAgo())
}

// Resume ends an interruption. No goroutine may read during the call.
func (c *Conn) Resume() {
	c.state.And(^uint32(stateInterrupted))
	d := &c.reader.deadline
	d.armed = d.want
	_ = c.nc.SetReadDeadline(d.want.time())
}

// SetIdle sets whether the reader waits between exchanges, where Drain may wake it. It
// returns ErrDraining when the connection must end instead of waiting. The reading goroutine
// calls it.
func (c *Conn) SetIdle(idle bool) error {
	if !idle {
		c.state.And(^uint32(stateIdle))
		return nil
	}
	if c.Requests > 0 && c.state.Load()&stateNoExchange != 0 {
		c.firstExchangeDone()
	}
	if c.state.Or(stateIdle)&stateDraining != 0 {
		return c.drained()
	}
	return nil
}

// firstExchangeDone records that the first exchange is over. The connection then drains if a drain
// waited for that exchange.
func (c *Conn) firstExchangeDone() {
	if c.state.And(^uint32(stateNoExchange))&stateAwaitFirst != 0 {
		c.state.Or(stateDraining)
	}
}

// drained returns ErrDraining for an idle connection that must end. If the peer has begun
// another exchange meanwhile, the connection is no longer idle and drained returns nil.
func (c *Conn) drained() error {
	if c.reader.unread == nil && !c.hasBytes() {
		return ErrDraining
	}
	c.state.And(^uint32(stateIdle))
	return nil
}

// Drain asks the connection to end after its current exchange. With idleToo, an idle
// connection ends now, unless bytes of an exchange have arrived or a drain waits for its
// first exchange. Otherwise an idle connection ends after its next exchange. Safe from any
// goroutine.
func (c *Conn) Drain(idleToo bool) {
	const first = stateNoExchange | stateAwaitFirst
	if !idleToo || c.state.Load()&first == first {
		c.state.Or(stateDrainAfterNext)
		return
	}
	if c.state.Or(stateDraining)&stateIdle != 0 {
		_ = c.nc.SetReadDeadline(aLongTimeAgo())
	}
}

// Draining reports whether the current exchange is the last.
func (c *Conn) Draining() bool { return c.state.Load()&(stateDraining|stateDrainAfterNext) != 0 }

// DrainExpiring reports whether the drain time is nearly over: a handler with exchanges in
// flight then reads no more requests.
func (c *Conn) DrainExpiring() bool { return c.state.Load()&stateDrainExpiring != 0 }

// forceClose closes a connection that did not drain in time. Safe from any goroutine.
func (c *Conn) forceClose() {
	c.state.Or(stateForceClosed)
	_ = c.closeWithoutNotify() // it may already be closed
}

// effectiveCloseReason returns the close reason. The caller calls it once nobody serves the
// connection.
func (c *Conn) effectiveCloseReason() CloseReason {
	switch state := c.state.Load(); {
	case state&stateForceClosed != 0:
		return ClosedDrainTimeout
	case state&stateShed != 0 && c.CloseReason == ClosedDrained:
		return ClosedOverload
	}
	return c.CloseReason
}

// aLongTimeAgo returns a deadline that has passed, also on the fake clock of a test.
func aLongTimeAgo() time.Time { return time.Unix(1, 0) }
