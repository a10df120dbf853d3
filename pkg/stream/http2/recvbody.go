package http2

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

// recvBody holds the bytes that a peer has sent on one stream and the consumer has not read: the
// body of a request on the downstream side, of a response on the upstream side. It implements
// protocol.Body. The stream's window opens only as bytes are consumed, so a body never holds more
// bytes than the window.
//
//	reader of the connection:  add … add, markComplete or fail
//	consumer:                  Read … Read, Close   or   a pump, which is kicked
//
// While a pump consumes the body, the body borrows the bytes in the reader's buffer instead of
// copying them. Only the bytes that the pump could not send immediately are copied into the body.
type recvBody struct {
	stream     *muxStream            // the stream on which the body arrives; set by start
	trailerDst *header               // receives the trailers when the consumer reaches the end; set by start
	maxBytes   int64                 // maximum size in bytes; a larger body fails; 0: no limit; set by start
	server     *stream.ServerOptions // of the server that reads a request; nil: the body of a response; set after start
	received   atomic.Int64          // bytes received

	mu                sync.Mutex         // acquired after a stream's muxConn.mu
	changed           sync.Cond          // on mu: a field below changed
	pieces            []*buffer.IoBuffer // guarded by mu; pieces[first:] are unread and not empty
	borrowed          buffer.IoBuffer    // guarded by mu; borrows the reader's bytes; while not empty, &borrowed is the last of pieces
	borrowedHeaderLen int                // guarded by mu; bytes of the frame header in borrowed, or 0
	borrowedFrom      *batch             // guarded by mu; batch of the reader that owns borrowed; nil once a write queue borrows the frame
	first             int                // guarded by mu; index of the first unread piece; those before it are kept for Rewind
	keepsRead         bool               // guarded by mu; read bytes are kept for Rewind
	unread            int                // guarded by mu; unread bytes in pieces
	pendingCredit     int                // guarded by mu; consumed bytes not yet credited to the peer
	complete          bool               // guarded by mu; the body is complete
	closed            bool               // guarded by mu; the consumer has closed the body
	err               error              // guarded by mu; why the body ended early
	trailer           header             // guarded by mu; final once complete is set
	text              []byte             // guarded by mu; storage of the strings in trailer
	pump              *pump              // guarded by mu; the pump that consumes the body; nil: none
}

type header = protocol.Header

// start makes rb the body that arrives on ms. It needs no lock: only the reader of rb's previous
// stream may still use rb, in copyBorrowed, which uses none of these fields.
func (rb *recvBody) start(ms *muxStream, trailerDst *header, maxBytes int64) {
	rb.stream, rb.trailerDst, rb.maxBytes, rb.server = ms, trailerDst, maxBytes, nil
	rb.changed.L = &rb.mu
	rb.received.Store(0)
	rb.pendingCredit, rb.keepsRead, rb.complete, rb.closed, rb.err, rb.pump = 0, false, false, false, nil, nil
}

// reset releases what rb holds. Only a late copyBorrowed may still use rb.
func (rb *recvBody) reset() {
	rb.mu.Lock() // excludes copyBorrowed
	defer rb.mu.Unlock()
	rb.dropUnread()
	rb.trailer.Reset()
	rb.stream, rb.trailerDst, rb.pump, rb.err = nil, nil, nil, nil
}

// dropUnread drops the unread bytes and returns their number. The caller holds rb.mu.
func (rb *recvBody) dropUnread() int {
	dropped := rb.unread
	for i, p := range rb.pieces {
		rb.releasePiece(p)
		rb.pieces[i] = nil
	}
	rb.pieces, rb.first, rb.unread = rb.pieces[:0], 0, 0
	return dropped
}

// releasePiece releases a piece. The caller holds rb.mu.
func (rb *recvBody) releasePiece(piece *buffer.IoBuffer) {
	if piece == &rb.borrowed {
		rb.borrowed.SetStorage(nil)
		rb.borrowed.Reset()
		rb.borrowedFrom, rb.borrowedHeaderLen = nil, 0
		return
	}
	piece.Release()
}

// add appends received bytes, and returns the pump to kick. discarded is the number of bytes that
// are dropped unread. add copies p unless borrows is true: then the caller calls copyBorrowed after
// the kick, before it reuses p. frame is the frame header followed by p, or nil if the frame also
// has padding. b is the batch of the reader. The caller holds the stream's muxConn.mu.
func (rb *recvBody) add(p, frame []byte, b *batch) (consumer *pump, borrows bool, discarded int) {
	rb.mu.Lock()
	defer rb.mu.Unlock()
	if rb.closed || rb.err != nil {
		return nil, false, len(p)
	}
	total := rb.received.Add(int64(len(p)))
	if rb.maxBytes > 0 && total > rb.maxBytes {
		rb.err = protocol.Faultf(protocol.BodyTooLarge, "the body exceeds %d bytes", rb.maxBytes)
		discarded = rb.dropUnread() + len(p)
		rb.changed.Broadcast()
		return rb.pump, false, discarded
	}
	if len(p) == 0 {
		return nil, false, 0
	}
	borrows = rb.pump != nil && rb.unread == 0 // otherwise nothing consumes p immediately
	rb.unread += len(p)
	if n := len(rb.pieces); borrows {
		rb.borrow(p, frame, b)
		rb.pieces = append(rb.pieces, &rb.borrowed)
	} else if n > 0 && len(rb.pieces[n-1].Tail()) >= len(p) {
		_, _ = rb.pieces[n-1].Write(p) // never fails
	} else {
		rb.pieces = append(rb.pieces, copyOf(p))
	}
	rb.changed.Broadcast()
	return rb.pump, borrows, 0
}

