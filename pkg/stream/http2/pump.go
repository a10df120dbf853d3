package http2

import (
	"sync"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// pump moves the content of a stream to a stream of another connection, as bytes arrive and windows
// open. It has no goroutine: a goroutine that changes the state of either stream kicks it, and
// moves bytes until the pump has to wait for either side. A late kick is harmless, even if the pump
// moves another content by now.
//
// Lock order: mu, then wire.mu of the destination, then mu of the content. The pump credits the
// source with only mu held.
type pump struct {
	mu     sync.Mutex
	active bool // guarded by mu; if false, the fields up to number are unused
	from   *content
	to     *muxStream
	owner  pumper
	number uint64

	queued links[pump] // in wire.waiters; guarded by that wire's mu
}

// pumper is notified when a pump ends.
type pumper interface {
	// pumped is called once for each start, unless stop was called first: the content and its end
	// are queued, or err is the reason why they cannot be sent. It runs on the goroutine that
	// kicked the pump, which owns b. to is the destination connection, and number is the one passed
	// to start: the pumper may belong to another exchange by now.
	pumped(b *batch, to *muxConn, number uint64, err error)
}

// start makes p move from to the stream to. The caller kicks p afterwards.
func (p *pump) start(from *content, to *muxStream, owner pumper, number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active, p.from, p.to, p.owner, p.number = true, from, to, owner, number
	from.feed(p) // p.mu is held, so that a kick cannot end p before this
}

// stop stops p, and reports whether it had ended before. After stop returns, p uses neither stream.
func (p *pump) stop() (ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ended = !p.active
	if p.active {
		w := p.to.wire
		w.mu.Lock()
		w.waiters.remove(p)
		w.mu.Unlock()
	}
	p.clear()
	return ended
}

// clear resets p. p.mu is held.
func (p *pump) clear() {
	p.active = false
	p.from, p.to, p.owner = nil, nil, nil
}

// kick moves as many bytes as possible. The caller holds no lock.
func (p *pump) kick(b *batch) {
	owner, to, number, over, err := p.run(b)
	if owner == nil {
		return
	}
	if to.outbox.Queued() > 0 {
		b.sends(to.outbox)
	}
	if over || err != nil {
		owner.pumped(b, to, number, err)
	}
}

// run does the work of kick with p.mu held. owner is nil if p is not active.
func (p *pump) run(b *batch) (owner pumper, to *muxConn, number uint64, over bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.active {
		return nil, nil, 0, false, nil
	}
	from := p.from
	owner, to, number = p.owner, p.to.wire, p.number
	taken, over, err := p.move(b)
	if over || err != nil {
		from.feed(nil)
		p.clear()
	}
	if taken > 0 {
		from.lane.consumed(b, taken) // with p.mu held, so that from is not released meanwhile
	}
	return owner, to, number, over, err
}

// move queues as many bytes as possible. credit is the number of bytes to credit the source with;
// over: the end was queued too. p.mu is held.
func (p *pump) move(b *batch) (credit int, over bool, err error) {
	from, l := p.from, p.to
	w := l.wire
	w.mu.Lock()
	defer func() {
		if over || err != nil {
			w.waiters.remove(p) // p may be used for another connection next
		}
		w.mu.Unlock()
	}()
	defer protocol.RecoverPanic(&err)
	if l.cut != nil {
		return 0, false, l.cut
	}
	l.touch(b.time())
	from.mu.Lock()
	defer from.mu.Unlock()
	for {
		switch {
		case from.closed: // the unread bytes were dropped, so the end must not be sent
			return 0, false, nil
		case from.err != nil:
			return from.due(), false, from.err
		case from.unread == 0 && !from.whole:
			return from.due(), false, nil
		case from.unread == 0:
			if err = w.appendEnd(l, &from.trailer); err == nil {
				from.finish()
			}
			return from.due(), err == nil, err
		case w.full(p):
			return from.due(), false, nil
		}
		n, ended, err := w.appendPiece(b, l, from)
		if err != nil {
			return from.due(), false, err
		}
		if n == 0 {
			w.block(l)
			return from.due(), false, nil
		}
		if ended {
			return from.due(), true, nil
		}
	}
}

// appendPiece queues as much of c's first unread piece as one frame can hold, with the end of the
// message if it is the last. n is 0 if the windows are closed. w.mu and c.mu are held.
func (w *muxConn) appendPiece(b *batch, l *muxStream, c *content) (n int, ended bool, err error) {
	p := c.pieces[c.first].Bytes()
	last := c.whole && c.unread == len(p) && c.trailer.Len() == 0
	head, n, err := w.state.ReserveData(w.scratch[:0], l.stream, len(p), last)
	w.scratch = head[:0]
	if len(head) > 0 && (n == 0 || !w.lend(b, c, head, n)) {
		dst := append(w.outbox.BeginFrame(len(head)+n), head...)
		if lost := w.outbox.EndFrame(append(dst, p[:n]...)); lost != nil && err == nil {
			err = goneFault(lost)
		}
	}
	if n > 0 {
		c.discard(n)
		l.sent += int64(n)
	}
	return n, last && n == len(p) && err == nil, err
}

// lend queues a frame without copying its payload, if c borrows a frame with the same payload. head
// ends with the new frame header, and may begin with another frame. n is the length of the payload.
// w.mu and c.mu are held.
func (w *muxConn) lend(b *batch, c *content, head []byte, n int) bool {
	frame := c.lentFrame(b, n)
	if frame == nil {
		return false
	}
	at := len(head) - syntax.FrameHeaderLen
	copy(frame, head[at:])
	if !w.outbox.AppendBorrowed(head[:at], frame) {
		return false
	}
	c.borrowedFrom = nil // the queue uses its header bytes, so it cannot be borrowed again
	b.lends(w.outbox)
	return true
}

// full reports whether so many bytes are pending that p has to wait. If so, awaitRoom kicks p
// later. w.mu is held.
func (w *muxConn) full(p *pump) bool {
	if w.outbox.Queued() < network.HighWatermark {
		return false
	}
	w.waiters.push(p) // no effect if p already waits
	if !w.awaiting {
		w.awaiting = true
		w.engine.start(w.awaitRoom)
	}
	return true
}

// awaitRoom kicks the pumps that wait for space in the write queue, oldest first, until none waits.
func (w *muxConn) awaitRoom() {
	for more := true; more; {
		_ = w.outbox.Flush() // nothing else may have flushed it
		w.outbox.AwaitCapacity()
		more = w.fillRoom()
	}
}

// fillRoom kicks waiting pumps until the write queue reaches the high watermark. It returns false
// if no pump waits.
func (w *muxConn) fillRoom() (more bool) {
	for {
		w.mu.Lock()
		switch {
		case w.waiters.empty():
			w.awaiting = false
			w.mu.Unlock()
			return false
		case w.lost == nil && w.outbox.Queued() >= network.HighWatermark:
			w.mu.Unlock()
			return true
		}
		p := w.waiters.pop()
		w.mu.Unlock()
		p.kick(nil)
	}
}
