package xprotocol

import (
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// batch is what a reader does until it has to wait: the time at which it read
// last, and what is to be done when everything that there was to read has been dealt
// with: outboxes to be flushed, exchanges to be accounted for. Owned by the reader's
// goroutine and the fibers that run on it.
type batch struct {
	now     time.Time
	dirty   []*network.WriteQueue
	tallies []tallied // the last that was used first
}

// tallied is what accounts for the exchanges of a listener that end in a batch.
type tallied struct {
	server *server
	tally  stream.BatchObserver
}

// mostHeld is how much a reader reads, in bytes, before it sends what came of it,
// even if there is more to read.
const mostHeld = 256 << 10

// keepTallies is how many listeners' tallies a connection keeps: there may be none of
// a listener's exchanges any more.
const keepTallies = 4

// add notes that o has something to send.
func (b *batch) add(o *network.WriteQueue) {
	if !slices.Contains(b.dirty, o) {
		b.dirty = append(b.dirty, o)
	}
}

// observe has an exchange of s's accounted for, at flush at the latest.
func (b *batch) observe(s *server, x *protocol.Exchange) { b.tally(s).Observe(x) }

// tally returns what accounts for exchanges of s's until flush.
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

// flush accounts. A panic costs no more than that.
func (t *tallied) flush() {
	defer t.server.engine.contain("accounting for requests")
	t.tally.Flush()
}

// flush accounts, and sends. A connection that is lost is its reader's business.
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
