package adaptiveconcurrency

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// params configure how a controller finds its limit. They are immutable.
type params struct {
	percent  float64       // percentile of the sampled times: 50 is the median
	most     int64         // the maximum limit
	window   time.Duration // interval between two updates of the limit
	interval time.Duration // interval between two measurements of minRTT, unless fixed is set
	jitter   float64       // maximum random extension of interval, as a fraction of it
	requests int64         // number of requests per measurement
	least    int64         // the minimum limit, also used during a measurement
	buffer   float64       // fraction by which the time may exceed minRTT before the limit falls
	fixed    time.Duration // the configured minRTT; 0: measure it
}

// Constants that are not configurable.
const (
	// fewest is the minimum number of samples for an update.
	fewest = 5
	// pinned is the number of consecutive slow windows at the minimum limit after which minRTT is
	// measured again.
	pinned = 5
	// patience divides interval: a measurement takes at most interval/patience.
	patience = 10
)

// next returns the limit that follows limit, and the gradient: minRTT plus the buffer, divided by
// the sampled time, between 0.5 and 2. It multiplies limit by the gradient and adds the square
// root, so that the limit probes for more capacity. The limit does not grow if used is false.
func (p *params) next(limit int64, least, sampled time.Duration, used bool) (next int64, gradient float64) {
	gradient = min(max(float64(least)*(1+p.buffer)/float64(max(sampled, 1)), 0.5), 2)
	wanted := float64(limit) * gradient
	wanted += math.Sqrt(wanted)
	next = min(max(int64(wanted), p.least), p.most)
	if !used {
		next = min(next, max(limit, p.least))
	}
	return next, gradient
}

// controller limits the number of requests in flight. It looks for the largest limit at which a
// request takes about as long as it does at the minimum limit. Times are relative to the start of
// the filter factory.
//
//	measuring   limit is the minimum; the controller samples requests that
//	            begin now, until it has enough samples or
//	            interval/patience has passed                       -> sampling
//	sampling    the limit is updated at the end of each window,
//	            from requests that began in it, until interval has
//	            passed or the limit was the minimum for several
//	            slow windows                                       -> measuring
//
// The goroutine that ends or rejects a request after the end of a window runs the update; others do
// not wait for it. It is safe for concurrent use.
type controller struct {
	params *params // set by begin

	inFlight atomic.Int64
	limit    atomic.Int64
	peak     atomic.Int64 // maximum of inFlight in this window
	samples  histogram
	wanted   atomic.Int64 // samples that the measurement still needs; 0 if none runs
	since    atomic.Int64 // ns; earlier requests ran under another limit and are not sampled
	until    atomic.Int64 // ns; end of the window or the measurement; 0: now

	minRTT   atomic.Int64  // ns; time of a request at the minimum limit; 0: not known
	gradient atomic.Uint64 // bits of a float64

	mu         sync.Mutex    // guards the fields below; held by update
	measuring  bool          // false: sampling
	resumed    int64         // limit to restore after the measurement
	due        time.Duration // time of the next measurement
	lowWindows int           // consecutive slow windows at the minimum limit
}

// begin initializes c, which must be the zero controller. The caller calls it before any other
// method.
func (c *controller) begin(p *params, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.params, c.resumed = p, p.least
	c.limit.Store(p.least)
	c.gradient.Store(math.Float64bits(1))
	if p.fixed > 0 {
		c.minRTT.Store(int64(p.fixed))
		c.until.Store(int64(now + p.window))
		return
	}
	c.measure(now)
}

// enter adds a request in flight and returns true, unless percent of the limit (at least one) are
// in flight already.
func (c *controller) enter(percent int64) bool {
	for {
		limit := c.limit.Load()
		if percent < 100 {
			limit = max(limit*percent/100, 1)
		}
		n := c.inFlight.Load()
		if n >= limit {
			return false
		}
		if !c.inFlight.CompareAndSwap(n, n+1) {
			continue
		}
		for peak := c.peak.Load(); n >= peak && !c.peak.CompareAndSwap(peak, n+1); {
			peak = c.peak.Load()
		}
		return true
	}
}

// outcome classifies a finished request as a sample.
type outcome uint8

