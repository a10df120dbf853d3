// Package memory owns the registry that needs no server: who opens the same address in
// this process sees one another, and with an address "file:/folder" so do processes of
// one machine that can write there.
//
//	Space    the addresses of this process           memory.go
//	board    who registered what, who wants to know  board.go
//	folder   a board that processes share            folder.go
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

// filePrefix begins an address that is a folder.
const filePrefix = "file:"

// Server holds what sessions of this process say to one another. Safe for concurrent use.
type Server struct {
	sessions atomic.Uint64

	mu     sync.Mutex
	boards map[string]*store // guarded by mu; by address; each has sessions
}

// maxAddresses bounds the addresses of this process that have sessions at one time.
const maxAddresses = 1024

// NewServer returns a Space that nothing is in.
func NewServer() *Server { return &Server{boards: map[string]*store{}} }

// Open opens a session; it is a registry.OpenFunc. Any address will do, "" too; one that begins
// with "file:" is the path of a folder, absolute, which is made if there is none. User,
// password, TLS, Root and SessionTimeout mean nothing here.
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
			return nil, fmt.Errorf("%q: the path of a folder begins with a slash", o.Address)
		}
		se.board = newBoard()
		se.folder = newFolder(path, se.board, o.Log)
		se.name = se.folder.id // before anybody else knows the session
		se.changed = o.Changed
		se.state = registry.State{Since: time.Now()} // until the folder has been written to
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

// enter returns the board of an address for one more session, which calls leave when it
// ends.
func (s *Server) enter(address string) (*store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boards[address]
	if b == nil {
		if len(s.boards) >= maxAddresses {
			return nil, fmt.Errorf("memory registry %q: there are sessions at %d other addresses, the limit", address, maxAddresses)
		}
		b = newBoard()
		s.boards[address] = b
	}
	b.sessions++
	return b, nil
}

// leave drops the board of an address with its last session.
func (s *Server) leave(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boards[address]
	if b.sessions--; b.sessions == 0 {
		delete(s.boards, address)
	}
}

// session is a registry.Registry. Its goroutine calls notify, and reads and writes the
// folder.
type session struct {
	name    string     // immutable; of what it registers
	board   *store     // immutable
	folder  *sharedDir // owned by run; nil: the board is of this process
	changed func()     // immutable; of a folder
	leave   func()     // immutable; ends the session at the board; nil: the board is its own

	wake  chan struct{} // there is something to do
	done  chan struct{} // closed by Close
	ended chan struct{} // closed when run has returned
	close sync.Once

	saying sync.Mutex // held while what is registered here changes

	mu      sync.Mutex
	state   registry.State  // guarded by mu
	dirty   []*watcher      // guarded by mu; to be looked after
	asked   uint64          // guarded by mu; changes of what is registered here
	written uint64          // guarded by mu; of these, in the folder
	flushed chan struct{}   // guarded by mu; closed when written grows
	mine    map[string]bool // guarded by mu; URLs that are registered, encoded
	// announced is guarded by mu, and changed with saying held; by nameOf.
	announced map[string]registrationText
}

// Register is registry.Registry's.
func (s *session) Register(ctx context.Context, u registry.URL) error {
	return s.say(ctx, func() uint64 { return s.change(u, true) })
}

// Unregister is registry.Registry's.
func (s *session) Unregister(ctx context.Context, u registry.URL) error {
	return s.say(ctx, func() uint64 { return s.change(u, false) })
}

// errClosed is returned for what a session can no longer do.
var errClosed = errors.New("the session is closed")

// say makes a change of what is registered here, which returns its number, and returns when
// others can know.
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
			return fmt.Errorf("not written yet (%s): %w", problem, ctx.Err())
		}
	}
}

// change returns the number of the change.
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

// Subscribe is registry.Registry's.
func (s *session) Subscribe(service registry.Service, notify func(registry.Snapshot)) (stop func()) {
	w := &watcher{service: service, notify: notify, session: s}
	s.board.watch(w)
	return func() {
		s.board.unwatch(w)
		w.mu.Lock() // not while notify runs
		w.stopped = true
		w.mu.Unlock()
	}
}

// State is registry.Registry's.
func (s *session) State() registry.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Close is registry.Registry's. What was registered counts as taken back.
func (s *session) Close(ctx context.Context) {
	s.close.Do(func() { close(s.done) })
	select {
	case <-s.ended:
	case <-ctx.Done():
	}
}

// look has w looked after soon.
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

// run serves the watchers, and the folder if there is one, until Close.
func (s *session) run() {
	defer close(s.ended)
	defer s.end()
	var tick <-chan time.Time // nil: there is no folder
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

// owes reports whether the folder lacks something of what is registered here.
func (s *session) owes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.folder != nil && s.asked != s.written
}

// exchange writes to the folder what has changed here, and reads what has there. While
// the folder is away nothing that was read is forgotten.
func (s *session) exchange() {
	s.mu.Lock()
	asked := s.asked
	var lines []string // nil: nothing to be written
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

// deliver calls the notify of those for whom there is something new.
func (s *session) deliver() {
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = nil
	away := !s.state.Connected
	if away {
		s.dirty = dirty // until it is back
	}
	s.mu.Unlock()
	if away {
		return
	}
	for _, w := range dirty {
		w.tell()
	}
}

// end takes back what was registered here.
func (s *session) end() {
	if s.folder != nil {
		s.folder.leave()
	}
	s.board.removeAll(s.name)
	if s.leave != nil {
		s.leave()
	}
}
