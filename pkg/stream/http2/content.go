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

// content holds the bytes that a peer has sent on one stream and the consumer has not read: the
// body of a request on the server side, of a response on the client side. It implements
// protocol.Body. The window opens only as bytes are consumed, so content never holds more than a
// window.
//
//	reader of the connection:  add … add, end or fail
//	consumer:                  Read … Read, Close   or   a pump, which is kicked
//
// While a pump consumes the content, it borrows the reader's bytes: they are copied at most once,
// from the reader's buffer to their destination. Only the bytes that the pump could not send
// immediately are copied into content.
type content struct {
	lane  *muxStream   // the stream that it arrives on; set by start
	into  *header      // receives the trailers when io.EOF is returned; set by start
	limit int64        // maximum bytes; more are an error; 0: no limit; set by start
	total atomic.Int64 // bytes received

	mu           sync.Mutex         // acquired after a stream's wire.mu
	more         sync.Cond          // on mu: a field below changed
	pieces       []*buffer.IoBuffer // guarded by mu; pieces[first:] are unread and not empty
	borrowed     buffer.IoBuffer    // guarded by mu; bytes of the reader; in use, the last piece
	room         int                // guarded by mu; bytes of the frame header in borrowed, or 0
	borrowedFrom *batch             // guarded by mu; of the reader; nil once a write queue borrows
	first        int                // guarded by mu; pieces before it have been read and are kept
	keep         bool               // guarded by mu; read bytes are kept for Rewind
	unread       int                // guarded by mu; unread bytes in pieces
	taken        int                // guarded by mu; consumed bytes not yet credited to the peer
	whole        bool               // guarded by mu; the body is complete
	closed       bool               // guarded by mu; the consumer has closed it
	err          error              // guarded by mu; why the body ended early
	trailer      header             // guarded by mu; complete once whole is set
	text         []byte             // guarded by mu; trailer holds views of it
	to           *pump              // guarded by mu; the pump that consumes it; nil: none
}

type header = protocol.Header

// start makes c the content of stream l. It needs no lock: the reader of c's previous stream may
// still be in copyBorrowed, which uses none of these fields.
func (c *content) start(l *muxStream, into *header, limit int64) {
	c.lane, c.into, c.limit = l, into, limit
	c.more.L = &c.mu
	c.total.Store(0)
	c.taken, c.keep, c.whole, c.closed, c.err, c.to = 0, false, false, false, nil, nil
}

// reset releases what c holds. Only a late copyBorrowed may still use c.
func (c *content) reset() {
	c.mu.Lock() // excludes copyBorrowed
	defer c.mu.Unlock()
	c.release()
	c.trailer.Reset()
	c.lane, c.into, c.to, c.err = nil, nil, nil, nil
}

// release drops the unread bytes and returns their number. c.mu is held.
func (c *content) release() int {
	dropped := c.unread
	for i, p := range c.pieces {
		c.drop(p)
		c.pieces[i] = nil
	}
	c.pieces, c.first, c.unread = c.pieces[:0], 0, 0
	return dropped
}

// drop releases a piece. c.mu is held.
func (c *content) drop(piece *buffer.IoBuffer) {
	if piece == &c.borrowed {
		c.borrowed.SetStorage(nil)
		c.borrowed.Reset()
		c.borrowedFrom, c.room = nil, 0
		return
	}
	piece.Release()
}

// add appends received bytes, and returns the pump to kick. unwanted is the number of bytes that
// nothing will read. add copies p, unless lent is true: then the caller calls copyBorrowed after
// the kick, before it reuses p. frame is the frame header followed by p if the frame holds nothing
// else, or nil. b is the batch of the reader. The stream's wire.mu is held.
func (c *content) add(p, frame []byte, b *batch) (to *pump, lent bool, unwanted int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.err != nil {
		return nil, false, len(p)
	}
	total := c.total.Add(int64(len(p)))
	if c.limit > 0 && total > c.limit {
		c.err = protocol.Faultf(protocol.BodyTooLarge, "body exceeds %d bytes", c.limit)
		unwanted = c.release() + len(p)
		c.more.Broadcast()
		return c.to, false, unwanted
	}
	if len(p) == 0 {
		return nil, false, 0
	}
	lent = c.to != nil && c.unread == 0 // else nothing consumes it immediately
	c.unread += len(p)
	if n := len(c.pieces); lent {
		c.lend(p, frame, b)
		c.pieces = append(c.pieces, &c.borrowed)
	} else if n > 0 && len(c.pieces[n-1].Tail()) >= len(p) {
		_, _ = c.pieces[n-1].Write(p) // never fails
	} else {
		c.pieces = append(c.pieces, copyOf(p))
	}
	c.more.Broadcast()
	return c.to, lent, 0
}

// lend makes c borrow p, or frame, which ends with p, if it is not nil. c.mu is held.
func (c *content) lend(p, frame []byte, b *batch) {
	if frame == nil {
		frame = p
	}
	c.room, c.borrowedFrom = len(frame)-len(p), b
	c.borrowed.SetStorage(frame[:len(frame):len(frame)])
	c.borrowed.Discard(c.room)
}

// leastLent is the minimum payload of a DATA frame, in bytes, for which borrowing is cheaper than
// copying.
const leastLent = 4 << 10

