package http2

// skips remembers identifiers that the peer went past without using them. They are
// closed (RFC 9113 5.1.1), but nobody ended them.
type skips struct {
	ring [4]struct{ above, below uint32 }
	next int
}

// add notes that stream id was opened, and last before it.
func (k *skips) add(last, id uint32) {
	if id-last <= 2 {
		return
	}
	k.ring[k.next].above, k.ring[k.next].below = last, id
	k.next = (k.next + 1) % len(k.ring)
}

// has reports whether the peer went past stream id, lately.
func (k *skips) has(id uint32) bool {
	for _, s := range k.ring {
		if s.above < id && id < s.below {
			return true
		}
	}
	return false
}

// closedBy says how a stream that is no longer open was closed (RFC 9113 5.1).
type closedBy uint8

const (
	byEnd  closedBy = iota // both sides ended it; whatever comes is an error
	byUs                   // we reset it; what the peer sent before it knew is ignored
	byPeer                 // the peer reset it
)

// resets remembers the streams that were reset lately. Those that ended in peace
// cost nothing.
type resets struct {
	ring []reset // nil: there were none; else of resetsKept
	next int
	// forgotten is the highest stream that we reset and that is no longer in ring:
	// whatever is heard of streams up to it is ignored.
	forgotten uint32
}

// resetsKept is how many streams are remembered.
const resetsKept = 32

type reset struct {
	id uint32
	by closedBy
}

// add notes that stream id was closed by a reset. What is newer holds: a stream that
// the peer has reset, and gone on with, is reset by us once.
func (r *resets) add(id uint32, by closedBy) {
	for i := range r.ring {
		if r.ring[i].id == id {
			r.ring[i].by = by
			return
		}
	}
	if r.ring == nil {
		r.ring = make([]reset, resetsKept)
	}
	old := &r.ring[r.next]
	if old.by == byUs {
		r.forgotten = max(r.forgotten, old.id)
	}
	*old = reset{id, by}
	r.next = (r.next + 1) % len(r.ring)
}

// of says how stream id was closed, which is neither idle nor open.
func (r *resets) of(id uint32) closedBy {
	for i := range r.ring {
		if r.ring[i].id == id {
			return r.ring[i].by
		}
	}
	if id <= r.forgotten {
		return byUs
	}
	return byEnd
}
