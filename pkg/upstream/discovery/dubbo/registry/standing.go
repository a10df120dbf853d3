package registry

import (
	"sync"
	"time"
)

// Standing keeps the State of a session and tells of its changes, as Registry and
// Options.Changed promise. Its methods may be called at once.
type Standing struct {
	changed func() // immutable; nil: nobody is told

	mu    sync.Mutex
	state State // guarded by mu
}

// NewStanding returns a Standing that begins with a state. changed is called after each
// change, on the goroutine that made it; it may be nil.
func NewStanding(state State, changed func()) *Standing {
	return &Standing{changed: changed, state: state}
}

// State says how it stands with the session.
func (s *Standing) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Change has f change the state, and tells of it if it is another then.
func (s *Standing) Change(f func(*State)) {
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
func (s *Standing) End() {
	s.Change(func(state *State) {
		if state.Connected {
			state.Since = time.Now()
		}
		state.Connected, state.Session = false, ""
	})
}
