// Package hosthealth tracks the health of one host: the reasons why it is not usable, and the
// backoff and recovery probes after failed connects. The caller passes the time and random numbers,
// and acts on the changes that the methods report.
package hosthealth

import (
	"sync"
	"sync/atomic"
	"time"
)

// State is the health of a host and, if connecting to it failed, the time of the next recovery
// probe:
//
//	    connect fails           backoff ended        claimed
//	up ───────────────▶ down ───────────────▶ due ──────────────▶ probed
//	▲                    ▲ connect fails: backoff doubled │          │ │
//	│                    └────────────────────────────────┴──────────┘ │
//	└──────────────────────────────────────────────────────────────────┘
//	      connect succeeds, or the host responds on an existing connection
//
// One exchange at a time probes a host that is due; other exchanges use other hosts. A probe
// without a result becomes due again after its timeout. An unreachable host that has another health
// flag is not due until that flag is cleared. The zero value is up.
type State struct {
	flags atomic.Uint32 // Flags; 0 is up

	// probeAfter is the time, in ns of the caller's clock, from which an unreachable host is due.
	// Claiming a probe advances it.
	probeAfter atomic.Int64

	mu         sync.Mutex
	failures   int           // guarded by mu; consecutive failed connects, at most one per backoff
	backoffEnd time.Duration // guarded by mu; end of the last backoff
}

// MinBackoff is about as long as an application takes to restart its listener; MaxBackoff bounds
// how late Weft notices that a host is up again.
const (
	MinBackoff = 100 * time.Millisecond
	MaxBackoff = 10 * time.Second
)

// Flags returns the current flags; 0: the host is up.
func (s *State) Flags() Flags { return Flags(s.flags.Load()) }

// Up reports whether the host is usable, with one atomic read.
func (s *State) Up() bool { return s.flags.Load() == 0 }

// Has reports whether the host has at least one of the flags.
func (s *State) Has(flags Flags) bool { return Flags(s.flags.Load())&flags != 0 }

// Set sets flag and reports whether that took the host down.
func (s *State) Set(flag Flags) (changed bool) { return s.flags.Or(uint32(flag)) == 0 }

// Clear clears flag and reports whether that brought the host up.
func (s *State) Clear(flag Flags) (changed bool) { return s.flags.And(^uint32(flag)) == uint32(flag) }

// ProbeDue reports whether the host is unreachable, has no other flag, and its backoff has ended.
func (s *State) ProbeDue(now time.Duration) bool {
	return Flags(s.flags.Load()) == Unreachable && s.probeAfter.Load() <= int64(now)
}

// ResetBackoff makes an unreachable host due immediately, because its address has changed.
func (s *State) ResetBackoff() { s.probeAfter.Store(0) }

// ClaimProbe reserves the due recovery probe of the host for the caller until timeout has passed.
// It returns false if no probe is due or another caller has claimed it.
func (s *State) ClaimProbe(now, timeout time.Duration) bool {
	if Flags(s.flags.Load()) != Unreachable {
		return false
	}
	due := s.probeAfter.Load()
	return due <= int64(now) && s.probeAfter.CompareAndSwap(due, int64(now+timeout))
}

// RecordFailure records a failed connect. It returns the new backoff, whether this is the first
// failure, and whether it took the host down. It ignores failures during a backoff: fifty
// exchanges that fail concurrently on a dead host must not make the backoff fifty steps longer.
func (s *State) RecordFailure(now time.Duration, random uint64) (backoff time.Duration, first, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures > 0 && now < s.backoffEnd {
		return 0, false, false
	}
	backoff = MaxBackoff
	if s.failures < 7 { // 100 ms doubled seven times is above 10 s
		backoff = MinBackoff << s.failures
	}
	// Subtract up to a quarter, so that the proxies of a fleet do not probe together.
	backoff -= time.Duration(random % uint64(backoff/4))
	s.failures++
	s.backoffEnd = now + backoff
	s.probeAfter.Store(int64(s.backoffEnd))
	return backoff, s.failures == 1, s.Set(Unreachable)
}

// RecordSuccess makes the host reachable. wasUnreachable reports whether the host was unreachable;
// changed reports whether it is up now and was not before.
func (s *State) RecordSuccess() (wasUnreachable, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wasUnreachable = s.failures > 0
	s.failures = 0
	return wasUnreachable, s.Clear(Unreachable)
}
