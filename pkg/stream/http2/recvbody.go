package http2

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// recvBody holds the bytes that a peer has sent on one stream and the consumer has not read: the
// body of a request on the downstream side, of a response on the upstream side. It implements
// protocol.Body. The window opens only as bytes are consumed, so a body never holds more than a
// window.
//
//	reader of the connection:  add … add, end or fail
//	consumer:                  Read … Read, Close   or   a pump, which is kicked
//
// While a pump consumes the body, it borrows the reader's bytes: they are copied at most once, from
// the reader's buffer to their destination. Only the bytes that the pump could not send immediately
// are copied into the body.
type recvBody struct {
	stream     *muxStream   // the stream that it arrives on; set by start
	trailerDst *header      // receives the trailers when io.EOF is returned; set by start
	maxBytes   int64        // maximum bytes; more are an error; 0: no limit; set by start
	received   atomic.Int64 // bytes received

	mu                sync.Mutex         // acquired after a stream's muxConn.mu
	changed           sync.Cond          // on mu: a field below changed
	pieces            []*buffer.IoBuffer // guarded by mu; pieces[first:] are unread and not empty
	borrowed          buffer.IoBuffer    // guarded by mu; bytes of the reader; in use, the last piece
	borrowedHeaderLen int                // guarded by mu; bytes of the frame header in borrowed, or 0
	borrowedFrom      *batch             // guarded by mu; of the reader; nil once a write queue borrows
	first             int                // guarded by mu; pieces before it have been read and are kept
	keepsRead         bool               // guarded by mu; read bytes are kept for Rewind
	unread            int                // guarded by mu; unread bytes in pieces
	pendingCredit     int                // guarded by mu; consumed bytes not yet credited to the peer
	complete          bool               // guarded by mu; the body is complete
	closed            bool               // guarded by mu; the consumer has closed it
	err               error              // guarded by mu; why the body ended early
	trailer           header             // guarded by mu; final once complete is set
	text              []byte             // guarded by mu; trailer holds views of it
	pump              *pump              // guarded by mu; the pump that consumes it; nil: none
}

type header = protocol.Header

// start makes c the content of stream l. It needs no lock: the reader of c's previous stream may
// still be in copyBorrowed, which uses none of these fields.
func (c *recvBody) start(l *muxStream, into *header, limit int64) {
	c.stream, c.trailerDst, c.maxBytes = l, into, limit
	c.changed.L = &c.mu
	c.received.Store(0)
	c.pendingCredit, c.keepsRead, c.complete, c.closed, c.err, c.pump = 0, false, false, false, nil, nil
}

// reset releases what c holds. Only a late copyBorrowed may still use c.
func (c *recvBody) reset() {
	c.mu.Lock() // excludes copyBorrowed
	defer c.mu.Unlock()
	c.dropUnread()
	c.trailer.Reset()
	c.stream, c.trailerDst, c.pump, c.err = nil, nil, nil, nil
}

// dropUnread drops the unread bytes and returns their number. c.mu is held.
func (c *recvBody) dropUnread() int {
	dropped := c.unread
	for i, p := range c.pieces {
		c.releasePiece(p)
		c.pieces[i] = nil
	}
	c.pieces, c.first, c.unread = c.pieces[:0], 0, 0
	return dropped
}

// releasePiece releases a piece. c.mu is held.
func (c *recvBody) releasePiece(piece *buffer.IoBuffer) {
	if piece == &c.borrowed {
		c.borrowed.SetStorage(nil)
		c.borrowed.Reset()
		c.borrowedFrom, c.borrowedHeaderLen = nil, 0
		return
	}
	piece.Release()
}

