package logfile

import (
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
)

// SetOptions are what a Set needs of the rest of the process. Immutable.
type SetOptions struct {
	// Log is told when a file fails. Must not end up in one of the set's files.
	// nil: nobody is told.
	Log *slog.Logger
	// Meter is given each file's count of lost lines when it is opened; what it
	// returns is called when the file is closed. May be nil.
	Meter func(path string, dropped func() float64) (remove func())
	// CheckOnly makes Open check that the file could be opened, without opening or
	// creating it; what is written is discarded.
	CheckOnly bool
}

// Set is the log files of a process: who opens the same path shares one Writer.
// Safe for concurrent use.
type Set struct {
	o SetOptions // immutable

	// mu is held while files are opened and closed: that is what must not happen
	// twice at once.
	mu     sync.Mutex
	shared map[string]*sharedWriter // by clean path; guarded by mu
}

type sharedWriter struct {
	*Writer
	file    *File
	holders int // guarded by Set.mu
	remove  func()
}

// NewSet returns a set without files.
func NewSet(o SetOptions) *Set {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Set{o: o, shared: map[string]*sharedWriter{}}
}

// Open opens the log at path, or shares it; r then takes the place of the
// roller it was opened with before. What is returned is a Writer's: its Write
// does not wait. Close is to be called once; the last one writes what waits.
func (s *Set) Open(path string, r Roller) (io.WriteCloser, error) {
	path = filepath.Clean(path)
	if s.o.CheckOnly {
		return discarded{}, Check(path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.shared[path]
	if w == nil {
		file, err := Open(path, r)
		if err != nil {
			return nil, err
		}
		w = &sharedWriter{Writer: NewWriter(path, file, s.o.Log), file: file, remove: func() {}}
		if s.o.Meter != nil {
			w.remove = s.o.Meter(path, func() float64 { return float64(w.Dropped()) })
		}
		s.shared[path] = w
	} else {
		w.file.SetRoller(r)
	}
	w.holders++
	return &holder{set: s, path: path, Writer: w.Writer}, nil
}

// discarded is a log whose lines are dropped.
type discarded struct{}

func (discarded) Write(p []byte) (int, error) { return len(p), nil }

func (discarded) Close() error { return nil }

// Reopen writes what waits and opens all files again; what cannot be opened
// stays in use as it is.
func (s *Set) Reopen() error {
	s.mu.Lock()
	writers := make([]*Writer, 0, len(s.shared))
	for _, w := range s.shared {
		writers = append(writers, w.Writer)
	}
	s.mu.Unlock()
	errs := make([]error, len(writers))
	var all sync.WaitGroup
	for i, w := range writers {
		all.Go(func() { errs[i] = w.Reopen() }) // one that is stuck must not hold up the others
	}
	all.Wait()
	return errors.Join(errs...)
}

// holder is one of those who share a Writer.
type holder struct {
	set  *Set
	path string
	*Writer

	once sync.Once
	err  error
}

// Close gives the log up.
func (h *holder) Close() error {
	h.once.Do(func() { h.err = h.set.give(h.path) })
	return h.err
}

func (s *Set) give(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.shared[path]
	w.holders--
	if w.holders > 0 {
		return nil
	}
	delete(s.shared, path)
	w.remove()
	return w.Writer.Close()
}
