package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// healthFlags are the reasons why a host is not usable, as bits. The end of one reason does not
// bring the host up while another lasts.
type healthFlags uint32

const (
	unreachable       healthFlags = 1 << iota // connecting failed; ends with a successful connect or a response
	failing                                   // active checks failed; ends when they pass
	ejected                                   // outlier detection ejected the host; ends after a while
	reportedUnhealthy                         // discovery reports config.HostUnfit; ends when it reports another state
	reportedDraining                          // discovery reports config.HostLeaving; ends likewise
)

// String returns the names of the flags for people: "unreachable, ejected".
func (a healthFlags) String() string {
	text := ""
	for i, name := range [...]string{"unreachable", "failing checks", "ejected", "reported unfit", "leaving"} {
		if a&(1<<i) == 0 {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += name
	}
	return text
}

// connectFailed records that a connection could not be opened. It and answered log nothing about
// original destinations: clients choose them, and access logs show them.
func (h *Host) connectFailed(err error) {
	c := h.cluster
	h.countFailed()
	pause, first, turned := h.health.failed(c.env.now(), c.env.random())
	if first && !h.lazy {
		c.env.Log.Warn("upstream host down", logCluster, c.name, logHost, h.address, logPause, pause, logError, err)
	}
	if turned {
		h.turned(HostDown)
	}
}

// connected records that a connection was opened.
func (h *Host) connected() {
	h.connects.Add(1)
	h.countConnection(ConnectionOpened)
	h.answered()
}

// answered records that the host is alive: it accepted a connection or responded.
func (h *Host) answered() {
	if !h.health.has(unreachable) {
		return
	}
	was, turned := h.health.succeeded()
	if was && !h.lazy {
		h.cluster.env.Log.Info("upstream host up", logCluster, h.cluster.name, logHost, h.address)
	}
	if turned {
		h.turned(HostUp)
	}
}

// told returns the health flag for a health state of discovery; 0: none.
func told(health config.HostHealth) healthFlags {
	switch health {
	case config.HostUnfit:
		return reportedUnhealthy
	case config.HostLeaving:
		return reportedDraining
	case config.HostFit:
	}
	return 0
}

// tell records the health state that discovery reports. The caller updates the health counts when
// the host has its memberships.
func (h *Host) tell(health config.HostHealth) {
	now := told(health)
	turned := now != 0 && h.health.add(now)
	if turned {
		h.cluster.count(HostDown)
	}
	for _, a := range [...]healthFlags{reportedUnhealthy, reportedDraining} {
		if a != now && h.health.has(a) && h.health.end(a) {
			h.cluster.count(HostUp)
			h.since.Store(int64(h.cluster.env.now()))
		}
	}
}

// turned is called after each change of whether the host is usable; e is HostDown or HostUp.
// Concurrent changes are reported in any order, so what depends on them reads the health of the
// hosts.
func (h *Host) turned(e Event) {
	h.cluster.count(e)
	if e == HostUp {
		h.since.Store(int64(h.cluster.env.now()))
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

// condition is the health of a host and, if connecting to it failed, the time of the next recovery
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
type condition struct {
	flags atomic.Uint32 // healthFlags; 0 is up

	// notBefore is the time, in ns of the set's clock, from which an unreachable host is due.
	// Claiming a probe advances it.
	notBefore atomic.Int64

	mu       sync.Mutex
	failures int           // guarded by mu; connects that failed in a row, one counted per backoff
	until    time.Duration // guarded by mu; end of the backoff that the last of them began
}

// minBackoff is about as long as an application takes to restart its listener; maxBackoff bounds
// how late Weft notices that a host is alive again.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// up reports whether the host is usable, with one atomic read.
func (s *condition) up() bool { return s.flags.Load() == 0 }

// has reports whether the host has one of the flags.
func (s *condition) has(a healthFlags) bool { return healthFlags(s.flags.Load())&a != 0 }

// add sets a flag and reports whether that took the host down.
func (s *condition) add(a healthFlags) (turned bool) { return s.flags.Or(uint32(a)) == 0 }

// end clears a flag and reports whether that brought the host up.
func (s *condition) end(a healthFlags) (turned bool) { return s.flags.And(^uint32(a)) == uint32(a) }

// probeDue reports whether the host is unreachable, has no other flag, and its backoff is over.
func (s *condition) probeDue(now time.Duration) bool {
	return healthFlags(s.flags.Load()) == unreachable && s.notBefore.Load() <= int64(now)
}

// resetBackoff makes an unreachable host due immediately, because its address has changed.
func (s *condition) resetBackoff() { s.notBefore.Store(0) }

// claim reserves the due recovery probe of the host for the caller, for the duration trial.
func (s *condition) claim(now, trial time.Duration) bool {
	if healthFlags(s.flags.Load()) != unreachable {
		return false
	}
	from := s.notBefore.Load()
	return from <= int64(now) && s.notBefore.CompareAndSwap(from, int64(now+trial))
}

// failed records a failed connect. It returns the backoff that begins, whether the host was
// reachable before, and whether that took it down. It ignores failures during a backoff: fifty
// exchanges that fail on a dead host together must not make the backoff fifty steps longer.
func (s *condition) failed(now time.Duration, random uint64) (pause time.Duration, first, turned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures > 0 && now < s.until {
		return 0, false, false
	}
	pause = maxBackoff
	if s.failures < 7 { // 100 ms doubled seven times is above 10 s
		pause = minBackoff << s.failures
	}
	// Subtract up to a quarter, so that the proxies of a fleet do not probe together.
	pause -= time.Duration(random % uint64(pause/4))
	s.failures++
	s.until = now + pause
	s.notBefore.Store(int64(s.until))
	return pause, s.failures == 1, s.add(unreachable)
}

// succeeded makes the host reachable. It reports whether the host was unreachable, and whether that
// brought it up.
func (s *condition) succeeded() (was, turned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was = s.failures > 0
	s.failures = 0
	return was, s.end(unreachable)
}
