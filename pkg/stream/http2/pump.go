package http2

import (
	"sync"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// pump moves a received body to a stream of another connection, as bytes arrive and windows open. A
// pump has no goroutine: a goroutine that changes the state of either stream calls kick, which
// moves bytes until the pump has to wait for either stream. A late kick is harmless, even if the
// pump moves another body by now.
//
// Lock order: mu, then muxConn.mu of the destination, then recvBody.mu. The pump credits the source
// while it holds only mu.
type pump struct {
	mu     sync.Mutex
	active bool // guarded by mu; if false, the fields up to callID are unused
	from   *recvBody
	to     *muxStream
	owner  pumpOwner
	callID uint64

	waitLinks links[pump] // links in muxConn.waitingPumps; guarded by the mu of that muxConn
}

// pumpOwner is the exchange or the call for which a pump sends a body.
type pumpOwner interface {
	// pumpEnded handles the end of the pump: the body and its end are queued, or err is the reason
	// why they cannot be sent. The pump calls pumpEnded once for each start, unless stop was called
	// first, on the goroutine that kicked it. That goroutine owns b. to is the destination
	// connection. callID is the argument of start: the owner may belong to another exchange by now.
	pumpEnded(b *batch, to *muxConn, callID uint64, err error)
}

// start makes p move from to the stream to. The caller kicks p afterwards.
func (p *pump) start(from *recvBody, to *muxStream, owner pumpOwner, callID uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active, p.from, p.to, p.owner, p.callID = true, from, to, owner, callID
	from.setPump(p) // with p.mu held, so that no kick can end p earlier
}

// stop stops p, and reports whether it had ended before. After stop returns, p uses neither stream.
func (p *pump) stop() (ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ended = !p.active
	if p.active {
		mc := p.to.conn
		mc.mu.Lock()
		mc.waitingPumps.remove(p)
		mc.mu.Unlock()
	}
	p.clear()
	return ended
}

// clear resets p. The caller holds p.mu.
func (p *pump) clear() {
	p.active = false
	p.from, p.to, p.owner = nil, nil, nil
}

// kick moves as many bytes as possible. The caller holds no lock.
func (p *pump) kick(b *batch) {
	owner, to, callID, ended, err := p.run(b)
	if owner == nil {
		return
	}
	if to.writeQueue.Queued() > 0 {
		b.scheduleFlush(to.writeQueue)
	}
	if ended || err != nil {
		owner.pumpEnded(b, to, callID, err)
	}
}

// run locks p.mu and does the work of kick. owner is nil if p is not active.
func (p *pump) run(b *batch) (owner pumpOwner, to *muxConn, callID uint64, ended bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.active {
		return nil, nil, 0, false, nil
	}
	from := p.from
	owner, to, callID = p.owner, p.to.conn, p.callID
	credit, ended, err := p.move(b)
	if ended || err != nil {
		from.setPump(nil)
		p.clear()
	}
	if credit > 0 {
		from.stream.reportConsumed(b, credit) // run holds p.mu, so that from is not released meanwhile
	}
	return owner, to, callID, ended, err
}

// move queues as many bytes as possible. credit is the number of bytes to credit the source with.
// ended reports whether the end was queued too. The caller holds p.mu.
func (p *pump) move(b *batch) (credit int, ended bool, err error) {
	from, to := p.from, p.to
	mc := to.conn
	mc.mu.Lock()
	defer func() {
		if ended || err != nil {
			mc.waitingPumps.remove(p) // p may be used for another connection next
		}
		mc.mu.Unlock()
	}()
	defer protocol.RecoverPanic(&err)
	if to.sendErr != nil {
		return 0, false, to.sendErr
	}
	to.touch(b.time())
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
			if err = mc.appendEnd(to, &from.trailer); err == nil {
				from.addTrailers()
			}
			return from.takeCredit(), err == nil, err
		case mc.waitIfQueueFull(p):
			return from.takeCredit(), false, nil
		}
		n, sentEnd, err := mc.appendPiece(b, to, from)
		if err != nil {
			return from.takeCredit(), false, err
		}
		if n == 0 {
			mc.block(to)
			return from.takeCredit(), false, nil
		}
		if sentEnd {
			return from.takeCredit(), true, nil
		}
	}
}

// appendPiece queues as much of from's first unread piece as one frame can hold, and the end of the
// message if the piece is the last one. n is 0 if the windows are closed. The caller holds mc.mu
// and from.mu.
func (mc *muxConn) appendPiece(b *batch, to *muxStream, from *recvBody) (n int, ended bool, err error) {
	p := from.pieces[from.first].Bytes()
	last := from.complete && from.unread == len(p) && from.trailer.Len() == 0
	head, n, err := mc.state.ReserveData(mc.scratch[:0], to.stream, len(p), last)
	mc.scratch = head[:0]
	if len(head) > 0 && (n == 0 || !mc.appendBorrowed(b, from, head, n)) {
		dst := append(mc.writeQueue.BeginFrame(len(head)+n), head...)
		if lost := mc.writeQueue.EndFrame(append(dst, p[:n]...)); lost != nil && err == nil {
			err = disconnectFault(lost)
		}
	}
	if n > 0 {
		from.consume(n)
		to.bytesSent += int64(n)
	}
	return n, last && n == len(p) && err == nil, err
}

// appendBorrowed queues a frame without copying its payload, if from borrows a frame with the same
// payload. head ends with the new frame header, and may begin with another frame. n is the length
// of the payload. The caller holds mc.mu and from.mu.
func (mc *muxConn) appendBorrowed(b *batch, from *recvBody, head []byte, n int) bool {
	frame := from.borrowedFrame(b, n)
	if frame == nil {
		return false
	}
	headerStart := len(head) - syntax.FrameHeaderLen
	copy(frame, head[headerStart:])
	if !mc.writeQueue.AppendBorrowed(head[:headerStart], frame) {
		return false
	}
	from.borrowedFrom = nil // the queue uses the frame's header, so the frame cannot be borrowed again
	b.addBorrower(mc.writeQueue)
	return true
}

// waitIfQueueFull reports whether so many bytes are pending that p has to wait. If so,
// kickWhenWritable kicks p later. The caller holds mc.mu.
func (mc *muxConn) waitIfQueueFull(p *pump) bool {
	if mc.writeQueue.Queued() < network.HighWatermark {
		return false
	}
	mc.waitingPumps.push(p) // no effect if p already waits
	if !mc.awaitingCapacity {
		mc.awaitingCapacity = true
		mc.engine.goroutines.Start(mc.kickWhenWritable)
	}
	return true
}

// kickWhenWritable kicks the pumps that wait for space in the write queue, oldest first, until none
// waits.
func (mc *muxConn) kickWhenWritable() {
	for waiting := true; waiting; {
		_ = mc.writeQueue.Flush() // possibly no other goroutine flushes the queue
		mc.writeQueue.AwaitCapacity()
		waiting = mc.kickWaiting()
	}
}

// kickWaiting kicks waiting pumps until the write queue reaches the high watermark. It returns
// false if no pump waits.
func (mc *muxConn) kickWaiting() (waiting bool) {
	for {
		mc.mu.Lock()
		switch {
		case mc.waitingPumps.empty():
			mc.awaitingCapacity = false
			mc.mu.Unlock()
			return false
		case mc.lostErr == nil && mc.writeQueue.Queued() >= network.HighWatermark:
			mc.mu.Unlock()
			return true
		}
		p := mc.waitingPumps.pop()
		mc.mu.Unlock()
		p.kick(nil)
	}
}
