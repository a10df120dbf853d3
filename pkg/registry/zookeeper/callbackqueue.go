package zookeeper

import "sync"

// callbackQueue contains callbacks for the loop. post never blocks, so the library's goroutines,
// timers and callers may call it.
type callbackQueue struct {
	wake chan struct{} // signaled when there are callbacks; capacity 1

	mu        sync.Mutex
	callbacks []func() // guarded by mu
}

func newCallbackQueue() *callbackQueue { return &callbackQueue{wake: make(chan struct{}, 1)} }

// post appends a callback, which the loop will run.
func (m *callbackQueue) post(letter func()) {
	m.mu.Lock()
	m.callbacks = append(m.callbacks, letter)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take removes and returns the callbacks, in order.
func (m *callbackQueue) take() []func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	letters := m.callbacks
	m.callbacks = nil
	return letters
}