// borrow makes rb borrow frame, which ends with p, or only p if frame is nil. The caller
// holds rb.mu.
func (rb *recvBody) borrow(p, frame []byte, b *batch) {
	if frame == nil {
		frame = p
	}
	rb.borrowedHeaderLen, rb.borrowedFrom = len(frame)-len(p), b
	rb.borrowed.SetStorage(frame[:len(frame):len(frame)])
	rb.borrowed.Discard(rb.borrowedHeaderLen)
}

// minBorrowSize is the minimum payload of a DATA frame, in bytes, for which borrowing is cheaper
// than copying.
const minBorrowSize = 4 << 10

// borrowedFrame returns the frame that rb borrows from the reader of b, if all n bytes of its
// payload are unread. The caller may change its header. It returns nil if there is no such frame,
// if n is below minBorrowSize, if a write queue has already borrowed the frame, or if b belongs to
// another reader. The caller holds rb.mu.
func (rb *recvBody) borrowedFrame(b *batch, n int) []byte {
	frame := rb.borrowed.Storage()
	if b == nil || b != rb.borrowedFrom || rb.borrowedHeaderLen == 0 || n < minBorrowSize || rb.pieces[rb.first] != &rb.borrowed || len(frame) != rb.borrowedHeaderLen+n {
		return nil
	}
	return frame
}

func copyOf(p []byte) *buffer.IoBuffer {
	buf := buffer.Get(len(p))
	_, _ = buf.Write(p) // never fails
	return buf
}

// copyBorrowed copies the borrowed bytes that were not consumed or are kept. If rb belongs to
// another stream by now, copyBorrowed copies that stream's borrowed bytes earlier than necessary,
// which is harmless.
func (rb *recvBody) copyBorrowed() {
	rb.mu.Lock()
	defer rb.mu.Unlock()
	last := len(rb.pieces) - 1
	if last < 0 || rb.pieces[last] != &rb.borrowed {
		return
	}
	payload := rb.borrowed.Storage()[rb.borrowedHeaderLen:] // includes bytes already read, which may be kept
	buf := copyOf(payload)
	buf.Discard(len(payload) - rb.borrowed.Len())
	rb.pieces[last] = buf
	rb.releasePiece(&rb.borrowed)
}

// markComplete marks the body as complete, and returns the pump to kick. The caller holds
// muxConn.mu.
func (rb *recvBody) markComplete() *pump {
	rb.mu.Lock()
	defer rb.mu.Unlock()
	rb.complete = true
	rb.changed.Broadcast()
	return rb.pump
}

// markCompleteWithTrailer is like markComplete, with the trailers of the session's last event.
func (rb *recvBody) markCompleteWithTrailer(s *syntax.Session) *pump {
	rb.mu.Lock()
	defer rb.mu.Unlock()
	if !rb.closed {
		rb.text = s.TakeTrailer(&rb.trailer, rb.text[:0])
	}
	rb.complete = true
	rb.changed.Broadcast()
	return rb.pump
}

// fail ends the body early, drops the unread bytes and returns the pump to kick. It does nothing if
// the body is complete or has failed. err is a Fault.
func (rb *recvBody) fail(err error) *pump {
	rb.mu.Lock()
	defer rb.mu.Unlock()
	if rb.complete || rb.err != nil {
		return nil
	}
	rb.err = err
	rb.dropUnread()
	rb.changed.Broadcast()
	return rb.pump
}

// setPump sets the pump that consumes the body from now on; nil: none.
func (rb *recvBody) setPump(consumer *pump) {
	rb.mu.Lock()
	defer rb.mu.Unlock()
	rb.pump = consumer
}

// isEmpty reports whether the body is complete and empty, and the message has no trailers.
func (rb *recvBody) isEmpty() bool {
	rb.mu.Lock()
	defer rb.mu.Unlock()
	return rb.complete && rb.err == nil && rb.unread == 0 && rb.trailer.Len() == 0 && rb.received.Load() == 0
}

// Complete implements protocol.CompleteBody.
func (rb *recvBody) Complete() (complete, empty bool) {
	rb.mu.Lock()
	complete = rb.complete && rb.err == nil && !rb.closed
	rb.mu.Unlock()
	return complete, complete && rb.isEmpty()
}

// isComplete reports whether all bytes have arrived, even if the body was closed since.
func (rb *recvBody) isComplete() bool {
	rb.mu.Lock()
	defer rb.mu.Unlock()
	return rb.complete
}

