package network

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// Sizes of a WriteQueue, in bytes.
const (
	// maxPieceSize is the maximum size of a piece: a buffer that gathers frames. A larger frame has
	// a piece of its own. One write sends up to maxIovecs pieces.
	maxPieceSize = 64 << 10
	// HighWatermark is the number of pending bytes of a queue at which senders should pause, if
	// they can: see AwaitCapacity.
	HighWatermark = 1 << 20
	// MaxQueued is the number of pending bytes of a queue at which AppendFrame rejects frames,
	// unless SetLimit changes it. It bounds the memory that a peer that reads nothing costs.
	// Engines stop reading requests at HighWatermark (HTTP/2: at four times HighWatermark), but the
	// responses to earlier requests, and the requests of many clients to one host, may reach
	// MaxQueued.
	MaxQueued = 64 << 20
)

// ErrWriteQueueFull means that AppendFrame rejected a frame because of the pending bytes. The
// connection stays usable.
var ErrWriteQueueFull = errors.New("network: write queue full: the peer reads too slowly")

// WriteQueue gathers the frames that many exchanges send on one connection, so that one write sends
// all pending frames, in the order in which they were appended. A sender calls Flush when it has no
// more frames to append; one sender writes the frames of all. No sender waits for the peer: if the
// socket is full, Flush starts a goroutine that writes the rest and then ends.
//
// A WriteQueue is the only writer of its connection. Safe for concurrent use.
type WriteQueue struct {
	conn *Conn // immutable
	// run starts the goroutine that writes to a slow peer; immutable.
	run    func(func())
	yields bool // immutable; GOMAXPROCS is 1: see FlushAfterYield
	limit  int  // immutable; number of pending bytes at which AppendFrame rejects frames

	mu       sync.Mutex
	cond     sync.Cond          // on mu: queued fell, borrowed pieces were copied, writing ended, or err was set
	pieces   []*buffer.IoBuffer // guarded by mu; pending, oldest first; BeginFrame appends to the last
	queued   atomic.Int64       // pending bytes that are not in out; changes with mu held
	borrowed int                // guarded by mu; number of borrowed pieces in pieces and out
	writing  bool               // guarded by mu; a goroutine writes
	err      error              // guarded by mu; why nothing can be written any more; nil: no error

	// The writing goroutine owns these fields.
	onWritable func(fd uintptr) bool // tryWritev as a func value, created once
	out        []*buffer.IoBuffer    // being written, oldest first; not counted in queued
	// borrowedWritten is how many borrowed pieces have been written.
	borrowedWritten int
	writeErr        error // the error of tryWritev
}

// NewWriteQueue returns the write queue of conn. run must call its argument in a new goroutine, and
// make the owner of the queue wait for that goroutine, which ends at the latest when the connection
// is closed. The handler of conn, or the goroutine that dialed it, calls NewWriteQueue.
func NewWriteQueue(conn *Conn, run func(func())) *WriteQueue {
	q := &WriteQueue{conn: conn, run: run, yields: runtime.GOMAXPROCS(0) == 1, limit: MaxQueued}
	q.cond.L = &q.mu
	q.onWritable = q.tryWritev
	conn.writeQueue = q
	return q
}

// SetLimit sets the number of pending bytes at which AppendFrame rejects frames; 0: MaxQueued. The
// owner calls it before it uses the queue.
func (q *WriteQueue) SetLimit(n int) {
	if n > 0 {
		q.limit = n
	}
}

// BeginFrame returns the slice to which the caller appends a frame of about size bytes. It locks
// q.mu until EndFrame, so that no other frame is appended meanwhile.
func (q *WriteQueue) BeginFrame(size int) (dst []byte) {
	q.mu.Lock()
	n := len(q.pieces)
	if n == 0 || q.pieces[n-1].Len()+size > maxPieceSize || q.pieces[n-1].IsBorrowed() {
		q.pieces = append(q.pieces, buffer.Get(size))
		n++
	}
	q.pieces[n-1].Reserve(size)
	return q.pieces[n-1].Storage()
}

// EndFrame stores dst, the slice of BeginFrame with the appended frame, and unlocks q.mu. An error
// means that the connection is lost and the frame was dropped.
func (q *WriteQueue) EndFrame(dst []byte) error {
	piece := q.pieces[len(q.pieces)-1]
	q.queued.Add(int64(len(dst) - len(piece.Storage())))
	piece.SetStorage(dst)
	err := q.err
	if err != nil {
		q.dropPieces()
	}
	q.mu.Unlock()
	return err
}

