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
	o := &WriteQueue{conn: conn, run: run, yields: runtime.GOMAXPROCS(0) == 1, limit: MaxQueued}
	o.cond.L = &o.mu
	o.onWritable = o.tryWritev
	return o
}

// Limit sets how many bytes may be queued before AppendFrame refuses more; 0 leaves it at
// MaxQueued. The owner calls it before it uses the queue.
func (o *WriteQueue) Limit(n int) {
	if n > 0 {
		o.limit = n
	}
}

// BeginFrame returns the slice to which the caller appends a frame of about size bytes. It
// locks o.mu until EndFrame, so that no other frame gets in between.
func (o *WriteQueue) BeginFrame(size int) (dst []byte) {
	o.mu.Lock()
	n := len(o.pieces)
	if n == 0 || o.pieces[n-1].Len()+size > maxPieceSize || o.pieces[n-1].IsBorrowed() {
		o.pieces = append(o.pieces, buffer.Get(size))
		n++
	}
	o.pieces[n-1].Reserve(size)
	return o.pieces[n-1].Storage()
}

// EndFrame stores dst, the extended slice of BeginFrame. An error means that the connection
// is lost and the frame was dropped.
func (o *WriteQueue) EndFrame(dst []byte) error {
	piece := o.pieces[len(o.pieces)-1]
	o.queued.Add(int64(len(dst) - len(piece.Storage())))
	piece.SetStorage(dst)
	err := o.err
	if err != nil {
		o.dropPieces()
	}
	o.mu.Unlock()
	return err
}

// AppendFrame appends the frame of about size bytes that frame appends to dst, and returns
// its length in bytes. If frame returns an error or panics, the queue drops the partial
// frame and continues. err is frame's. lost means that the connection is lost, or is
// ErrWriteQueueFull: then frame was not called.
func (o *WriteQueue) AppendFrame(size int, frame func(dst []byte) ([]byte, error)) (n int, err, lost error) {
	dst := o.BeginFrame(size)
	start := len(dst)
	out := dst
	full := o.Full() // o.mu is held until EndFrame
	defer func() {
		if lost = o.EndFrame(out); lost == nil && full {
			lost = ErrWriteQueueFull
		}
	}()
	if full {
		return 0, nil, nil
	}
	made, err := frame(dst)
	if err != nil {
		return 0, err, nil
	}
	out = made
	return len(made) - start, nil, nil
}

// Full reports whether AppendFrame refuses more because of the pending bytes.
func (o *WriteQueue) Full() bool { return o.Queued() >= o.limit }

// Queued returns the number of pending bytes.
func (o *WriteQueue) Queued() int { return int(o.queued.Load()) }

// AwaitCapacity waits until less than HighWatermark is queued, or the connection is
// lost.
func (o *WriteQueue) AwaitCapacity() { o.AwaitCapacityBelow(HighWatermark) }

// AwaitCapacityBelow is AwaitCapacity with a limit other than HighWatermark, in bytes; limit
// is not below HighWatermark.
func (o *WriteQueue) AwaitCapacityBelow(limit int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.Queued() >= limit && o.err == nil {
		o.cond.Wait()
	}
}

// Flush writes the pending bytes, unless another goroutine already does. It returns before
// everything is written if the socket is full. An error means that the connection is lost;
// the goroutine that reads from it finds out as well.
func (o *WriteQueue) Flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing {
		return nil
	}
	o.writing = true
	for o.err == nil && len(o.pieces) > 0 {
		o.dequeue()
		o.mu.Unlock()
		err := o.tryWrite()
		o.mu.Lock()
		o.borrowed -= o.borrowedWritten
		o.borrowedWritten = 0
		o.err = errors.Join(o.err, err)
		if len(o.out) > 0 && o.err == nil {
			o.requeue()
			o.copyBorrowedLocked()
			o.cond.Broadcast() // CopyBorrowed waits for Flush, and must not wait for the peer
			o.run(o.writeBlocking)
			return nil // writeBlocking continues to write
		}
	}
	o.stopWriting()
	return o.err
}

// stopWriting ends writing, because nothing is pending or nothing can be written. The caller holds
// o.mu.
func (o *WriteQueue) stopWriting() {
	o.writing = false
	if o.err != nil {
		o.requeue()
		o.dropPieces()
	}
	o.cond.Broadcast()
}

// FlushAfterYield is Flush for a goroutine that has appended one frame while others may be
// about to do so. Where there is one processor, it lets them run first, so that all frames
// leave in one write.
func (o *WriteQueue) FlushAfterYield() error {
	if o.yields {
		runtime.Gosched()
	}
	return o.Flush()
}

