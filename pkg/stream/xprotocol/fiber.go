package xprotocol

import (
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
)

// fiber is a coroutine: it has a stack of its own and runs, inside resume, on
// the goroutine of whoever calls that. A switch costs a fraction of what waking
// a goroutine does; docs/decisions/0008 has the figures.
//
//	          resume                 park
//	idle ────────────────▶ running ────────▶ parked
//	 ▲                     │ ▲  │              │
//	 └── it has served ────┘ │  └─ wake ─▶ woken (goes on instead of parking)
//	                         └───── wake ──────┘
type fiber struct {
	next  func() (struct{}, bool) // runs it until it waits or has served
	stop  func()                  // ends it while it is idle
	yield func(struct{}) bool     // of the fiber's own side
	state atomic.Uint32

	// Owned by who runs the fiber.
	batch  *batch // of the goroutine that it runs on; nil: a worker's
	moving bool   // it is to go on on a worker
	idle   bool   // it serves nothing
}

// States of a fiber that is not idle.
const (
	running uint32 = iota
	parked
	woken
)

// outcome is why resume returned.
type outcome uint8

const (
	waits  outcome = iota // somebody will wake it
	moves                 // it wants a worker
	served                // it is idle
)

// begin makes f a coroutine that calls serve each time it is resumed anew.
func (f *fiber) begin(serve func()) {
	f.next, f.stop = iter.Pull(func(yield func(struct{}) bool) {
		f.yield = yield
		for {
			f.idle = true
			if !yield(struct{}{}) {
				return
			}
			f.idle = false
			serve()
		}
	})
	f.next() // to its first rest
}

// resume runs f until it has something to wait for, or has served. Afterwards f
// may belong to another goroutine already, unless it is to move or is idle.
func (f *fiber) resume(b *batch) outcome {
	for {
		f.batch = b
		f.next()
		switch {
		case f.idle:
			return served
		case f.moving:
			f.moving = false
			return moves
		case f.state.CompareAndSwap(running, parked):
			return waits
		}
		f.state.Store(running) // it was woken before it had parked
	}
}

// park waits for one wake. Called by the fiber.
func (f *fiber) park() { f.yield(struct{}{}) }

// ready reports whether the caller must resume f: it is parked. Otherwise it
// runs, and will not park. Called once for each park.
func (f *fiber) ready() bool {
	if f.state.CompareAndSwap(parked, running) {
		return true
	}
	if f.state.CompareAndSwap(running, woken) {
		return false
	}
	// It parked in between.
	if !f.state.CompareAndSwap(parked, running) {
		panic("xprotocol: woken twice")
	}
	return true
}

// move goes on on a worker. Called by the fiber.
func (f *fiber) move() {
	if f.batch != nil {
		f.moving = true
		f.yield(struct{}{})
	}
}

// batch is what a reader does until it has to wait: the time at which it read
// last, and the outboxes to be flushed when everything that there was to read has
// been dealt with. Owned by the reader's goroutine and the fibers that run on it.
type batch struct {
	now   time.Time
	dirty []*network.Outbox
}

// mostHeld is how much a reader reads, in bytes, before it sends what came of it,
// even if there is more to read.
const mostHeld = 256 << 10

// add notes that o has something to send.
func (b *batch) add(o *network.Outbox) {
	if !slices.Contains(b.dirty, o) {
		b.dirty = append(b.dirty, o)
	}
}

// flush sends. A connection that is lost is its reader's business.
func (b *batch) flush() {
	for _, o := range b.dirty {
		_ = o.Flush()
	}
	clear(b.dirty)
	b.dirty = b.dirty[:0]
}
