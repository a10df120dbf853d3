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
// protocol.Body. The stream's window opens only as bytes are consumed, so a body never holds more
// bytes than the window.
//
//	reader of the connection:  add … add, markComplete or fail
//	consumer:                  Read … Read, Close   or   a pump, which is kicked
type recvBody struct {
	stream     *muxStream   // the stream on which the body arrives; set by start
	trailerDst *header      // receives the trailers when the consumer reaches the end; set by start
	maxBytes   int64        // maximum size in bytes; a larger body fails; 0: no limit; set by start
	received   atomic.Int64 // bytes received

	mu            sync.Mutex         // acquired after a stream's muxConn.mu
	changed       sync.Cond          // on mu: a field below changed
	pieces        []*buffer.IoBuffer // guarded by mu; pieces[first:] are unread and not empty
	first         int                // guarded by mu; index of the first unread piece; those before it are kept for Rewind
	keepsRead     bool               // guarded by mu; read bytes are kept for Rewind
	unread        int                // guarded by mu; unread bytes in pieces
	pendingCredit int                // guarded by mu; consumed bytes not yet credited to the peer
	complete      bool               // guarded by mu; the body is complete
	closed        bool               // guarded by mu; the consumer has closed the body
	err           error              // guarded by mu; why the body ended early
	trailer       header             // guarded by mu; final once complete is set
	text          []byte             // guarded by mu; storage of the strings in trailer
	pump          *pump              // guarded by mu; the pump that consumes the body; nil: none
}

type header = protocol.Header

// start makes rb the body that arrives on ms. It needs no lock, because nothing else uses rb yet.
func (rb *recvBody) start(ms *muxStream, trailerDst *header, maxBytes int64) {
	rb.stream, rb.trailerDst, rb.maxBytes = ms, trailerDst, maxBytes
	rb.changed.L = &rb.mu
	rb.received.Store(0)
	rb.pendingCredit, rb.keepsRead, rb.complete, rb.closed, rb.err, rb.pump = 0, false, false, false, nil, nil
}

// reset releases what rb holds. Nothing else uses rb any more.
func (rb *recvBody) reset() {
	rb.mu.Lock()
	defer rb.mu.Unlock()
	rb.dropUnread()
	rb.trailer.Reset()
	rb.stream, rb.trailerDst, rb.pump, rb.err = nil, nil, nil, nil
}

// dropUnread drops the unread bytes and returns their number. rb.mu is held.
func (rb *recvBody) dropUnread() int {
	dropped := rb.unread
	for i, p := range rb.pieces {
		p.Release()
		rb.pieces[i] = nil
	}
	rb.pieces, rb.first, rb.unread = rb.pieces[:0], 0, 0
	return dropped
}

// add appends a copy of received bytes, and returns the pump to kick. discarded is the number of
// bytes that are dropped unread. The stream's muxConn.mu is held.
func (rb *recvBody) add(p []byte) (consumer *pump, discarded int) {
	rb.mu.Lock()
	defer rb.mu.Unlock()
	if rb.closed || rb.err != nil {
		return nil, len(p)
	}
	total := rb.received.Add(int64(len(p)))
	if rb.maxBytes > 0 && total > rb.maxBytes {
		rb.err = protocol.Faultf(protocol.BodyTooLarge, "body exceeds %d bytes", rb.maxBytes)
		discarded = rb.dropUnread() + len(p)
		rb.changed.Broadcast()
		return rb.pump, discarded
	}
	if len(p) == 0 {
		return nil, 0
	}
	rb.unread += len(p)
	n := len(rb.pieces)
	if n == 0 || len(rb.pieces[n-1].Tail()) < len(p) {
		rb.pieces = append(rb.pieces, buffer.Get(len(p)))
		n++
	}
	_, _ = rb.pieces[n-1].Write(p) // never fails
	rb.changed.Broadcast()
	return rb.pump, 0
}

// markComplete marks the body as complete, and returns the pump to kick. muxConn.mu is held.
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

// ready reports whether Read would not block. rb.mu is held.
func (rb *recvBody) ready() bool { return rb.unread > 0 || rb.complete || rb.err != nil || rb.closed }

// addTrailers adds the trailers to the message, once. rb.mu is held.
func (rb *recvBody) addTrailers() {
	if rb.trailerDst == nil {
		return
	}
	for name, value := range rb.trailer.All() {
		rb.trailerDst.Add(name, value)
	}
	rb.trailerDst = nil
}

// maxKeptBody is the maximum size, in bytes, of a body that is kept to be read again. A body is not
// kept if a part of it was read before the body was complete.
const maxKeptBody = 64 << 10

// consume consumes n bytes of the first unread piece. rb.mu is held.
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
	first.Release()
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
			p.Undiscard(len(p.Storage()) - p.Len())
		}
		rb.unread = int(rb.received.Load())
		rb.first = 0
	}
	return int64(rb.unread) == rb.received.Load()
}

// takeCredit returns the number of consumed bytes to credit the peer with, or 0 while they are
// fewer than creditThreshold. rb.mu is held.
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