// lentFrame returns the frame that c borrows from the reader of b, if all n bytes of its payload
// are unread. The caller may change its header. It returns nil if there is no such frame, if n is
// below leastLent, if a write queue has already borrowed the frame, or if b belongs to another
// reader. c.mu is held.
func (c *content) lentFrame(b *batch, n int) []byte {
	frame := c.borrowed.Storage()
	if b == nil || b != c.borrowedFrom || c.room == 0 || n < leastLent || c.pieces[c.first] != &c.borrowed || len(frame) != c.room+n {
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
func (c *content) copyBorrowed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.pieces) - 1
	if last < 0 || c.pieces[last] != &c.borrowed {
		return
	}
	all := c.borrowed.Storage()[c.room:] // includes bytes already read, which may be kept
	b := copyOf(all)
	b.Discard(len(all) - c.borrowed.Len())
	c.pieces[last] = b
	c.drop(&c.borrowed)
}

// end marks the content as complete, and returns the pump to kick. wire.mu is held.
func (c *content) end() *pump {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = true
	c.more.Broadcast()
	return c.to
}

// endWith is end with the trailers of the session's last event.
func (c *content) endWith(s *syntax.Session) *pump {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.text = s.TakeTrailer(&c.trailer, c.text[:0])
	}
	c.whole = true
	c.more.Broadcast()
	return c.to
}

// fail ends the content early, drops the unread bytes and returns the pump to kick. It does nothing
// if the content is complete or has failed. err is a Fault.
func (c *content) fail(err error) *pump {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.whole || c.err != nil {
		return nil
	}
	c.err = err
	c.release()
	c.more.Broadcast()
	return c.to
}

// feed sets the pump that consumes the content from now on; nil: none.
func (c *content) feed(to *pump) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to = to
}

// isEmpty reports whether the body is complete and empty, and the message has no trailers.
func (c *content) isEmpty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whole && c.err == nil && c.unread == 0 && c.trailer.Len() == 0 && c.total.Load() == 0
}

// Complete implements protocol.CompleteBody.
func (c *content) Complete() (whole, empty bool) {
	c.mu.Lock()
	whole = c.whole && c.err == nil && !c.closed
	c.mu.Unlock()
	return whole, whole && c.isEmpty()
}

// awaitsReader reports whether the consumer can continue before the peer sends more: the content is
// complete, or some of it is unread.
func (c *content) awaitsReader() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whole || c.unread > 0
}

// Read implements protocol.Body. Its errors are Faults.
func (c *content) Read(p []byte) (int, error) {
	c.mu.Lock()
	for !c.ready() {
		c.more.Wait()
	}
	switch {
	case c.closed:
		c.mu.Unlock()
		return 0, errClosed
	case c.err != nil:
		defer c.mu.Unlock()
		return 0, c.err
	case c.unread == 0:
		c.finish()
		c.mu.Unlock()
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && c.first < len(c.pieces) {
		m := copy(p[n:], c.pieces[c.first].Bytes())
		c.discard(m)
		n += m
	}
	credit := c.due()
	c.mu.Unlock()
	c.lane.consumed(nil, credit)
	return n, nil
}

// await waits at most d until Read would not block, and reports whether it would not.
func (c *content) await(d time.Duration) bool {
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
		c.more.Broadcast()
	})
	defer timer.Stop()
	for !c.ready() && !late {
		c.more.Wait()
	}
	return c.ready()
}

// ready reports whether Read would not block. c.mu is held.
func (c *content) ready() bool { return c.unread > 0 || c.whole || c.err != nil || c.closed }

// finish adds the trailers to the message, once. c.mu is held.
func (c *content) finish() {
	if c.into == nil {
		return
	}
	for name, value := range c.trailer.All() {
		c.into.Add(name, value)
	}
	c.into = nil
}

// keepMost is the maximum size of a body that is kept to be read again, in bytes. A body whose
// first bytes were read before it was complete is not kept.
const keepMost = 64 << 10

// discard consumes n bytes of the first unread piece. c.mu is held.
func (c *content) discard(n int) {
	if c.whole && !c.keep && c.unread <= keepMost && int64(c.unread) == c.total.Load() {
		c.keep = true
	}
	first := c.pieces[c.first]
	first.Discard(n)
	c.unread -= n
	if c.keep {
		if first.Len() == 0 {
			c.first++
		}
		return
	}
	c.taken += n
	if first.Len() > 0 {
		return
	}
	c.drop(first)
	last := copy(c.pieces, c.pieces[1:])
	c.pieces[last] = nil
	c.pieces = c.pieces[:last]
}

// Rewind implements protocol.Rewinder.
func (c *content) Rewind() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.err != nil {
		return false
	}
	if c.keep {
		for _, p := range c.pieces {
			read := len(p.Storage()) - p.Len()
			if p == &c.borrowed {
				read -= c.room
			}
			p.Undiscard(read)
		}
		c.unread = int(c.total.Load())
		c.first = 0
	}
	return int64(c.unread) == c.total.Load()
}

// due returns the number of consumed bytes to credit the peer with, or 0 while they are few. c.mu
// is held.
func (c *content) due() int {
	if c.taken < c.lane.wire.creditFrom {
		return 0
	}
	n := c.taken
	c.taken = 0
	return n
}

// Buffered implements protocol.Body.
func (c *content) Buffered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unread
}

// Close implements protocol.Body. It unblocks Read and drops the unread bytes.
func (c *content) Close() error {
	c.mu.Lock()
	if c.closed || c.lane == nil {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.to = nil
	credit := c.taken
	if c.keep {
		credit = int(c.total.Load()) // taken does not include kept bytes
		c.release()
	} else {
		credit += c.release()
	}
	c.taken = 0
	c.more.Broadcast()
	l := c.lane
	c.mu.Unlock()
	l.consumed(nil, credit)
	return nil
}

// errClosed is the error of using closed content or a closed tunnel.
var errClosed = protocol.NewFault(protocol.Internal, io.ErrClosedPipe)