// AppendFrame calls encode, which appends a frame of about size bytes to dst, and returns the
// length of the frame in bytes. If encode returns an error or panics, the queue drops the partial
// frame and continues; err is the error of encode. If queueErr is ErrWriteQueueFull, AppendFrame
// has not called encode. Any other queueErr means that the connection is lost.
func (q *WriteQueue) AppendFrame(size int, encode func(dst []byte) ([]byte, error)) (n int, err, queueErr error) {
	dst := q.BeginFrame(size)
	start := len(dst)
	stored := dst
	isFull := q.Full() // q.mu is locked until EndFrame
	defer func() {
		if queueErr = q.EndFrame(stored); queueErr == nil && isFull {
			queueErr = ErrWriteQueueFull
		}
	}()
	if isFull {
		return 0, nil, nil
	}
	encoded, err := encode(dst)
	if err != nil {
		return 0, err, nil
	}
	stored = encoded
	return len(encoded) - start, nil, nil
}

// Full reports whether AppendFrame rejects frames because of the pending bytes.
func (q *WriteQueue) Full() bool { return q.Queued() >= q.limit }

// Queued returns the number of pending bytes, without those that Flush is writing.
func (q *WriteQueue) Queued() int { return int(q.queued.Load()) }

// AwaitCapacity waits until fewer than HighWatermark bytes are pending, or the connection is lost.
func (q *WriteQueue) AwaitCapacity() { q.AwaitCapacityBelow(HighWatermark) }

// AwaitCapacityBelow is AwaitCapacity with a limit in bytes, not below HighWatermark, at which it
// begins to wait. The wait may last until fewer than HighWatermark bytes are pending.
func (q *WriteQueue) AwaitCapacityBelow(limit int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.Queued() >= limit && q.err == nil {
		q.cond.Wait()
	}
}

// Flush writes the pending bytes, unless another goroutine already does. It returns before
// everything is written if the socket is full. An error means that the connection is lost; its
// reader gets an error as well.
func (q *WriteQueue) Flush() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.writing {
		return nil
	}
	q.writing = true
	for q.err == nil && len(q.pieces) > 0 {
		q.dequeue()
		q.mu.Unlock()
		err := q.tryWrite()
		q.mu.Lock()
		q.borrowed -= q.borrowedWritten
		q.borrowedWritten = 0
		q.err = errors.Join(q.err, err)
		if len(q.out) > 0 && q.err == nil {
			q.requeue()
			q.copyBorrowedLocked()
			q.cond.Broadcast() // wakes CopyBorrowed, which must not wait for the peer
			q.run(q.writeBlocking)
			return nil // writeBlocking continues to write
		}
	}
	q.stopWriting()
	return q.err
}

// stopWriting ends writing, because nothing is pending or nothing can be written. The caller holds
// q.mu.
func (q *WriteQueue) stopWriting() {
	q.writing = false
	if q.err != nil {
		q.requeue()
		q.dropPieces()
	}
	q.cond.Broadcast()
}

// FlushAfterYield is Flush for a goroutine that has appended one frame while other goroutines may
// be about to append theirs. If GOMAXPROCS is 1, it yields to them, so that one write sends all
// frames.
func (q *WriteQueue) FlushAfterYield() error {
	if q.yields {
		runtime.Gosched()
	}
	return q.Flush()
}

// dequeue moves the oldest pieces to out. The caller holds q.mu.
func (q *WriteQueue) dequeue() {
	n := min(len(q.pieces), maxIovecs)
	q.out = append(q.out, q.pieces[:n]...)
	q.pieces = slices.Delete(q.pieces, 0, n)
	size := 0
	for _, piece := range q.out {
		size += piece.Len()
	}
	q.queued.Add(-int64(size))
}

// requeue moves the pieces in out, which were not written, back to pieces. The caller holds q.mu.
func (q *WriteQueue) requeue() {
	for _, piece := range q.out {
		q.queued.Add(int64(piece.Len()))
	}
	q.pieces = slices.Insert(q.pieces, 0, q.out...)
	clear(q.out)
	q.out = q.out[:0]
}

