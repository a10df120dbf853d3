package balance

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/weft-proxy/weft/internal/hash"
)

// ring has points of every peer on a circle. A hash belongs to the peer of the first point at or
// after it. A removed peer gives up only its own points, and so only its own hashes.
//
// The circle is stored as a table with at least twice as many entries as points. An entry belongs
// to the peer that its first hash belongs to. So a pick reads one entry, where a search among many
// points would wait for memory several times. Small rings share one large table size that hardly
// ever changes: a change of the size would move some hashes, too.
type ring struct {
	table table
	shift int // shift of the upper 32 bits of a hash to a table index
}

// Bounds of a ring.
const (
	defaultMaxRingSize = 8 << 20

	pointsPerPeer            = 256     // target for each peer,
	pointsOfLightestPeer     = 64      // and for the peer of the least weight,
	largeRing                = 1 << 16 // unless the total exceeds this
	pointsPerPeerInLargeRing = 16      // and this for each peer

	minTableBits = 16 // minimum bits of a table index: 128 KB
)

// RingHash returns a balancer that gives every peer points on a ring in proportion to its weight
// (consistent hashing; Karger et al., 1997). The share of a peer with n points is exact to about 1
// part in √n. The number of points per weight changes by powers of two only, so adding or removing
// a peer rarely moves points of others.
func RingHash(peers []Peer, o Options) Balancer {
	index, count := servingPeers(peers)
	if b := fixedBalancer(index, count); b != nil {
		return b
	}
	scale := ringScale(peers, index, count, o)
	total := 0
	for i := range count {
		total += pointsFor(&peers[originalIndex(index, uint64(i))], scale)
	}
	list := sortedByHash(peers, index, count)
	r, owner := newRing(total, func(yield func(at uint32, peer int32)) {
		for _, p := range list {
			for n := range pointsFor(&peers[p.index], scale) {
				yield(p.point(n), p.index)
			}
		}
	})
	r.ensureEntries(list, owner, len(peers))
	r.table = newTable(owner, len(peers))
	return r
}

// peerHash is the index of a peer and the hash of its name.
type peerHash struct {
	hash  uint64
	index int32
}

// point returns point number n of the peer.
func (p peerHash) point(n int) uint32 {
	return uint32(hash.Nth(p.hash, uint64(n)) >> 32) //nolint:gosec // its upper half
}

// sortedByHash returns the serving peers ordered by the hash of their names, whatever their order
// in peers.
func sortedByHash(peers []Peer, index []int32, count int) []peerHash {
	list := make([]peerHash, count)
	for i := range list {
		place := originalIndex(index, uint64(i))
		list[i] = peerHash{hash.String(peers[place].Name), int32(place)} //nolint:gosec // as in servingPeers
	}
	slices.SortFunc(list, func(a, b peerHash) int { return cmp.Compare(a.hash, b.hash) })
	return list
}

// ringScale returns the number of points per unit of weight, a power of two.
func ringScale(peers []Peer, index []int32, count int, o Options) float64 {
	sum, light := 0.0, math.Inf(1)
	for i := range count {
		weight := float64(peers[originalIndex(index, uint64(i))].Weight)
		sum += weight
		light = min(light, weight)
	}
	most := float64(o.MaxRingSize)
	if most <= 0 {
		most = defaultMaxRingSize
	}
	size := max(pointsPerPeer*float64(count), pointsOfLightestPeer*sum/light)
	size = min(size, max(largeRing, pointsPerPeerInLargeRing*float64(count)))
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

// newRing builds the table entries for the points that each yields, and returns the owner of each
// entry. points is the number of points. Of several points at the same position the first wins.
func newRing(points int, each func(yield func(at uint32, peer int32))) (r *ring, owner []int32) {
	width := min(max(bits.Len(uint(2*points-1)), minTableBits), 32) //nolint:gosec // positive
	r = &ring{shift: 32 - width}
	const none = -1
	owner = make([]int32, 1<<width)
	least := make([]uint32, 1<<width) // lowest point in each entry
	for i := range owner {
		owner[i] = none
	}
	each(func(at uint32, peer int32) {
		if place := at >> r.shift; owner[place] == none || at < least[place] {
			owner[place], least[place] = peer, at
		}
	})
	// An entry without points has the owner of the next one; the first follows the last.
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

// ensureEntries gives an entry to each peer that has none because its few points share entries with
// others. It takes the entry from a peer that has more than one.
func (r *ring) ensureEntries(list []peerHash, owner []int32, peers int) {
	has := make([]int32, peers)
	for _, peer := range owner {
		has[peer]++
	}
	for _, p := range list {
		for n := 0; has[p.index] == 0; n++ {
			place := p.point(n) >> r.shift
			if has[owner[place]] > 1 {
				has[owner[place]]--
				has[p.index]++
				owner[place] = p.index
			}
		}
	}
}

func (r *ring) Pick(k Key) int {
	return r.table.peer(hash.Nth(k.Hash, uint64(k.Draw)) >> (32 + r.shift)) //nolint:gosec // never negative
}
