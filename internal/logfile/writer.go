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
	// flushInterval is the maximum time that a line is pending.
	flushInterval = time.Second
	// flushSize is the number of pending bytes that triggers a write.
	flushSize = 64 << 10
	// maxPending is the maximum number of pending bytes, in addition to those that run is writing;
	// further lines are dropped.
	maxPending = 1 << 20
	// waitTimeout is the timeout of Flush, Reopen and Close when a disk hangs.
	waitTimeout = 3 * time.Second
)

// errTimeout reports that a file did not accept a write in time.
var errTimeout = errors.New("log file: write timed out")

// sink is the destination of a Writer: a *File.
type sink interface {
	io.WriteCloser
	Reopen() error
}

// Writer buffers lines, and its goroutine writes them: within a second, at 64 KiB, and on Flush,
// Reopen and Close. Write copies the line and returns. While the file hangs, up to 1 MiB is
// pending; the Writer drops and counts further lines. Safe for concurrent use.
type Writer struct {
	name string // immutable
	file sink
	log  *slog.Logger

	dropped atomic.Uint64 // lines

	hasPending chan struct{} // capacity 1: lines are pending
	flushNow   chan struct{} // capacity 1: flushSize is reached
	requests   chan request
	quit       chan struct{} // closed by Close
	done       chan struct{} // closed when run has returned

	mu      sync.Mutex
	pending []byte // guarded by mu
	freeBuf []byte // guarded by mu; free storage for pending
	closed  bool   // guarded by mu

	failing  bool  // owned by run; the last write failed
	closeErr error // owned by run until done; result of Close
}

// request makes run call fn and send its error to result.
type request struct {
	fn     func() error
	result chan error
}

// NewWriter returns a Writer that owns f. name identifies the file in log, which reports when
// writes start to fail and when they work again.
func NewWriter(name string, f *File, log *slog.Logger) *Writer { return newWriter(name, f, log) }

func newWriter(name string, f sink, log *slog.Logger) *Writer {
	w := &Writer{
		name:       name,
		file:       f,
		log:        log,
		hasPending: make(chan struct{}, 1),
		flushNow:   make(chan struct{}, 1),
		requests:   make(chan request),
		quit:       make(chan struct{}),
		done:       make(chan struct{}),
	}
	go w.run()
	return w
}

// Write queues one or more lines; p must end in a line feed. It returns os.ErrClosed after Close,
// and no error otherwise, even if it dropped p.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return 0, os.ErrClosed
	}
	oldLen := len(w.pending)
	if oldLen+len(p) > maxPending {
		w.mu.Unlock()
		w.dropped.Add(countLines(p))
		return len(p), nil
	}
	w.pending = append(w.pending, p...)
	newLen := len(w.pending)
	w.mu.Unlock()
	if oldLen == 0 {
		notify(w.hasPending)
	}
	if oldLen < flushSize && newLen >= flushSize {
		notify(w.flushNow)
	}
	return len(p), nil
}

func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // a signal is pending already
	}
}

func countLines(p []byte) uint64 { return uint64(bytes.Count(p, []byte{'\n'})) }

// Dropped returns the number of dropped lines.
func (w *Writer) Dropped() uint64 { return w.dropped.Load() }

// Flush writes the pending lines. It returns the write error, errTimeout after three seconds if the
// file hangs, or os.ErrClosed after Close.
func (w *Writer) Flush() error {
	return w.submit(func() error { return nil })
}

// Reopen writes the pending lines and opens the file again.
func (w *Writer) Reopen() error { return w.submit(w.file.Reopen) }

// Close writes the pending lines and closes the file. A second call waits like the first. If the
// file hangs, Close returns errTimeout after three seconds, and the goroutine ends when the write
// returns.
func (w *Writer) Close() error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.quit)
	}
	w.mu.Unlock()
	timer := time.NewTimer(waitTimeout)
	defer timer.Stop()
	select {
	case <-w.done:
		return w.closeErr
	case <-timer.C:
		return errTimeout
	}
}

// submit makes run write the pending lines and call fn, and waits for the result.
func (w *Writer) submit(fn func() error) error {
	r := request{fn, make(chan error, 1)}
	timer := time.NewTimer(waitTimeout)
	defer timer.Stop()
	select {
	case w.requests <- r:
	case <-w.done:
		return os.ErrClosed
	case <-timer.C:
		return errTimeout
	}
	select {
	case err := <-r.result:
		return err
	case <-timer.C:
		return errTimeout
	}
}

// run writes pending lines until Close.
func (w *Writer) run() {
	defer close(w.done)
	timer := time.NewTimer(flushInterval)
	timer.Stop()
	for {
		select {
		case <-w.hasPending:
			timer.Reset(flushInterval)
		case <-timer.C:
			_ = w.flush() // flush reports the error
		case <-w.flushNow:
			_ = w.flush() // flush reports the error
		case r := <-w.requests:
			r.result <- errors.Join(w.flush(), r.fn())
		case <-w.quit:
			w.closeErr = errors.Join(w.flush(), w.file.Close())
			return
		}
	}
}

// flush writes the pending lines.
func (w *Writer) flush() error {
	w.mu.Lock()
	batch := w.pending
	w.pending, w.freeBuf = w.freeBuf[:0], nil
	w.mu.Unlock()
	if len(batch) == 0 {
		w.recycle(batch)
		return nil
	}
	n, err := w.file.Write(batch)
	if n < len(batch) {
		w.dropped.Add(countLines(batch[n:]))
	}
	w.report(err)
	w.recycle(batch)
	return err
}

// recycle stores batch in freeBuf, unless it is large: a burst must not retain memory forever.
func (w *Writer) recycle(batch []byte) {
	if cap(batch) > 2*flushSize {
		batch = nil
	}
	w.mu.Lock()
	w.freeBuf = batch[:0]
	w.mu.Unlock()
}

// report logs when writes start to fail and when they work again.
func (w *Writer) report(err error) {
	switch {
	case err != nil && !w.failing:
		w.log.Error("cannot write to the log file", "file", w.name, "dropped", w.Dropped(), "error", err)
	case err == nil && w.failing:
		w.log.Info("the log file is writable again", "file", w.name, "dropped", w.Dropped())
	}
	w.failing = err != nil
}