// writeBlocking writes until nothing is pending, on a goroutine that Flush starts. If writing
// fails, for example because the peer reads nothing, it closes the connection; otherwise the reader
// could wait forever.
func (q *WriteQueue) writeBlocking() {
	if q.writeAll() != nil {
		_ = q.conn.Close() // the owner may have closed conn
	}
}

// writeAll writes until nothing is pending, or nothing can be written.
func (q *WriteQueue) writeAll() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.err == nil && len(q.pieces) > 0 {
		piece := q.pieces[0]
		q.pieces = slices.Delete(q.pieces, 0, 1)
		size := piece.Len() // the piece counts as queued until it is written
		q.mu.Unlock()
		_, err := q.conn.Write(piece.Bytes())
		piece.Release()
		q.mu.Lock()
		q.queued.Add(-int64(size))
		q.err = errors.Join(q.err, err)
		if q.Queued() < HighWatermark {
			q.cond.Broadcast()
		}
	}
	q.stopWriting()
	return q.err
}

// dropPieces discards the pending pieces. The caller holds q.mu.
func (q *WriteQueue) dropPieces() {
	for _, piece := range q.pieces {
		q.queued.Add(-int64(piece.Len()))
		if piece.IsBorrowed() {
			q.borrowed--
		}
		piece.Release()
	}
	clear(q.pieces)
	q.pieces = q.pieces[:0]
	q.cond.Broadcast()
}

// Shrink frees the slices that only a busy connection needs, if nothing is pending.
func (q *WriteQueue) Shrink() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.writing && len(q.pieces) == 0 {
		q.pieces, q.out = nil, nil
	}
}

// Fail discards the pending bytes and rejects new frames. The owner closes the connection, which
// ends a write that is in progress.
func (q *WriteQueue) Fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = errors.Join(q.err, err)
	if !q.writing {
		q.dropPieces()
	}
	q.cond.Broadcast()
}

// Close writes the pending bytes, and then rejects new frames. It returns when the socket has taken
// everything, or when writing has failed.
func (q *WriteQueue) Close() {
	_ = q.Flush() // after an error there is nothing to wait for
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.writing && q.err == nil {
		q.cond.Wait()
	}
	q.err = errors.Join(q.err, os.ErrClosed)
}

// tryWrite writes as much of out as the socket takes immediately. It writes nothing to a connection
// that is not a socket: writeBlocking does.
func (q *WriteQueue) tryWrite() error {
	if q.conn.raw == nil {
		return nil
	}
	if s := q.conn.secure.Load(); s != nil {
		return q.seal(s)
	}
	err := q.conn.raw.Write(q.onWritable)
	if err == nil {
		err = q.writeErr
	}
	q.writeErr = nil
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // the write timer of an earlier write has fired; writeBlocking arms it again
	}
	return err
}

// seal is tryWrite over TLS: it encrypts pieces and sends the records. If the socket does not take
// all records, the current piece stays in out, empty: a write of the empty piece sends the pending
// records.
func (q *WriteQueue) seal(s *tlsLayer) error {
	for len(q.out) > 0 {
		piece := q.out[0]
		n := piece.Len()
		pending, err := s.encrypt(piece.Bytes())
		if pending || err != nil {
			piece.Discard(n)
			return err
		}
		q.discardWritten(n)
	}
	return nil
}

// tryWritev writes as much of out as the socket takes. It returns true, because the runtime's
// poller must not wait for the socket.
func (q *WriteQueue) tryWritev(fd uintptr) bool {
	for len(q.out) > 0 {
		n, errno := writev(fd, q.out)
		if errno == syscall.EAGAIN {
			return true
		}
		if errno != 0 {
			q.writeErr = os.NewSyscallError("write", errno)
			return true
		}
		q.discardWritten(n)
	}
	return true
}

// discardWritten discards the first n bytes of out, which were written, and releases the pieces
// that become empty.
func (q *WriteQueue) discardWritten(n int) {
	written := 0
	for _, piece := range q.out {
		if n < piece.Len() {
			piece.Discard(n)
			break
		}
		n -= piece.Len()
		if piece.IsBorrowed() {
			q.borrowedWritten++
		}
		piece.Release()
		written++
	}
	q.out = slices.Delete(q.out, 0, written)
}
