package stream

import (
	"sync"
	"sync/atomic"
	"time"
)

// Workers runs the exchanges that have to wait on goroutines of their own, so that the
// goroutine that reads a connection never does. It bounds how many there are: a caller
// reserves a place for an exchange first, and refuses the exchange with
// protocol.Overloaded if there is none. Nothing here blocks. Safe for concurrent use.
type Workers[T any] struct {
	run      func(T)
	limits   WorkerLimits
	reserved atomic.Int64

	mu      sync.Mutex
	idle    []*worker[T] // guarded by mu; the last to come is the first to go: its stack is warm
	least   int          // guarded by mu; the fewest idle workers since the last trim
	running int          // guarded by mu; workers, idle ones included
	queue   []T          // guarded by mu; a ring: length is its capacity
	first   int          // guarded by mu; the oldest in queue
	queued  int          // guarded by mu
	timer   *time.Timer  // guarded by mu; calls trim; nil until first armed
	armed   bool         // guarded by mu
	closed  bool         // guarded by mu
	ended   sync.WaitGroup
}

// WorkerLimits bounds Workers.
type WorkerLimits struct {
	Running  int // goroutines at most
	Reserved int // places that are reserved at most: those that run, wait for a goroutine, or may have to
}

// worker is a goroutine that runs one T after the other.
type worker[T any] struct{ next chan T }

// workerIdle is how long an idle worker keeps its stack.
const workerIdle = 10 * time.Second

// NewWorkers returns Workers whose goroutines call run, which must contain its panics.
// Close ends them.
func NewWorkers[T any](limits WorkerLimits, run func(T)) *Workers[T] {
	return &Workers[T]{run: run, limits: limits}
}

// Reserve reserves a place for an exchange that may have to wait, and reports false if
// all are taken. A call that returns true is followed by one of Release.
func (w *Workers[T]) Reserve() bool {
	if w.reserved.Add(1) <= int64(w.limits.Reserved) {
		return true
	}
	w.reserved.Add(-1)
	return false
}

// Release gives a reserved place back.
func (w *Workers[T]) Release() { w.reserved.Add(-1) }

// Reserved returns how many places are taken.
func (w *Workers[T]) Reserved() int { return int(w.reserved.Load()) }

// Go has a worker run t, for which a place is reserved: at once, or, if as many workers
// as may be are busy, when the exchanges that came before have had theirs. Called at
// most once at a time for each reserved place, so that the queue is bounded as well.
func (w *Workers[T]) Go(t T) {
	w.mu.Lock()
	if n := len(w.idle) - 1; n >= 0 {
		k := w.idle[n]
		w.idle[n] = nil
		w.idle = w.idle[:n]
		w.least = min(w.least, n)
		w.mu.Unlock()
		k.next <- t // has room: an idle worker has been given nothing
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

// enqueue appends t to the ring. mu is held.
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

// dequeue takes the oldest from the ring, which is not empty. mu is held.
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

// work is a worker's goroutine.
func (w *Workers[T]) work(k *worker[T], t T) {
	defer w.ended.Done()
	for more := true; more; {
		w.run(t)
		t, more = w.next(k)
	}
}

// next returns what k runs next, and waits for it. It reports false if k is to end.
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

// arm has trim called after a while. mu is held.
func (w *Workers[T]) arm() {
	w.armed, w.least = true, len(w.idle)
	if w.timer == nil {
		w.timer = time.AfterFunc(workerIdle, w.trim)
	} else {
		w.timer.Reset(workerIdle)
	}
}

// trim ends the workers that have been idle since it was armed: those at the bottom
// of the idle ones.
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

// end ends idle workers. mu is held.
func (w *Workers[T]) end(idle []*worker[T]) {
	w.running -= len(idle)
	for _, k := range idle {
		close(k.next)
	}
}

// Close ends the workers. It returns when what they run, and what is queued, has ended.
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
