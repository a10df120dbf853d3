package http2

import (
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/stream"
)

// batch is the work of a reader until it has to wait: the time of its last read, and the write
// queues to flush after it has processed everything that it read. onTimer has a batch of its own.
// One goroutine owns a batch.
type batch struct {
	now   time.Time
	dirty stream.WriteBatch
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

// flush flushes the write queues. The reader of a lost connection handles write errors.
func (b *batch) flush() { b.dirty.Flush() }
