package http2

import (
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/stream"
)

// batch is the work of a reader until it has to wait: the time of its last read, and the write
// queues to flush after it has processed everything that it read. onTimer has a batch of its own.
// One goroutine owns a batch.
type batch struct {
	now         time.Time
	dirty       stream.WriteBatch
	borrowers   []*network.WriteQueue // write queues that may borrow parts of the reader's buffers
	heldBuffers []*buffer.IoBuffer    // borrowed buffers that the reader no longer uses
}

// maxHeldBuffers is the maximum number of buffers that a reader holds because parts of them are
// borrowed.
const maxHeldBuffers = 8

// addBorrower records that q borrows bytes, which flush reclaims.
func (b *batch) addBorrower(q *network.WriteQueue) {
	if !slices.Contains(b.borrowers, q) {
		b.borrowers = append(b.borrowers, q)
	}
}

// holdBuffer keeps a buffer of the reader until its borrowed parts are reclaimed. If b then holds
// maxHeldBuffers, it flushes b.
func (b *batch) holdBuffer(buf *buffer.IoBuffer) {
	b.heldBuffers = append(b.heldBuffers, buf)
	if len(b.heldBuffers) >= maxHeldBuffers {
		b.flush()
	}
}

// reclaimBorrowed reclaims the borrowed bytes: write queues copy those that they have not sent.
func (b *batch) reclaimBorrowed() {
	for _, q := range b.borrowers {
		q.CopyBorrowed()
	}
	for _, buf := range b.heldBuffers {
		buf.Release()
	}
	clear(b.borrowers)
	clear(b.heldBuffers)
	b.borrowers, b.heldBuffers = b.borrowers[:0], b.heldBuffers[:0]
}

// maxPendingWrites is the number of pending bytes above which the engine stops reading from a peer.
// Bodies stop at network.HighWatermark, which is lower: otherwise two adjacent proxies that write
// before they read would wait for each other forever
// (TestNoDeadlockWithHostThatWritesBeforeReading).
const maxPendingWrites = 4 * network.HighWatermark

// scheduleFlush adds q to b, so that the next flush of b flushes q. If b is nil, it flushes q
// itself.
func (b *batch) scheduleFlush(q *network.WriteQueue) {
	if b == nil {
		_ = q.FlushAfterYield() // the connection's reader handles the error
		return
	}
	b.dirty.Add(q)
}

// time returns the time of the last read, or the current time if b is nil.
func (b *batch) time() time.Time {
	if b == nil {
		return time.Now()
	}
	return b.now
}

// flush flushes the write queues and reclaims borrowed bytes. The reader of a lost connection
// handles write errors.
func (b *batch) flush() {
	b.dirty.Flush()
	b.reclaimBorrowed()
}
