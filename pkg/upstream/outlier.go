package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// outlierDetector ejects hosts of a cluster that respond badly: an ejected host gets no requests
// for a while, unless there is no other. The hosts count (outlier_record.go). The detector acts on
// failures in a row immediately, and on rates at the end of each interval, when it also ends
// ejections that are over.
//
//	         so many in a row, or a rate              time over, at an interval's end
//	in ─────────────────────────────────────▶ ejected ────────────────────────────▶ in
//	    if max_ejection_percent allows it              or an active check passes
type outlierDetector struct {
	cluster *Cluster        // immutable
	config  *config.Outlier // immutable

	mu      sync.Mutex
	records []*outlierStats // guarded by mu; one for each host
	out     int             // guarded by mu; number of ejected hosts
	round   int             // guarded by mu; how often take was called
	closed  bool            // guarded by mu
	timer   *time.Timer     // guarded by mu
}

// outlierStats records the recent results of a host. The goroutines that end exchanges write its
// counters without a lock.
type outlierStats struct {
	outlier *outlierDetector // immutable
	host    *Host            // immutable

	failures5xx, failuresGateway, failuresLocal atomic.Uint32 // in a row

	answers window // with SplitLocal only responses of the host, else all attempts
	locals  window // with SplitLocal whether there was a response

	ejections atomic.Uint64 // total

	round int           // guarded by outlier.mu; the last round that included the host
	out   bool          // guarded by outlier.mu; ejected
	times int           // guarded by outlier.mu; ejections in a row, minus one for each interval without
	until time.Duration // guarded by outlier.mu; end of the ejection, by the set's clock
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

// detect starts outlier detection for hosts as cfg says; nil stops it. Statistics stay if cfg is
// unchanged; otherwise ejected hosts return. c.mu is held.
func (c *Cluster) detect(cfg *config.Outlier, hosts []*Host) {
	if o := c.outlier; o != nil {
		if cfg.Equal(o.config) {
			o.take(hosts)
			return
		}
		o.close()
	}
	c.outlier = nil
	if cfg == nil {
		return
	}
	c.outlier = &outlierDetector{cluster: c, config: cfg}
	c.outlier.take(hosts)
	c.outlier.begin()
}

// begin arms the timer.
func (o *outlierDetector) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cluster.env.tasks.Add(1)
	o.timer = time.AfterFunc(o.config.Interval, o.look)
}

// close stops the timer and ends all ejections.
func (o *outlierDetector) close() {
	o.mu.Lock()
	o.closed = true
	if o.timer.Stop() {
		o.cluster.env.tasks.Done()
	} // otherwise look does it
	var turned []*Host
	for _, r := range o.records {
		r.host.record.CompareAndSwap(r, nil)
		if r.out && r.host.health.end(ejected) {
			turned = append(turned, r.host)
		}
	}
	o.records, o.out = nil, 0
	o.mu.Unlock()
	for _, h := range turned {
		h.turned(HostUp)
	}
}

// take sets the hosts to observe.
func (o *outlierDetector) take(hosts []*Host) {
	o.mu.Lock()
	defer o.mu.Unlock()
	records := make([]*outlierStats, len(hosts))
	o.round++
	o.out = 0
	for i, h := range hosts {
		r := h.record.Load()
		if r == nil || r.outlier != o {
			r = &outlierStats{outlier: o, host: h}
			h.record.Store(r)
		}
		if r.out {
			o.out++
		}
		r.round = o.round
		records[i] = r
	}
	for _, r := range o.records {
		if r.round != o.round { // the host was removed
			r.host.record.CompareAndSwap(r, nil)
		}
	}
	o.records = records
}

// ejection is a change to report when no lock is held.
type ejection struct {
	host   *Host
	by     detector      // "" if the host has returned
	pause  time.Duration // how long it is out
	turned bool
}

