package registry

import (
	"sync"
	"time"
)

// StateTracker keeps the State of a session and tells of its changes, as Registry and
// Options.Changed promise. Its methods may be called at once.
type StateTracker struct {
	changed func() // immutable; nil: nobody is told

	mu    sync.Mutex
	state State // guarded by mu
}

// NewStanding returns a Standing that begins with a state. changed is called after each
// change, on the goroutine that made it; it may be nil.
func NewStanding(state State, changed func()) *StateTracker {
	return &StateTracker{changed: changed, state: state}
}

// State says how it stands with the session.
func (s *StateTracker) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Update has f change the state, and tells of it if it is another then.
func (s *StateTracker) Update(f func(*State)) {
	s.mu.Lock()
	before := s.state
	f(&s.state)
	same := before == s.state
	s.mu.Unlock()
	if !same && s.changed != nil {
		s.changed()
	}
}

// End says that the session has ended.
func (s *StateTracker) End() {
	s.Update(func(state *State) {
		if state.Connected {
			state.Since = time.Now()
		}
		state.Connected, state.Session = false, ""
	})
}
