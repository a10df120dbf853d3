// Package outlier decides which hosts of a cluster to eject because they respond badly
// (outlier_detection):
//
//	end of an attempt or exchange ─▶ Stats       counts, without a lock          stats.go
//	  too many failures in a row  ─▶ Detector    ejects immediately              detector.go
//	end of an interval            ─▶ Detector    ends ejections, compares rates  rates.go
//	                                   └─▶ Config.OnChange
//
// The package has no timer, log or network: the owner of a Detector passes the clock and the random
// numbers, calls EndInterval, and applies the changes.
package outlier

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// Host is a host that a Detector observes. Its methods are called with the lock of the Detector
// held: they must not wait, and must not call the Detector.
type Host interface {
	// Stats returns the location of the statistics of the host. Only the Detector writes there. Nil
	// means that the host is not observed.
	Stats() *atomic.Pointer[Stats]
	// SetEjected begins or ends an ejection. It reports whether the host became unusable or usable
	// by that.
	SetEjected(ejected bool) (changed bool)
}

// Config holds the dependencies of a Detector. Immutable. All fields are required, and all
// functions are safe for concurrent use.
type Config struct {
	*config.OutlierDetection

	Now    func() time.Duration // a monotonic clock
	Random func() uint64        // 64 random bits
	// OnChange is called after a host was ejected or has returned. No lock is held.
	OnChange func(Change)
	// OnOverflow is called when a host is not ejected because too many are. The lock of the
	// Detector is held.
	OnOverflow func()
}

// Change is an ejection or its end.
type Change struct {
	Host          Host
	Reason        Reason        // "" if the host has returned
	Duration      time.Duration // how long the host is ejected, by Config.Now
	HealthChanged bool          // what Host.SetEjected returned
}

// Reason is why a host was ejected: the name of a detector in logs.
type Reason string

// The detectors.
const (
	by5xx                    Reason = "consecutive_5xx"
	byGateway                Reason = "consecutive_gateway_failure"
	byLocal                  Reason = "consecutive_local_origin_failure"
	bySuccessRate            Reason = "success_rate"
	byLocalSuccessRate       Reason = "local_origin_success_rate"
	byFailurePercentage      Reason = "failure_percentage"
	byLocalFailurePercentage Reason = "local_origin_failure_percentage"
	byFailureMultiple        Reason = "failure_multiple"
)

// Detector ejects hosts of a cluster that respond badly: an ejected host gets no requests for a
// while, unless there is no other. It acts on failures in a row immediately, and on rates at the
// end of each interval, when it also ends ejections that are over. Safe for concurrent use.
//
//	         failures in a row, or a rate             time over, at an interval's end
//	in ─────────────────────────────────────▶ ejected ────────────────────────────▶ in
//	    if max_ejection_percent allows it              or an active check passes
type Detector struct {
	config Config // immutable

	mu           sync.Mutex
	stats        []*Stats // guarded by mu; one for each host
	ejectedCount int      // guarded by mu; number of ejected hosts
	round        int      // guarded by mu; how often SetHosts was called
	closed       bool     // guarded by mu
}

// New returns a Detector without hosts. Its owner calls SetHosts, EndInterval at the end of each
// c.Interval, and Close.
func New(c Config) *Detector { return &Detector{config: c} }

// Configuration returns the configuration that New was called with.
func (d *Detector) Configuration() *config.OutlierDetection { return d.config.OutlierDetection }

// Close ends all ejections and returns the hosts that became usable by that. Later results of hosts
// have no effect.
func (d *Detector) Close() (usable []Host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, s := range d.stats {
		s.host.Stats().CompareAndSwap(s, nil)
		if s.ejected && s.host.SetEjected(false) {
			usable = append(usable, s.host)
		}
	}
	d.stats, d.ejectedCount = nil, 0
	return usable
}

