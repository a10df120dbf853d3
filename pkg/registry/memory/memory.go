// Package memory implements a registry that needs no server. Sessions in this process with the same
// address share registrations. With an address "file:/directory", the processes of one machine that
// can write to that directory share registrations.
//
//	Server     the stores of this process, by address   memory.go
//	session    a registry.Registry                      memory.go, instance.go
//	store      registrations and watchers               store.go
//	sharedDir  the directory that processes share       shareddir.go
package memory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// filePrefix is the prefix of an address that names a directory.
const filePrefix = "file:"

// Server contains the stores that sessions of this process share. It is safe for concurrent use.
type Server struct {
	sessions atomic.Uint64

	mu     sync.Mutex
	stores map[string]*store // guarded by mu; by address; only stores with sessions
}

// maxAddresses bounds the number of stores of a Server.
const maxAddresses = 1024

// NewServer returns a Server without sessions.
func NewServer() *Server { return &Server{stores: map[string]*store{}} }

// Open opens a session; it is a registry.OpenFunc. The address may be any text, even "", but after
// the prefix "file:" it must be the absolute path of a directory. The session creates the directory
// if it does not exist. Open ignores Username, Password, TLS, Root and SessionTimeout.
func (s *Server) Open(o registry.Options) (registry.Registry, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	name := strconv.FormatUint(s.sessions.Add(1), 10)
	sess := &session{
		name:      name,
		urls:      map[string]bool{},
		instances: map[string]registrationText{},
		wake:      make(chan struct{}, 1),
		done:      make(chan struct{}),
		ended:     make(chan struct{}),
		state:     registry.State{Connected: true, Since: time.Now(), SessionID: name, SessionCount: 1},
	}
	path, ok := strings.CutPrefix(o.Address, filePrefix)
	if ok {
		if !strings.HasPrefix(path, "/") {
			return nil, fmt.Errorf("%q: the path of a directory must begin with a slash", o.Address)
		}
		sess.store = newStore()
		sess.dir = newSharedDir(path, sess.store, o.Log)
		sess.name = sess.dir.id // before another goroutine uses the session
		sess.onChange = o.OnChange
		sess.state = registry.State{Since: time.Now()} // disconnected until syncDir has used the directory
	} else {
		var err error
		if sess.store, err = s.acquireStore(o.Address); err != nil {
			return nil, err
		}
		sess.release = func() { s.releaseStore(o.Address) }
	}
	go sess.run()
	return sess, nil
}

// acquireStore returns the store of an address for a new session. The session calls releaseStore
// when it ends.
func (s *Server) acquireStore(address string) (*store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stores[address]
	if st == nil {
		if len(s.stores) >= maxAddresses {
			return nil, fmt.Errorf("memory registry %q: sessions are open at %d other addresses, which is the maximum", address, maxAddresses)
		}
		st = newStore()
		s.stores[address] = st
	}
	st.sessions++
	return st, nil
}

// releaseStore releases the store of an address for one session. With the last session it drops the
// store.
func (s *Server) releaseStore(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stores[address]
	if st.sessions--; st.sessions == 0 {
		delete(s.stores, address)
	}
}

// session is a registry.Registry. Its goroutine calls notify, and reads and writes the directory.
type session struct {
	name     string     // immutable; owner of the session's registrations in the store
	store    *store     // immutable
	dir      *sharedDir // immutable; only run calls its methods; nil: no directory
	onChange func()     // immutable; only with a directory
	release  func()     // immutable; releases the store of the Server; nil: only this session uses the store

	wake  chan struct{} // run has work
	done  chan struct{} // closed by Close
	ended chan struct{} // closed when run has returned
	close sync.Once

	updateMu sync.Mutex // serializes changes of this session's registrations

	mu             sync.Mutex
	state          registry.State  // guarded by mu
	dirtyWatchers  []*watcher      // guarded by mu; watchers to check for changes
	changeCount    uint64          // guarded by mu; number of changes of registrations
	writtenChanges uint64          // guarded by mu; changes that the directory contains
	flushed        chan struct{}   // guarded by mu; closed after the next write; nil: no call waits
	urls           map[string]bool // guarded by mu; registered URLs, encoded
	// instances holds the registered instances by instanceName. It is guarded by mu, and changes
	// only while updateMu is held.
	instances map[string]registrationText
}

// Register implements registry.Registry.
func (s *session) Register(ctx context.Context, u registry.URL) error {
	return s.update(ctx, func() uint64 { return s.setURL(u, true) })
}

// Unregister implements registry.Registry.
func (s *session) Unregister(ctx context.Context, u registry.URL) error {
	return s.update(ctx, func() uint64 { return s.setURL(u, false) })
}

// errClosed is the error of registrations after Close.
var errClosed = errors.New("the session is closed")