// consumerCanContinue reports whether the consumer can continue before the peer sends more: the
// body is complete, or some of it is unread.
func (rb *recvBody) consumerCanContinue() bool {
	rb.mu.Lock()
	defer rb.mu.Unlock()
	return rb.complete || rb.unread > 0
}

// Read implements protocol.Body. Its errors other than io.EOF are Faults.
func (rb *recvBody) Read(p []byte) (int, error) {
	rb.mu.Lock()
	for !rb.ready() {
		rb.changed.Wait()
	}
	switch {
	case rb.closed:
		rb.mu.Unlock()
		return 0, errClosed
	case rb.err != nil:
		defer rb.mu.Unlock()
		return 0, rb.err
	case rb.unread == 0:
		rb.addTrailers()
		rb.mu.Unlock()
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && rb.first < len(rb.pieces) {
		m := copy(p[n:], rb.pieces[rb.first].Bytes())
		rb.consume(m)
		n += m
	}
	credit := rb.takeCredit()
	rb.mu.Unlock()
	rb.stream.reportConsumed(nil, credit)
	return n, nil
}

// awaitReadable waits at most d until Read would not block, and returns the result of ready.
func (rb *recvBody) awaitReadable(d time.Duration) bool {
	rb.mu.Lock()
	defer rb.mu.Unlock()
	if rb.ready() {
		return true
	}
	timedOut := false
	timer := time.AfterFunc(d, func() {
		rb.mu.Lock()
		defer rb.mu.Unlock()
		timedOut = true
		rb.changed.Broadcast()
	})
	defer timer.Stop()
	for !rb.ready() && !timedOut {
		rb.changed.Wait()
	}
	return rb.ready()
}

// ready reports whether Read would not block. The caller holds rb.mu.
func (rb *recvBody) ready() bool { return rb.unread > 0 || rb.complete || rb.err != nil || rb.closed }

// addTrailers adds the trailers to the message, once. The caller holds rb.mu.
func (rb *recvBody) addTrailers() {
	if rb.trailerDst == nil {
		return
	}
	if rb.server != nil {
		rb.server.DropUnderscoreTrailers(&rb.trailer)
	}
	for name, value := range rb.trailer.All() {
		rb.trailerDst.Add(name, value)
	}
	rb.trailerDst = nil
}

// maxKeptBody is the maximum size, in bytes, of a body that is kept to be read again. A body is not
// kept if a part of it was read before the body was complete.
const maxKeptBody = 64 << 10

// consume consumes n bytes of the first unread piece. The caller holds rb.mu.
func (rb *recvBody) consume(n int) {
	if rb.complete && !rb.keepsRead && rb.unread <= maxKeptBody && int64(rb.unread) == rb.received.Load() {
		rb.keepsRead = true
	}
	first := rb.pieces[rb.first]
	first.Discard(n)
	rb.unread -= n
	if rb.keepsRead {
		if first.Len() == 0 {
			rb.first++
		}
		return
	}
	rb.pendingCredit += n
	if first.Len() > 0 {
		return
	}
	rb.releasePiece(first)
	last := copy(rb.pieces, rb.pieces[1:])
	rb.pieces[last] = nil
	rb.pieces = rb.pieces[:last]
}

// Rewind implements protocol.Rewinder.
func (rb *recvBody) Rewind() bool {
	rb.mu.Lock()
	defer rb.mu.Unlock()
	if rb.closed || rb.err != nil {
		return false
	}
	if rb.keepsRead {
		for _, p := range rb.pieces {
			readLen := len(p.Storage()) - p.Len()
			if p == &rb.borrowed {
				readLen -= rb.borrowedHeaderLen
			}
			p.Undiscard(readLen)
		}
		rb.unread = int(rb.received.Load())
		rb.first = 0
	}
	return int64(rb.unread) == rb.received.Load()
}

// takeCredit returns the number of consumed bytes to credit the peer with, or 0 while they are
// fewer than creditThreshold. The caller holds rb.mu.
func (rb *recvBody) takeCredit() int {
	if rb.pendingCredit < rb.stream.conn.creditThreshold {
		return 0
	}
	n := rb.pendingCredit
	rb.pendingCredit = 0
	return n
}

// Buffered implements protocol.Body.
func (rb *recvBody) Buffered() int {
	rb.mu.Lock()
	defer rb.mu.Unlock()
	return rb.unread
}

// Close implements protocol.Body. It unblocks Read and drops the unread bytes.
func (rb *recvBody) Close() error {
	rb.mu.Lock()
	if rb.closed || rb.stream == nil {
		rb.mu.Unlock()
		return nil
	}
	rb.closed = true
	rb.pump = nil
	credit := rb.pendingCredit
	if rb.keepsRead {
		credit = int(rb.received.Load()) // pendingCredit does not include kept bytes
		rb.dropUnread()
	} else {
		credit += rb.dropUnread()
	}
	rb.pendingCredit = 0
	rb.changed.Broadcast()
	ms := rb.stream
	rb.mu.Unlock()
	ms.reportConsumed(nil, credit)
	return nil
}

// errClosed is the error of using a closed body or a closed tunnel.
var errClosed = protocol.NewFault(protocol.Internal, io.ErrClosedPipe)
