// Package memory implements a registry that needs no server. Sessions in this process with the same
// address share registrations. With an address "file:/directory", so do the processes of one
// machine that can write to that directory.
//
//	Server     the stores of this process, by address   memory.go
//	session    a registry.Registry                      memory.go, announce.go
//	store      registrations and watchers               board.go
//	sharedDir  a store that processes share             folder.go
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

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// filePrefix is the prefix of an address that names a directory.
const filePrefix = "file:"

// Server contains the stores that sessions of this process share. It is safe for concurrent use.
type Server struct {
	sessions atomic.Uint64

	mu     sync.Mutex
	boards map[string]*store // guarded by mu; by address; only stores with sessions
}

// maxAddresses bounds the number of addresses in this process that have sessions.
const maxAddresses = 1024

// NewServer returns a Server without sessions.
func NewServer() *Server { return &Server{boards: map[string]*store{}} }

// Open opens a session; it is a registry.OpenFunc. Every address is valid, even "". One that begins
// with "file:" is the absolute path of a directory, which the session creates if it does not exist.
// Open ignores Username, Password, TLS, Root and SessionTimeout.
func (s *Server) Open(o registry.Options) (registry.Registry, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	name := strconv.FormatUint(s.sessions.Add(1), 10)
	se := &session{
		name:      name,
		mine:      map[string]bool{},
		announced: map[string]registrationText{},
		wake:      make(chan struct{}, 1),
		done:      make(chan struct{}),
		ended:     make(chan struct{}),
		state:     registry.State{Connected: true, Since: time.Now(), Session: name, Sessions: 1},
	}
	path, ok := strings.CutPrefix(o.Address, filePrefix)
	if ok {
		if !strings.HasPrefix(path, "/") {
			return nil, fmt.Errorf("%q: the path of a directory must begin with a slash", o.Address)
		}
		se.board = newBoard()
		se.folder = newFolder(path, se.board, o.Log)
		se.name = se.folder.id // before another goroutine knows the session
		se.changed = o.Changed
		se.state = registry.State{Since: time.Now()} // until the first exchange with the directory
	} else {
		var err error
		if se.board, err = s.enter(o.Address); err != nil {
			return nil, err
		}
		se.leave = func() { s.leave(o.Address) }
	}
	go se.run()
	return se, nil
}

// enter returns the store of an address for a new session, which calls leave when it ends.
func (s *Server) enter(address string) (*store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boards[address]
	if b == nil {
		if len(s.boards) >= maxAddresses {
			return nil, fmt.Errorf("memory registry %q: sessions are open at %d other addresses, which is the maximum", address, maxAddresses)
		}
		b = newBoard()
		s.boards[address] = b
	}
	b.sessions++
	return b, nil
}

// leave drops the store of an address with its last session.
func (s *Server) leave(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boards[address]
	if b.sessions--; b.sessions == 0 {
		delete(s.boards, address)
	}
}

// session is a registry.Registry. Its goroutine calls notify, and reads and writes the directory.
type session struct {
	name    string     // immutable; owner of its registrations
	board   *store     // immutable
	folder  *sharedDir // owned by run; nil: the store is of this process
	changed func()     // immutable; only with a directory
	leave   func()     // immutable; releases the store; nil: the session owns the store

	wake  chan struct{} // run has work
	done  chan struct{} // closed by Close
	ended chan struct{} // closed when run has returned
	close sync.Once

	saying sync.Mutex // held while registrations of this session change

	mu      sync.Mutex
	state   registry.State  // guarded by mu
	dirty   []*watcher      // guarded by mu; to be checked for changes
	asked   uint64          // guarded by mu; number of changes of registrations
	written uint64          // guarded by mu; changes that the directory contains
	flushed chan struct{}   // guarded by mu; closed when written grows; nil: no call waits
	mine    map[string]bool // guarded by mu; registered URLs, encoded
	// announced is guarded by mu, and changes only while saying is held; by nameOf.
	announced map[string]registrationText
}

// Register implements registry.Registry.
func (s *session) Register(ctx context.Context, u registry.URL) error {
	return s.say(ctx, func() uint64 { return s.change(u, true) })
}

// Unregister implements registry.Registry.
func (s *session) Unregister(ctx context.Context, u registry.URL) error {
	return s.say(ctx, func() uint64 { return s.change(u, false) })
}

