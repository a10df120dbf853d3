package xprotocol

import (
	"math"
	"time"
)

const (
	// wheelTick is how long the calls of one bucket expire in: about 17 ms.
	wheelShift = 24
	wheelTick  = 1 << wheelShift * time.Nanosecond
	// wheelSize is how many buckets there are: deadlines within about a second are in
	// buckets of their own, later ones share them.
	wheelSize = 64
	// wheelRest is the least time between two looks for what has expired, so that calls
	// whose deadlines lie close together expire together.
	wheelRest = time.Millisecond
)

// wheel holds calls by deadline, each in the bucket of its tick: a timing wheel. What has
// expired is found without a look at the calls that have not, but for those of the same
// bucket. The zero value is empty; its first call sets what ticks are counted from. Each
// function but expired and next takes constant time, and none allocates.
type wheel struct {
	origin  time.Time
	seen    int64 // the first tick that may still hold calls
	size    int
	buckets [wheelSize]*call
}

// tick returns the tick of t, which is negative before the origin.
func (w *wheel) tick(t time.Time) int64 { return int64(t.Sub(w.origin)) >> wheelShift }

// add puts k into its bucket. Its deadline is not zero.
func (w *wheel) add(k *call) {
	if w.origin.IsZero() {
		w.origin = k.deadline
	}
	if w.size == 0 {
		w.seen = math.MinInt64 // no bucket holds anything that could be passed over
	}
	k.tick = max(w.tick(k.deadline), w.seen)
	head := &w.buckets[k.tick&(wheelSize-1)]
	k.later = *head
	if k.later != nil {
		k.later.sooner = k
	}
	*head = k
	w.size++
}

// remove takes k out, which is in.
func (w *wheel) remove(k *call) {
	if k.later != nil {
		k.later.sooner = k.sooner
	}
	if k.sooner != nil {
		k.sooner.later = k.later
	} else {
		w.buckets[k.tick&(wheelSize-1)] = k.later
	}
	k.sooner, k.later = nil, nil
	w.size--
}

// expired takes out the calls whose deadline has come.
func (w *wheel) expired(now time.Time) (late []*call) {
	if w.size == 0 {
		return nil
	}
	last := w.tick(now)
	for t := max(w.seen, last-wheelSize+1); t <= last; t++ {
		for k := w.buckets[t&(wheelSize-1)]; k != nil; {
			next := k.later
			if !k.deadline.After(now) {
				w.remove(k)
				late = append(late, k)
			}
			k = next
		}
	}
	w.seen = max(w.seen, last)
	return late
}

// next returns when expired is to be called next; the zero time: there is nothing to
// expire. If no call expires within a turn of the wheel it is the end of that.
func (w *wheel) next(now time.Time) time.Time {
	if w.size == 0 {
		return time.Time{}
	}
	first := time.Time{}
	from := max(w.seen, w.tick(now))
	for t := from; t < from+wheelSize && first.IsZero(); t++ {
		for k := w.buckets[t&(wheelSize-1)]; k != nil; k = k.later {
			if k.tick <= t && (first.IsZero() || k.deadline.Before(first)) {
				first = k.deadline
			}
		}
	}
	if first.IsZero() {
		first = w.origin.Add(time.Duration(from+wheelSize) * wheelTick)
	}
	if soonest := now.Add(wheelRest); first.Before(soonest) {
		return soonest
	}
	return first
}
