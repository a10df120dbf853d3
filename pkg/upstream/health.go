package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// recordConnectFailure records that a connection could not be opened. It and answered log nothing about
// original destinations: clients choose them, and access logs show them.
func (h *Host) recordConnectFailure(err error) {
	c := h.cluster
	h.countConnectFailure()
	pause, first, turned := h.health.recordFailure(c.env.now(), c.env.random())
	if first && !h.isOriginalDst {
		c.env.Log.Warn("upstream host down", logCluster, c.name, logHost, h.address, logPause, pause, logError, err)
	}
	if turned {
		h.healthChanged(HostDown)
	}
}

// recordConnect records that a connection was opened.
func (h *Host) recordConnect() {
	h.connects.Add(1)
	h.countConnection(ConnectionOpened)
	h.recordAlive()
}

// recordAlive records that the host is alive: it accepted a connection or responded.
func (h *Host) recordAlive() {
	if !h.health.has(FlagUnreachable) {
		return
	}
	was, turned := h.health.recordSuccess()
	if was && !h.isOriginalDst {
		h.cluster.env.Log.Info("upstream host up", logCluster, h.cluster.name, logHost, h.address)
	}
	if turned {
		h.healthChanged(HostUp)
	}
}

// discoveryFlag returns the health flag for a health state of discovery; 0: none.
func discoveryFlag(health config.HostHealth) HealthFlags {
	switch health {
	case config.HostUnhealthy:
		return FlagReportedUnhealthy
	case config.HostDraining:
		return FlagReportedDraining
	case config.HostHealthy:
	}
	return 0
}

// setDiscoveryHealth records the health state that discovery reports. The caller updates the health counts when
// the host has its memberships.
func (h *Host) setDiscoveryHealth(health config.HostHealth) {
	now := discoveryFlag(health)
	turned := now != 0 && h.health.set(now)
	if turned {
		h.cluster.count(HostDown)
	}
	for _, a := range [...]HealthFlags{FlagReportedUnhealthy, FlagReportedDraining} {
		if a != now && h.health.has(a) && h.health.clear(a) {
			h.cluster.count(HostUp)
			h.usableSince.Store(int64(h.cluster.env.now()))
		}
	}
}

// healthChanged is called after each change of whether the host is usable; e is HostDown or HostUp.
// Concurrent changes are reported in any order, so what depends on them reads the health of the
// hosts.
func (h *Host) healthChanged(e Event) {
	h.cluster.count(e)
	if e == HostUp {
		h.usableSince.Store(int64(h.cluster.env.now()))
	}
	h.updateHealthCounts()
}

// Keys of log attributes.
const (
	logCluster = "cluster"
	logHost    = "host"
	logPause   = "pause"
	logError   = "error"

	logProtocol = "protocol" // of a check
	logDetector = "detector" // of an outlier
)

// healthState is the health of a host and, if connecting to it failed, the time of the next recovery
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
type healthState struct {
	flags atomic.Uint32 // HealthFlags; 0 is up

	// probeAfter is the time, in ns of the set's clock, from which an unreachable host is due.
	// Claiming a probe advances it.
	probeAfter atomic.Int64

	mu         sync.Mutex
	failures   int           // guarded by mu; connects that failed in a row, one counted per backoff
	backoffEnd time.Duration // guarded by mu; end of the backoff that the last of them began
}

// minBackoff is about as long as an application takes to restart its listener; maxBackoff bounds
// how late Weft notices that a host is alive again.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// up reports whether the host is usable, with one atomic read.
func (s *healthState) up() bool { return s.flags.Load() == 0 }

// has reports whether the host has one of the flags.
func (s *healthState) has(a HealthFlags) bool { return HealthFlags(s.flags.Load()).Has(a) }

// set sets a flag and reports whether that took the host down.
func (s *healthState) set(a HealthFlags) (turned bool) { return s.flags.Or(uint32(a)) == 0 }

// clear clears a flag and reports whether that brought the host up.
func (s *healthState) clear(a HealthFlags) (turned bool) { return s.flags.And(^uint32(a)) == uint32(a) }

// probeDue reports whether the host is unreachable, has no other flag, and its backoff is over.
func (s *healthState) probeDue(now time.Duration) bool {
	return HealthFlags(s.flags.Load()) == FlagUnreachable && s.probeAfter.Load() <= int64(now)
}

// resetBackoff makes an unreachable host due immediately, because its address has changed.
func (s *healthState) resetBackoff() { s.probeAfter.Store(0) }

// claimProbe reserves the due recovery probe of the host for the caller, for the duration trial.
func (s *healthState) claimProbe(now, trial time.Duration) bool {
	if HealthFlags(s.flags.Load()) != FlagUnreachable {
		return false
	}
	from := s.probeAfter.Load()
	return from <= int64(now) && s.probeAfter.CompareAndSwap(from, int64(now+trial))
}

// recordFailure records a failed connect. It returns the backoff that begins, whether the host was
// reachable before, and whether that took it down. It ignores failures during a backoff: fifty
// exchanges that fail on a dead host together must not make the backoff fifty steps longer.
func (s *healthState) recordFailure(now time.Duration, random uint64) (pause time.Duration, first, turned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures > 0 && now < s.backoffEnd {
		return 0, false, false
	}
	pause = maxBackoff
	if s.failures < 7 { // 100 ms doubled seven times is above 10 s
		pause = minBackoff << s.failures
	}
	// Subtract up to a quarter, so that the proxies of a fleet do not probe together.
	pause -= time.Duration(random % uint64(pause/4))
	s.failures++
	s.backoffEnd = now + pause
	s.probeAfter.Store(int64(s.backoffEnd))
	return pause, s.failures == 1, s.set(FlagUnreachable)
}

// recordSuccess makes the host reachable. It reports whether the host was unreachable, and whether that
// brought it up.
func (s *healthState) recordSuccess() (was, turned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was = s.failures > 0
	s.failures = 0
	return was, s.clear(FlagUnreachable)
}
