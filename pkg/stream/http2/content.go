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

// content is what a peer has sent on one stream and nobody has taken: the body of
// a request on the server's side, of an answer on the client's. It is a
// protocol.Body. The peer may send as much as is taken, so it never holds more
// than a window.
//
//	the connection's reader:  add … add, end or fail
//	its consumer:             Read … Read, Close   or   a pump, which is kicked
//
// What comes while a pump takes everything is lent to it: it is copied once, from
// the reader's buffer to where it goes, and only what the pump had no room for is
// kept here.
type content struct {
	lane  *muxStream   // the stream that it comes on; set by start
	into  *header      // where trailers go when io.EOF is returned; set by start
	limit int64        // bytes; more are an error; 0: no limit; set by start
	total atomic.Int64 // bytes that have come

	mu           sync.Mutex         // held by add with the lane's wire.mu held; nothing else is taken under it
	more         sync.Cond          // on mu: something below changed
	pieces       []*buffer.IoBuffer // guarded by mu; what is unread from first on, oldest first; none of that is empty
	borrowed     buffer.IoBuffer    // guarded by mu; the reader's bytes; if there are any it is the last of pieces
	room         int                // guarded by mu; how much of loan is in front of the content: the frame's header, or 0
	borrowedFrom *batch             // guarded by mu; the reader's, until its loan is lent on
	first        int                // guarded by mu; pieces before it have been read and are kept
	keep         bool               // guarded by mu; what is read is kept, so that it can be read again
	unread       int                // guarded by mu; bytes of them
	taken        int                // guarded by mu; bytes taken that the peer was not told of
	whole        bool               // guarded by mu; everything has come
	closed       bool               // guarded by mu; nobody wants more
	err          error              // guarded by mu; it is cut short
	trailer      header             // guarded by mu; complete once whole
	text         []byte             // guarded by mu; what trailer is views of
	to           *pump              // guarded by mu; who takes it; nil: a reader does, or nobody yet
}

type header = protocol.Header

// start makes c the content that comes on l. It takes no lock: the reader of the stream
// that c belonged to before may still be in own, which uses none of these fields.
func (c *content) start(l *muxStream, into *header, limit int64) {
	c.lane, c.into, c.limit = l, into, limit
	c.more.L = &c.mu
	c.total.Store(0)
	c.taken, c.keep, c.whole, c.closed, c.err, c.to = 0, false, false, false, nil, nil
}

// reset gives up what c holds. Nobody uses it any more.
func (c *content) reset() {
	c.mu.Lock() // against own
	defer c.mu.Unlock()
	c.release()
	c.trailer.Reset()
	c.lane, c.into, c.to, c.err = nil, nil, nil, nil
}

// release drops what is unread and returns how much that was. c.mu is held.
func (c *content) release() int {
	dropped := c.unread
	for i, p := range c.pieces {
		c.drop(p)
		c.pieces[i] = nil
	}
	c.pieces, c.first, c.unread = c.pieces[:0], 0, 0
	return dropped
}

// drop gives a piece back. c.mu is held.
func (c *content) drop(piece *buffer.IoBuffer) {
	if piece == &c.borrowed {
		c.borrowed.SetStorage(nil)
		c.borrowed.Reset()
		c.borrowedFrom, c.room = nil, 0
		return
	}
	piece.Release()
}

