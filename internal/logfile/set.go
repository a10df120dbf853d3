package logfile

import (
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
)

// SetOptions configure a Set. Immutable.
type SetOptions struct {
	// Log reports when a file fails. It must not write to a file of the set. nil discards the
	// reports.
	Log *slog.Logger
	// Meter exports a file's count of dropped lines when the file is opened. The set calls remove
	// when it closes the file. May be nil.
	Meter func(path string, dropped func() float64) (remove func())
	// CheckOnly makes Open call Check instead of opening the file. Writes are discarded.
	CheckOnly bool
}

// Set holds the log files of a process; users of the same path share one Writer. Safe for
// concurrent use.
type Set struct {
	options SetOptions // immutable

	// mu is held while Open and the last Close open and close files, so that no path is opened
	// twice. Reopen does not hold it while it opens files.
	mu      sync.Mutex
	writers map[string]*sharedWriter // by clean path; guarded by mu
}

type sharedWriter struct {
	*Writer
	file   *File
	refs   int // guarded by Set.mu
	remove func()
}

// NewSet returns a set without files.
func NewSet(o SetOptions) *Set {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Set{options: o, writers: map[string]*sharedWriter{}}
}

// Open opens the log at path, or shares it; r then replaces the previous Roller. Write on the
// result does not block. The caller must call Close; the last Close of a path writes the pending
// lines.
func (s *Set) Open(path string, r Roller) (io.WriteCloser, error) {
	path = filepath.Clean(path)
	if s.options.CheckOnly {
		return discardCloser{}, Check(path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.writers[path]
	if w == nil {
		file, err := Open(path, r)
		if err != nil {
			return nil, err
		}
		w = &sharedWriter{Writer: NewWriter(path, file, s.options.Log), file: file, remove: func() {}}
		if s.options.Meter != nil {
			w.remove = s.options.Meter(path, func() float64 { return float64(w.Dropped()) })
		}
		s.writers[path] = w
	} else {
		w.file.SetRotation(r)
	}
	w.refs++
	return &handle{set: s, path: path, Writer: w.Writer}, nil
}

// discardCloser is a log that drops its lines.
type discardCloser struct{}

func (discardCloser) Write(p []byte) (int, error) { return len(p), nil }

func (discardCloser) Close() error { return nil }

// Reopen writes the pending lines and opens all files again. If a path cannot be opened, its
// previous file stays in use.
func (s *Set) Reopen() error {
	s.mu.Lock()
	writers := make([]*Writer, 0, len(s.writers))
	for _, w := range s.writers {
		writers = append(writers, w.Writer)
	}
	s.mu.Unlock()
	errs := make([]error, len(writers))
	var wg sync.WaitGroup
	for i, w := range writers {
		wg.Go(func() { errs[i] = w.Reopen() }) // concurrently, so that a hung file does not delay the others
	}
	wg.Wait()
	return errors.Join(errs...)
}

// handle is one user of a shared Writer.
type handle struct {
	set  *Set
	path string
	*Writer

	once sync.Once
	err  error
}

// Close releases the log. Repeated calls return the result of the first.
func (h *handle) Close() error {
	h.once.Do(func() { h.err = h.set.release(h.path) })
	return h.err
}

func (s *Set) release(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.writers[path]
	w.refs--
	if w.refs > 0 {
		return nil
	}
	delete(s.writers, path)
	w.remove()
	return w.Writer.Close()
}
