package xprotocol

import "time"

// callTable holds the calls that wait for a response, by id. It assigns ids in ascending order and
// never twice. The lowest bits of an id are the index of its slot, so a lookup is one array access
// without hashing. add skips an id whose slot is taken.
type callTable struct {
	slots slots  // at least half are free
	used  int    // number of slots that hold a call
	last  uint64 // the last assigned id
	max   uint64 // the largest id of the protocol
	wheel wheel  // the calls that have a deadline
}

// slots has a length of zero or a power of two.
type slots []slot

// slot holds one call.
type slot struct {
	call *call // nil: the slot is free
	// The fields below belong to the wheel if the call has a deadline: the deadline, relative to
	// the wheel's origin, and the ids of the neighbors in its bucket; 0: none.
	deadline       time.Duration
	previous, next uint64
}

// lookup returns the slot of an id.
func (s slots) lookup(id uint64) *slot { return &s[id&uint64(len(s)-1)] }

const (
	minSlots = 16
	// maxKeptSlots is the maximum number of slots that an empty table keeps for the next burst.
	maxKeptSlots = 4096
	// minFreeIDs is the number of ids that remain when the pool replaces a connection. Exchanges
	// that have already selected the connection use them.
	minFreeIDs = 1 << 20
)

// add assigns k an id and stores it.
func (t *callTable) add(k *call) uint64 {
	if 2*(t.used+1) > len(t.slots) {
		t.grow()
	}
	for {
		t.last++
		if s := t.slots.lookup(t.last); s.call == nil {
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

// reserveID returns an id for a frame that is not a call: a one-way request or a heartbeat.
func (t *callTable) reserveID() uint64 {
	t.last++
	return t.last
}

// exhausted reports whether fewer than minFreeIDs ids remain.
func (t *callTable) exhausted() bool { return t.last+minFreeIDs > t.max }

// grow doubles the number of slots. Ids with different slots in the old table have different slots
// in the new one.
func (t *callTable) grow() {
	old := t.slots
	t.slots = make(slots, max(2*len(old), minSlots))
	for i := range old {
		if k := old[i].call; k != nil {
			*t.slots.lookup(k.id) = old[i]
		}
	}
}

// remove removes and returns the call with the id; nil: there is none.
func (t *callTable) remove(id uint64) *call {
	if len(t.slots) == 0 {
		return nil
	}
	s := t.slots.lookup(id)
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

// free marks s as free. When the table becomes empty, free releases the memory of a peak.
func (t *callTable) free(s *slot) {
	s.call = nil
	t.used--
	if t.used == 0 && len(t.slots) > maxKeptSlots {
		t.slots = nil
	}
}

// removeExpired removes and returns the calls whose deadline has passed. next is when to call
// removeExpired again; zero: no call has a deadline.
func (t *callTable) removeExpired(now time.Time) (expiredCalls []*call, next time.Time) {
	expiredCalls = t.wheel.removeExpired(t.slots, now)
	for _, k := range expiredCalls {
		t.free(t.slots.lookup(k.id))
	}
	return expiredCalls, t.wheel.nextExpiry(t.slots, now)
}

// clear removes and returns all calls.
func (t *callTable) clear() []*call {
	calls := make([]*call, 0, t.used)
	for i := range t.slots {
		if k := t.slots[i].call; k != nil {
			calls = append(calls, k)
		}
	}
	t.slots, t.used, t.wheel = nil, 0, wheel{}
	return calls
}
