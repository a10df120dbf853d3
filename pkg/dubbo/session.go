package dubbo

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// maxSessions is the maximum number of sessions per process.
const maxSessions = 256

// closeTimeout is how long Registry.Close may take.
const closeTimeout = 5 * time.Second

// sessions opens one session for each registry and credentials. All registrations and subscriptions
// with that registry and credentials share the session, and the last release closes it. The methods
// are safe for concurrent use. They call nothing that takes another lock of this package.
type sessions struct {
	settings *settings   // immutable
	wake     func()      // immutable; wakes the loop, which calls logChanges
	changed  atomic.Bool // the state of a session has changed since logChanges

	mu      mutex[rank3]
	running bool                    // guarded by mu; between start and close
	byKey   map[sessionKey]*session // guarded by mu
	closing sync.WaitGroup          // sessions that are closing; release adds none after close
}

// session is a session with a registry. Each registration, subscription and request in progress
// holds a reference.
type session struct {
	key   sessionKey // immutable
	owner *sessions  // immutable

	// Guarded by owner.mu.
	registry  registry.Registry // nil: not open
	err       error             // why the registry could not be opened
	refs      int
	connected bool // as last logged
}

func newSessions(s *settings, wake func()) *sessions {
	return &sessions{settings: s, wake: wake, byKey: map[sessionKey]*session{}}
}

// acquire returns the session of a key, and acquires a reference that the caller releases. While
// Discovery runs, acquire opens the session if necessary; opened reports that it has opened it. The
// error is a *FieldError.
func (ss *sessions) acquire(key sessionKey) (s *session, opened bool, err error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s = ss.byKey[key]; s == nil {
		if len(ss.byKey) >= maxSessions {
			return nil, false, &FieldError{"registry.addr", fmt.Sprintf("limit of %d registries in use reached", maxSessions)}
		}
		s = &session{key: key, owner: ss}
	}
	if s.registry == nil && ss.running {
		if s.registry, s.err = ss.open(key); s.err != nil {
			return nil, false, &FieldError{"registry.addr", s.err.Error()}
		}
		opened = true
	}
	ss.byKey[key] = s
	s.refs++
	return s, opened, nil
}

// open opens a registry. The caller holds mu.
func (ss *sessions) open(key sessionKey) (registry.Registry, error) {
	options := &ss.settings.Options
	open := options.Registries[key.registryType]
	if open == nil {
		return nil, fmt.Errorf("the type %q is not one of %s", key.registryType, ss.settings.registryTypes())
	}
	o := registry.Options{
		Address:  key.address,
		Username: key.username,
		Password: key.password,
		OnChange: ss.sessionChanged,
		Log:      options.Log.With(logRegistry, key.String()),
	}
	if s := ss.settings.registry(key.registryType, key.address); s != nil {
		o.Root, o.SessionTimeout = s.Root, s.SessionTimeout
		if s.TLS != nil {
			if options.TLS == nil {
				return nil, errNoTLS
			}
			var err error
			if o.TLS, err = options.TLS(s.TLS); err != nil {
				return nil, err
			}
		}
	}
	return open(o)
}

// sessionChanged is registry.Options.OnChange of all sessions.
func (ss *sessions) sessionChanged() {
	ss.changed.Store(true)
	ss.wake()
}

// acquire adds a reference. The caller already holds a reference.
func (s *session) acquire() *session {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	s.refs++
	return s
}

// release releases a reference. The last release closes the session.
func (s *session) release() {
	owner := s.owner
	owner.mu.Lock()
	defer owner.mu.Unlock()
	if s.refs--; s.refs > 0 {
		return
	}
	delete(owner.byKey, s.key)
	if s.registry != nil && owner.running { // otherwise sessions.close closes the registry
		owner.closing.Go(s.close)
	}
}

// openRegistry returns the registry; nil: the session is not open. The caller holds a reference, or
// tolerates a closed registry.
func (s *session) openRegistry() registry.Registry {
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

// close closes an open session. It waits at most closeTimeout.
func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.registry.Close(ctx)
}

// start opens the sessions that were acquired before Run, and logs errors.
func (ss *sessions) start() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.running = true
	for _, s := range ss.byKey {
		if s.registry, s.err = ss.open(s.key); s.err != nil {
			ss.settings.Log.Error("cannot use a registry", logRegistry, s.key.String(), logError, s.err)
		}
	}
}

// close closes all sessions, and waits for them.
func (ss *sessions) close() {
	ss.mu.Lock()
	ss.running = false
	for _, s := range ss.byKey {
		if s.registry != nil {
			ss.closing.Go(s.close)
		}
	}
	ss.mu.Unlock()
	ss.closing.Wait()
}

// openSessions returns the open sessions, so that the caller can call their registries without mu.
func (ss *sessions) openSessions() []*session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	open := make([]*session, 0, len(ss.byKey))
	for _, s := range ss.byKey {
		if s.registry != nil {
			open = append(open, s)
		}
	}
	return open
}

// states returns the states of all sessions.
func (ss *sessions) states() map[*session]registry.State {
	result := map[*session]registry.State{}
	ss.mu.Lock()
	for _, s := range ss.byKey {
		if s.registry == nil && s.err != nil {
			result[s] = registry.State{LastError: s.err.Error()}
		} else {
			result[s] = registry.State{}
		}
	}
	ss.mu.Unlock()
	for _, s := range ss.openSessions() {
		result[s] = s.openRegistry().State()
	}
	return result
}

// logChanges logs the sessions whose connection state has changed since the last call. The loop
// calls it.
func (ss *sessions) logChanges() {
	if !ss.changed.Swap(false) {
		return
	}
	for _, s := range ss.openSessions() {
		state := s.openRegistry().State()
		ss.mu.Lock()
		changed := s.connected != state.Connected
		s.connected = state.Connected
		ss.mu.Unlock()
		switch {
		case changed && state.Connected:
			ss.settings.Log.Info("registry connected", logRegistry, s.key.String(), logSession, state.SessionID)
		case changed:
			ss.settings.Log.Warn("registry disconnected; its last snapshot stays active", logRegistry, s.key.String(), logError, state.LastError)
		}
	}
}
