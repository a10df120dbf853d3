package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// outlierDetector ejects hosts of a cluster that respond badly: an ejected host gets no requests
// for a while, unless there is no other. The hosts count (outlier_stats.go). The detector acts on
// failures in a row immediately, and on rates at the end of each interval, when it also ends
// ejections that are over.
//
//	         so many in a row, or a rate              time over, at an interval's end
//	in ─────────────────────────────────────▶ ejected ────────────────────────────▶ in
//	    if max_ejection_percent allows it              or an active check passes
type outlierDetector struct {
	cluster *Cluster                 // immutable
	config  *config.OutlierDetection // immutable

	mu           sync.Mutex
	stats        []*outlierStats // guarded by mu; one for each host
	ejectedCount int             // guarded by mu; number of ejected hosts
	round        int             // guarded by mu; how often take was called
	closed       bool            // guarded by mu
	timer        *time.Timer     // guarded by mu
}

// outlierStats records the recent results of a host. The goroutines that end exchanges write its
// counters without a lock.
type outlierStats struct {
	detector *outlierDetector // immutable
	host     *Host            // immutable

	failures5xx, failuresGateway, failuresLocal atomic.Uint32 // in a row

	externalOrigin intervalCounts // with SplitLocal only responses of the host, else all attempts
	localOrigin    intervalCounts // with SplitLocal whether there was a response

	ejections atomic.Uint64 // total

	round        int           // guarded by outlier.mu; the last round that included the host
	ejected      bool          // guarded by outlier.mu; ejected
	backoffCount int           // guarded by outlier.mu; ejections in a row, minus one for each interval without
	ejectedUntil time.Duration // guarded by outlier.mu; end of the ejection, by the set's clock
}

// detector is the name of an outlier detector in logs.
type detector string

// The detectors.
const (
	by5xx                    detector = "consecutive_5xx"
	byGateway                detector = "consecutive_gateway_failure"
	byLocal                  detector = "consecutive_local_origin_failure"
	bySuccessRate            detector = "success_rate"
	byLocalSuccessRate       detector = "local_origin_success_rate"
	byFailurePercentage      detector = "failure_percentage"
	byLocalFailurePercentage detector = "local_origin_failure_percentage"
	byFailureMultiple        detector = "failure_multiple"
)

// configureOutlierDetection starts outlier detection for hosts as cfg says; nil stops it. Statistics stay if cfg is
// unchanged; otherwise ejected hosts return. c.mu is held.
func (c *Cluster) configureOutlierDetection(cfg *config.OutlierDetection, hosts []*Host) {
	if o := c.outlier; o != nil {
		if cfg.Equal(o.config) {
			o.setHosts(hosts)
			return
		}
		o.close()
	}
	c.outlier = nil
	if cfg == nil {
		return
	}
	c.outlier = &outlierDetector{cluster: c, config: cfg}
	c.outlier.setHosts(hosts)
	c.outlier.startTimer()
}

// startTimer arms the timer.
func (o *outlierDetector) startTimer() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cluster.env.tasks.Add(1)
	o.timer = time.AfterFunc(o.config.Interval, o.runInterval)
}

// close stops the timer and ends all ejections.
func (o *outlierDetector) close() {
	o.mu.Lock()
	o.closed = true
	if o.timer.Stop() {
		o.cluster.env.tasks.Done()
	} // otherwise look does it
	var turned []*Host
	for _, r := range o.stats {
		r.host.outlierStats.CompareAndSwap(r, nil)
		if r.ejected && r.host.health.clear(FlagEjected) {
			turned = append(turned, r.host)
		}
	}
	o.stats, o.ejectedCount = nil, 0
	o.mu.Unlock()
	for _, h := range turned {
		h.healthChanged(HostUp)
	}
}

// setHosts sets the hosts to observe.
func (o *outlierDetector) setHosts(hosts []*Host) {
	o.mu.Lock()
	defer o.mu.Unlock()
	records := make([]*outlierStats, len(hosts))
	o.round++
	o.ejectedCount = 0
	for i, h := range hosts {
		r := h.outlierStats.Load()
		if r == nil || r.detector != o {
			r = &outlierStats{detector: o, host: h}
			h.outlierStats.Store(r)
		}
		if r.ejected {
			o.ejectedCount++
		}
		r.round = o.round
		records[i] = r
	}
	for _, r := range o.stats {
		if r.round != o.round { // the host was removed
			r.host.outlierStats.CompareAndSwap(r, nil)
		}
	}
	o.stats = records
}

// ejection is a change to report when no lock is held.
type ejection struct {
	host          *Host
	detector      detector      // "" if the host has returned
	duration      time.Duration // how long it is out
	healthChanged bool
}

