package zookeeper

import "sync"

// callbackQueue contains callbacks for the loop. post never blocks, so it may be called from the
// goroutines of the library, from timers and from callers of the Registry.
type callbackQueue struct {
	wake chan struct{} // signaled when there are callbacks; capacity 1

	mu        sync.Mutex
	callbacks []func() // guarded by mu
}

func newCallbackQueue() *callbackQueue { return &callbackQueue{wake: make(chan struct{}, 1)} }

// post appends a callback, which the loop will run.
func (q *callbackQueue) post(f func()) {
	q.mu.Lock()
	q.callbacks = append(q.callbacks, f)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take removes and returns the callbacks, in order.
func (q *callbackQueue) take() []func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	callbacks := q.callbacks
	q.callbacks = nil
	return callbacks
}
