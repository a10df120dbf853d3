package stream

import (
	"sync"
	"sync/atomic"
	"time"
)

// Workers runs exchanges that must block on goroutines of their own, so that the goroutine that
// reads a connection never blocks. It bounds their number: an engine first reserves a slot for an
// exchange, and rejects the exchange with protocol.Overloaded if there is none. Only Close blocks.
// Workers is safe for concurrent use.
type Workers[T any] struct {
	run      func(T)
	limits   WorkerLimits
	reserved atomic.Int64

	mu      sync.Mutex
	idle    []*worker[T] // guarded by mu; last in, first out: its stack is warm
	least   int          // guarded by mu; the fewest idle workers since the last trim
	running int          // guarded by mu; workers, idle ones included
	queue   []T          // guarded by mu; a ring: length is its capacity
	first   int          // guarded by mu; index of the oldest in queue
	queued  int          // guarded by mu
	timer   *time.Timer  // guarded by mu; calls trim; nil until first armed
	armed   bool         // guarded by mu
	closed  bool         // guarded by mu
	ended   sync.WaitGroup
}

// WorkerLimits bounds Workers.
type WorkerLimits struct {
	Running  int // maximum number of goroutines
	Reserved int // maximum number of slots: for exchanges that run, wait for a goroutine, or may have to
}

// worker is a goroutine that runs one T after another.
type worker[T any] struct{ next chan T }

// workerIdle is how long an idle worker keeps its stack.
const workerIdle = 10 * time.Second

// NewWorkers returns Workers whose goroutines call run, which must recover its own panics. Close
// ends the goroutines.
func NewWorkers[T any](limits WorkerLimits, run func(T)) *Workers[T] {
	return &Workers[T]{run: run, limits: limits}
}

// Reserve reserves a slot for an exchange that may have to block, and returns false if all are
// taken. The caller calls Release once after each call that returns true.
func (w *Workers[T]) Reserve() bool {
	if w.reserved.Add(1) <= int64(w.limits.Reserved) {
		return true
	}
	w.reserved.Add(-1)
	return false
}

// Release releases a slot.
func (w *Workers[T]) Release() { w.reserved.Add(-1) }

// Reserved returns the number of reserved slots.
func (w *Workers[T]) Reserved() int { return int(w.reserved.Load()) }

// Go runs t, for which a slot is reserved, on a worker: immediately, or after the exchanges queued
// before it if the maximum number of workers is busy. At most one call at a time may use a reserved
// slot, so that the queue is bounded as well.
func (w *Workers[T]) Go(t T) {
	w.mu.Lock()
	if n := len(w.idle) - 1; n >= 0 {
		k := w.idle[n]
		w.idle[n] = nil
		w.idle = w.idle[:n]
		w.least = min(w.least, n)
		w.mu.Unlock()
		k.next <- t // does not block: the channel of an idle worker is empty
		return
	}
	if w.running < w.limits.Running {
		w.running++
		w.ended.Add(1)
		w.mu.Unlock()
		k := &worker[T]{make(chan T, 1)}
		go w.work(k, t)
		return
	}
	w.enqueue(t)
	w.mu.Unlock()
}

// enqueue appends t to the ring. The caller holds mu.
func (w *Workers[T]) enqueue(t T) {
	if w.queued == len(w.queue) {
		grown := make([]T, max(64, 2*len(w.queue)))
		n := copy(grown, w.queue[w.first:])
		copy(grown[n:], w.queue[:w.first])
		w.queue, w.first = grown, 0
	}
	w.queue[(w.first+w.queued)%len(w.queue)] = t
	w.queued++
}

// dequeue removes the oldest T from the ring, which is not empty. The caller holds mu.
func (w *Workers[T]) dequeue() T {
	t := w.queue[w.first]
	var none T
	w.queue[w.first] = none
	w.first = (w.first + 1) % len(w.queue)
	if w.queued--; w.queued == 0 {
		w.queue, w.first = nil, 0 // it is used only under overload
	}
	return t
}

// work is the goroutine of a worker.
func (w *Workers[T]) work(k *worker[T], t T) {
	defer w.ended.Done()
	for more := true; more; {
		w.run(t)
		t, more = w.next(k)
	}
}

// next waits for the T that k runs next and returns it. It returns false if k must end.
func (w *Workers[T]) next(k *worker[T]) (t T, more bool) {
	w.mu.Lock()
	if w.queued > 0 {
		t = w.dequeue()
		w.mu.Unlock()
		return t, true
	}
	if w.closed {
		w.running--
		w.mu.Unlock()
		return t, false
	}
	w.idle = append(w.idle, k)
	if !w.armed {
		w.arm()
	}
	w.mu.Unlock()
	t, more = <-k.next
	return t, more
}

// arm schedules trim after workerIdle. The caller holds mu.
func (w *Workers[T]) arm() {
	w.armed, w.least = true, len(w.idle)
	if w.timer == nil {
		w.timer = time.AfterFunc(workerIdle, w.trim)
	} else {
		w.timer.Reset(workerIdle)
	}
}

// trim ends the workers that have been idle since the last arm: those at the bottom of w.idle.
func (w *Workers[T]) trim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	n := min(w.least, len(w.idle))
	w.end(w.idle[:n])
	w.idle = append(w.idle[:0], w.idle[n:]...)
	clear(w.idle[len(w.idle):cap(w.idle)])
	if !w.closed && len(w.idle) > 0 {
		w.arm()
	}
}

// end ends idle workers. The caller holds mu.
func (w *Workers[T]) end(idle []*worker[T]) {
	w.running -= len(idle)
	for _, k := range idle {
		close(k.next)
	}
}

// Close ends the workers. It returns when all running and queued exchanges have ended.
func (w *Workers[T]) Close() {
	w.mu.Lock()
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.end(w.idle)
	w.idle = nil
	w.mu.Unlock()
	w.ended.Wait()
}