// SetHosts sets the hosts to observe. Hosts that were observed before keep their statistics and
// ejections.
func (d *Detector) SetHosts(hosts []Host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]*Stats, len(hosts))
	d.round++
	d.ejectedCount = 0
	for i, h := range hosts {
		s := h.Stats().Load()
		if s == nil || s.detector != d {
			s = &Stats{detector: d, host: h}
			h.Stats().Store(s)
		}
		if s.ejected {
			d.ejectedCount++
		}
		s.round = d.round
		list[i] = s
	}
	for _, s := range d.stats {
		if s.round != d.round { // the host was removed
			s.host.Stats().CompareAndSwap(s, nil)
		}
	}
	d.stats = list
}

// EndInterval ends ejections that are over and ejects hosts by their rates.
func (d *Detector) EndInterval() { d.report(d.endInterval()) }

func (d *Detector) endInterval() []Change {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ejectByRates(d.unejectExpired(nil))
}

// unejectExpired ends the ejections that are over. d.mu is held.
func (d *Detector) unejectExpired(changes []Change) []Change {
	now := d.config.Now()
	for _, s := range d.stats {
		switch {
		case s.ejected && s.ejectedUntil <= now:
			changes = append(changes, d.uneject(s))
		case !s.ejected && s.backoffCount > 0:
			s.backoffCount--
		}
	}
	return changes
}

// uneject ends an ejection. d.mu is held.
func (d *Detector) uneject(s *Stats) Change {
	s.ejected = false
	d.ejectedCount--
	s.reset()
	return Change{Host: s.host, HealthChanged: s.host.SetEjected(false)}
}

// ejectConsecutive handles a host with too many failures in a row.
func (d *Detector) ejectConsecutive(s *Stats, by Reason, enforce int) {
	d.report(func() []Change {
		d.mu.Lock()
		defer d.mu.Unlock() // also after a panic of OnOverflow
		return d.eject(nil, s, by, enforce)
	}())
}

// eject ejects a host, unless it is ejected already, too many are, or the random sample is not
// below enforce percent. d.mu is held.
func (d *Detector) eject(changes []Change, s *Stats, by Reason, enforce int) []Change {
	if s.ejected || d.closed || s.host.Stats().Load() != s || int(d.config.Random()%100) >= enforce { //nolint:gosec // below 100
		return changes
	}
	if d.ejectedCount >= d.maxEjections() {
		d.config.OnOverflow()
		return changes
	}
	pause := s.nextEjectionTime(d.config.OutlierDetection)
	if j := d.config.MaxEjectionTimeJitter; j > 0 {
		pause += time.Duration(d.config.Random() % uint64(j+1)) //nolint:gosec // above 0
	}
	s.ejected, s.ejectedUntil = true, d.config.Now()+pause
	s.ejections.Add(1)
	d.ejectedCount++
	return append(changes, Change{s.host, by, pause, s.host.SetEjected(true)})
}

// maxEjections returns how many hosts may be ejected. d.mu is held.
func (d *Detector) maxEjections() int {
	n := len(d.stats) * d.config.MaxEjectionPercent / 100
	if d.config.MaxEjectedHosts > 0 {
		n = min(n, d.config.MaxEjectedHosts)
	}
	if d.config.AlwaysEjectOne {
		n = max(n, 1)
	}
	return n
}

// nextEjectionTime returns the duration of this ejection without jitter: longer each time, up to a
// limit.
func (s *Stats) nextEjectionTime(cfg *config.OutlierDetection) time.Duration {
	most := max(cfg.MaxEjectionTime, cfg.BaseEjectionTime)
	if cfg.BaseEjectionTime*time.Duration(s.backoffCount) < most {
		s.backoffCount++
	}
	return min(cfg.BaseEjectionTime*time.Duration(s.backoffCount), most)
}

// CheckPassed records that an active check of the host has passed, which ends its ejection if the
// configuration says so.
func (s *Stats) CheckPassed() {
	d := s.detector
	if !d.config.UnejectOnHealthCheck {
		return
	}
	d.mu.Lock()
	var changes []Change
	if s.ejected && s.host.Stats().Load() == s {
		changes = append(changes, d.uneject(s))
	}
	d.mu.Unlock()
	d.report(changes)
}

// report reports changes. d.mu is not held.
func (d *Detector) report(changes []Change) {
	for _, c := range changes {
		d.config.OnChange(c)
	}
}
