package flowcontrol

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// kind is how a limit is kept.
type kind uint8

const (
	kindQPS         kind = iota // so many in an interval
	kindThrottling              // one after the other
	kindConcurrency             // so many under way
)

// limit is a compiled Rule. It is immutable.
type limit struct {
	kind      kind
	threshold float64
	interval  time.Duration
	queueing  time.Duration // of kindThrottling: how long one may wait
	warmUp    time.Duration // 0: the threshold is as it is
	cold      float64       // which part of the threshold it is after a rest: one of so many
}

// shortest is the shortest interval.
const shortest = pieces * time.Millisecond

// rule is a limit with what it has let through. Times are those since some start, and
// do not go back. Safe for concurrent use.
type rule struct {
	limit  limit
	window window
	turns  pacer
	under  atomic.Int64
	warmth warmUpState // if limit.warmUp is not 0
}

func newRule(l limit) *rule {
	r := &rule{limit: l}
	r.turns.last.Store(math.MinInt64 / 2)
	if l.warmUp > 0 {
		r.warmth.begin(&l)
	}
	return r
}

// take counts a request more, if there is room for it; it is to go on after wait, which
// is patience at most.
func (r *rule) take(now, patience time.Duration) (wait time.Duration, ok bool) {
	threshold := r.limit.threshold
	if r.limit.warmUp > 0 {
		threshold = r.warmth.threshold(&r.limit, now)
	}
	switch r.limit.kind {
	case kindQPS:
		ok = r.window.take(now, r.limit.interval, threshold)
	case kindThrottling:
		wait, ok = r.turns.take(now, r.limit.interval, threshold, min(r.limit.queueing, patience))
	case kindConcurrency:
		if ok = r.under.Add(1) <= int64(threshold); !ok {
			r.under.Add(-1)
		}
	}
	if ok && r.limit.warmUp > 0 {
		r.warmth.passed.Add(1)
	}
	return wait, ok
}

// giveBack takes back a take at that time: another rule refused the request. A turn is
// lost.
func (r *rule) giveBack(now time.Duration) {
	switch r.limit.kind {
	case kindQPS:
		r.window.giveBack(now, r.limit.interval)
	case kindThrottling:
	case kindConcurrency:
		r.leave()
	}
	if r.limit.warmUp > 0 {
		r.warmth.passed.Add(-1)
	}
}

// leave counts a request less that is under way.
func (r *rule) leave() { r.under.Add(-1) }

// pieces is what an interval is divided into, to be forgotten one after the other.
const pieces = 10

// window counts what was let through in the last interval. Each of its pieces is a
// number of the piece of time that it counts for, in the upper half, and a count. The
// zero window has let nothing through.
type window struct {
	pieces [pieces]atomic.Uint64
}

// at returns where what happens now is counted, and as which piece of time: from 1.
func (w *window) at(now, interval time.Duration) (piece *atomic.Uint64, number uint32) {
	number = uint32(int64(now)/int64(interval/pieces)) + 1
	return &w.pieces[number%pieces], number
}

// take counts one more if there are not as many as the threshold. What is counted at the
// same time is exact; who counts in a piece of time that has just ended may be one too
// many.
func (w *window) take(now, interval time.Duration, threshold float64) bool {
	piece, number := w.at(now, interval)
	for {
		was := piece.Load()
		count := uint32(was)
		if uint32(was>>32) != number {
			count = 0
		}
		sum := count
		for i := range w.pieces {
			if p := &w.pieces[i]; p != piece {
				if v := p.Load(); number-uint32(v>>32) < pieces && v>>32 != 0 {
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

// giveBack counts one less of those that were counted at the time.
func (w *window) giveBack(now, interval time.Duration) {
	piece, number := w.at(now, interval)
	for {
		was := piece.Load()
		if uint32(was>>32) != number || uint32(was) == 0 {
			return // it is forgotten already
		}
		if piece.CompareAndSwap(was, was-1) {
			return
		}
	}
}

// pacer are the times at which requests go on, one after the other.
type pacer struct {
	last atomic.Int64 // ns
}

// take takes the next turn, unless it would have to be waited for longer than most.
func (t *pacer) take(now, interval time.Duration, threshold float64, most time.Duration) (wait time.Duration, ok bool) {
	if threshold <= 0 {
		return 0, false
	}
	apart := math.Ceil(float64(interval) / threshold)
	if apart > math.MaxInt64/4 {
		return 0, false // the next turn is centuries away
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

// warmUpState makes a threshold less after a rest, and lets it grow while it is used.
//
// It is a store of coldness. What is let through takes from the store, one each; if it
// comes slower than half the cold threshold, or the store is below its low mark, so many
// are put back as the threshold would let through. The threshold is all that it can be
// while the store is at its low mark, and one of cold parts when it is full; the time
// from one request to the next grows evenly in between. So used as much as it may be, a
// full store is at its low mark after warmUp. It is looked at once in an interval: in a
// part of one a window lets nothing through.
type warmUpState struct {
	now    atomic.Uint64 // bits of a float64: the threshold
	next   atomic.Int64  // ns; when it is to be made anew
	passed atomic.Int64  // since it was made

	mu    sync.Mutex // below is guarded by it
	at    time.Duration
	store float64
}

// marks returns the store's low mark and its size.
func (l *limit) marks() (low, full float64) {
	all := l.threshold * float64(l.warmUp) / float64(l.interval) // let through in warmUp
	low = all / (l.cold - 1)
	return low, low + 2*all/(1+l.cold)
}

func (w *warmUpState) begin(l *limit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, w.store = l.marks()
	w.set(l)
}

// set makes the threshold of the store. w.mu is held.
func (w *warmUpState) set(l *limit) {
	low, full := l.marks()
	cold := max(w.store-low, 0) / (full - low) // 0 to 1
	threshold := l.threshold / (1 + cold*(l.cold-1))
	w.now.Store(math.Float64bits(max(threshold, min(1, l.threshold)))) // with less than one it would never warm up
}

// threshold returns what the threshold is now.
func (w *warmUpState) threshold(l *limit, now time.Duration) float64 {
	if int64(now) >= w.next.Load() && w.mu.TryLock() {
		w.turn(l, now)
		w.mu.Unlock()
	}
	return math.Float64frombits(w.now.Load())
}

// turn makes the threshold anew. w.mu is held.
func (w *warmUpState) turn(l *limit, now time.Duration) {
	if int64(now) < w.next.Load() {
		return // somebody else has just done it
	}
	low, full := l.marks()
	passed := float64(w.passed.Swap(0))
	whole := l.threshold * float64(now-w.at) / float64(l.interval) // what all of the threshold would have let through
	if w.store < low || passed < whole/l.cold/2 {
		w.store += whole
	}
	w.store = min(max(w.store-passed, 0), full)
	w.at = now
	w.next.Store(int64(now + l.interval))
	w.set(l)
}
