package zookeeper

import "sync"

// mailbox holds what the loop is to do next. Posting never waits, so that the library's
// goroutines, timers and callers may.
type mailbox struct {
	wake chan struct{} // has one when there are letters; capacity 1

	mu      sync.Mutex
	letters []func() // guarded by mu
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

// post appends a letter: a function that the loop will call.
func (m *mailbox) post(letter func()) {
	m.mu.Lock()
	m.letters = append(m.letters, letter)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take returns the letters, in order, and keeps none.
func (m *mailbox) take() []func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	letters := m.letters
	m.letters = nil
	return letters
}
