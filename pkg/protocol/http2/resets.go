package http2

// skips remembers identifiers that the peer skipped. They are closed (RFC 9113 5.1.1), although
// nothing ended them.
type skips struct {
	ring [4]struct{ above, below uint32 }
	next int
}

// add records that the peer opened stream id, and stream last before it.
func (k *skips) add(last, id uint32) {
	if id-last <= 2 {
		return
	}
	k.ring[k.next].above, k.ring[k.next].below = last, id
	k.next = (k.next + 1) % len(k.ring)
}

// has reports whether the peer skipped stream id lately.
func (k *skips) has(id uint32) bool {
	for _, s := range k.ring {
		if s.above < id && id < s.below {
			return true
		}
	}
	return false
}

// closedBy is how a closed stream was closed (RFC 9113 5.1).
type closedBy uint8

const (
	byEnd  closedBy = iota // both sides ended it; any further frame is an error
	byUs                   // we reset it; frames that the peer sent before it knew are ignored
	byPeer                 // the peer reset it
)

// resets remembers the streams that were reset lately. Streams that ended normally cost nothing.
type resets struct {
	ring []reset // nil: none was reset; else of length resetsKept
	next int
	// forgotten is the highest stream that we reset and that is no longer in ring: frames of closed
	// streams up to it are ignored.
	forgotten uint32
}

// resetsKept is how many streams are remembered.
const resetsKept = 32

type reset struct {
	id uint32
	by closedBy
}

// add records that stream id was closed by a reset. The latest reset counts: if the peer continues
// a stream that it has reset, we reset it once.
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

// of returns how stream id was closed, which is neither idle nor open.
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
