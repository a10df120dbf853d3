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

// wheel holds the calls of a table by deadline, each in the bucket of its tick: a timing
// wheel. What has expired is found without a look at the calls that have not, but for those
// of the same bucket. The zero value is empty; its first call sets what ticks are counted
// from. Each function but expired and next takes constant time, and none allocates.
//
// The links of a bucket are ids, in the table's slots and not in the calls: neighbors came
// one after another, so their slots share cache lines, and no other call is touched.
type wheel struct {
	origin  time.Time
	seen    int64 // the first tick that may still hold calls
	size    int
	buckets [wheelSize]uint64 // ids of the first calls; 0: the bucket is empty
}

// tick returns the tick of t, which is negative before the origin.
func (w *wheel) tick(t time.Time) int64 { return int64(t.Sub(w.origin)) >> wheelShift }

// bucket returns the bucket that a slot is in.
func (w *wheel) bucket(s *slot) *uint64 {
	return &w.buckets[int64(s.deadline)>>wheelShift&(wheelSize-1)]
}

// add puts the call of an id into its bucket. Its deadline is not zero.
func (w *wheel) add(all slots, id uint64) {
	s := all.of(id)
	if w.origin.IsZero() {
		w.origin = s.call.deadline
	}
	if w.size == 0 {
		w.seen = math.MinInt64 // no bucket holds anything that could be passed over
	}
	s.deadline = s.call.deadline.Sub(w.origin)
	if int64(s.deadline)>>wheelShift < w.seen { // it has passed
		s.deadline = time.Duration(w.seen << wheelShift)
	}
	head := w.bucket(s)
	s.next, s.previous = *head, 0
	if s.next != 0 {
		all.of(s.next).previous = id
	}
	*head = id
	w.size++
}

// remove takes the call of a slot out, which is in.
func (w *wheel) remove(all slots, s *slot) {
	if s.next != 0 {
		all.of(s.next).previous = s.previous
	}
	if s.previous != 0 {
		all.of(s.previous).next = s.next
	} else {
		*w.bucket(s) = s.next
	}
	w.size--
}

// expired takes out the calls whose deadline has come.
func (w *wheel) expired(all slots, now time.Time) (late []*call) {
	if w.size == 0 {
		return nil
	}
	last, passed := w.tick(now), now.Sub(w.origin)
	for t := max(w.seen, last-wheelSize+1); t <= last; t++ {
		for id := w.buckets[t&(wheelSize-1)]; id != 0; {
			s := all.of(id)
			id = s.next
			if s.deadline <= passed {
				w.remove(all, s)
				late = append(late, s.call)
			}
		}
	}
	w.seen = max(w.seen, last)
	return late
}

// next returns when expired is to be called next; the zero time: there is nothing to
// expire. If no call expires within a turn of the wheel it is the end of that.
func (w *wheel) next(all slots, now time.Time) time.Time {
	if w.size == 0 {
		return time.Time{}
	}
	from := max(w.seen, w.tick(now))
	end := time.Duration(from+wheelSize) * wheelTick // of the turn
	first := end
	for t := from; t < from+wheelSize && first == end; t++ {
		for id := w.buckets[t&(wheelSize-1)]; id != 0; {
			s := all.of(id)
			first = min(first, s.deadline)
			id = s.next
		}
	}
	return w.origin.Add(max(first, now.Add(wheelRest).Sub(w.origin)))
}
