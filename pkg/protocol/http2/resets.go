package http2

// skippedRanges stores the last ranges of stream identifiers that the peer skipped. The skipped
// streams are closed (RFC 9113 5.1.1), although no frame ended them.
type skippedRanges struct {
	ring [4]struct{ above, below uint32 }
	next int
}

// add records that the peer opened stream id after stream last.
func (r *skippedRanges) add(last, id uint32) {
	if id-last <= 2 {
		return
	}
	r.ring[r.next].above, r.ring[r.next].below = last, id
	r.next = (r.next + 1) % len(r.ring)
}

func (r *skippedRanges) contains(id uint32) bool {
	for _, s := range r.ring {
		if s.above < id && id < s.below {
			return true
		}
	}
	return false
}

// closedBy is the way in which a stream was closed (RFC 9113 5.1).
type closedBy uint8

const (
	byEnd  closedBy = iota // both sides ended the stream; DATA and HEADERS on it are errors
	byUs                   // we reset the stream; its frames are ignored, because the peer may not have received the reset
	byPeer                 // the peer reset the stream
)

// recentResets stores the streams that were reset recently. Streams that both sides ended need no
// entry.
type recentResets struct {
	ring []reset // nil: no stream was reset; otherwise its length is maxRecentResets
	next int
	// maxEvictedID is the highest stream that we reset and that is no longer in ring. DATA and
	// HEADERS of closed streams up to maxEvictedID that are not in ring are ignored.
	maxEvictedID uint32
}

const maxRecentResets = 32

type reset struct {
	id uint32
	by closedBy
}

// add records that stream id was reset, and by which side. The latest reset replaces an earlier
// one: if the peer sends more frames on a stream that it has reset, we reset the stream once and
// then ignore its frames.
func (r *recentResets) add(id uint32, by closedBy) {
	for i := range r.ring {
		if r.ring[i].id == id {
			r.ring[i].by = by
			return
		}
	}
	if r.ring == nil {
		r.ring = make([]reset, maxRecentResets)
	}
	old := &r.ring[r.next]
	if old.by == byUs {
		r.maxEvictedID = max(r.maxEvictedID, old.id)
	}
	*old = reset{id, by}
	r.next = (r.next + 1) % len(r.ring)
}

// closedBy returns how stream id was closed. The stream is neither idle nor open.
func (r *recentResets) closedBy(id uint32) closedBy {
	for i := range r.ring {
		if r.ring[i].id == id {
			return r.ring[i].by
		}
	}
	if id <= r.maxEvictedID {
		return byUs
	}
	return byEnd
}
