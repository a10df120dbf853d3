package registry

import (
	"sync"
	"time"
)

// StateTracker keeps the State of a session and reports its changes, as Registry and
// Options.OnChange require. It is safe for concurrent use.
type StateTracker struct {
	onChange func() // immutable; may be nil

	mu    sync.Mutex
	state State // guarded by mu
}

// NewStateTracker returns a StateTracker with an initial state. Update and End call onChange after
// a change, without a lock; onChange may be nil.
func NewStateTracker(state State, onChange func()) *StateTracker {
	return &StateTracker{onChange: onChange, state: state}
}

// State returns the state of the session.
func (s *StateTracker) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Update lets f modify the state, and reports a change.
func (s *StateTracker) Update(f func(*State)) {
	s.mu.Lock()
	previous := s.state
	f(&s.state)
	unchanged := previous == s.state
	s.mu.Unlock()
	if !unchanged && s.onChange != nil {
		s.onChange()
	}
}

// End records that the session has ended.
func (s *StateTracker) End() {
	s.Update(func(state *State) {
		if state.Connected {
			state.Since = time.Now()
		}
		state.Connected, state.SessionID = false, ""
	})
}
