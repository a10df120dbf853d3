package stream

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/network"
)

// WriteBatch is the set of write queues that a reader of a multiplexed connection flushes together,
// once it has processed everything that it could read: one write for each, however many frames were
// added. The zero value is empty. One goroutine owns it.
type WriteBatch struct {
	queues []*network.WriteQueue // usually few
}

// Add adds q, to which frames were appended.
func (b *WriteBatch) Add(q *network.WriteQueue) {
	if !slices.Contains(b.queues, q) {
		b.queues = append(b.queues, q)
	}
}

// Queues returns the write queues. The slice is valid until Add or Flush.
func (b *WriteBatch) Queues() []*network.WriteQueue { return b.queues }

// Flush flushes the write queues and empties b. The reader of a lost connection gets the error.
func (b *WriteBatch) Flush() {
	for _, q := range b.queues {
		_ = q.Flush()
	}
	clear(b.queues)
	b.queues = b.queues[:0]
}