// add appends received bytes, and returns the pump to kick. unwanted is the number of bytes that
// nothing will read. add copies p unless lent is true: then the caller calls copyBorrowed after
// the kick, before it reuses p. frame is the frame header followed by p if the frame holds nothing
// else, or nil. b is the batch of the reader. The stream's muxConn.mu is held.
func (c *recvBody) add(p, frame []byte, b *batch) (to *pump, lent bool, unwanted int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.err != nil {
		return nil, false, len(p)
	}
	total := c.received.Add(int64(len(p)))
	if c.maxBytes > 0 && total > c.maxBytes {
		c.err = protocol.Faultf(protocol.BodyTooLarge, "body exceeds %d bytes", c.maxBytes)
		unwanted = c.dropUnread() + len(p)
		c.changed.Broadcast()
		return c.pump, false, unwanted
	}
	if len(p) == 0 {
		return nil, false, 0
	}
	lent = c.pump != nil && c.unread == 0 // else nothing consumes it immediately
	c.unread += len(p)
	if n := len(c.pieces); lent {
		c.borrow(p, frame, b)
		c.pieces = append(c.pieces, &c.borrowed)
	} else if n > 0 && len(c.pieces[n-1].Tail()) >= len(p) {
		_, _ = c.pieces[n-1].Write(p) // never fails
	} else {
		c.pieces = append(c.pieces, copyOf(p))
	}
	c.changed.Broadcast()
	return c.pump, lent, 0
}

// borrow makes c borrow p, or frame, which ends with p, if it is not nil. c.mu is held.
func (c *recvBody) borrow(p, frame []byte, b *batch) {
	if frame == nil {
		frame = p
	}
	c.borrowedHeaderLen, c.borrowedFrom = len(frame)-len(p), b
	c.borrowed.SetStorage(frame[:len(frame):len(frame)])
	c.borrowed.Discard(c.borrowedHeaderLen)
}

// minBorrowSize is the minimum payload of a DATA frame, in bytes, for which borrowing is cheaper
// than copying.
const minBorrowSize = 4 << 10

// borrowedFrame returns the frame that c borrows from the reader of b, if all n bytes of its
// payload are unread. The caller may change its header. It returns nil if there is no such frame,
// if n is below minBorrowSize, if a write queue has already borrowed the frame, or if b belongs to
// another reader. c.mu is held.
func (c *recvBody) borrowedFrame(b *batch, n int) []byte {
	frame := c.borrowed.Storage()
	if b == nil || b != c.borrowedFrom || c.borrowedHeaderLen == 0 || n < minBorrowSize || c.pieces[c.first] != &c.borrowed || len(frame) != c.borrowedHeaderLen+n {
		return nil
	}
	return frame
}

func copyOf(p []byte) *buffer.IoBuffer {
	b := buffer.Get(len(p))
	_, _ = b.Write(p) // never fails
	return b
}

// copyBorrowed copies the borrowed bytes that were not consumed or are kept. c may belong to
// another stream by now; then it copies bytes that this stream borrows, earlier than necessary.
func (c *recvBody) copyBorrowed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.pieces) - 1
	if last < 0 || c.pieces[last] != &c.borrowed {
		return
	}
	all := c.borrowed.Storage()[c.borrowedHeaderLen:] // includes bytes already read, which may be kept
	b := copyOf(all)
	b.Discard(len(all) - c.borrowed.Len())
	c.pieces[last] = b
	c.releasePiece(&c.borrowed)
}

// markComplete marks the content as complete, and returns the pump to kick. muxConn.mu is held.
func (c *recvBody) markComplete() *pump {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete = true
	c.changed.Broadcast()
	return c.pump
}

// markCompleteWithTrailer is markComplete with the trailers of the session's last event.
func (c *recvBody) markCompleteWithTrailer(s *syntax.Session) *pump {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.text = s.TakeTrailer(&c.trailer, c.text[:0])
	}
	c.complete = true
	c.changed.Broadcast()
	return c.pump
}

// fail ends the content early, drops the unread bytes and returns the pump to kick. It does nothing
// if the content is complete or has failed. err is a Fault.
func (c *recvBody) fail(err error) *pump {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.complete || c.err != nil {
		return nil
	}
	c.err = err
	c.dropUnread()
	c.changed.Broadcast()
	return c.pump
}

// setPump sets the pump that consumes the content from now on; nil: none.
func (c *recvBody) setPump(to *pump) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pump = to
}

// isEmpty reports whether the body is complete and empty, and the message has no trailers.
func (c *recvBody) isEmpty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.complete && c.err == nil && c.unread == 0 && c.trailer.Len() == 0 && c.received.Load() == 0
}

// Complete implements protocol.CompleteBody.
func (c *recvBody) Complete() (whole, empty bool) {
	c.mu.Lock()
	whole = c.complete && c.err == nil && !c.closed
	c.mu.Unlock()
	return whole, whole && c.isEmpty()
}