// look runs on the timer at the end of each interval.
func (o *outlierDetector) look() {
	o.cluster.env.contain("evaluating outliers", func() { o.tell(o.turn()) })
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		o.cluster.env.tasks.Done()
		return
	}
	o.timer.Reset(o.config.Interval)
}

// turn returns the changes at the end of an interval.
func (o *outlierDetector) turn() []ejection {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.judge(o.release(nil))
}

// release ends the ejections that are over. o.mu is held.
func (o *outlierDetector) release(changes []ejection) []ejection {
	now := o.cluster.env.now()
	for _, r := range o.records {
		switch {
		case r.out && r.until <= now:
			changes = append(changes, o.uneject(r))
		case !r.out && r.times > 0:
			r.times--
		}
	}
	return changes
}

// uneject ends an ejection. o.mu is held.
func (o *outlierDetector) uneject(r *outlierStats) ejection {
	r.out = false
	o.out--
	r.forget()
	return ejection{host: r.host, turned: r.host.health.end(ejected)}
}

// ejectConsecutive handles a host with too many failures in a row.
func (o *outlierDetector) ejectConsecutive(r *outlierStats, by detector, enforce int) {
	o.tell(func() []ejection {
		o.mu.Lock()
		defer o.mu.Unlock() // also after a panic of a recorder
		return o.eject(nil, r, by, enforce)
	}())
}

// eject ejects a host, unless it is ejected already, too many are, or the random sample is not
// below enforce percent. o.mu is held.
func (o *outlierDetector) eject(changes []ejection, r *outlierStats, by detector, enforce int) []ejection {
	env := o.cluster.env
	if r.out || o.closed || r.host.record.Load() != r || int(env.random()%100) >= enforce { //nolint:gosec // below 100
		return changes
	}
	if o.out >= o.most() {
		o.cluster.count(EjectionOverflow)
		return changes
	}
	pause := r.pause(o.config)
	if j := o.config.Jitter; j > 0 {
		pause += time.Duration(env.random() % uint64(j+1)) //nolint:gosec // above 0
	}
	r.out, r.until = true, env.now()+pause
	r.ejections.Add(1)
	o.out++
	return append(changes, ejection{r.host, by, pause, r.host.health.add(ejected)})
}

// most returns how many hosts may be ejected. o.mu is held.
func (o *outlierDetector) most() int {
	n := len(o.records) * o.config.MaxPercent / 100
	if o.config.MaxHosts > 0 {
		n = min(n, o.config.MaxHosts)
	}
	if o.config.AlwaysOne {
		n = max(n, 1)
	}
	return n
}

// pause returns the duration of this ejection without jitter: longer each time, up to a limit.
func (r *outlierStats) pause(cfg *config.Outlier) time.Duration {
	most := max(cfg.MaxTime, cfg.BaseTime)
	if cfg.BaseTime*time.Duration(r.times) < most {
		r.times++
	}
	return min(cfg.BaseTime*time.Duration(r.times), most)
}

// passedCheck records that an active check has passed.
func (h *Host) passedCheck() {
	r := h.record.Load()
	if r == nil || !r.outlier.config.CheckReturns || !h.health.has(ejected) {
		return
	}
	o := r.outlier
	o.mu.Lock()
	var changes []ejection
	if r.out && h.record.Load() == r {
		changes = append(changes, o.uneject(r))
	}
	o.mu.Unlock()
	o.tell(changes)
}

// tell logs and counts changes. o.mu is not held.
func (o *outlierDetector) tell(changes []ejection) {
	c := o.cluster
	for _, e := range changes {
		if e.by == "" {
			c.env.Log.Info("upstream host returns from its ejection", logCluster, c.name, logHost, e.host.address)
			if e.turned {
				e.host.turned(HostUp)
			}
			continue
		}
		c.count(HostEjected)
		c.env.Log.Warn("upstream host ejected", logCluster, c.name, logHost, e.host.address, logDetector, e.by, logPause, e.pause)
		if e.turned {
			e.host.turned(HostDown)
		}
	}
}
