package stream

import (
	"sync"
	"sync/atomic"
	"time"
)

// Workers runs, on goroutines of their own, exchanges that have to block, so that the goroutine
// that reads a connection never blocks. It bounds the number of such exchanges: an engine first
// reserves a slot, and rejects the exchange with protocol.Overloaded if there is none. Only Close
// blocks. Workers is safe for concurrent use.
type Workers[T any] struct {
	run      func(T)
	limits   WorkerLimits
	reserved atomic.Int64 // number of reserved slots

	mu            sync.Mutex
	idle          []*worker[T] // guarded by mu; Go uses the last one
	minIdle       int          // guarded by mu; minimum of len(idle) since scheduleStopUnused
	running       int          // guarded by mu; number of workers, idle ones included
	queue         []T          // guarded by mu; ring buffer of the exchanges that wait for a worker
	head          int          // guarded by mu; index of the oldest exchange in queue
	queueLen      int          // guarded by mu; number of exchanges in queue
	stopTimer     *time.Timer  // guarded by mu; calls stopUnused; nil until first armed
	stopScheduled bool         // guarded by mu
	closed        bool         // guarded by mu
	wg            sync.WaitGroup
}

// WorkerLimits bounds Workers.
type WorkerLimits struct {
	MaxRunning  int // maximum number of goroutines
	MaxReserved int // maximum number of slots: exchanges that run, are queued, or may need a worker
}

// worker is a goroutine that runs one T at a time.
type worker[T any] struct{ tasks chan T }

// workerIdleTimeout is how long a worker is idle, at least, before stopUnused ends it.
const workerIdleTimeout = 10 * time.Second

// NewWorkers returns Workers whose goroutines call run, which must recover its own panics. Close
// ends the goroutines.
func NewWorkers[T any](limits WorkerLimits, run func(T)) *Workers[T] {
	return &Workers[T]{run: run, limits: limits}
}

// Reserve reserves a slot for an exchange that may have to block, and returns false if all are
// taken. The caller calls Release once after each call that returns true.
func (w *Workers[T]) Reserve() bool {
	if w.reserved.Add(1) <= int64(w.limits.MaxReserved) {
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
		wk := w.idle[n]
		w.idle[n] = nil
		w.idle = w.idle[:n]
		w.minIdle = min(w.minIdle, n)
		w.mu.Unlock()
		wk.tasks <- t // does not block: the channel of an idle worker is empty
		return
	}
	if w.running < w.limits.MaxRunning {
		w.running++
		w.wg.Add(1)
		w.mu.Unlock()
		wk := &worker[T]{make(chan T, 1)}
		go w.runWorker(wk, t)
		return
	}
	w.enqueue(t)
	w.mu.Unlock()
}

// enqueue appends t to the ring. The caller holds mu.
func (w *Workers[T]) enqueue(t T) {
	if w.queueLen == len(w.queue) {
		queue := make([]T, max(64, 2*len(w.queue)))
		n := copy(queue, w.queue[w.head:])
		copy(queue[n:], w.queue[:w.head])
		w.queue, w.head = queue, 0
	}
	w.queue[(w.head+w.queueLen)%len(w.queue)] = t
	w.queueLen++
}

// dequeue removes the oldest T from the ring, which is not empty. The caller holds mu.
func (w *Workers[T]) dequeue() T {
	t := w.queue[w.head]
	var zero T
	w.queue[w.head] = zero
	w.head = (w.head + 1) % len(w.queue)
	if w.queueLen--; w.queueLen == 0 {
		w.queue, w.head = nil, 0 // free the storage, which is needed only under overload
	}
	return t
}

// runWorker is the goroutine of a worker.
func (w *Workers[T]) runWorker(wk *worker[T], t T) {
	defer w.wg.Done()
	for ok := true; ok; {
		w.run(t)
		t, ok = w.nextTask(wk)
	}
}

// nextTask waits for the T that wk runs next and returns it. It returns false if wk must end.
func (w *Workers[T]) nextTask(wk *worker[T]) (t T, ok bool) {
	w.mu.Lock()
	if w.queueLen > 0 {
		t = w.dequeue()
		w.mu.Unlock()
		return t, true
	}
	if w.closed {
		w.running--
		w.mu.Unlock()
		return t, false
	}
	w.idle = append(w.idle, wk)
	if !w.stopScheduled {
		w.scheduleStopUnused()
	}
	w.mu.Unlock()
	t, ok = <-wk.tasks
	return t, ok
}

// scheduleStopUnused schedules stopUnused after workerIdleTimeout. The caller holds mu.
func (w *Workers[T]) scheduleStopUnused() {
	w.stopScheduled, w.minIdle = true, len(w.idle)
	if w.stopTimer == nil {
		w.stopTimer = time.AfterFunc(workerIdleTimeout, w.stopUnused)
	} else {
		w.stopTimer.Reset(workerIdleTimeout)
	}
}

// stopUnused ends the workers that have been idle since the last scheduleStopUnused: those at the
// bottom of w.idle.
func (w *Workers[T]) stopUnused() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopScheduled = false
	n := min(w.minIdle, len(w.idle))
	w.stopWorkers(w.idle[:n])
	w.idle = append(w.idle[:0], w.idle[n:]...)
	clear(w.idle[len(w.idle):cap(w.idle)])
	if !w.closed && len(w.idle) > 0 {
		w.scheduleStopUnused()
	}
}

// stopWorkers ends idle workers. The caller holds mu.
func (w *Workers[T]) stopWorkers(idle []*worker[T]) {
	w.running -= len(idle)
	for _, wk := range idle {
		close(wk.tasks)
	}
}

// Close ends the workers. It returns when all running and queued exchanges have ended.
func (w *Workers[T]) Close() {
	w.mu.Lock()
	w.closed = true
	if w.stopTimer != nil {
		w.stopTimer.Stop()
	}
	w.stopWorkers(w.idle)
	w.idle = nil
	w.mu.Unlock()
	w.wg.Wait()
}
