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
// Lock order: mu, then muxConn.mu of the destination, then mu of the content. The pump credits the
// source with only mu held.
type pump struct {
	mu     sync.Mutex
	active bool // guarded by mu; if false, the fields up to number are unused
	from   *recvBody
	to     *muxStream
	owner  pumper
	callID uint64

	waitLinks links[pump] // in muxConn.waitingPumps; guarded by the mu of that muxConn
}

// pumper is notified when a pump ends.
type pumper interface {
	// pumpEnded is called once for each start, unless stop was called first: the content and its
	// end are queued, or err is the reason why they cannot be sent. It runs on the goroutine that
	// kicked the pump, which owns b. to is the destination connection, and number is the one passed
	// to start: the pumper may belong to another exchange by now.
	pumpEnded(b *batch, to *muxConn, number uint64, err error)
}

// start makes p move from to the stream to. The caller kicks p afterwards.
func (p *pump) start(from *recvBody, to *muxStream, owner pumper, number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active, p.from, p.to, p.owner, p.callID = true, from, to, owner, number
	from.setPump(p) // p.mu is held, so that a kick cannot end p before this
}

// stop stops p, and reports whether it had ended before. After stop returns, p uses neither stream.
func (p *pump) stop() (ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ended = !p.active
	if p.active {
		w := p.to.conn
		w.mu.Lock()
		w.waitingPumps.remove(p)
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
	if to.writeQueue.Queued() > 0 {
		b.scheduleFlush(to.writeQueue)
	}
	if over || err != nil {
		owner.pumpEnded(b, to, number, err)
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
	owner, to, number = p.owner, p.to.conn, p.callID
	taken, over, err := p.move(b)
	if over || err != nil {
		from.setPump(nil)
		p.clear()
	}
	if taken > 0 {
		from.stream.reportConsumed(b, taken) // with p.mu held, so that from is not released meanwhile
	}
	return owner, to, number, over, err
}

// move queues as many bytes as possible. credit is the number of bytes to credit the source with;
// over: the end was queued too. p.mu is held.
func (p *pump) move(b *batch) (credit int, over bool, err error) {
	from, l := p.from, p.to
	w := l.conn
	w.mu.Lock()
	defer func() {
		if over || err != nil {
			w.waitingPumps.remove(p) // p may be used for another connection next
		}
		w.mu.Unlock()
	}()
	defer protocol.RecoverPanic(&err)
	if l.sendErr != nil {
		return 0, false, l.sendErr
	}
	l.touch(b.time())
	from.mu.Lock()
	defer from.mu.Unlock()
	for {
		switch {
		case from.closed: // the unread bytes were dropped, so the end must not be sent
			return 0, false, nil
		case from.err != nil:
			return from.takeCredit(), false, from.err
		case from.unread == 0 && !from.complete:
			return from.takeCredit(), false, nil
		case from.unread == 0:
			if err = w.appendEnd(l, &from.trailer); err == nil {
				from.addTrailers()
			}
			return from.takeCredit(), err == nil, err
		case w.waitIfQueueFull(p):
			return from.takeCredit(), false, nil
		}
		n, ended, err := w.appendPiece(b, l, from)
		if err != nil {
			return from.takeCredit(), false, err
		}
		if n == 0 {
			w.block(l)
			return from.takeCredit(), false, nil
		}
		if ended {
			return from.takeCredit(), true, nil
		}
	}
}

// appendPiece queues as much of c's first unread piece as one frame can hold, with the end of the
// message if it is the last. n is 0 if the windows are closed. w.mu and c.mu are held.
func (w *muxConn) appendPiece(b *batch, l *muxStream, c *recvBody) (n int, ended bool, err error) {
	p := c.pieces[c.first].Bytes()
	last := c.complete && c.unread == len(p) && c.trailer.Len() == 0
	head, n, err := w.state.ReserveData(w.scratch[:0], l.stream, len(p), last)
	w.scratch = head[:0]
	if len(head) > 0 && (n == 0 || !w.appendBorrowed(b, c, head, n)) {
		dst := append(w.writeQueue.BeginFrame(len(head)+n), head...)
		if lost := w.writeQueue.EndFrame(append(dst, p[:n]...)); lost != nil && err == nil {
			err = disconnectFault(lost)
		}
	}
	if n > 0 {
		c.consume(n)
		l.bytesSent += int64(n)
	}
	return n, last && n == len(p) && err == nil, err
}

// appendBorrowed queues a frame without copying its payload, if c borrows a frame with the same
// payload. head ends with the new frame header, and may begin with another frame. n is the length
// of the payload. w.mu and c.mu are held.
func (w *muxConn) appendBorrowed(b *batch, c *recvBody, head []byte, n int) bool {
	frame := c.borrowedFrame(b, n)
	if frame == nil {
		return false
	}
	at := len(head) - syntax.FrameHeaderLen
	copy(frame, head[at:])
	if !w.writeQueue.AppendBorrowed(head[:at], frame) {
		return false
	}
	c.borrowedFrom = nil // the queue uses its header bytes, so it cannot be borrowed again
	b.addBorrower(w.writeQueue)
	return true
}

// waitIfQueueFull reports whether so many bytes are pending that p has to wait. If so,
// kickWhenWritable kicks p later. w.mu is held.
func (w *muxConn) waitIfQueueFull(p *pump) bool {
	if w.writeQueue.Queued() < network.HighWatermark {
		return false
	}
	w.waitingPumps.push(p) // no effect if p already waits
	if !w.awaitingCapacity {
		w.awaitingCapacity = true
		w.engine.goroutines.Start(w.kickWhenWritable)
	}
	return true
}

// kickWhenWritable kicks the pumps that wait for space in the write queue, oldest first, until none
// waits.
func (w *muxConn) kickWhenWritable() {
	for more := true; more; {
		_ = w.writeQueue.Flush() // nothing else may have flushed it
		w.writeQueue.AwaitCapacity()
		more = w.kickWaiting()
	}
}

// kickWaiting kicks waiting pumps until the write queue reaches the high watermark. It returns
// false if no pump waits.
func (w *muxConn) kickWaiting() (more bool) {
	for {
		w.mu.Lock()
		switch {
		case w.waitingPumps.empty():
			w.awaitingCapacity = false
			w.mu.Unlock()
			return false
		case w.lostErr == nil && w.writeQueue.Queued() >= network.HighWatermark:
			w.mu.Unlock()
			return true
		}
		p := w.waitingPumps.pop()
		w.mu.Unlock()
		p.kick(nil)
	}
}
