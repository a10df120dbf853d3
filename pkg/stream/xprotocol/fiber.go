package xprotocol

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// waitState says whose a request is between sending it and the answer: of who sends it,
// until that has nothing more to do, and then of who has the answer.
//
//	running ──── rest ────▶ resting ─── wake ──▶ running
//	   └──────── wake ────▶ woken   ─── rest ──▶ running (it goes on at once)
type waitState struct{ state atomic.Uint32 }

// States of a turn.
const (
	running uint32 = iota
	stateWaiting
	woken
)

// rest gives the request away until it is woken, and reports false if it was
// already: then it is still the caller's.
func (t *waitState) rest() bool {
	if t.state.CompareAndSwap(running, stateWaiting) {
		return true
	}
	t.state.Store(running)
	return false
}

// wake reports whether the request is the caller's to go on with. Otherwise it
// runs, and will not rest. Called once for each rest.
func (t *waitState) wake() bool {
	if t.state.CompareAndSwap(stateWaiting, running) {
		return true
	}
	if t.state.CompareAndSwap(running, woken) {
		return false
	}
	// It began to rest in between.
	if !t.state.CompareAndSwap(stateWaiting, running) {
		panic("xprotocol: woken twice")
	}
	return true
}

// fiber is a coroutine for services that wait: it has a stack of its own and
// runs, inside resume, on the goroutine of whoever calls that. A switch costs a
// fraction of what waking a goroutine does; docs/decisions/0008 has the figures.
type fiber struct {
	next  func() (struct{}, bool) // runs it until it waits or has served
	stop  func()                  // ends it while it is idle
	yield func(struct{}) bool     // of the fiber's own side

	// Owned by who runs the fiber.
	moving  bool // it is to go on on a worker
	idle    bool // it serves nothing
	r       *request
	ctx     context.Context //nolint:containedctx // of the service that it runs
	service protocol.Service
	err     error // what that has returned
}

// outcome is why resume returned.
type outcome uint8

const (
	parked outcome = iota // somebody will wake the request
	moves                 // it wants a worker
	served                // it is idle
)

func newFiber() *fiber {
	f := new(fiber)
	f.next, f.stop = iter.Pull(func(yield func(struct{}) bool) {
		f.yield = yield
		for {
			f.idle = true
			if !yield(struct{}{}) {
				return
			}
			f.idle = false
			f.err = protocol.ServeRecovered(f.ctx, f.service, &f.r.x)
		}
	})
	f.next() // to its first rest
	return f
}

// resume runs f until it has something to wait for, or has served. Afterwards f
// may belong to another goroutine already, unless it is to move or is idle.
func (f *fiber) resume(b *batch) outcome {
	for {
		f.r.batch = b
		f.next()
		switch {
		case f.idle:
			return served
		case f.moving:
			f.moving = false
			return moves
		case f.r.turn.rest():
			return parked
		}
	}
}

// park waits until the request is woken. Called by the fiber.
func (f *fiber) park() { f.yield(struct{}{}) }

// move goes on on a worker, unless f does already. Called by the fiber.
func (f *fiber) move() {
	if f.r.batch != nil {
		f.moving = true
		f.yield(struct{}{})
	}
}
