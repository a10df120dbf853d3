package logfile

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// flushEvery is how long a line waits at most before it is written.
	flushEvery = time.Second
	// flushSize is how many bytes are worth a write of their own.
	flushSize = 64 << 10
	// maxPending is how many bytes wait for a slow disk before lines are dropped.
	maxPending = 1 << 20
	// closePatience is how long Close and Reopen wait for a disk that hangs.
	closePatience = 3 * time.Second
)

// errStuck says that a file did not take what was written to it in time.
var errStuck = errors.New("log file: writing hangs")

// sink is where a Writer's lines end up: a *File.
type sink interface {
	io.WriteCloser
	Reopen() error
}

// Writer gathers lines and lets a goroutine of its own write them: within a
// second, at 64 KiB, and on Flush, Reopen and Close. Write copies the line and
// returns; while the file is stuck, up to 1 MiB waits and lines beyond that are
// dropped and counted. Safe for concurrent use.
type Writer struct {
	name string // immutable
	file sink
	log  *slog.Logger

	dropped atomic.Uint64 // lines

	begun    chan struct{} // capacity 1: the first line waits
	full     chan struct{} // capacity 1: flushSize is reached
	requests chan request
	quit     chan struct{} // closed by Close
	done     chan struct{} // closed when run has returned

	mu      sync.Mutex
	pending []byte // guarded by mu
	spare   []byte // guarded by mu; storage for pending, while that is being written
	closed  bool   // guarded by mu

	failing bool  // owned by run; the last write failed
	last    error // owned by run until done; of closing
}

// request asks run for something that it answers.
type request struct {
	do     func() error
	answer chan error
}

// NewWriter returns a Writer over f, which it owns from now on. name is for the
// log, which is told when writing begins to fail and when it works again.
func NewWriter(name string, f *File, log *slog.Logger) *Writer { return newWriter(name, f, log) }

func newWriter(name string, f sink, log *slog.Logger) *Writer {
	w := &Writer{
		name:     name,
		file:     f,
		log:      log,
		begun:    make(chan struct{}, 1),
		full:     make(chan struct{}, 1),
		requests: make(chan request),
		quit:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	go w.run()
	return w
}

// Write takes lines: p ends in a line feed. It returns os.ErrClosed after
// Close, and else no error, even if it dropped p.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return 0, os.ErrClosed
	}
	before := len(w.pending)
	if before+len(p) > maxPending {
		w.mu.Unlock()
		w.dropped.Add(lines(p))
		return len(p), nil
	}
	w.pending = append(w.pending, p...)
	after := len(w.pending)
	w.mu.Unlock()
	if before == 0 {
		signal(w.begun)
	}
	if before < flushSize && after >= flushSize {
		signal(w.full)
	}
	return len(p), nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is on its way already
	}
}

func lines(p []byte) uint64 { return uint64(bytes.Count(p, []byte{'\n'})) }

// Dropped returns how many lines were lost.
func (w *Writer) Dropped() uint64 { return w.dropped.Load() }

// Flush writes what waits and returns the error of writing, or one after three
// seconds if the file is stuck.
func (w *Writer) Flush() error {
	return w.ask(func() error { return nil })
}

// Reopen writes what waits and opens the file again.
func (w *Writer) Reopen() error { return w.ask(w.file.Reopen) }

// Close writes what waits and closes the file; a second call waits as the first
// does. If the file is stuck, it gives up after three seconds: the goroutine
// ends when the file lets go of it.
func (w *Writer) Close() error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.quit)
	}
	w.mu.Unlock()
	patience := time.NewTimer(closePatience)
	defer patience.Stop()
	select {
	case <-w.done:
		return w.last
	case <-patience.C:
		return errStuck
	}
}

// ask lets run write what waits, then do, and waits for the answer.
func (w *Writer) ask(do func() error) error {
	r := request{do, make(chan error, 1)}
	patience := time.NewTimer(closePatience)
	defer patience.Stop()
	select {
	case w.requests <- r:
	case <-w.done:
		return os.ErrClosed
	case <-patience.C:
		return errStuck
	}
	select {
	case err := <-r.answer:
		return err
	case <-patience.C:
		return errStuck
	}
}

// run writes. It sleeps while there is nothing to write.
func (w *Writer) run() {
	defer close(w.done)
	timer := time.NewTimer(flushEvery)
	timer.Stop()
	for {
		select {
		case <-w.begun:
			timer.Reset(flushEvery)
		case <-timer.C:
			_ = w.flush() // reported by flush
		case <-w.full:
			_ = w.flush() // reported by flush
		case r := <-w.requests:
			r.answer <- errors.Join(w.flush(), r.do())
		case <-w.quit:
			w.last = errors.Join(w.flush(), w.file.Close())
			return
		}
	}
}

// flush writes what waits.
func (w *Writer) flush() error {
	w.mu.Lock()
	batch := w.pending
	w.pending, w.spare = w.spare[:0], nil
	w.mu.Unlock()
	if len(batch) == 0 {
		w.keep(batch)
		return nil
	}
	n, err := w.file.Write(batch)
	if n < len(batch) {
		w.dropped.Add(lines(batch[n:]))
	}
	w.report(err)
	w.keep(batch)
	return err
}

// keep makes the storage of batch the next spare one, unless it is large: a
// burst must not be paid for ever after.
func (w *Writer) keep(batch []byte) {
	if cap(batch) > 2*flushSize {
		batch = nil
	}
	w.mu.Lock()
	w.spare = batch[:0]
	w.mu.Unlock()
}

// report tells the operator when writing begins to fail and when it works
// again.
func (w *Writer) report(err error) {
	switch {
	case err != nil && !w.failing:
		w.log.Error("log file fails", "file", w.name, "dropped", w.Dropped(), "error", err)
	case err == nil && w.failing:
		w.log.Info("log file works again", "file", w.name, "dropped", w.Dropped())
	}
	w.failing = err != nil
}
