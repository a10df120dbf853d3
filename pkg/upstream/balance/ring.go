package balance

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/weft-proxy/weft/internal/hash"
)

// ring has points of every peer on a circle; a hash belongs to the peer of the first
// point that is not before it. A peer that leaves gives up its own points only, and so
// its hashes only.
//
// The circle is written out as a table of places, twice as many as points at least: a
// place belongs to whom its first hash belongs to. So a pick fetches one place, where a
// search among many points would wait for memory several times. Few points have so many
// places that their number hardly ever changes: that would move some hashes, too.
type ring struct {
	table table
	shift int // what makes the upper bits of a hash, which are its place
}

// Bounds of a ring.
const (
	defaultMaxRing = 8 << 20

	pointsOfPeer  = 256     // aimed at for each peer,
	pointsOfLight = 64      // and for the one of the least weight,
	fullRing      = 1 << 16 // unless that makes more points than this,
	pointsInFull  = 16      // and more than this for each peer

	leastWidth = 16 // bits of a place: 128 KB
)

// RingHash returns a balancer that gives every peer points on a ring in proportion
// to its weight (consistent hashing; Karger et al., 1997). The share of a peer with n
// points is right to 1 part in √n, about. The number of points for a weight changes
// by powers of two only, so that a peer that comes or goes seldom moves points of
// others.
func RingHash(peers []Peer, o Options) Balancer {
	index, count := weightedPeers(peers)
	if b := few(index, count); b != nil {
		return b
	}
	scale := ringScale(peers, index, count, o)
	total := 0
	for i := range count {
		total += pointsFor(&peers[at(index, uint64(i))], scale)
	}
	list := byName(peers, index, count)
	r, owner := newRing(total, func(yield func(at uint32, peer int32)) {
		for _, p := range list {
			for n := range pointsFor(&peers[p.place], scale) {
				yield(p.point(n), p.place)
			}
		}
	})
	r.admit(list, owner, len(peers))
	r.table = newTable(owner, len(peers))
	return r
}

// named is the place of a peer and the hash of its name.
type named struct {
	name  uint64
	place int32
}

// point returns point number n of the peer.
func (p named) point(n int) uint32 {
	return uint32(hash.Nth(p.name, uint64(n)) >> 32) //nolint:gosec // its upper half
}

// byName returns the serving peers in an order that does not depend on that of the
// list.
func byName(peers []Peer, index []int32, count int) []named {
	list := make([]named, count)
	for i := range list {
		place := at(index, uint64(i))
		list[i] = named{hash.String(peers[place].Name), int32(place)} //nolint:gosec // as in serving
	}
	slices.SortFunc(list, func(a, b named) int { return cmp.Compare(a.name, b.name) })
	return list
}

// ringScale returns how many points one part of weight gets, a power of two.
func ringScale(peers []Peer, index []int32, count int, o Options) float64 {
	sum, light := 0.0, math.Inf(1)
	for i := range count {
		weight := float64(peers[at(index, uint64(i))].Weight)
		sum += weight
		light = min(light, weight)
	}
	most := float64(o.MaxRingSize)
	if most <= 0 {
		most = defaultMaxRing
	}
	size := max(pointsOfPeer*float64(count), pointsOfLight*sum/light)
	size = min(size, max(fullRing, pointsInFull*float64(count)))
	scale := math.Exp2(math.Round(math.Log2(size / sum)))
	if scale*sum < float64(o.MinRingSize) {
		scale = math.Exp2(math.Ceil(math.Log2(float64(o.MinRingSize) / sum)))
	}
	if scale*sum > most {
		scale = math.Exp2(math.Floor(math.Log2(most / sum)))
	}
	return scale
}

func pointsFor(p *Peer, scale float64) int {
	return max(1, int(math.Round(float64(p.Weight)*scale)))
}

// newRing writes out the circle with the points that each yields, so many of them, and
// returns who owns which place. Of several points in the same spot the first counts.
func newRing(points int, each func(yield func(at uint32, peer int32))) (r *ring, owner []int32) {
	width := min(max(bits.Len(uint(2*points-1)), leastWidth), 32) //nolint:gosec // positive
	r = &ring{shift: 32 - width}
	const none = -1
	owner = make([]int32, 1<<width)
	least := make([]uint32, 1<<width) // of the points in a place
	for i := range owner {
		owner[i] = none
	}
	each(func(at uint32, peer int32) {
		if place := at >> r.shift; owner[place] == none || at < least[place] {
			owner[place], least[place] = peer, at
		}
	})
	// A place without points has the next one's owner; after the last comes the first.
	next := int32(none)
	for i := range owner {
		if owner[i] != none {
			next = owner[i]
			break
		}
	}
	for i, peer := range slices.Backward(owner) {
		if peer == none {
			owner[i] = next
		}
		next = owner[i]
	}
	return r, owner
}

// admit gives a place to each peer that has none, because its few points are where
// others are: one of a peer that has more.
func (r *ring) admit(list []named, owner []int32, peers int) {
	has := make([]int32, peers)
	for _, peer := range owner {
		has[peer]++
	}
	for _, p := range list {
		for n := 0; has[p.place] == 0; n++ {
			place := p.point(n) >> r.shift
			if has[owner[place]] > 1 {
				has[owner[place]]--
				has[p.place]++
				owner[place] = p.place
			}
		}
	}
}

func (r *ring) Pick(k Key) int {
	return r.table.peer(hash.Nth(k.Hash, uint64(k.Draw)) >> (32 + r.shift)) //nolint:gosec // never negative
}
