package dubbo

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Delays between a change and the write of the state file, and limits of the rate of writes.
const (
	saveSoon     = 10 * time.Millisecond // after a request
	saveLater    = 30 * time.Second      // after a snapshot, or a failed write
	minSaveGap   = time.Second           // minimum time from the end of a write to the next write
	maxSaveShare = 10                    // writes take at most 1/maxSaveShare of the time
)

// stateWriter writes the state file after changes. save is safe for concurrent use; the caller may
// hold locks of rank 1 and 2.
type stateWriter struct {
	path     string        // immutable; "": no state file
	log      *slog.Logger  // immutable
	contents func() *state // immutable; called with no lock held
	wake     chan struct{} // gets a value after save has set dueAt
	failures atomic.Uint64 // failed attempts to write the file

	mu        mutex[rank3]
	dueAt     time.Time // guarded by mu; zero: no write is scheduled
	notBefore time.Time // guarded by mu; earliest time of the next write, to limit the rate
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
	due := laterOf(time.Now().Add(delay), w.notBefore)
	if !w.dueAt.IsZero() && !due.Before(w.dueAt) {
		return
	}
	w.dueAt = due
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
		due := w.dueAt
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
	w.dueAt = time.Time{} // reset before contents is called, so that no later change is missed
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
	w.notBefore = end.Add(max(minSaveGap, (maxSaveShare-1)*end.Sub(start)))
	if !w.dueAt.IsZero() { // scheduled during the write
		w.dueAt = laterOf(w.dueAt, w.notBefore)
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
