package flowcontrol

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// kind is the algorithm of a limit.
type kind uint8

const (
	kindQPS         kind = iota // at most threshold requests per interval
	kindThrottling              // requests are admitted one at a time, evenly spaced
	kindConcurrency             // at most threshold requests in flight
)

// limit is a compiled Rule. It is immutable.
type limit struct {
	kind        kind
	threshold   float64
	interval    time.Duration
	maxQueueing time.Duration // maximum wait of a request; kindThrottling only
	warmUp      time.Duration // 0: the threshold is constant
	coldFactor  float64       // divisor of the threshold after an idle period
}

// minInterval is the minimum of limit.interval: each bucket then covers at least one millisecond.
const minInterval = bucketCount * time.Millisecond

// rule is a limit with its state. Times are durations since a start that the caller chooses. A rule
// is safe for concurrent use.
type rule struct {
	limit    limit
	window   window
	pacer    pacer
	inFlight atomic.Int64
	warmUp   warmUpState // used if limit.warmUp is not 0
}

func newRule(l limit) *rule {
	r := &rule{limit: l}
	r.pacer.last.Store(math.MinInt64 / 2)
	if l.warmUp > 0 {
		r.warmUp.initialize(&l)
	}
	return r
}

// take admits a request if the limit allows it. The caller must then delay the request by wait,
// which is at most maxWait.
func (r *rule) take(now, maxWait time.Duration) (wait time.Duration, ok bool) {
	threshold := r.limit.threshold
	if r.limit.warmUp > 0 {
		threshold = r.warmUp.threshold(&r.limit, now)
	}
	switch r.limit.kind {
	case kindQPS:
		ok = r.window.take(now, r.limit.interval, threshold)
	case kindThrottling:
		wait, ok = r.pacer.take(now, r.limit.interval, threshold, min(r.limit.maxQueueing, maxWait))
	case kindConcurrency:
		if ok = r.inFlight.Add(1) <= int64(threshold); !ok {
			r.inFlight.Add(-1)
		}
	}
	if ok && r.limit.warmUp > 0 {
		r.warmUp.passed.Add(1)
	}
	return wait, ok
}

// refund undoes a take at now, because another rule rejected the request. It does not return turns
// of kindThrottling.
func (r *rule) refund(now time.Duration) {
	switch r.limit.kind {
	case kindQPS:
		r.window.refund(now, r.limit.interval)
	case kindThrottling:
	case kindConcurrency:
		r.release()
	}
	if r.limit.warmUp > 0 {
		r.warmUp.passed.Add(-1)
	}
}

// release ends a request in flight.
func (r *rule) release() { r.inFlight.Add(-1) }

// bucketCount is the number of buckets of an interval.
const bucketCount = 10

// window counts the requests admitted in the current time slot, which is a tenth of the interval,
// and in the nine previous slots. Each bucket holds the number of its time slot in the upper 32
// bits and a count in the lower 32 bits. The zero window is empty.
type window struct {
	buckets [bucketCount]atomic.Uint64
}

// bucketAt returns the bucket for now, and the number of its time slot. Numbers begin at 1.
func (w *window) bucketAt(now, interval time.Duration) (bucket *atomic.Uint64, slot uint32) {
	slot = uint32(int64(now)/int64(interval/bucketCount)) + 1
	return &w.buckets[slot%bucketCount], slot
}

// take counts a request if the sum stays within threshold. It is exact for concurrent calls in one
// time slot. A call that counts in a slot that has just ended may exceed the threshold by one.
func (w *window) take(now, interval time.Duration, threshold float64) bool {
	bucket, slot := w.bucketAt(now, interval)
	for {
		old := bucket.Load()
		count := uint32(old)
		if uint32(old>>32) != slot {
			count = 0
		}
		sum := count
		for i := range w.buckets {
			if p := &w.buckets[i]; p != bucket {
				if v := p.Load(); slot-uint32(v>>32) < bucketCount && v>>32 != 0 {
					sum += uint32(v)
				}
			}
		}
		if float64(sum)+1 > threshold {
			return false
		}
		if bucket.CompareAndSwap(old, uint64(slot)<<32|uint64(count+1)) {
			return true
		}
	}
}

