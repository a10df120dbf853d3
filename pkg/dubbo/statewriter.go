package dubbo

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Delays between a change and writing the state file.
const (
	saveSoon     = 10 * time.Millisecond // after a request
	saveLater    = 30 * time.Second      // after a snapshot
	minSaveGap   = time.Second           // minimum time between the end of a write and the next write
	maxSaveShare = 10                    // writing takes at most one in maxSaveShare parts of the time
)

// stateWriter writes the state file after changes. Its methods are safe for concurrent use; save may
// be called with any other lock of this package held.
type stateWriter struct {
	path     string        // immutable; "": no state file
	log      *slog.Logger  // immutable
	contents func() *state // immutable; called with no lock held
	wake     chan struct{} // at has become earlier
	failures atomic.Uint64 // failed attempts to write the file

	mu    sync.Mutex
	at    time.Time // guarded by mu; zero: no write is scheduled
	after time.Time // guarded by mu; the earliest next write, to limit the rate
}

func newStateWriter(s *settings, contents func() *state) *stateWriter {
	return &stateWriter{path: s.Config.StateFile, log: s.Log, contents: contents, wake: make(chan struct{}, 1)}
}

// save schedules a write of the state file.
func (w *stateWriter) save(delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saveLocked(delay)
}

func (w *stateWriter) saveLocked(delay time.Duration) {
	if w.path == "" {
		return
	}
	due := laterOf(time.Now().Add(delay), w.after)
	if !w.at.IsZero() && !due.Before(w.at) {
		return
	}
	w.at = due
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run writes the state file when a write is due, until ctx ends.
func (w *stateWriter) run(ctx context.Context) {
	if w.path == "" {
		return
	}
	timer := time.NewTimer(idleWait)
	defer timer.Stop()
	for {
		w.mu.Lock()
		due := w.at
		w.mu.Unlock()
		wait := idleWait
		if !due.IsZero() {
			wait = time.Until(due)
		}
		timer.Reset(max(0, wait))
		select {
		case <-w.wake:
			continue
		case <-timer.C:
			if !due.IsZero() {
				w.write()
			}
		case <-ctx.Done():
			return
		}
	}
}

// write writes the state file now. Calls do not overlap.
func (w *stateWriter) write() {
	if w.path == "" {
		return
	}
	start := time.Now()
	w.mu.Lock()
	w.at = time.Time{} // before the contents, so that no later change is missed
	w.mu.Unlock()
	s := w.contents()
	s.Saved = time.Now()
	parts, err := s.encode()
	if err == nil {
		err = writeState(w.path, parts)
	}
	if err != nil {
		w.failures.Add(1)
		w.log.Error("cannot write the state file; retrying", logFile, w.path, logError, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	end := time.Now()
	w.after = end.Add(max(minSaveGap, (maxSaveShare-1)*end.Sub(start)))
	if !w.at.IsZero() { // scheduled during the write
		w.at = laterOf(w.at, w.after)
	}
	if err != nil {
		w.saveLocked(saveLater)
	}
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