// awaitsReader reports whether the consumer can continue before the peer sends more: the content is
// complete, or some of it is unread.
func (c *recvBody) awaitsReader() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.complete || c.unread > 0
}

// Read implements protocol.Body. Its errors are Faults.
func (c *recvBody) Read(p []byte) (int, error) {
	c.mu.Lock()
	for !c.ready() {
		c.changed.Wait()
	}
	switch {
	case c.closed:
		c.mu.Unlock()
		return 0, errClosed
	case c.err != nil:
		defer c.mu.Unlock()
		return 0, c.err
	case c.unread == 0:
		c.addTrailers()
		c.mu.Unlock()
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && c.first < len(c.pieces) {
		m := copy(p[n:], c.pieces[c.first].Bytes())
		c.consume(m)
		n += m
	}
	credit := c.takeCredit()
	c.mu.Unlock()
	c.stream.reportConsumed(nil, credit)
	return n, nil
}

// awaitReadable waits at most d until Read would not block, and reports whether it would not.
func (c *recvBody) awaitReadable(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ready() {
		return true
	}
	late := false
	timer := time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		late = true
		c.changed.Broadcast()
	})
	defer timer.Stop()
	for !c.ready() && !late {
		c.changed.Wait()
	}
	return c.ready()
}

// ready reports whether Read would not block. c.mu is held.
func (c *recvBody) ready() bool { return c.unread > 0 || c.complete || c.err != nil || c.closed }

// addTrailers adds the trailers to the message, once. c.mu is held.
func (c *recvBody) addTrailers() {
	if c.trailerDst == nil {
		return
	}
	for name, value := range c.trailer.All() {
		c.trailerDst.Add(name, value)
	}
	c.trailerDst = nil
}

// maxKeptBody is the maximum size of a body that is kept to be read again, in bytes. A body whose
// first bytes were read before it was complete is not kept.
const maxKeptBody = 64 << 10

// consume consumes n bytes of the first unread piece. c.mu is held.
func (c *recvBody) consume(n int) {
	if c.complete && !c.keepsRead && c.unread <= maxKeptBody && int64(c.unread) == c.received.Load() {
		c.keepsRead = true
	}
	first := c.pieces[c.first]
	first.Discard(n)
	c.unread -= n
	if c.keepsRead {
		if first.Len() == 0 {
			c.first++
		}
		return
	}
	c.pendingCredit += n
	if first.Len() > 0 {
		return
	}
	c.releasePiece(first)
	last := copy(c.pieces, c.pieces[1:])
	c.pieces[last] = nil
	c.pieces = c.pieces[:last]
}

// Rewind implements protocol.Rewinder.
func (c *recvBody) Rewind() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.err != nil {
		return false
	}
	if c.keepsRead {
		for _, p := range c.pieces {
			read := len(p.Storage()) - p.Len()
			if p == &c.borrowed {
				read -= c.borrowedHeaderLen
			}
			p.Undiscard(read)
		}
		c.unread = int(c.received.Load())
		c.first = 0
	}
	return int64(c.unread) == c.received.Load()
}

// takeCredit returns the number of consumed bytes to credit the peer with, or 0 while they are few.
// c.mu is held.
func (c *recvBody) takeCredit() int {
	if c.pendingCredit < c.stream.conn.creditThreshold {
		return 0
	}
	n := c.pendingCredit
	c.pendingCredit = 0
	return n
}

// Buffered implements protocol.Body.
func (c *recvBody) Buffered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unread
}

// Close implements protocol.Body. It unblocks Read and drops the unread bytes.
func (c *recvBody) Close() error {
	c.mu.Lock()
	if c.closed || c.stream == nil {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.pump = nil
	credit := c.pendingCredit
	if c.keepsRead {
		credit = int(c.received.Load()) // pendingCredit does not include kept bytes
		c.dropUnread()
	} else {
		credit += c.dropUnread()
	}
	c.pendingCredit = 0
	c.changed.Broadcast()
	l := c.stream
	c.mu.Unlock()
	l.reportConsumed(nil, credit)
	return nil
}

// errClosed is the error of using closed content or a closed tunnel.
var errClosed = protocol.NewFault(protocol.Internal, io.ErrClosedPipe)
