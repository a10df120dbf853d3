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
	percentile     float64       // percentile of the sampled times: 50 is the median
	maxLimit       int64         // the maximum limit
	updateInterval time.Duration // interval between two updates of the limit
	minRTTInterval time.Duration // interval between two measurements of minRTT, unless fixedMinRTT is set
	jitter         float64       // maximum random extension of minRTTInterval, as a fraction of it
	minRTTRequests int64         // number of requests per measurement
	minLimit       int64         // the minimum limit, also used during a measurement
	buffer         float64       // fraction by which durations may exceed minRTT before the limit falls
	fixedMinRTT    time.Duration // the configured minRTT; 0: measure it
}

// Constants that are not configurable.
const (
	// minSamples is the minimum number of samples for an update.
	minSamples = 5
	// maxLowWindows is the number of consecutive windows at the minimum limit with a gradient below
	// 1 after which minRTT is measured again.
	maxLowWindows = 5
	// measurementDivisor bounds a measurement to minRTTInterval/measurementDivisor, except the
	// first one, which finishMeasurement may extend.
	measurementDivisor = 10
)

// nextLimit returns the limit that follows limit, and the gradient: minRTT plus the buffer, divided
// by the sampled duration, between 0.5 and 2. It multiplies limit by the gradient and adds the
// square root of the product, so that the limit probes for more capacity. limitUsed says whether
// requests used at least half of limit; if not, the limit does not grow.
func (p *params) nextLimit(limit int64, minRTT, sampled time.Duration, limitUsed bool) (next int64, gradient float64) {
	gradient = min(max(float64(minRTT)*(1+p.buffer)/float64(max(sampled, 1)), 0.5), 2)
	target := float64(limit) * gradient
	target += math.Sqrt(target)
	next = min(max(int64(target), p.minLimit), p.maxLimit)
	if !limitUsed {
		next = min(next, max(limit, p.minLimit))
	}
	return next, gradient
}

// controller limits the number of requests in flight. It looks for the largest limit at which a
// request takes about as long as it does at the minimum limit. Times are relative to the start of
// the filter factory.
//
//	measuring   limit is the minimum; the controller samples requests that
//	            begin now, until it has enough samples or
//	            minRTTInterval/measurementDivisor has passed
//	            (see finishMeasurement)                            -> sampling
//	sampling    the limit is updated at the end of each window,
//	            from requests that began in it, until
//	            nextMeasurement or until the limit was the
//	            minimum for maxLowWindows slow windows             -> measuring
//
// The goroutine that ends or rejects a request after the end of a window runs the update; other
// goroutines do not wait for it. A controller is safe for concurrent use.
type controller struct {
	params *params // set by initialize

	inFlight      atomic.Int64
	limit         atomic.Int64
	peak          atomic.Int64 // maximum of inFlight in this window
	samples       histogram
	samplesNeeded atomic.Int64 // samples that the measurement still needs; at most 0 if none runs
	sampleSince   atomic.Int64 // ns; requests that began earlier ran under another limit and are not sampled
	phaseEnd      atomic.Int64 // ns; end of the window or the measurement; 0: now

	minRTT   atomic.Int64  // ns; duration of a request at the minimum limit; 0: not measured yet
	gradient atomic.Uint64 // bits of a float64

	mu              sync.Mutex    // guards the fields below; update holds it
	measuring       bool          // false: sampling
	limitToRestore  int64         // limit to restore after the measurement
	nextMeasurement time.Duration // time of the next measurement
	lowWindows      int           // consecutive windows at the minimum limit with a gradient below 1
}

// initialize initializes c, which must be the zero controller. The caller calls it before any other
// method.
func (c *controller) initialize(p *params, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.params, c.limitToRestore = p, p.minLimit
	c.limit.Store(p.minLimit)
	c.gradient.Store(math.Float64bits(1))
	if p.fixedMinRTT > 0 {
		c.minRTT.Store(int64(p.fixedMinRTT))
		c.phaseEnd.Store(int64(now + p.updateInterval))
		return
	}
	c.startMeasurement(now)
}

// acquire adds a request in flight and returns true. It returns false if the requests in flight
// have reached percent of the limit. It always admits a request if none is in flight.
func (c *controller) acquire(percent int64) bool {
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
	notSampled outcome = iota // the duration says nothing about load
	succeeded                 // a sample
	failed                    // sampled only if slow: fast failures say nothing about load
)

// release removes a request in flight that began at start, samples it, and updates the limit if
// due.
func (c *controller) release(start, now time.Duration, o outcome) {
	c.inFlight.Add(-1)
	if duration := now - start; o == succeeded || o == failed && c.isSlow(duration) {
		c.addSample(start, duration)
	}
	c.updateIfDue(now)
}

