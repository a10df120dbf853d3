package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// outlierDetector ejects those hosts of a cluster that answer badly: for a while nothing is
// sent to them, unless there is no other. The hosts count (record.go); failures in a
// row are acted upon at once, rates at the end of each interval, when those return,
// too, whose time is over.
//
//	         so many in a row, or a rate              time over, at an interval's end
//	in ─────────────────────────────────────▶ ejected ────────────────────────────▶ in
//	    if max_ejection_percent allows it              or an active check passes
type outlierDetector struct {
	cluster *Cluster        // immutable
	config  *config.Outlier // immutable

	mu      sync.Mutex
	records []*outlierStats // guarded by mu; one for each host
	out     int             // guarded by mu; of them, ejected
	round   int             // guarded by mu; how often take was called
	closed  bool            // guarded by mu
	timer   *time.Timer     // guarded by mu
}

// outlierStats is how a host has answered of late. Its counters are written by whoever
// carries exchanges, without a lock.
type outlierStats struct {
	outlier *outlierDetector // immutable
	host    *Host            // immutable

	failures5xx, failuresGateway, failuresLocal atomic.Uint32 // in a row

	answers window // with SplitLocal of the host's own answers, else of everything
	locals  window // with SplitLocal of whether there was an answer

	ejections atomic.Uint64 // ever

	round int           // guarded by outlier.mu; the last in which the host was there
	out   bool          // guarded by outlier.mu; ejected
	times int           // guarded by outlier.mu; ejections in a row, one less for each interval in
	until time.Duration // guarded by outlier.mu; end of the ejection, by the set's clock
}

// detector is what found a host to be an outlier, as logs name it.
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

// detect has the outliers among hosts found as cfg says; nil: not at all. What is
// known of hosts stays if cfg does; else those that are out return. c.mu is held.
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

// begin sets the timer.
func (o *outlierDetector) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cluster.env.tasks.Add(1)
	o.timer = time.AfterFunc(o.config.Interval, o.look)
}

// close stops the timer, and everybody who is out returns.
func (o *outlierDetector) close() {
	o.mu.Lock()
	o.closed = true
	if o.timer.Stop() {
		o.cluster.env.tasks.Done()
	} // else it is look that sees it
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

// take makes hosts those that are looked at.
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
		if r.round != o.round { // it has left
			r.host.record.CompareAndSwap(r, nil)
		}
	}
	o.records = records
}

// ejection is a change to tell of when no lock is held.
type ejection struct {
	host   *Host
	by     detector      // "" if the host has returned
	pause  time.Duration // how long it is out
	turned bool
}

// look is what the timer calls at the end of each interval.
func (o *outlierDetector) look() {
	o.cluster.env.contain("judging hosts", func() { o.tell(o.turn()) })
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		o.cluster.env.tasks.Done()
		return
	}
	o.timer.Reset(o.config.Interval)
}

// turn returns what changes at the end of an interval.
func (o *outlierDetector) turn() []ejection {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.judge(o.release(nil))
}

// release brings back the hosts whose time is over. o.mu is held.
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

// ejectConsecutive is called when a host was found to be an outlier by failures in a row.
func (o *outlierDetector) ejectConsecutive(r *outlierStats, by detector, enforce int) {
	o.tell(func() []ejection {
		o.mu.Lock()
		defer o.mu.Unlock() // also after a panic of what counts
		return o.eject(nil, r, by, enforce)
	}())
}

// eject takes a host out, unless it is, too many are, or chance does not want it.
// o.mu is held.
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

// most is how many hosts may be out. o.mu is held.
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

// pause returns how long the host is out this time, without jitter: longer each
// time, up to a limit.
func (r *outlierStats) pause(cfg *config.Outlier) time.Duration {
	most := max(cfg.MaxTime, cfg.BaseTime)
	if cfg.BaseTime*time.Duration(r.times) < most {
		r.times++
	}
	return min(cfg.BaseTime*time.Duration(r.times), most)
}

// passedCheck takes note that an active check has passed.
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
