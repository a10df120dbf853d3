package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// healthFlags are the reasons for which a host is not usable, as a set of bits: the
// end of one does not bring it up while another lasts.
type healthFlags uint32

const (
	unreachable       healthFlags = 1 << iota // connecting failed; over when it works, or the host answers
	failing                                   // active checks failed; over when they pass
	ejected                                   // it answered badly; over after a while
	reportedUnhealthy                         // discovery says so (config.HostUnfit), until it says something else
	reportedDraining                          // the same of config.HostLeaving
)

// String names the ailments for people: "unreachable, ejected".
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

// connectFailed takes note that a connection could not be opened. Of destinations nothing
// is logged, here and in answered: callers choose them, and access logs tell.
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

// connected takes note that a connection was opened.
func (h *Host) connected() {
	h.connects.Add(1)
	h.countConnection(ConnectionOpened)
	h.answered()
}

// answered takes note that the host is alive: it took a connection or answered.
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

// told is the ailment that discovery tells of; 0: none.
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

// tell takes note of what discovery says now. The caller has the host reckoned when it
// has its place among the others.
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

// turned is called after each change of whether the host is usable: e is HostDown
// or HostUp. Changes that come together are told in any order, so that what
// depends on them looks at the hosts.
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

// condition is whether a host is usable, and if connecting to it failed, when to try
// again:
//
//	    connect fails           pause over           claimed
//	up ───────────────▶ down ───────────────▶ due ──────────────▶ on trial
//	▲                    ▲ connect fails: twice the pause │          │ │
//	│                    └────────────────────────────────┴──────────┘ │
//	└──────────────────────────────────────────────────────────────────┘
//	      connect succeeds, or the host answers on a connection it had
//
// One exchange at a time tries a host that is due; the others go elsewhere
// meanwhile. A trial that comes to no result is due again after a while. A host
// that has another ailment is never due: only the end of that brings it back. The
// zero value is up.
type condition struct {
	flags atomic.Uint32 // ailments; 0 is up

	// notBefore is the time, in ns of the set's clock, from which an unreachable
	// host is due. Claiming a trial moves it on.
	notBefore atomic.Int64

	mu       sync.Mutex
	failures int           // guarded by mu; connects that failed in a row, one counted per pause
	until    time.Duration // guarded by mu; end of the pause that the last of them began
}

// The first pause is about as long as an application takes to restart its
// listener; the last bounds how late a host is found alive again.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// up reports whether the host is usable: one atomic look.
func (s *condition) up() bool { return s.flags.Load() == 0 }

// has reports whether the host has one of the ailments.
func (s *condition) has(a healthFlags) bool { return healthFlags(s.flags.Load())&a != 0 }

// add gives the host an ailment and reports whether that turned it.
func (s *condition) add(a healthFlags) (turned bool) { return s.flags.Or(uint32(a)) == 0 }

// end takes an ailment from the host and reports whether that turned it.
func (s *condition) end(a healthFlags) (turned bool) { return s.flags.And(^uint32(a)) == uint32(a) }

// probeDue reports whether the host is unreachable, has no other ailment, and its pause
// is over.
func (s *condition) probeDue(now time.Duration) bool {
	return healthFlags(s.flags.Load()) == unreachable && s.notBefore.Load() <= int64(now)
}

// resetBackoff makes an unreachable host due at once: it is to be found at another address
// now, of which nothing is known.
func (s *condition) resetBackoff() { s.notBefore.Store(0) }

// claim makes the caller the one that tries a host that is due; for so long
// nobody else may.
func (s *condition) claim(now, trial time.Duration) bool {
	if healthFlags(s.flags.Load()) != unreachable {
		return false
	}
	from := s.notBefore.Load()
	return from <= int64(now) && s.notBefore.CompareAndSwap(from, int64(now+trial))
}

// failed takes note of a failed connect. It returns the pause that begins, whether
// the host was reachable before, and whether that turned it. Failures during a
// pause say nothing new: fifty exchanges that meet a dead host at once must not
// make the pause fifty steps longer.
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
	// Up to a quarter less, so that the proxies of a fleet do not knock together.
	pause -= time.Duration(random % uint64(pause/4))
	s.failures++
	s.until = now + pause
	s.notBefore.Store(int64(s.until))
	return pause, s.failures == 1, s.add(unreachable)
}

// succeeded makes the host reachable. It reports whether it was not, and whether
// that turned it.
func (s *condition) succeeded() (was, turned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was = s.failures > 0
	s.failures = 0
	return was, s.end(unreachable)
}