// runInterval runs on the timer at the end of each interval.
func (o *outlierDetector) runInterval() {
	o.cluster.env.runRecovered("evaluating outliers", func() { o.reportChanges(o.endInterval()) })
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		o.cluster.env.tasks.Done()
		return
	}
	o.timer.Reset(o.config.Interval)
}

// endInterval returns the changes at the end of an interval.
func (o *outlierDetector) endInterval() []ejection {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ejectByRates(o.unejectExpired(nil))
}

// unejectExpired ends the ejections that are over. o.mu is held.
func (o *outlierDetector) unejectExpired(changes []ejection) []ejection {
	now := o.cluster.env.now()
	for _, r := range o.stats {
		switch {
		case r.ejected && r.ejectedUntil <= now:
			changes = append(changes, o.uneject(r))
		case !r.ejected && r.backoffCount > 0:
			r.backoffCount--
		}
	}
	return changes
}

// uneject ends an ejection. o.mu is held.
func (o *outlierDetector) uneject(r *outlierStats) ejection {
	r.ejected = false
	o.ejectedCount--
	r.reset()
	return ejection{host: r.host, healthChanged: r.host.health.clear(FlagEjected)}
}

// ejectConsecutive handles a host with too many failures in a row.
func (o *outlierDetector) ejectConsecutive(r *outlierStats, by detector, enforce int) {
	o.reportChanges(func() []ejection {
		o.mu.Lock()
		defer o.mu.Unlock() // also after a panic of a recorder
		return o.eject(nil, r, by, enforce)
	}())
}

// eject ejects a host, unless it is ejected already, too many are, or the random sample is not
// below enforce percent. o.mu is held.
func (o *outlierDetector) eject(changes []ejection, r *outlierStats, by detector, enforce int) []ejection {
	env := o.cluster.env
	if r.ejected || o.closed || r.host.outlierStats.Load() != r || int(env.random()%100) >= enforce { //nolint:gosec // below 100
		return changes
	}
	if o.ejectedCount >= o.maxEjections() {
		o.cluster.count(EjectionOverflow)
		return changes
	}
	pause := r.nextEjectionTime(o.config)
	if j := o.config.MaxEjectionTimeJitter; j > 0 {
		pause += time.Duration(env.random() % uint64(j+1)) //nolint:gosec // above 0
	}
	r.ejected, r.ejectedUntil = true, env.now()+pause
	r.ejections.Add(1)
	o.ejectedCount++
	return append(changes, ejection{r.host, by, pause, r.host.health.set(FlagEjected)})
}

// maxEjections returns how many hosts may be ejected. o.mu is held.
func (o *outlierDetector) maxEjections() int {
	n := len(o.stats) * o.config.MaxEjectionPercent / 100
	if o.config.MaxEjectedHosts > 0 {
		n = min(n, o.config.MaxEjectedHosts)
	}
	if o.config.AlwaysEjectOne {
		n = max(n, 1)
	}
	return n
}

// nextEjectionTime returns the duration of this ejection without jitter: longer each time, up to a limit.
func (r *outlierStats) nextEjectionTime(cfg *config.OutlierDetection) time.Duration {
	most := max(cfg.MaxEjectionTime, cfg.BaseEjectionTime)
	if cfg.BaseEjectionTime*time.Duration(r.backoffCount) < most {
		r.backoffCount++
	}
	return min(cfg.BaseEjectionTime*time.Duration(r.backoffCount), most)
}

// recordCheckPassed records that an active check has passed.
func (h *Host) recordCheckPassed() {
	r := h.outlierStats.Load()
	if r == nil || !r.detector.config.UnejectOnHealthCheck || !h.health.has(FlagEjected) {
		return
	}
	o := r.detector
	o.mu.Lock()
	var changes []ejection
	if r.ejected && h.outlierStats.Load() == r {
		changes = append(changes, o.uneject(r))
	}
	o.mu.Unlock()
	o.reportChanges(changes)
}

// reportChanges logs and counts changes. o.mu is not held.
func (o *outlierDetector) reportChanges(changes []ejection) {
	c := o.cluster
	for _, e := range changes {
		if e.detector == "" {
			c.env.Log.Info("upstream host returns from its ejection", logCluster, c.name, logHost, e.host.address)
			if e.healthChanged {
				e.host.healthChanged(HostUp)
			}
			continue
		}
		c.count(HostEjected)
		c.env.Log.Warn("upstream host ejected", logCluster, c.name, logHost, e.host.address, logDetector, e.detector, logPause, e.duration)
		if e.healthChanged {
			e.host.healthChanged(HostDown)
		}
	}
}
