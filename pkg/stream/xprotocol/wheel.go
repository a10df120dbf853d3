package xprotocol

import (
	"math"
	"time"
)

const (
	// wheelTick is the time span of one bucket: 2^wheelShift ns, about 17 ms.
	wheelShift = 24
	wheelTick  = 1 << wheelShift * time.Nanosecond
	// wheelSize is the number of buckets. Deadlines within about a second have a bucket per tick;
	// later ones share them.
	wheelSize = 64
	// minExpireInterval is the minimum time until the result of nextExpiry, so that calls
	// with similar deadlines expire together.
	minExpireInterval = time.Millisecond
)

// wheel is a timing wheel: it holds the calls of a table in buckets, one per tick of their
// deadlines. removeExpired visits only the buckets that are due, not every call. The zero value is
// empty; the deadline of the first added call becomes the origin of the ticks. Every method except
// removeExpired and nextExpiry takes constant time; add and remove do not allocate.
//
// A bucket is a list of ids, linked through the slots of the table and not through the calls.
// Neighbors in a list were usually added one after another, so their slots share cache lines.
type wheel struct {
	origin   time.Time
	nextTick int64 // the first tick that may still hold calls
	size     int
	buckets  [wheelSize]uint64 // ids of the first calls; 0: the bucket is empty
}

// tick returns the tick of t, which is negative before the origin.
func (w *wheel) tick(t time.Time) int64 { return int64(t.Sub(w.origin)) >> wheelShift }

// bucket returns the bucket that a slot is in.
func (w *wheel) bucket(s *slot) *uint64 {
	return &w.buckets[int64(s.deadline)>>wheelShift&(wheelSize-1)]
}

// add puts the call of an id, which has a deadline, into its bucket.
func (w *wheel) add(table slots, id uint64) {
	s := table.lookup(id)
	if w.origin.IsZero() {
		w.origin = s.call.deadline
	}
	if w.size == 0 {
		w.nextTick = math.MinInt64 // every bucket is empty, so the call may have any tick
	}
	s.deadline = s.call.deadline.Sub(w.origin)
	if int64(s.deadline)>>wheelShift < w.nextTick { // removeExpired will not visit the tick of the deadline again
		s.deadline = time.Duration(w.nextTick << wheelShift)
	}
	first := w.bucket(s)
	s.next, s.previous = *first, 0
	if s.next != 0 {
		table.lookup(s.next).previous = id
	}
	*first = id
	w.size++
}

// remove removes the call of a slot, which must be in the wheel.
func (w *wheel) remove(table slots, s *slot) {
	if s.next != 0 {
		table.lookup(s.next).previous = s.previous
	}
	if s.previous != 0 {
		table.lookup(s.previous).next = s.next
	} else {
		*w.bucket(s) = s.next
	}
	w.size--
}

// removeExpired removes and returns the calls whose deadline has passed.
func (w *wheel) removeExpired(table slots, now time.Time) (expiredCalls []*call) {
	if w.size == 0 {
		return nil
	}
	last, elapsed := w.tick(now), now.Sub(w.origin)
	for t := max(w.nextTick, last-wheelSize+1); t <= last; t++ {
		for id := w.buckets[t&(wheelSize-1)]; id != 0; {
			s := table.lookup(id)
			id = s.next
			if s.deadline <= elapsed {
				w.remove(table, s)
				expiredCalls = append(expiredCalls, s.call)
			}
		}
	}
	w.nextTick = max(w.nextTick, last)
	return expiredCalls
}

// nextExpiry returns when to call removeExpired next; the zero time if the wheel is empty. If no
// call expires within one turn of the wheel, it returns the end of the turn.
func (w *wheel) nextExpiry(table slots, now time.Time) time.Time {
	if w.size == 0 {
		return time.Time{}
	}
	start := max(w.nextTick, w.tick(now))
	end := time.Duration(start+wheelSize) * wheelTick // of the turn
	first := end
	for t := start; t < start+wheelSize && first == end; t++ {
		for id := w.buckets[t&(wheelSize-1)]; id != 0; {
			s := table.lookup(id)
			first = min(first, s.deadline)
			id = s.next
		}
	}
	return w.origin.Add(max(first, now.Add(minExpireInterval).Sub(w.origin)))
}
