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
	// maxPieceSize is how much one buffer gathers, except for a larger frame. One write takes
	// up to maxIovecs buffers.
	maxPieceSize = 64 << 10
	// HighWatermark is how much may be pending before senders that can stop should do so:
	// see AwaitCapacity.
	HighWatermark = 1 << 20
	// MaxQueued is how many bytes may be pending before AppendFrame refuses more, unless
	// Limit changes it. A peer that reads nothing costs this and one frame, for all senders
	// together. Readers of requests stop at HighWatermark. Responses to requests that were
	// read before, and requests of many clients to one host, continue up to MaxQueued.
	MaxQueued = 64 << 20
)

// ErrWriteQueueFull means that AppendFrame refused a frame, because the maximum number of bytes
// is pending. The connection continues.
var ErrWriteQueueFull = errors.New("network: write queue full: the peer reads too slowly")

// WriteQueue gathers the frames that many exchanges send on one connection, so that pending
// frames leave in one write, in the order of their arrival. A sender calls Flush once it has
// no more frames to append; the first sender writes for all. No sender waits for the peer: a
// goroutine, which lives only that long, writes what the socket does not take.
//
// A WriteQueue is the only writer of its connection. Safe for concurrent use.
type WriteQueue struct {
	conn *Conn // immutable
	// run starts the goroutine that waits for a slow peer; immutable.
	run    func(func())
	yields bool // immutable; there is one processor: see FlushAfterYield
	limit  int  // immutable; bytes that may be queued before AppendFrame refuses more

	mu       sync.Mutex
	cond     sync.Cond          // on mu: queued fell, writing ended, or err was set
	pieces   []*buffer.IoBuffer // guarded by mu; pending, oldest first; the last is being filled
	queued   atomic.Int64       // bytes not yet taken by the socket; changes with mu held
	borrowed int                // guarded by mu; number of borrowed pieces in pieces and out
	writing  bool               // guarded by mu; a goroutine writes
	err      error              // guarded by mu; nothing can be written any more

	// The writing goroutine owns these fields.
	onWritable func(fd uintptr) bool // tryWritev as a func value, created once
	out        []*buffer.IoBuffer    // being written, oldest first; they are not queued
	// borrowedWritten is how many borrowed pieces have been written.
	borrowedWritten int
	writeErr        error
}

// NewWriteQueue returns the write queue of conn. run starts a goroutine and makes its owner wait
// for the goroutine's end; the goroutine ends when the connection is closed.
func NewWriteQueue(conn *Conn, run func(func())) *WriteQueue {
	q := &WriteQueue{conn: conn, run: run, yields: runtime.GOMAXPROCS(0) == 1, limit: MaxQueued}
	q.cond.L = &q.mu
	q.onWritable = q.tryWritev
	return q
}

// Limit sets how many bytes may be queued before AppendFrame refuses more; 0 leaves it at
// MaxQueued. The owner calls it before it uses the queue.
func (q *WriteQueue) Limit(n int) {
	if n > 0 {
		q.limit = n
	}
}

// BeginFrame returns the slice to which the caller appends a frame of about size bytes. It
// locks q.mu until EndFrame, so that no other frame gets in between.
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

// EndFrame stores dst, the extended slice of BeginFrame. An error means that the connection
// is lost and the frame was dropped.
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
// frame and continues; err is the error of encode. queueErr is ErrWriteQueueFull, and then encode
// was not called, or means that the connection is lost.
func (q *WriteQueue) AppendFrame(size int, encode func(dst []byte) ([]byte, error)) (n int, err, queueErr error) {
	dst := q.BeginFrame(size)
	start := len(dst)
	stored := dst
	full := q.Full() // q.mu is locked until EndFrame
	defer func() {
		if queueErr = q.EndFrame(stored); queueErr == nil && full {
			queueErr = ErrWriteQueueFull
		}
	}()
	if full {
		return 0, nil, nil
	}
	encoded, err := encode(dst)
	if err != nil {
		return 0, err, nil
	}
	stored = encoded
	return len(encoded) - start, nil, nil
}

// Full reports whether AppendFrame refuses more because of the pending bytes.
func (q *WriteQueue) Full() bool { return q.Queued() >= q.limit }

// Queued returns the number of pending bytes.
func (q *WriteQueue) Queued() int { return int(q.queued.Load()) }

// AwaitCapacity waits until less than HighWatermark is queued, or the connection is
// lost.
func (q *WriteQueue) AwaitCapacity() { q.AwaitCapacityBelow(HighWatermark) }

// AwaitCapacityBelow is AwaitCapacity with a limit other than HighWatermark, in bytes; limit
// is not below HighWatermark.
func (q *WriteQueue) AwaitCapacityBelow(limit int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.Queued() >= limit && q.err == nil {
		q.cond.Wait()
	}
}

// Flush writes the pending bytes, unless another goroutine already does. It returns before
// everything is written if the socket is full. An error means that the connection is lost;
// the goroutine that reads from it finds out as well.
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
			q.cond.Broadcast() // CopyBorrowed waits for Flush, and must not wait for the peer
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

// FlushAfterYield is Flush for a goroutine that has appended one frame while others may be
// about to do so. Where there is one processor, it lets them run first, so that all frames
// leave in one write.
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

// requeue moves the pieces in out, which are not written, back to pieces. The caller holds
// q.mu.
func (q *WriteQueue) requeue() {
	for _, piece := range q.out {
		q.queued.Add(int64(piece.Len()))
	}
	q.pieces = slices.Insert(q.pieces, 0, q.out...)
	clear(q.out)
	q.out = q.out[:0]
}

// writeBlocking writes until nothing is pending, on a goroutine that Flush starts. It
// closes the connection of a peer that reads nothing: the goroutine that reads from it would
// wait forever.
func (q *WriteQueue) writeBlocking() {
	if q.writeAll() != nil {
		_ = q.conn.Close() // its owner may have closed it
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

// Shrink frees the storage that only a busy connection needs.
func (q *WriteQueue) Shrink() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.writing && len(q.pieces) == 0 {
		q.pieces, q.out = nil, nil
	}
}

// Fail discards the pending bytes and refuses new frames. The owner closes the connection,
// which ends a write that is in progress.
func (q *WriteQueue) Fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = errors.Join(q.err, err)
	if !q.writing {
		q.dropPieces()
	}
	q.cond.Broadcast()
}

// Close writes the pending bytes and refuses new frames. It returns when the socket has
// taken everything, or when writing has failed.
func (q *WriteQueue) Close() {
	_ = q.Flush() // after an error there is nothing to wait for
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.writing && q.err == nil {
		q.cond.Wait()
	}
	q.err = errors.Join(q.err, os.ErrClosed)
}

// tryWrite writes as much of out as the socket takes immediately. Connections that are not
// sockets take nothing immediately.
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
		return nil // the timer of an earlier, slow write: writeBlocking arms its own
	}
	return err
}

// seal is tryWrite over TLS: it turns pieces into records. While the socket does not take
// the records, the last piece stays, empty: writing it writes the records.
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
// that are empty then.
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