// refund removes one request from the bucket for now.
func (w *window) refund(now, interval time.Duration) {
	bucket, slot := w.bucketAt(now, interval)
	for {
		old := bucket.Load()
		if uint32(old>>32) != slot || uint32(old) == 0 {
			return // the bucket was reused, or it has no request
		}
		if bucket.CompareAndSwap(old, old-1) {
			return
		}
	}
}

// pacer assigns evenly spaced turns to requests.
type pacer struct {
	last atomic.Int64 // ns; time of the last assigned turn
}

// take assigns the next turn, unless the wait would be longer than maxWait.
func (p *pacer) take(now, interval time.Duration, threshold float64, maxWait time.Duration) (wait time.Duration, ok bool) {
	if threshold <= 0 {
		return 0, false
	}
	spacing := math.Ceil(float64(interval) / threshold)
	if spacing > math.MaxInt64/4 {
		return 0, false // the wait would exceed 70 years
	}
	for {
		last := p.last.Load()
		next := max(last+int64(spacing), int64(now))
		if wait = time.Duration(next) - now; wait > maxWait {
			return 0, false
		}
		if p.last.CompareAndSwap(last, next) {
			return wait, true
		}
	}
}

// warmUpState lowers the threshold after an idle period and raises it while requests are admitted.
//
// It is a token bucket: the more tokens it has, the colder the resource is. At or below the low
// mark, the threshold is the configured one. At the capacity, it is the cold threshold: the
// configured one divided by coldFactor. In between, the spacing of requests grows linearly with the
// tokens. Under full load, a full bucket reaches the low mark after warmUp.
//
// update runs at most once per interval, because in a shorter time a window may admit no request.
// It removes a token for each admitted request. If the tokens are below the low mark, or if fewer
// requests than half of the cold threshold were admitted, it adds as many tokens as the configured
// threshold would have admitted.
type warmUpState struct {
	current    atomic.Uint64 // bits of a float64: the current threshold
	nextUpdate atomic.Int64  // ns; time of the next update
	passed     atomic.Int64  // requests admitted since the last update

	mu         sync.Mutex // guards the fields below
	lastUpdate time.Duration
	tokens     float64
}

// warmUpMarks returns the low mark and the capacity of a warmUpState.
func (l *limit) warmUpMarks() (low, capacity float64) {
	warmUpRequests := l.threshold * float64(l.warmUp) / float64(l.interval) // requests that the configured threshold admits in warmUp
	low = warmUpRequests / (l.coldFactor - 1)
	return low, low + 2*warmUpRequests/(1+l.coldFactor)
}

func (w *warmUpState) initialize(l *limit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, w.tokens = l.warmUpMarks()
	w.setThreshold(l)
}

// setThreshold computes the threshold from the tokens. The caller holds w.mu.
func (w *warmUpState) setThreshold(l *limit) {
	low, capacity := l.warmUpMarks()
	coldness := max(w.tokens-low, 0) / (capacity - low) // 0 to 1
	threshold := l.threshold / (1 + coldness*(l.coldFactor-1))
	w.current.Store(math.Float64bits(max(threshold, min(1, l.threshold)))) // a threshold below 1 would admit nothing and never warm up
}

// threshold returns the current threshold.
func (w *warmUpState) threshold(l *limit, now time.Duration) float64 {
	if int64(now) >= w.nextUpdate.Load() && w.mu.TryLock() {
		w.update(l, now)
		w.mu.Unlock()
	}
	return math.Float64frombits(w.current.Load())
}

// update updates the tokens and the threshold. The caller holds w.mu.
func (w *warmUpState) update(l *limit, now time.Duration) {
	if int64(now) < w.nextUpdate.Load() {
		return // another goroutine has just run the update
	}
	low, capacity := l.warmUpMarks()
	passed := float64(w.passed.Swap(0))
	refill := l.threshold * float64(now-w.lastUpdate) / float64(l.interval) // requests that the configured threshold would have admitted
	if w.tokens < low || passed < refill/l.coldFactor/2 {
		w.tokens += refill
	}
	w.tokens = min(max(w.tokens-passed, 0), capacity)
	w.lastUpdate = now
	w.nextUpdate.Store(int64(now + l.interval))
	w.setThreshold(l)
}
