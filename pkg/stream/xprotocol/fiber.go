package xprotocol

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// waitState arbitrates between the goroutine that sends a request and the one that has its
// response. The sender owns the request until suspend returns true; then the waker owns it.
//
//	running ── suspend ──▶ waiting ─── wake ───▶ running
//	   └──────── wake ───▶ woken ─── suspend ──▶ running (continues immediately)
type waitState struct{ value atomic.Uint32 }

// States of a waitState.
const (
	stateRunning uint32 = iota
	stateWaiting
	stateWoken
)

// suspend gives up the ownership of the request until wake. If wake was called first, suspend
// returns false, and the caller still owns the request.
func (s *waitState) suspend() bool {
	if s.value.CompareAndSwap(stateRunning, stateWaiting) {
		return true
	}
	s.value.Store(stateRunning)
	return false
}

// wake reports whether the caller now owns the request, which it must then continue. Otherwise the
// request is running and its suspend will return false. wake is called once for each suspend.
func (s *waitState) wake() bool {
	if s.value.CompareAndSwap(stateWaiting, stateRunning) {
		return true
	}
	if s.value.CompareAndSwap(stateRunning, stateWoken) {
		return false
	}
	// The request was suspended between the two swaps.
	if !s.value.CompareAndSwap(stateWaiting, stateRunning) {
		panic("xprotocol: woken twice")
	}
	return true
}

// fiber is a coroutine for services that block: it has a stack of its own and runs, inside resume,
// on the goroutine that calls resume. A switch costs a fraction of waking a goroutine;
// docs/decisions/0008 has the figures.
type fiber struct {
	next  func() (struct{}, bool) // runs the fiber until it waits or the service has returned
	stop  func()                  // ends the fiber; call it only while the fiber is idle
	yield func(struct{}) bool     // called by the fiber to return from next

	// The goroutine that runs the fiber owns the fields below.
	needsWorker bool // the fiber has yielded to continue on a worker
	idle        bool // the fiber serves no request
	r           *request
	ctx         context.Context //nolint:containedctx // the context for service
	service     protocol.BlockingService
	err         error // the result of service
}

// outcome is the reason why resume returned.
type outcome uint8

const (
	outcomeParked      outcome = iota // the fiber waits; request.wake resumes it
	outcomeNeedsWorker                // the fiber asks for a worker
	outcomeServed                     // the fiber is idle
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
	f.next() // runs to the first yield
	return f
}

// resume runs f until it waits, asks for a worker, or the service has returned. After
// outcomeParked, another goroutine may already own f.
func (f *fiber) resume(b *batch) outcome {
	for {
		f.r.batch = b
		f.next()
		switch {
		case f.idle:
			return outcomeServed
		case f.needsWorker:
			f.needsWorker = false
			return outcomeNeedsWorker
		case f.r.state.suspend():
			return outcomeParked
		}
	}
}

// park waits until the request is woken. Only the fiber calls it.
func (f *fiber) park() { f.yield(struct{}{}) }

// moveToWorker continues on a worker, unless f already runs on one. Only the fiber calls it.
func (f *fiber) moveToWorker() {
	if f.r.batch != nil {
		f.needsWorker = true
		f.yield(struct{}{})
	}
}