// errClosed is returned for registrations after Close.
var errClosed = errors.New("the session is closed")

// say calls change, which changes a registration and returns the number of the change, and waits
// until other processes can see the change.
func (s *session) say(ctx context.Context, change func() uint64) error {
	select {
	case <-s.done:
		return errClosed
	default:
	}
	number := change()
	if s.folder == nil {
		return nil
	}
	s.poke()
	for {
		s.mu.Lock()
		if s.written >= number {
			s.mu.Unlock()
			return nil
		}
		if s.flushed == nil {
			s.flushed = make(chan struct{})
		}
		flushed, problem := s.flushed, s.state.LastError
		s.mu.Unlock()
		select {
		case <-flushed:
		case <-s.ended:
			return errClosed
		case <-ctx.Done():
			return fmt.Errorf("registration is not written yet (%s): %w", problem, ctx.Err())
		}
	}
}

// change adds or removes a URL, and returns the number of the change.
func (s *session) change(u registry.URL, there bool) uint64 {
	s.saying.Lock()
	defer s.saying.Unlock()
	text := u.Encoded()
	if there {
		s.board.put(s.name, text, u, false)
	} else {
		s.board.remove(s.name, text, u)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case there && !s.mine[text]:
		s.mine[text] = true
		s.asked++
	case !there && s.mine[text]:
		delete(s.mine, text)
		s.asked++
	}
	return s.asked
}

// Subscribe implements registry.Registry.
func (s *session) Subscribe(service registry.Service, notify func(registry.Snapshot)) (stop func()) {
	w := &watcher{service: service, notify: notify, session: s}
	s.board.watch(w)
	return func() {
		s.board.unwatch(w)
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

// look schedules a check of w.
func (s *session) look(w *watcher) {
	s.mu.Lock()
	s.dirty = append(s.dirty, w)
	s.mu.Unlock()
	s.poke()
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run serves the watchers and the directory, if there is one, until Close.
func (s *session) run() {
	defer close(s.ended)
	defer s.end()
	var tick <-chan time.Time // nil: there is no directory
	if s.folder != nil {
		ticker := time.NewTicker(pollEvery)
		defer ticker.Stop()
		tick = ticker.C
		s.exchange()
	}
	for {
		select {
		case <-s.done:
			return
		case <-s.wake:
			if s.owes() {
				s.exchange()
			}
		case <-tick:
			s.exchange()
		}
		s.deliver()
	}
}

// owes reports whether the directory does not contain all changes of this session.
func (s *session) owes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.folder != nil && s.asked != s.written
}

// exchange writes changes of this session to the directory, and reads those of others. While the
// directory is unavailable, the session keeps what it has read.
func (s *session) exchange() {
	s.mu.Lock()
	asked := s.asked
	var lines []string // nil: nothing to write
	if asked != s.written || !s.folder.here() {
		lines = make([]string, 0, len(s.mine)+len(s.announced))
		for text := range s.mine {
			lines = append(lines, text)
		}
		for _, a := range s.announced {
			lines = append(lines, a.text)
		}
	}
	s.mu.Unlock()
	err := s.folder.write(lines)
	if err == nil {
		err = s.folder.read()
	}
	s.mu.Lock()
	was := s.state.Connected
	if s.state.Connected = err == nil; err == nil {
		s.written = asked
		if s.flushed != nil {
			close(s.flushed)
			s.flushed = nil
		}
	} else {
		s.state.LastError = err.Error()
	}
	turned := was != s.state.Connected
	if turned {
		s.state.Since = time.Now()
		if s.state.Connected {
			s.state.Sessions++
			s.state.Session = s.name
		}
	}
	s.mu.Unlock()
	if turned && s.changed != nil {
		s.changed()
	}
}

// deliver calls notify of the watchers whose snapshot has changed.
func (s *session) deliver() {
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = nil
	away := !s.state.Connected
	if away {
		s.dirty = dirty // until the directory is available again
	}
	s.mu.Unlock()
	if away {
		return
	}
	for _, w := range dirty {
		w.tell()
	}
}

// end removes the registrations of this session.
func (s *session) end() {
	if s.folder != nil {
		s.folder.leave()
	}
	s.board.removeAll(s.name)
	if s.leave != nil {
		s.leave()
	}
}
