// Package hosthealth owns the health of one host: the reasons why it is not usable, and the backoff
// and recovery probes after failed connects. The caller passes the time and random numbers, and
// acts on the changes that the methods report.
package hosthealth

import (
	"sync"
	"sync/atomic"
	"time"
)

// State is the health of a host and, if connecting to it failed, the time of the next recovery
// probe:
//
//	    connect fails           backoff over         claimed
//	up ───────────────▶ down ───────────────▶ due ──────────────▶ probed
//	▲                    ▲ connect fails: backoff doubled │          │ │
//	│                    └────────────────────────────────┴──────────┘ │
//	└──────────────────────────────────────────────────────────────────┘
//	      connect succeeds, or the host responds on a connection it had
//
// One exchange at a time probes a host that is due; the others use other hosts meanwhile. A probe
// without a result is due again after a while. A host that has another health flag is never due:
// only the end of that flag brings it back. The zero value is up.
type State struct {
	flags atomic.Uint32 // Flags; 0 is up

	// probeAfter is the time, in ns of the set's clock, from which an unreachable host is due.
	// Claiming a probe advances it.
	probeAfter atomic.Int64

	mu         sync.Mutex
	failures   int           // guarded by mu; connects that failed in a row, one counted per backoff
	backoffEnd time.Duration // guarded by mu; end of the backoff that the last of them began
}

// MinBackoff is about as long as an application takes to restart its listener; MaxBackoff bounds
// how late Weft notices that a host is alive again.
const (
	MinBackoff = 100 * time.Millisecond
	MaxBackoff = 10 * time.Second
)

// Flags returns the current flags; 0: the host is up.
func (s *State) Flags() Flags { return Flags(s.flags.Load()) }

// Up reports whether the host is usable, with one atomic read.
func (s *State) Up() bool { return s.flags.Load() == 0 }

// Has reports whether the host has one of the flags.
func (s *State) Has(a Flags) bool { return Flags(s.flags.Load())&a != 0 }

// Set sets a flag and reports whether that took the host down.
func (s *State) Set(a Flags) (changed bool) { return s.flags.Or(uint32(a)) == 0 }

// Clear clears a flag and reports whether that brought the host up.
func (s *State) Clear(a Flags) (changed bool) { return s.flags.And(^uint32(a)) == uint32(a) }

// ProbeDue reports whether the host is unreachable, has no other flag, and its backoff is over.
func (s *State) ProbeDue(now time.Duration) bool {
	return Flags(s.flags.Load()) == Unreachable && s.probeAfter.Load() <= int64(now)
}

// ResetBackoff makes an unreachable host due immediately, because its address has changed.
func (s *State) ResetBackoff() { s.probeAfter.Store(0) }

// ClaimProbe reserves the due recovery probe of the host for the caller, for the duration of
// timeout.
func (s *State) ClaimProbe(now, timeout time.Duration) bool {
	if Flags(s.flags.Load()) != Unreachable {
		return false
	}
	from := s.probeAfter.Load()
	return from <= int64(now) && s.probeAfter.CompareAndSwap(from, int64(now+timeout))
}

// RecordFailure records a failed connect. It returns the backoff that begins, whether the host was
// reachable before, and whether that took it down. It ignores failures during a backoff: fifty
// exchanges that fail on a dead host together must not make the backoff fifty steps longer.
func (s *State) RecordFailure(now time.Duration, random uint64) (pause time.Duration, first, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures > 0 && now < s.backoffEnd {
		return 0, false, false
	}
	pause = MaxBackoff
	if s.failures < 7 { // 100 ms doubled seven times is above 10 s
		pause = MinBackoff << s.failures
	}
	// Subtract up to a quarter, so that the proxies of a fleet do not probe together.
	pause -= time.Duration(random % uint64(pause/4))
	s.failures++
	s.backoffEnd = now + pause
	s.probeAfter.Store(int64(s.backoffEnd))
	return pause, s.failures == 1, s.Set(Unreachable)
}

// RecordSuccess makes the host reachable. It reports whether the host was unreachable, and whether
// that brought it up.
func (s *State) RecordSuccess() (was, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was = s.failures > 0
	s.failures = 0
	return was, s.Clear(Unreachable)
}