// isSlow reports whether a failure with this duration is a sign of overload. It returns false
// during a measurement.
func (c *controller) isSlow(duration time.Duration) bool {
	minRTT := c.minRTT.Load()
	return c.samplesNeeded.Load() <= 0 && minRTT > 0 && int64(duration) > minRTT
}

// addSample adds a sample, unless its request began before sampleSince. After the last sample of a
// measurement, the next call of updateIfDue ends the measurement.
func (c *controller) addSample(start, duration time.Duration) {
	if int64(start) < c.sampleSince.Load() {
		return
	}
	c.samples.add(duration)
	if c.samplesNeeded.Load() > 0 && c.samplesNeeded.Add(-1) == 0 {
		c.phaseEnd.Store(0)
	}
}

// updateIfDue calls update if the window or the measurement has ended.
func (c *controller) updateIfDue(now time.Duration) {
	if int64(now) >= c.phaseEnd.Load() {
		c.update(now)
	}
}

// update ends the window or the measurement if it is due. If another goroutine holds mu, update
// does nothing: the next request that ends or is rejected calls it again.
func (c *controller) update(now time.Duration) {
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	switch {
	case int64(now) < c.phaseEnd.Load(): // another goroutine has just run the update
	case c.measuring:
		c.finishMeasurement(now)
	default:
		c.adjustLimit(now)
	}
}

// beginWindow begins a window of updateInterval. If twice the sampled duration is longer, the
// window lasts that long, but at most minRTTInterval/measurementDivisor. Requests that begin in the
// window can then also end in it. The caller holds c.mu.
func (c *controller) beginWindow(now, sampled time.Duration) {
	p := c.params
	c.sampleSince.Store(int64(now))
	c.phaseEnd.Store(int64(now + max(p.updateInterval, min(2*sampled, p.minRTTInterval/measurementDivisor))))
}

// startMeasurement begins a measurement of minRTT. The caller holds c.mu.
func (c *controller) startMeasurement(now time.Duration) {
	p := c.params
	c.samples.drain(p.percentile)
	c.limit.Store(p.minLimit)
	c.measuring = true
	c.sampleSince.Store(int64(now))
	c.phaseEnd.Store(int64(now + p.minRTTInterval/measurementDivisor))
	c.samplesNeeded.Store(p.minRTTRequests)
	c.lowWindows = 0
}

// finishMeasurement ends a measurement. If there are too few samples, minRTT stays unchanged or, if
// it was never measured, the measurement is extended. The caller holds c.mu.
func (c *controller) finishMeasurement(now time.Duration) {
	p := c.params
	count := p.minRTTRequests - c.samplesNeeded.Load()
	if count < min(minSamples, p.minRTTRequests) {
		if c.minRTT.Load() == 0 {
			c.phaseEnd.Store(int64(now + p.minRTTInterval/measurementDivisor))
			return
		}
		c.samples.drain(p.percentile)
	} else if duration, n := c.samples.drain(p.percentile); n > 0 {
		c.minRTT.Store(max(int64(duration), 1)) // 0 means not measured
	}
	c.measuring = false
	c.samplesNeeded.Store(0)
	c.peak.Store(c.inFlight.Load())
	c.limit.Store(c.limitToRestore)
	c.nextMeasurement = now + time.Duration(float64(p.minRTTInterval)*(1+p.jitter*rand.Float64()))
	c.beginWindow(now, time.Duration(c.minRTT.Load()))
}

// adjustLimit updates the limit from the samples of the window. If there are too few, the window is
// extended. If a measurement is due, adjustLimit starts it. The caller holds c.mu.
func (c *controller) adjustLimit(now time.Duration) {
	p := c.params
	limit := c.limit.Load()
	if !c.samples.hasAtLeast(minSamples) {
		c.phaseEnd.Store(int64(now + p.updateInterval))
	} else {
		sampled, _ := c.samples.drain(p.percentile)
		c.beginWindow(now, sampled)
		limitUsed := 2*c.peak.Swap(c.inFlight.Load()) >= limit
		next, gradient := p.nextLimit(limit, time.Duration(c.minRTT.Load()), sampled, limitUsed)
		c.gradient.Store(math.Float64bits(gradient))
		c.limit.Store(next)
		if c.lowWindows++; next > p.minLimit || gradient >= 1 {
			c.lowWindows = 0
		}
		limit = next
	}
	if p.fixedMinRTT == 0 && (now >= c.nextMeasurement || c.lowWindows >= maxLowWindows) {
		c.limitToRestore = limit
		c.startMeasurement(now)
	}
}
