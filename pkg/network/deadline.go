package network

import (
	"errors"
	"net"
	"os"
	"time"
)

// deadline is the deadline of one direction. Each new deadline in the runtime costs a timer
// operation. On a connection whose deadline moves later with every request, nearly all of these
// operations are wasted. So the runtime gets a new deadline only if none is armed, or if the new
// one is earlier. When the timer fires too early, the connection arms it again with the deadline in
// want.
type deadline struct {
	want  instant // 0: never
	armed instant // the deadline in the runtime; 0: none
}

// set stores t and reports whether the caller must arm the runtime's timer.
func (d *deadline) set(t time.Time) (mustArm bool) {
	d.want = instantOf(t)
	if d.want == 0 || d.armed != 0 && d.armed <= d.want {
		return false
	}
	d.armed = d.want
	return true
}

// instant is a time as nanoseconds since epoch; 0 is the zero time. It takes one word, a time.Time
// three. A Conn has four instants.
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

// SetReadDeadline sets until when reads wait; the zero time means forever. It needs no timer
// operation while the deadline only moves later. Only the reading goroutine may call it.
func (c *Conn) SetReadDeadline(t time.Time) {
	if c.reader.deadline.set(t) {
		c.armRead(t)
	}
}

// armRead sets the deadline in the runtime. Interrupt and Drain set their bit before they change
// the deadline: either armRead sees the bit, or their deadline replaces t.
func (c *Conn) armRead(t time.Time) {
	_ = c.nc.SetReadDeadline(t) // fails only on a closed connection, as the read will
	if c.state.load().wakesReader() {
		_ = c.nc.SetReadDeadline(aLongTimeAgo())
	}
}

// handleReadError converts an error of the socket to the error for the reader; nil means that the
// reader must read again.
func (c *Conn) handleReadError(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	d := &c.reader.deadline
	state := c.state.load()
	switch {
	case state.interrupted():
		d.armed = 0
		return ErrInterrupted
	case state.drainingWhileIdle():
		if err := c.checkDrained(); err != nil {
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

// writeTimer ends writes that take too long. The writing goroutine owns the timer and passes nc,
// the connection that it writes to.
type writeTimer struct {
	timeout  time.Duration // maximum time without progress; 0: no limit
	deadline deadline      // armed may belong to an earlier write
}

// SetWriteTimeout sets how long a write may make no progress; 0 means forever. Only the writing
// goroutine may call it.
func (c *Conn) SetWriteTimeout(d time.Duration) { c.writer.timer.timeout = d }

// SetWriteDeadline sets when writes end, whatever their progress; the zero time means never. It
// needs no timer operation while the deadline only moves later. Only the writing goroutine may call
// it.
func (c *Conn) SetWriteDeadline(t time.Time) {
	if c.writer.timer.deadline.set(t) {
		_ = c.nc.SetWriteDeadline(t) // fails only on a closed connection, as the write will
	}
}

// start arms the timer unless it is armed, so that a write without progress ends.
func (w *writeTimer) start(nc net.Conn) {
	if w.timeout > 0 && w.deadline.armed == 0 {
		w.arm(nc, time.Now())
	}
}

// timedOut reports whether a write that the timer ended must fail; if not, it arms the timer again.
// stuck: timedOut has armed the timer during this write, and the write has made no progress since.
func (w *writeTimer) timedOut(nc net.Conn, stuck bool) bool {
	now, want := time.Now(), w.deadline.want
	if stuck || want != 0 && instantOf(now) >= want {
		return true
	}
	w.arm(nc, now)
	return false
}

// arm arms the timer. The timer keeps running from one write to the next, because arming it for
// each small write would cost too much. So a timer that fires may belong to an earlier write. Only
// when the timer fires again during one write, without progress, is the peer too slow.
func (w *writeTimer) arm(nc net.Conn, now time.Time) {
	d := &w.deadline
	d.armed = d.want
	if timeout := instantOf(now.Add(w.timeout)); w.timeout > 0 && (d.want == 0 || timeout < d.want) {
		d.armed = timeout
	}
	_ = nc.SetWriteDeadline(d.armed.time()) // fails only on a closed connection, as the write will
}

// aLongTimeAgo returns a deadline that has passed, even on the fake clock of a test.
func aLongTimeAgo() time.Time { return time.Unix(1, 0) }
