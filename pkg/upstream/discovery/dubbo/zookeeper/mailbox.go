package zookeeper

import "sync"

// callbackQueue holds what the loop is to do next. Posting never waits, so that the library's
// goroutines, timers and callers may.
type callbackQueue struct {
	wake chan struct{} // has one when there are letters; capacity 1

	mu        sync.Mutex
	callbacks []func() // guarded by mu
}

func newMailbox() *callbackQueue { return &callbackQueue{wake: make(chan struct{}, 1)} }

// post appends a letter: a function that the loop will call.
func (m *callbackQueue) post(letter func()) {
	m.mu.Lock()
	m.callbacks = append(m.callbacks, letter)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take returns the letters, in order, and keeps none.
func (m *callbackQueue) take() []func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	letters := m.callbacks
	m.callbacks = nil
	return letters
}