// dequeue moves the oldest pieces to out. The caller holds o.mu.
func (o *WriteQueue) dequeue() {
	n := min(len(o.pieces), maxIovecs)
	o.out = append(o.out, o.pieces[:n]...)
	o.pieces = slices.Delete(o.pieces, 0, n)
	taken := 0
	for _, piece := range o.out {
		taken += piece.Len()
	}
	o.queued.Add(-int64(taken))
}

// requeue moves the pieces in out, which are not written, back to pieces. The caller holds
// o.mu.
func (o *WriteQueue) requeue() {
	for _, piece := range o.out {
		o.queued.Add(int64(piece.Len()))
	}
	o.pieces = slices.Insert(o.pieces, 0, o.out...)
	clear(o.out)
	o.out = o.out[:0]
}

// writeBlocking writes until nothing is pending. Flush passes it the right to write. It
// closes the connection of a peer that reads nothing: the goroutine that reads from it would
// wait forever.
func (o *WriteQueue) writeBlocking() {
	if o.writeAll() != nil {
		_ = o.conn.Close() // its owner may have closed it
	}
}

// writeAll writes until nothing is pending, or nothing can be written.
func (o *WriteQueue) writeAll() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && len(o.pieces) > 0 {
		piece := o.pieces[0]
		o.pieces = slices.Delete(o.pieces, 0, 1)
		size := piece.Len() // the piece counts as queued until it is written
		o.mu.Unlock()
		_, err := o.conn.Write(piece.Bytes())
		piece.Release()
		o.mu.Lock()
		o.queued.Add(-int64(size))
		o.err = errors.Join(o.err, err)
		if o.Queued() < HighWatermark {
			o.cond.Broadcast()
		}
	}
	o.stopWriting()
	return o.err
}

// dropPieces discards the pending pieces. The caller holds o.mu.
func (o *WriteQueue) dropPieces() {
	for _, piece := range o.pieces {
		o.queued.Add(-int64(piece.Len()))
		if piece.IsBorrowed() {
			o.borrowed--
		}
		piece.Release()
	}
	clear(o.pieces)
	o.pieces = o.pieces[:0]
	o.cond.Broadcast()
}

// Shrink frees the storage that only a busy connection needs.
func (o *WriteQueue) Shrink() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.writing && len(o.pieces) == 0 {
		o.pieces, o.out = nil, nil
	}
}

// Fail discards the pending bytes and refuses new frames. The owner closes the connection,
// which ends a write that is in progress.
func (o *WriteQueue) Fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = errors.Join(o.err, err)
	if !o.writing {
		o.dropPieces()
	}
	o.cond.Broadcast()
}

// Close writes the pending bytes and refuses new frames. It returns when the socket has
// taken everything, or when writing has failed.
func (o *WriteQueue) Close() {
	_ = o.Flush() // after an error there is nothing to wait for
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.writing && o.err == nil {
		o.cond.Wait()
	}
	o.err = errors.Join(o.err, os.ErrClosed)
}

// tryWrite writes as much of out as the socket takes immediately. Connections that are not
// sockets take nothing immediately.
func (o *WriteQueue) tryWrite() error {
	if o.conn.raw == nil {
		return nil
	}
	if s := o.conn.secure.Load(); s != nil {
		return o.seal(s)
	}
	err := o.conn.raw.Write(o.onWritable)
	if err == nil {
		err = o.writeErr
	}
	o.writeErr = nil
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // the timer of an earlier, slow write: writeBlocking arms its own
	}
	return err
}

// seal is tryWrite over TLS: it turns pieces into records. While the socket does not take
// the records, the last piece stays, empty: writing it writes the records.
func (o *WriteQueue) seal(s *tlsLayer) error {
	for len(o.out) > 0 {
		piece := o.out[0]
		n := piece.Len()
		left, err := s.encrypt(piece.Bytes())
		if left || err != nil {
			piece.Discard(n)
			return err
		}
		o.discardWritten(n)
	}
	return nil
}

func (o *WriteQueue) tryWritev(fd uintptr) bool {
	for len(o.out) > 0 {
		n, errno := writev(fd, o.out)
		if errno == syscall.EAGAIN {
			return true
		}
		if errno != 0 {
			o.writeErr = os.NewSyscallError("write", errno)
			return true
		}
		o.discardWritten(n)
	}
	return true
}

// discardWritten discards the first n bytes of out, which were written, and releases the pieces
// that are empty then.
func (o *WriteQueue) discardWritten(n int) {
	whole := 0
	for _, piece := range o.out {
		if n < piece.Len() {
			piece.Discard(n)
			break
		}
		n -= piece.Len()
		if piece.IsBorrowed() {
			o.borrowedWritten++
		}
		piece.Release()
		whole++
	}
	o.out = slices.Delete(o.out, 0, whole)
}
