package adaptiveconcurrency

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// params say how a controller finds its limit. They are immutable.
type params struct {
	percent  float64       // which of the sampled times counts: 50 is the median
	most     int64         // the largest limit
	window   time.Duration // from one limit to the next
	interval time.Duration // from one measuring of the least time to the next; 0: never, fixed says it
	jitter   float64       // by how much of itself interval is longer, at most
	requests int64         // that a measuring takes
	least    int64         // the smallest limit, and that of a measuring
	buffer   float64       // by how much of itself the time may grow before the limit falls
	fixed    time.Duration // the least time; 0: it is measured
}

// What is not for users to say.
const (
	// fewest is how many samples say something.
	fewest = 5
	// pinned is for how many windows the limit is the smallest until it is asked
	// whether requests take longer now even when there are few.
	pinned = 5
	// patience is the share of interval that a measuring may take.
	patience = 10
)

// next returns the limit that follows one, and what it was multiplied with: how long
// requests took when there were few, by how long they take now, and a buffer. Beside
// that the limit grows by its root, so that it finds out whether there is more room;
// only what is used is a reason to grow.
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

// controller limits how many requests are under way at once: to as many as can be
// served in about the time that few take. Times are those since the filter was made.
//
//	measuring   limit is the smallest; requests that begin now are sampled
//	            until so many have ended or patience is over      -> sampling
//	sampling    at the end of each window the limit is made anew,
//	            from requests that began in it,
//	            until interval is over, or the limit has been the
//	            smallest for some windows                          -> measuring
//
// Whoever ends a request when a window is over turns it; nobody waits for that. Safe
// for concurrent use.
type controller struct {
	params *params // set by begin

	inFlight atomic.Int64
	limit    atomic.Int64
	peak     atomic.Int64 // of inFlight in this window
	samples  histogram
	wanted   atomic.Int64 // samples until the measuring is over; 0 when there is none
	since    atomic.Int64 // ns; requests that began before met another limit, and are no samples
	until    atomic.Int64 // ns; when the window, or the measuring, is over; 0: now

	minRTT   atomic.Int64  // ns; what requests take when there are few; 0: not known
	gradient atomic.Uint64 // bits of a float64

	mu         sync.Mutex    // of turn; below is guarded by it
	measuring  bool          // or sampling
	resumed    int64         // the limit after the measuring
	due        time.Duration // when to measure next
	lowWindows int           // windows in a row with the smallest limit, and too slow for it
}

// begin makes c, the zero controller, ready. It is called before anything else.
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

// enter counts a request more if there is room for it: percent of the limit, or one.
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

// outcome is what the time that a request took says.
type outcome uint8

const (
	leftOut  outcome = iota // nothing
	answered                // how fast requests are served
	failed                  // the same, if it is long: what fails is done with soon
)

// leave counts a request less that was entered at began.
func (c *controller) leave(began, now time.Duration, o outcome) {
	c.inFlight.Add(-1)
	if took := now - began; o == answered || o == failed && c.isSlow(took) {
		c.sample(began, took)
	}
	c.look(now)
}

// isSlow reports whether a failure that took so long says that too much is asked.
func (c *controller) isSlow(took time.Duration) bool {
	least := c.minRTT.Load()
	return c.wanted.Load() <= 0 && least > 0 && int64(took) > least
}

// sample takes a time. The last that a measuring wants ends it: it is to be looked at.
func (c *controller) sample(began, took time.Duration) {
	if int64(began) < c.since.Load() {
		return
	}
	c.samples.add(took)
	if c.wanted.Load() > 0 && c.wanted.Add(-1) == 0 {
		c.until.Store(0)
	}
}

// look turns the window if it is over.
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
	case int64(now) < c.until.Load(): // somebody else has just done it
	case c.measuring:
		c.measured(now)
	default:
		c.adjust(now)
	}
}

// open begins a window. Requests that take long need a long one: those that meet its
// limit end in it. But a service that hangs is not left alone for that. c.mu is held.
func (c *controller) open(now, sampled time.Duration) {
	p := c.params
	c.since.Store(int64(now))
	c.until.Store(int64(now + max(p.window, min(2*sampled, p.interval/patience))))
}

// measure begins to find out what requests take when there are few. c.mu is held.
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

// measured ends it. Too few samples change nothing; if nothing is known yet, it goes on.
// c.mu is held.
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
		c.minRTT.Store(max(int64(took), 1)) // 0 would mean that it is not known
	}
	c.measuring = false
	c.wanted.Store(0)
	c.peak.Store(c.inFlight.Load())
	c.limit.Store(c.resumed)
	c.due = now + time.Duration(float64(p.interval)*(1+p.jitter*rand.Float64()))
	c.open(now, time.Duration(c.minRTT.Load()))
}

// adjust makes the limit anew, from the samples of the window. If they are too few, the
// window goes on. c.mu is held.
func (c *controller) adjust(now time.Duration) {
	p := c.params
	limit := c.limit.Load()
	if !c.samples.atLeast(fewest) {
		c.until.Store(int64(now + p.window)) // it goes on
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
