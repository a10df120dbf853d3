package xprotocol

import "time"

// callTable holds the calls that wait for an answer, by id. Ids are given in order
// and never twice; an id's place is its lowest bits, and one whose place is taken
// is left out. So finding a call is one look, and nothing is hashed.
type callTable struct {
	slots slots // at least half of them are free
	used  int
	last  uint64 // the last id given
	max   uint64 // the largest that there is
	wheel wheel  // of those that have a deadline
}

// slots are a power of two of slots, or none.
type slots []slot

// slot holds one call.
type slot struct {
	call *call // nil: the slot is free
	// Of the wheel, if the call has a deadline: that, counted from the wheel's origin, and
	// the ids of the neighbors in its bucket; 0: there is none.
	deadline       time.Duration
	previous, next uint64
}

// of returns the slot of an id.
func (s slots) of(id uint64) *slot { return &s[id&uint64(len(s)-1)] }

const (
	firstSlots = 16
	// keepSlots is how large a table of a connection with nothing in flight stays:
	// there is such a moment between one burst and the next.
	keepSlots = 4096
	// idsLeft is how many ids a connection may still have when it is replaced:
	// exchanges that chose it already get theirs.
	idsLeft = 1 << 20
)

// add gives k an id.
func (t *callTable) add(k *call) uint64 {
	if 2*(t.used+1) > len(t.slots) {
		t.grow()
	}
	for {
		t.last++
		if s := t.slots.of(t.last); s.call == nil {
			s.call = k
			k.id = t.last
			t.used++
			if !k.deadline.IsZero() {
				t.wheel.add(t.slots, k.id)
			}
			return k.id
		}
	}
}

// reserveID gives an id to something that has no answer.
func (t *callTable) reserveID() uint64 {
	t.last++
	return t.last
}

// exhausted reports whether ids run out.
func (t *callTable) exhausted() bool { return t.last+idsLeft > t.max }

// grow doubles the table: ids with different lowest bits differ in one bit more,
// too, so that no two meet.
func (t *callTable) grow() {
	old := t.slots
	t.slots = make(slots, max(2*len(old), firstSlots))
	for i := range old {
		if k := old[i].call; k != nil {
			*t.slots.of(k.id) = old[i]
		}
	}
}

// remove takes the call with an id out; nil if there is none.
func (t *callTable) remove(id uint64) *call {
	if len(t.slots) == 0 {
		return nil
	}
	s := t.slots.of(id)
	k := s.call
	if k == nil || k.id != id {
		return nil
	}
	if !k.deadline.IsZero() {
		t.wheel.remove(t.slots, s)
	}
	t.free(s)
	return k
}

// free makes a slot free.
func (t *callTable) free(s *slot) {
	s.call = nil
	t.used--
	if t.used == 0 && len(t.slots) > keepSlots {
		t.slots = nil // a peak is over
	}
}

// expired takes out the calls whose deadline has come, and returns when it is to be called
// again; zero: there is no deadline. Its cost goes by how many calls those are, and not by
// how many there are.
func (t *callTable) expired(now time.Time) (late []*call, next time.Time) {
	late = t.wheel.expired(t.slots, now)
	for _, k := range late {
		t.free(t.slots.of(k.id))
	}
	return late, t.wheel.next(t.slots, now)
}

// clear takes all calls out.
func (t *callTable) clear() []*call {
	all := make([]*call, 0, t.used)
	for i := range t.slots {
		if k := t.slots[i].call; k != nil {
			all = append(all, k)
		}
	}
	t.slots, t.used, t.wheel = nil, 0, wheel{}
	return all
}
