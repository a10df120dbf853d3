package xprotocol

import "time"

// table holds the calls that wait for an answer, by id. Ids are given in order
// and never twice; an id's place is its lowest bits, and one whose place is taken
// is left out. So finding a call is one look, and nothing is hashed.
type table struct {
	slots []*call // a power of two of them, at least half of them nil
	used  int
	last  uint64 // the last id given
	max   uint64 // the largest that there is
	wheel wheel  // of those that have a deadline
}

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
func (t *table) add(k *call) uint64 {
	if 2*(t.used+1) > len(t.slots) {
		t.grow()
	}
	mask := uint64(len(t.slots) - 1)
	for {
		t.last++
		if place := &t.slots[t.last&mask]; *place == nil {
			*place = k
			k.id = t.last
			t.used++
			if !k.deadline.IsZero() {
				t.wheel.add(k)
			}
			return k.id
		}
	}
}

// skip gives an id to something that has no answer.
func (t *table) skip() uint64 {
	t.last++
	return t.last
}

// exhausted reports whether ids run out.
func (t *table) exhausted() bool { return t.last+idsLeft > t.max }

// grow doubles the table: ids with different lowest bits differ in one bit more,
// too, so that no two meet.
func (t *table) grow() {
	old := t.slots
	t.slots = make([]*call, max(2*len(old), firstSlots))
	mask := uint64(len(t.slots) - 1)
	for _, k := range old {
		if k != nil {
			t.slots[k.id&mask] = k
		}
	}
}

// remove takes the call with an id out; nil if there is none.
func (t *table) remove(id uint64) *call {
	if len(t.slots) == 0 {
		return nil
	}
	place := &t.slots[id&uint64(len(t.slots)-1)]
	k := *place
	if k == nil || k.id != id {
		return nil
	}
	if !k.deadline.IsZero() {
		t.wheel.remove(k)
	}
	t.vacate(place)
	return k
}

// vacate empties a place.
func (t *table) vacate(place **call) {
	*place = nil
	t.used--
	if t.used == 0 && len(t.slots) > keepSlots {
		t.slots = nil // a peak is over
	}
}

// expired takes out the calls whose deadline has come, and returns when it is to be called
// again; zero: there is no deadline. Its cost goes by how many calls those are, and not by
// how many there are.
func (t *table) expired(now time.Time) (late []*call, next time.Time) {
	late = t.wheel.expired(now)
	for _, k := range late {
		t.vacate(&t.slots[k.id&uint64(len(t.slots)-1)])
	}
	return late, t.wheel.next(now)
}

// clear takes all calls out.
func (t *table) clear() []*call {
	all := make([]*call, 0, t.used)
	for _, k := range t.slots {
		if k != nil {
			k.sooner, k.later = nil, nil
			all = append(all, k)
		}
	}
	t.slots, t.used, t.wheel = nil, 0, wheel{}
	return all
}
