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

// Sizes of an Outbox, in bytes.
const (
	// outboxPiece is how much is gathered in one buffer, a larger frame excepted: one
	// write takes maxIovecs of them.
	outboxPiece = 64 << 10
	// HighWatermark is how much may wait before who can stop asking for more should:
	// see AwaitCapacity.
	HighWatermark = 1 << 20
	// MaxQueued is how many bytes wait before Put refuses more, unless Limit changes it. A
	// peer that takes nothing costs this and one frame, for all senders together. Readers
	// of requests stop at HighWatermark; responses to requests that were read before, and
	// requests of many callers to one host, go on up to MaxQueued.
	MaxQueued = 64 << 20
)

// ErrOutboxFull is why Put refuses a frame: as many bytes as may be queued wait for the
// peer. The connection goes on.
var ErrOutboxFull = errors.New("network: the peer takes too little: too much waits to be sent")

// WriteQueue gathers the frames that many exchanges send on one connection, so that
// those that wait leave in one write, in the order in which they came. Who puts
// frames into it flushes it once it has no more to put; the one that comes first
// writes for all. Neither waits for the peer: what the socket does not take is
// written by a goroutine that lives as long as that lasts.
//
// An Outbox is the only writer of its connection. Safe for concurrent use.
type WriteQueue struct {
	conn *Conn // immutable
	// run starts the goroutine that waits for a slow peer; immutable.
	run    func(func())
	yields bool // immutable; there is one processor: see FlushAfterYield
	limit  int  // immutable; bytes that may be queued before Put refuses more

	mu       sync.Mutex
	room     sync.Cond          // on mu: queued fell, writing ended, or err was set
	pieces   []*buffer.IoBuffer // guarded by mu; waiting, oldest first; the last is being filled
	queued   atomic.Int64       // bytes not yet taken by the socket; changes with mu held
	borrowed int                // guarded by mu; pieces, here or in out, that Lend added
	writing  bool               // guarded by mu; somebody writes
	err      error              // guarded by mu; nothing can be written any more

	// Of who writes.
	try func(fd uintptr) bool // attempt, made once
	out []*buffer.IoBuffer    // being written, oldest first; they are not queued
	// returned is how many of the pieces that were lent have been written.
	returned int
	res      error
}

// NewOutbox returns the outbox of conn. run starts a goroutine and sees to it
// that its end is waited for; it ends when the connection is closed.
func NewOutbox(conn *Conn, run func(func())) *WriteQueue {
	o := &WriteQueue{conn: conn, run: run, yields: runtime.GOMAXPROCS(0) == 1, limit: MaxQueued}
	o.room.L = &o.mu
	o.try = o.attempt
	return o
}

// Limit sets how many bytes may be queued before Put refuses more; 0 leaves it at MaxQueued.
// The owner calls it before it uses the outbox.
func (o *WriteQueue) Limit(n int) {
	if n > 0 {
		o.limit = n
	}
}

// BeginFrame returns where a frame of about size bytes is to be appended. No other
// frame gets in between until End.
func (o *WriteQueue) BeginFrame(size int) (dst []byte) {
	o.mu.Lock()
	n := len(o.pieces)
	if n == 0 || o.pieces[n-1].Len()+size > outboxPiece || o.pieces[n-1].IsBorrowed() {
		o.pieces = append(o.pieces, buffer.Get(size))
		n++
	}
	o.pieces[n-1].Reserve(size)
	return o.pieces[n-1].Storage()
}

// EndFrame takes what became of what Begin returned. An error says that the
// connection is lost: the frame was dropped.
func (o *WriteQueue) EndFrame(dst []byte) error {
	piece := o.pieces[len(o.pieces)-1]
	o.queued.Add(int64(len(dst) - len(piece.Storage())))
	piece.SetStorage(dst)
	err := o.err
	if err != nil {
		o.drop()
	}
	o.mu.Unlock()
	return err
}

