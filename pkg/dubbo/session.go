package dubbo

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// maxSessions bounds the sessions, as maxServices bounds services.
const maxSessions = 256

// closeTimeout bounds the time that a registry takes to close.
const closeTimeout = 5 * time.Second

// sessions opens one session for each registry and user. All registrations and subscriptions share
// it, and the last release closes it. Its methods are safe for concurrent use. They call nothing
// that takes another lock of this package.
type sessions struct {
	settings *settings // immutable
	wake     func()    // immutable; wakes the loop, which calls logChanges
	changed  atomic.Bool

	mu      sync.Mutex
	running bool                    // guarded by mu; between start and close
	byKey   map[sessionKey]*session // guarded by mu
	closing sync.WaitGroup          // sessions that close; nothing is added once close waits
}

// session is a session with a registry. A registration or a subscription holds one reference.
type session struct {
	key   sessionKey // immutable
	owner *sessions  // immutable

	// Guarded by owner.mu.
	registry  registry.Registry // nil: not open
	err       error             // why it could not be opened
	refs      int
	connected bool // last logged state
}

func newSessions(s *settings, wake func()) *sessions {
	return &sessions{settings: s, wake: wake, byKey: map[sessionKey]*session{}}
}

// acquire returns the session of a key with a reference that the caller releases. While Discovery
// runs, acquire opens a session that is not open; opened reports that it has done so. The error is
// a *FieldError.
func (a *sessions) acquire(key sessionKey) (s *session, opened bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s = a.byKey[key]; s == nil {
		if len(a.byKey) >= maxSessions {
			return nil, false, &FieldError{"registry.addr", fmt.Sprintf("limit of %d registries in use reached", maxSessions)}
		}
		s = &session{key: key, owner: a}
	}
	if s.registry == nil && a.running {
		if s.registry, s.err = a.open(key); s.err != nil {
			return nil, false, &FieldError{"registry.addr", s.err.Error()}
		}
		opened = true
	}
	a.byKey[key] = s
	s.refs++
	return s, opened, nil
}

// open opens a registry. The caller holds mu.
func (a *sessions) open(key sessionKey) (registry.Registry, error) {
	from := &a.settings.Options
	open := from.Registries[key.kind]
	if open == nil {
		return nil, fmt.Errorf("the type %q is not one of %s", key.kind, a.settings.registryTypes())
	}
	o := registry.Options{
		Address:  key.address,
		Username: key.username,
		Password: key.password,
		Changed:  a.sessionChanged,
		Log:      from.Log.With(logRegistry, key.String()),
	}
	if s := a.settings.registry(key.kind, key.address); s != nil {
		o.Root, o.SessionTimeout = s.Root, s.SessionTimeout
		if s.TLS != nil {
			if from.TLS == nil {
				return nil, errNoTLS
			}
			var err error
			if o.TLS, err = from.TLS(s.TLS); err != nil {
				return nil, err
			}
		}
	}
	return open(o)
}

// sessionChanged is registry.Options.Changed of all sessions.
func (a *sessions) sessionChanged() {
	a.changed.Store(true)
	a.wake()
}

// acquire adds a reference. The caller holds one.
func (s *session) acquire() *session {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	s.refs++
	return s
}

// release gives up a reference. The last one closes the session.
func (s *session) release() {
	a := s.owner
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.refs--; s.refs > 0 {
		return
	}
	delete(a.byKey, s.key)
	if s.registry != nil && a.running { // else close closes it
		a.closing.Go(s.close)
	}
}

// open returns the open registry; nil: the session is not open.
func (s *session) open() registry.Registry {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	return s.registry
}

// errorText returns why the session could not be opened, or "".
func (s *session) errorText() string {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	if s.err == nil {
		return ""
	}
	return s.err.Error()
}

// close closes an open session, for at most closeTimeout.
func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.registry.Close(ctx)
}

// start opens the sessions that were acquired before Run, and logs which cannot be opened.
func (a *sessions) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running = true
	for _, s := range a.byKey {
		if s.registry, s.err = a.open(s.key); s.err != nil {
			a.settings.Log.Error("cannot use a registry", logRegistry, s.key.String(), logError, s.err)
		}
	}
}

// close closes all sessions, and waits for them.
func (a *sessions) close() {
	a.mu.Lock()
	a.running = false
	for _, s := range a.byKey {
		if s.registry != nil {
			a.closing.Go(s.close)
		}
	}
	a.mu.Unlock()
	a.closing.Wait()
}

// openSessions returns the open sessions. Calls of registries must not hold mu.
func (a *sessions) openSessions() []*session {
	a.mu.Lock()
	defer a.mu.Unlock()
	open := make([]*session, 0, len(a.byKey))
	for _, s := range a.byKey {
		if s.registry != nil {
			open = append(open, s)
		}
	}
	return open
}

// states returns the states of all sessions.
func (a *sessions) states() map[*session]registry.State {
	all := map[*session]registry.State{}
	a.mu.Lock()
	for _, s := range a.byKey {
		if s.registry == nil && s.err != nil {
			all[s] = registry.State{LastError: s.err.Error()}
		} else {
			all[s] = registry.State{}
		}
	}
	a.mu.Unlock()
	for _, s := range a.openSessions() {
		all[s] = s.open().State()
	}
	return all
}

// logChanges logs sessions that were disconnected or connected again since the last call. The loop
// calls it.
func (a *sessions) logChanges() {
	if !a.changed.Swap(false) {
		return
	}
	for _, s := range a.openSessions() {
		state := s.open().State()
		a.mu.Lock()
		changed := s.connected != state.Connected
		s.connected = state.Connected
		a.mu.Unlock()
		switch {
		case changed && state.Connected:
			a.settings.Log.Info("registry connected", logRegistry, s.key.String(), logSession, state.Session)
		case changed:
			a.settings.Log.Warn("registry disconnected; its last snapshot stays active", logRegistry, s.key.String(), logError, state.LastError)
		}
	}
}