// update calls change, which changes a registration and returns the number of the change. It then
// waits until other processes can see the change.
func (s *session) update(ctx context.Context, change func() uint64) error {
	select {
	case <-s.done:
		return errClosed
	default:
	}
	number := change()
	if s.dir == nil {
		return nil
	}
	s.wakeRun()
	for {
		s.mu.Lock()
		if s.writtenChanges >= number {
			s.mu.Unlock()
			return nil
		}
		if s.flushed == nil {
			s.flushed = make(chan struct{})
		}
		flushed, lastError := s.flushed, s.state.LastError
		s.mu.Unlock()
		select {
		case <-flushed:
		case <-s.ended:
			return errClosed
		case <-ctx.Done():
			return fmt.Errorf("the registration is not written yet (%s): %w", lastError, ctx.Err())
		}
	}
}

// setURL adds a URL, or removes it if add is false, and returns the number of the change.
func (s *session) setURL(u registry.URL, add bool) uint64 {
	s.updateMu.Lock()
	defer s.updateMu.Unlock()
	text := u.Encoded()
	if add {
		s.store.put(s.name, text, u, false)
	} else {
		s.store.remove(s.name, text, u)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case add && !s.urls[text]:
		s.urls[text] = true
		s.changeCount++
	case !add && s.urls[text]:
		delete(s.urls, text)
		s.changeCount++
	}
	return s.changeCount
}

// Subscribe implements registry.Registry.
func (s *session) Subscribe(service registry.Service, notify func(registry.Snapshot)) (stop func()) {
	w := &watcher{service: service, notify: notify, session: s}
	s.store.watch(w)
	return func() {
		s.store.unwatch(w)
		w.mu.Lock() // waits for a running notify
		w.stopped = true
		w.mu.Unlock()
	}
}

// State implements registry.Registry.
func (s *session) State() registry.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Close implements registry.Registry. It unregisters everything.
func (s *session) Close(ctx context.Context) {
	s.close.Do(func() { close(s.done) })
	select {
	case <-s.ended:
	case <-ctx.Done():
	}
}

// scheduleCheck makes run notify w if its snapshot has changed.
func (s *session) scheduleCheck(w *watcher) {
	s.mu.Lock()
	s.dirtyWatchers = append(s.dirtyWatchers, w)
	s.mu.Unlock()
	s.wakeRun()
}

func (s *session) wakeRun() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run serves the watchers and the directory, if there is one, until Close.
func (s *session) run() {
	defer close(s.ended)
	defer s.end()
	var tick <-chan time.Time // nil, and never ready, without a directory
	if s.dir != nil {
		ticker := time.NewTicker(pollInterval)
		defer ticker.Stop()
		tick = ticker.C
		s.syncDir()
	}
	for {
		select {
		case <-s.done:
			return
		case <-s.wake:
			if s.hasUnwritten() {
				s.syncDir()
			}
		case <-tick:
			s.syncDir()
		}
		s.deliver()
	}
}

// hasUnwritten reports whether the directory does not contain all changes of this session.
func (s *session) hasUnwritten() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir != nil && s.changeCount != s.writtenChanges
}

// syncDir writes changes of this session to the directory, and reads those of others. While the
// directory is unavailable, the session keeps what it has read.
func (s *session) syncDir() {
	s.mu.Lock()
	number := s.changeCount
	var lines []string // nil: nothing to write
	if number != s.writtenChanges || !s.dir.hasLock() {
		lines = make([]string, 0, len(s.urls)+len(s.instances))
		for text := range s.urls {
			lines = append(lines, text)
		}
		for _, rt := range s.instances {
			lines = append(lines, rt.text)
		}
	}
	s.mu.Unlock()
	err := s.dir.write(lines)
	if err == nil {
		err = s.dir.read()
	}
	s.mu.Lock()
	wasConnected := s.state.Connected
	if s.state.Connected = err == nil; err == nil {
		s.writtenChanges = number
		if s.flushed != nil {
			close(s.flushed)
			s.flushed = nil
		}
	} else {
		s.state.LastError = err.Error()
	}
	connectedChanged := wasConnected != s.state.Connected
	if connectedChanged {
		s.state.Since = time.Now()
		if s.state.Connected {
			s.state.SessionCount++
			s.state.SessionID = s.name
		}
	}
	s.mu.Unlock()
	if connectedChanged && s.onChange != nil {
		s.onChange()
	}
}

// deliver calls notify of the watchers whose snapshot has changed.
func (s *session) deliver() {
	s.mu.Lock()
	dirty := s.dirtyWatchers
	s.dirtyWatchers = nil
	unavailable := !s.state.Connected
	if unavailable {
		s.dirtyWatchers = dirty // until the directory is available again
	}
	s.mu.Unlock()
	if unavailable {
		return
	}
	for _, w := range dirty {
		w.notifyIfChanged()
	}
}

// end removes the registrations of this session.
func (s *session) end() {
	if s.dir != nil {
		s.dir.removeOwn()
	}
	s.store.removeAll(s.name)
	if s.release != nil {
		s.release()
	}
}