// add appends what has come, and returns the pump to be kicked. unwanted is how many
// bytes nobody will take. p is copied, unless it is lent: then own is to be called
// behind the kick, before p is used again. frame is p with the header in front of it if
// there is nothing else in the frame, else nil; b is the reader's. The lane's wire.mu is
// held.
func (c *content) add(p, frame []byte, b *batch) (to *pump, lent bool, unwanted int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.err != nil {
		return nil, false, len(p)
	}
	total := c.total.Add(int64(len(p)))
	if c.limit > 0 && total > c.limit {
		c.err = protocol.Faultf(protocol.BodyTooLarge, "content exceeds %d bytes", c.limit)
		unwanted = c.release() + len(p)
		c.more.Broadcast()
		return c.to, false, unwanted
	}
	if len(p) == 0 {
		return nil, false, 0
	}
	lent = c.to != nil && c.unread == 0 // else nobody takes it at once
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

// lend makes p, in its frame if that is there, the loan. c.mu is held.
func (c *content) lend(p, frame []byte, b *batch) {
	if frame == nil {
		frame = p
	}
	c.room, c.borrowedFrom = len(frame)-len(p), b
	c.borrowed.SetStorage(frame[:len(frame):len(frame)])
	c.borrowed.Discard(c.room)
}

// leastLent is how large a frame is, in bytes, that is better lent than copied.
const leastLent = 4 << 10

// lentFrame returns the frame that the reader of b has lent, if all n bytes of its content
// are unread. Its header may be changed. nil: there is none, or it was lent on before, or
// b is another's. c.mu is held.
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

// copyBorrowed keeps what was lent and not taken. c may be another stream's by now, whose
// loan it keeps then a little early.
func (c *content) copyBorrowed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.pieces) - 1
	if last < 0 || c.pieces[last] != &c.borrowed {
		return
	}
	all := c.borrowed.Storage()[c.room:] // what was read of it too: it may be kept
	b := copyOf(all)
	b.Discard(len(all) - c.borrowed.Len())
	c.pieces[last] = b
	c.drop(&c.borrowed)
}

// end says that everything has come, and returns the pump to be kicked. wire.mu
// is held.
func (c *content) end() *pump {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = true
	c.more.Broadcast()
	return c.to
}

// endWith is end with the trailer section that is the session's last event.
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

// fail says that no more will come, though it is not whole, and returns the pump
// to be kicked. What is there is given up. err is a Fault.
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

// feed has to take the content from now on.
func (c *content) feed(to *pump) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to = to
}

// isEmpty reports whether everything has come, and there was nothing: neither
// content nor trailers.
func (c *content) isEmpty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whole && c.err == nil && c.unread == 0 && c.trailer.Len() == 0 && c.total.Load() == 0
}

// Complete is protocol.CompleteBody's.
func (c *content) Complete() (whole, empty bool) {
	c.mu.Lock()
	whole = c.whole && c.err == nil && !c.closed
	c.mu.Unlock()
	return whole, whole && c.isEmpty()
}

// awaitsReader reports whether the peer owes nothing that the consumer could take: all of
// the content has come, or some of it is unread.
func (c *content) awaitsReader() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whole || c.unread > 0
}

// Read is protocol.Body's. Its errors are Faults.
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

// await waits until a Read would not, for d at most, and reports whether it is so.
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

// ready reports whether a Read would not wait. c.mu is held.
func (c *content) ready() bool { return c.unread > 0 || c.whole || c.err != nil || c.closed }

// finish hands out the trailers. c.mu is held.
func (c *content) finish() {
	if c.into == nil {
		return
	}
	for name, value := range c.trailer.All() {
		c.into.Add(name, value)
	}
	c.into = nil
}

// keepMost is how much content is kept to be read again, in bytes. More is not, nor
// what was read before all of it had come.
const keepMost = 64 << 10

// discard takes n bytes of the first piece. c.mu is held.
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

// Rewind is protocol.Rewinder's.
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

// due returns how many bytes the peer is to be told of as taken: none as long as
// they are few. c.mu is held.
func (c *content) due() int {
	if c.taken < c.lane.wire.creditFrom {
		return 0
	}
	n := c.taken
	c.taken = 0
	return n
}

// Buffered is protocol.Body's.
func (c *content) Buffered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unread
}

// Close is protocol.Body's: it stops a Read, and gives up what is unread.
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
		credit = int(c.total.Load()) // it was counted nowhere else
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

// errClosed is what a Read is ended with that nobody waits for.
var errClosed = protocol.NewFault(protocol.Internal, io.ErrClosedPipe)