// AppendFrame appends the frame of about size bytes that frame makes behind dst, and returns
// how many bytes it has. Whatever becomes of frame, an error or a panic, the outbox
// goes on, without a part of it. err is frame's; lost says that the connection is, or is
// ErrOutboxFull: then frame was not called.
func (o *WriteQueue) AppendFrame(size int, frame func(dst []byte) ([]byte, error)) (n int, err, lost error) {
	dst := o.BeginFrame(size)
	start := len(dst)
	out := dst
	full := o.Full() // o.mu is held until End
	defer func() {
		if lost = o.EndFrame(out); lost == nil && full {
			lost = ErrOutboxFull
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

// Full reports whether so many bytes wait that Put refuses more.
func (o *WriteQueue) Full() bool { return o.Queued() >= o.limit }

// Queued returns how many bytes wait.
func (o *WriteQueue) Queued() int { return int(o.queued.Load()) }

// AwaitCapacity waits until less than HighWatermark is queued, or the connection is
// lost.
func (o *WriteQueue) AwaitCapacity() { o.AwaitCapacityBelow(HighWatermark) }

// AwaitCapacityBelow is AwaitCapacity for who may go on until limit bytes are queued, which are
// HighWatermark or more.
func (o *WriteQueue) AwaitCapacityBelow(limit int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.Queued() >= limit && o.err == nil {
		o.room.Wait()
	}
}

// Flush writes what waits, unless somebody does already. It returns before
// everything is written if the socket is full. An error means that the
// connection is lost; whoever reads from it finds out as well.
func (o *WriteQueue) Flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing {
		return nil
	}
	o.writing = true
	for o.err == nil && len(o.pieces) > 0 {
		o.take()
		o.mu.Unlock()
		err := o.tryWrite()
		o.mu.Lock()
		o.borrowed -= o.returned
		o.returned = 0
		o.err = errors.Join(o.err, err)
		if len(o.out) > 0 && o.err == nil {
			o.requeue()
			o.own()
			o.room.Broadcast() // Own waits for us, and must not for the peer
			o.run(o.writeBlocking)
			return nil // writing goes on
		}
	}
	o.stop()
	return o.err
}

// stop ends writing, for nothing waits or nothing can be written. o.mu is held.
func (o *WriteQueue) stop() {
	o.writing = false
	if o.err != nil {
		o.requeue()
		o.drop()
	}
	o.room.Broadcast()
}

// FlushAfterYield is Flush for a goroutine that has put one frame into the outbox, as
// others may be about to: where there is one processor, they have their turn first,
// and all leaves in one write.
func (o *WriteQueue) FlushAfterYield() error {
	if o.yields {
		runtime.Gosched()
	}
	return o.Flush()
}

// take takes the oldest pieces to be written. o.mu is held.
func (o *WriteQueue) take() {
	n := min(len(o.pieces), maxIovecs)
	o.out = append(o.out, o.pieces[:n]...)
	o.pieces = slices.Delete(o.pieces, 0, n)
	taken := 0
	for _, piece := range o.out {
		taken += piece.Len()
	}
	o.queued.Add(-int64(taken))
}

// requeue has what was taken and not written wait again. o.mu is held.
func (o *WriteQueue) requeue() {
	for _, piece := range o.out {
		o.queued.Add(int64(piece.Len()))
	}
	o.pieces = slices.Insert(o.pieces, 0, o.out...)
	clear(o.out)
	o.out = o.out[:0]
}

// writeBlocking writes until nothing waits. It was given the right to write. A peer that takes
// nothing has its connection closed: whoever reads from it would wait for ever.
func (o *WriteQueue) writeBlocking() {
	if o.writeAll() != nil {
		_ = o.conn.Close() // its owner may have
	}
}

// writeAll writes until nothing waits, or nothing can be written.
func (o *WriteQueue) writeAll() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && len(o.pieces) > 0 {
		piece := o.pieces[0]
		o.pieces = slices.Delete(o.pieces, 0, 1)
		size := piece.Len() // it is queued until it has been written
		o.mu.Unlock()
		_, err := o.conn.Write(piece.Bytes())
		piece.Release()
		o.mu.Lock()
		o.queued.Add(-int64(size))
		o.err = errors.Join(o.err, err)
		if o.Queued() < HighWatermark {
			o.room.Broadcast()
		}
	}
	o.stop()
	return o.err
}

// drop gives up what waits; o.mu is held.
func (o *WriteQueue) drop() {
	for _, piece := range o.pieces {
		o.queued.Add(-int64(piece.Len()))
		if piece.IsBorrowed() {
			o.borrowed--
		}
		piece.Release()
	}
	clear(o.pieces)
	o.pieces = o.pieces[:0]
	o.room.Broadcast()
}

// Shrink gives up the storage that only a busy connection needs.
func (o *WriteQueue) Shrink() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.writing && len(o.pieces) == 0 {
		o.pieces, o.out = nil, nil
	}
}

// Fail gives up what waits and refuses what comes. The connection is closed by
// its owner, which ends a write that is under way.
func (o *WriteQueue) Fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = errors.Join(o.err, err)
	if !o.writing {
		o.drop()
	}
	o.room.Broadcast()
}

// Close sends what waits and refuses what comes. It returns when everything has
// been taken by the socket, or cannot be.
func (o *WriteQueue) Close() {
	_ = o.Flush() // then there is nothing to wait for
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.writing && o.err == nil {
		o.room.Wait()
	}
	o.err = errors.Join(o.err, os.ErrClosed)
}

// tryWrite writes as much of what was taken as the socket takes at once. Connections
// that are not sockets take nothing at once.
func (o *WriteQueue) tryWrite() error {
	if o.conn.raw == nil {
		return nil
	}
	if s := o.conn.secure.Load(); s != nil {
		return o.seal(s)
	}
	err := o.conn.raw.Write(o.try)
	if err == nil {
		err = o.res
	}
	o.res = nil
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // the timer of an earlier, slow write: drain starts its own
	}
	return err
}

// seal is tryWrite over TLS: pieces become records. As long as the socket does not
// take those, the last piece stays, empty: writing it is writing them.
func (o *WriteQueue) seal(s *tlsLayer) error {
	for len(o.out) > 0 {
		piece := o.out[0]
		n := piece.Len()
		left, err := s.encrypt(piece.Bytes())
		if left || err != nil {
			piece.Discard(n)
			return err
		}
		o.written(n)
	}
	return nil
}

func (o *WriteQueue) attempt(fd uintptr) bool {
	for len(o.out) > 0 {
		n, errno := writev(fd, o.out)
		if errno == syscall.EAGAIN {
			return true
		}
		if errno != 0 {
			o.res = os.NewSyscallError("write", errno)
			return true
		}
		o.written(n)
	}
	return true
}

// written releases the pieces of which the last of n bytes was written.
func (o *WriteQueue) written(n int) {
	whole := 0
	for _, piece := range o.out {
		if n < piece.Len() {
			piece.Discard(n)
			break
		}
		n -= piece.Len()
		if piece.IsBorrowed() {
			o.returned++
		}
		piece.Release()
		whole++
	}
	o.out = slices.Delete(o.out, 0, whole)
}
