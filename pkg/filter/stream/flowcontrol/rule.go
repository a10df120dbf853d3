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
	kindThrottling              // requests continue one by one, evenly spaced
	kindConcurrency             // at most threshold requests in flight
)

// limit is a compiled Rule. It is immutable.
type limit struct {
	kind        kind
	threshold   float64
	interval    time.Duration
	maxQueueing time.Duration // maximum wait of a request; kindThrottling only
	warmUp      time.Duration // 0: the threshold is constant
	coldFactor  float64       // after a rest, the threshold is divided by cold
}

// minInterval is the minimum interval.
const minInterval = bucketCount * time.Millisecond

// rule is a limit with its state. Times are relative to a start that the caller chooses, and do not
// go back. It is safe for concurrent use.
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

// take admits a request if the limit allows it. The request must then wait for wait, which is at
// most patience.
func (r *rule) take(now, patience time.Duration) (wait time.Duration, ok bool) {
	threshold := r.limit.threshold
	if r.limit.warmUp > 0 {
		threshold = r.warmUp.threshold(&r.limit, now)
	}
	switch r.limit.kind {
	case kindQPS:
		ok = r.window.take(now, r.limit.interval, threshold)
	case kindThrottling:
		wait, ok = r.pacer.take(now, r.limit.interval, threshold, min(r.limit.maxQueueing, patience))
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

// refund undoes a take at now, because another rule rejected the request. It does not undo a turn
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
// and in the nine slots before it. Each bucket holds the number of its time slot in the upper 32
// bits and a count in the lower 32. The zero window is empty.
type window struct {
	buckets [bucketCount]atomic.Uint64
}

// bucketAt returns the bucket for now, and the number of its time slot. Numbers begin at 1.
func (w *window) bucketAt(now, interval time.Duration) (piece *atomic.Uint64, number uint32) {
	number = uint32(int64(now)/int64(interval/bucketCount)) + 1
	return &w.buckets[number%bucketCount], number
}

// take counts a request if fewer than threshold are counted. It is exact for concurrent calls in
// one time slot. A call that still counts in a slot that has just ended may exceed the threshold by
// one.
func (w *window) take(now, interval time.Duration, threshold float64) bool {
	piece, number := w.bucketAt(now, interval)
	for {
		was := piece.Load()
		count := uint32(was)
		if uint32(was>>32) != number {
			count = 0
		}
		sum := count
		for i := range w.buckets {
			if p := &w.buckets[i]; p != piece {
				if v := p.Load(); number-uint32(v>>32) < bucketCount && v>>32 != 0 {
					sum += uint32(v)
				}
			}
		}
		if float64(sum)+1 > threshold {
			return false
		}
		if piece.CompareAndSwap(was, uint64(number)<<32|uint64(count+1)) {
			return true
		}
	}
}

// refund removes one request from the bucket for now.
func (w *window) refund(now, interval time.Duration) {
	piece, number := w.bucketAt(now, interval)
	for {
		was := piece.Load()
		if uint32(was>>32) != number || uint32(was) == 0 {
			return // the bucket was reused
		}
		if piece.CompareAndSwap(was, was-1) {
			return
		}
	}
}

// pacer assigns evenly spaced turns to requests.
type pacer struct {
	last atomic.Int64 // ns; time of the last turn
}

// take assigns the next turn, unless the wait would be longer than most.
func (t *pacer) take(now, interval time.Duration, threshold float64, most time.Duration) (wait time.Duration, ok bool) {
	if threshold <= 0 {
		return 0, false
	}
	apart := math.Ceil(float64(interval) / threshold)
	if apart > math.MaxInt64/4 {
		return 0, false // the next turn is more than 70 years away
	}
	for {
		last := t.last.Load()
		next := max(last+int64(apart), int64(now))
		if wait = time.Duration(next) - now; wait > most {
			return 0, false
		}
		if t.last.CompareAndSwap(last, next) {
			return wait, true
		}
	}
}

// warmUpState lowers the threshold after a rest and raises it while requests are admitted.
//
// It is a token bucket whose level measures how cold the resource is. Each admitted request removes
// a token. Once per interval it adds as many tokens as the full threshold would admit, if the
// requests were fewer than half the cold threshold, or the level is below the low mark. At the low
// mark the threshold is the configured one, and at the full level it is that divided by cold. In
// between, the distance between two requests grows linearly with the level. Under full load, a full
// bucket reaches the low mark after warmUp. The update runs once per interval, because in a shorter
// time a window may admit no request.
type warmUpState struct {
	current    atomic.Uint64 // bits of a float64: the current threshold
	nextUpdate atomic.Int64  // ns; time of the next update
	passed     atomic.Int64  // requests admitted since the last update

	mu         sync.Mutex // guards the fields below
	lastUpdate time.Duration
	tokens     float64
}

// marks returns the bucket's low mark and its capacity.
func (l *limit) marks() (low, full float64) {
	all := l.threshold * float64(l.warmUp) / float64(l.interval) // requests that the full threshold admits in warmUp
	low = all / (l.coldFactor - 1)
	return low, low + 2*all/(1+l.coldFactor)
}

func (w *warmUpState) initialize(l *limit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, w.tokens = l.marks()
	w.setThreshold(l)
}

// setThreshold computes the threshold from the level. w.mu is held.
func (w *warmUpState) setThreshold(l *limit) {
	low, full := l.marks()
	cold := max(w.tokens-low, 0) / (full - low) // 0 to 1
	threshold := l.threshold / (1 + cold*(l.coldFactor-1))
	w.current.Store(math.Float64bits(max(threshold, min(1, l.threshold)))) // a threshold below one would admit nothing and never warm up
}

// threshold returns the current threshold.
func (w *warmUpState) threshold(l *limit, now time.Duration) float64 {
	if int64(now) >= w.nextUpdate.Load() && w.mu.TryLock() {
		w.update(l, now)
		w.mu.Unlock()
	}
	return math.Float64frombits(w.current.Load())
}

// update updates the level and the threshold. w.mu is held.
func (w *warmUpState) update(l *limit, now time.Duration) {
	if int64(now) < w.nextUpdate.Load() {
		return // another goroutine has just updated it
	}
	low, full := l.marks()
	passed := float64(w.passed.Swap(0))
	whole := l.threshold * float64(now-w.lastUpdate) / float64(l.interval) // requests that the full threshold would have admitted
	if w.tokens < low || passed < whole/l.coldFactor/2 {
		w.tokens += whole
	}
	w.tokens = min(max(w.tokens-passed, 0), full)
	w.lastUpdate = now
	w.nextUpdate.Store(int64(now + l.interval))
	w.setThreshold(l)
}
