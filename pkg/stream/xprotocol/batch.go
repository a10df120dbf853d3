package xprotocol

import (
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// batch collects the work of a reader between two waits for input: the time of the last read, the
// write queues to flush and the exchanges to account for. The reader goroutine and the fibers that
// run on it own the batch.
type batch struct {
	now     time.Time
	dirty   []*network.WriteQueue
	tallies []tallied // most recently used first
}

// tallied is the observer for the exchanges of one listener that end in a batch.
type tallied struct {
	server *server
	tally  stream.BatchObserver
}

// mostHeld is how many bytes a reader reads before it flushes the batch although there is more to
// read.
const mostHeld = 256 << 10

// keepTallies is how many listeners' observers a connection keeps: a listener may have no more
// exchanges.
const keepTallies = 4

// add marks o as having frames to flush.
func (b *batch) add(o *network.WriteQueue) {
	if !slices.Contains(b.dirty, o) {
		b.dirty = append(b.dirty, o)
	}
}

// observe accounts for an exchange of s, no later than flush.
func (b *batch) observe(s *server, x *protocol.Exchange) { b.tally(s).Observe(x) }

// tally returns the observer for exchanges of s.
func (b *batch) tally(s *server) stream.BatchObserver {
	if len(b.tallies) > 0 && b.tallies[0].server == s {
		return b.tallies[0].tally
	}
	i := slices.IndexFunc(b.tallies, func(t tallied) bool { return t.server == s })
	if i < 0 {
		i = len(b.tallies)
		b.tallies = append(b.tallies, tallied{s, s.o.NewBatchObserver()})
	}
	b.tallies[0], b.tallies[i] = b.tallies[i], b.tallies[0]
	return b.tallies[0].tally
}

// flush accounts for the observed exchanges and contains panics.
func (t *tallied) flush() {
	defer t.server.engine.contain("recording requests")
	t.tally.Flush()
}

// flush accounts for the exchanges and flushes the write queues. If a connection is lost, its
// reader gets the error.
func (b *batch) flush() {
	for i := range b.tallies {
		b.tallies[i].flush()
	}
	if len(b.tallies) > keepTallies {
		clear(b.tallies[keepTallies:])
		b.tallies = b.tallies[:keepTallies]
	}
	for _, o := range b.dirty {
		_ = o.Flush()
	}
	clear(b.dirty)
	b.dirty = b.dirty[:0]
}