const (
	leftOut  outcome = iota // not a sample
	answered                // a sample
	failed                  // a sample only if slow: fast failures say nothing about load
)

// leave removes a request that entered at began, samples it, and updates the limit if due.
func (c *controller) leave(began, now time.Duration, o outcome) {
	c.inFlight.Add(-1)
	if took := now - began; o == answered || o == failed && c.isSlow(took) {
		c.sample(began, took)
	}
	c.look(now)
}

// isSlow reports whether a failure that took so long is a sign of overload.
func (c *controller) isSlow(took time.Duration) bool {
	least := c.minRTT.Load()
	return c.wanted.Load() <= 0 && least > 0 && int64(took) > least
}

// sample adds a time. The last sample of a measurement makes the next look end it.
func (c *controller) sample(began, took time.Duration) {
	if int64(began) < c.since.Load() {
		return
	}
	c.samples.add(took)
	if c.wanted.Load() > 0 && c.wanted.Add(-1) == 0 {
		c.until.Store(0)
	}
}

// look calls update if the window or the measurement has ended.
func (c *controller) look(now time.Duration) {
	if int64(now) >= c.until.Load() {
		c.update(now)
	}
}

// update ends the window, or the measurement, if its time is up. If another goroutine holds mu,
// the next request that ends calls update again.
func (c *controller) update(now time.Duration) {
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	switch {
	case int64(now) < c.until.Load(): // another goroutine has just updated it
	case c.measuring:
		c.measured(now)
	default:
		c.adjust(now)
	}
}

// open begins a window. It is longer than p.window if sampled requires it, so that requests that
// run under the new limit end in it, but then lasts at most interval/patience. c.mu is held.
func (c *controller) open(now, sampled time.Duration) {
	p := c.params
	c.since.Store(int64(now))
	c.until.Store(int64(now + max(p.window, min(2*sampled, p.interval/patience))))
}

// measure begins a measurement of minRTT. c.mu is held.
func (c *controller) measure(now time.Duration) {
	p := c.params
	c.samples.drain(p.percent)
	c.limit.Store(p.least)
	c.measuring = true
	c.since.Store(int64(now))
	c.until.Store(int64(now + p.interval/patience))
	c.wanted.Store(p.requests)
	c.lowWindows = 0
}

// measured ends a measurement. Too few samples leave minRTT unchanged; if it is not known yet, the
// measurement continues. c.mu is held.
func (c *controller) measured(now time.Duration) {
	p := c.params
	count := p.requests - c.wanted.Load()
	if count < min(fewest, p.requests) {
		if c.minRTT.Load() == 0 {
			c.until.Store(int64(now + p.interval/patience))
			return
		}
		c.samples.drain(p.percent)
	} else if took, n := c.samples.drain(p.percent); n > 0 {
		c.minRTT.Store(max(int64(took), 1)) // 0 means not known
	}
	c.measuring = false
	c.wanted.Store(0)
	c.peak.Store(c.inFlight.Load())
	c.limit.Store(c.resumed)
	c.due = now + time.Duration(float64(p.interval)*(1+p.jitter*rand.Float64()))
	c.open(now, time.Duration(c.minRTT.Load()))
}

// adjust updates the limit from the samples of the window. If there are too few, the window is
// extended. c.mu is held.
func (c *controller) adjust(now time.Duration) {
	p := c.params
	limit := c.limit.Load()
	if !c.samples.atLeast(fewest) {
		c.until.Store(int64(now + p.window)) // extend the window
	} else {
		sampled, _ := c.samples.drain(p.percent)
		c.open(now, sampled)
		used := 2*c.peak.Swap(c.inFlight.Load()) >= limit
		next, gradient := p.next(limit, time.Duration(c.minRTT.Load()), sampled, used)
		c.gradient.Store(math.Float64bits(gradient))
		c.limit.Store(next)
		if c.lowWindows++; next > p.least || gradient >= 1 {
			c.lowWindows = 0
		}
		limit = next
	}
	if p.fixed == 0 && (now >= c.due || c.lowWindows >= pinned) {
		c.resumed = limit
		c.measure(now)
	}
}
