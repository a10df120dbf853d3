// Package outlier decides which hosts of a cluster to eject because they fail too often
// (outlier_detection):
//
//	end of an attempt or exchange ─▶ Stats       counts, without a lock          stats.go
//	  too many failures in a row  ─▶ Detector    ejects immediately              detector.go
//	end of an interval            ─▶ Detector    ends ejections, compares rates  rates.go
//	                                   └─▶ Config.OnChange
//
// The package has no timer, log or network: the owner of a Detector passes the clock and the random
// numbers, calls EndInterval, and logs the changes.
package outlier

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// Host is a host that a Detector observes. The Detector holds its lock while it calls the methods:
// they must not wait, and must not call the Detector.
type Host interface {
	// Stats returns the pointer to the statistics of the host, which only the Detector stores. It
	// holds nil while the host is not observed.
	Stats() *atomic.Pointer[Stats]
	// SetEjected begins or ends an ejection. It reports whether that made the host unusable or
	// usable.
	SetEjected(ejected bool) (changed bool)
}

// Config holds the dependencies of a Detector. Immutable. All fields are required, and all
// functions are safe for concurrent use.
type Config struct {
	*config.OutlierDetection

	Now    func() time.Duration // a monotonic clock
	Random func() uint64        // 64 random bits
	// OnChange is called after a host was ejected or has returned. The Detector holds no lock then.
	OnChange func(Change)
	// OnOverflow is called when a host is not ejected because the maximum number of ejected hosts
	// is reached. The Detector holds its lock.
	OnOverflow func()
}

// Change is an ejection or its end.
type Change struct {
	Host          Host
	Reason        Reason        // "" if the host has returned
	Duration      time.Duration // how long the host is ejected, on the clock of Config.Now
	HealthChanged bool          // result of Host.SetEjected
}

// Reason says why a host was ejected: it is the name of a detector in logs.
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

// Detector ejects hosts of a cluster that fail too often: an ejected host gets no requests for a
// while, except in panic. It acts on failures in a row immediately, and on rates at the end of each
// interval, when it also ends expired ejections. Safe for concurrent use.
//
//	         failures in a row, or a rate             expired, at an interval's end
//	in ─────────────────────────────────────▶ ejected ────────────────────────────▶ in
//	    if max_ejection_percent allows it              or an active check passes
type Detector struct {
	config Config // immutable

	mu           sync.Mutex
	stats        []*Stats // guarded by mu; one for each host
	ejectedCount int      // guarded by mu; number of ejected hosts
	hostsVersion int      // guarded by mu; number of calls of SetHosts
	closed       bool     // guarded by mu
}

// New returns a Detector without hosts. The caller calls SetHosts, then EndInterval at the end of
// each c.Interval, and finally Close.
func New(c Config) *Detector { return &Detector{config: c} }

// Configuration returns the configuration that New was called with.
func (d *Detector) Configuration() *config.OutlierDetection { return d.config.OutlierDetection }

// Close ends all ejections and returns the hosts that this made usable. Later results of hosts have
// no effect.
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
	stats := make([]*Stats, len(hosts))
	d.hostsVersion++
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
		s.hostsVersion = d.hostsVersion
		stats[i] = s
	}
	for _, s := range d.stats {
		if s.hostsVersion != d.hostsVersion { // the host was removed
			s.host.Stats().CompareAndSwap(s, nil)
		}
	}
	d.stats = stats
}

// EndInterval ends expired ejections and ejects hosts by their rates.
func (d *Detector) EndInterval() { d.report(d.endInterval()) }

func (d *Detector) endInterval() []Change {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ejectByRates(d.unejectExpired(nil))
}

// unejectExpired ends the expired ejections, and decrements backoffCount of the hosts that were not
// ejected. The caller holds d.mu.
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

// uneject ends an ejection. The caller holds d.mu.
func (d *Detector) uneject(s *Stats) Change {
	s.ejected = false
	d.ejectedCount--
	s.reset()
	return Change{Host: s.host, HealthChanged: s.host.SetEjected(false)}
}

// ejectConsecutive ejects a host that had too many failures in a row. The caller does not hold
// d.mu.
func (d *Detector) ejectConsecutive(s *Stats, reason Reason, enforce int) {
	d.report(func() []Change {
		d.mu.Lock()
		defer d.mu.Unlock() // also after a panic of OnOverflow
		return d.eject(nil, s, reason, enforce)
	}())
}

// eject ejects the host of s with a probability of enforce percent. It ejects neither a host that
// is ejected already or no longer observed, nor more hosts than maxEjections. The caller holds
// d.mu.
func (d *Detector) eject(changes []Change, s *Stats, reason Reason, enforce int) []Change {
	if s.ejected || d.closed || s.host.Stats().Load() != s || int(d.config.Random()%100) >= enforce { //nolint:gosec // below 100
		return changes
	}
	if d.ejectedCount >= d.maxEjections() {
		d.config.OnOverflow()
		return changes
	}
	duration := s.nextEjectionTime(d.config.OutlierDetection)
	if jitter := d.config.MaxEjectionTimeJitter; jitter > 0 {
		duration += time.Duration(d.config.Random() % uint64(jitter+1)) //nolint:gosec // above 0
	}
	s.ejected, s.ejectedUntil = true, d.config.Now()+duration
	s.ejections.Add(1)
	d.ejectedCount++
	return append(changes, Change{s.host, reason, duration, s.host.SetEjected(true)})
}

// maxEjections returns the maximum number of ejected hosts. The caller holds d.mu.
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

// nextEjectionTime returns the duration of the next ejection without jitter, and increments
// backoffCount until the duration reaches its limit.
func (s *Stats) nextEjectionTime(cfg *config.OutlierDetection) time.Duration {
	limit := max(cfg.MaxEjectionTime, cfg.BaseEjectionTime)
	if cfg.BaseEjectionTime*time.Duration(s.backoffCount) < limit {
		s.backoffCount++
	}
	return min(cfg.BaseEjectionTime*time.Duration(s.backoffCount), limit)
}

// RecordCheckPassed records that an active check of the host has passed. It ends the ejection of
// the host if UnejectOnHealthCheck is set.
func (s *Stats) RecordCheckPassed() {
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

// report calls OnChange with each change. The caller does not hold d.mu.
func (d *Detector) report(changes []Change) {
	for _, c := range changes {
		d.config.OnChange(c)
	}
}
