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
// to the peer that its first hash belongs to. So a pick reads one entry, whereas a binary search
// would miss the CPU cache several times. Small rings share one large table size that hardly ever
// changes: a change of the size would move some hashes, too.
type ring struct {
	table table
	shift int // shift of the upper 32 bits of a hash to a table index
}

// Bounds of a ring.
const (
	defaultMaxRingSize = 8 << 20

	pointsPerPeer            = 256     // target for the average peer
	pointsOfLightestPeer     = 64      // target for the peer with the lowest weight
	largeRing                = 1 << 16 // above this size, the target is pointsPerPeerInLargeRing
	pointsPerPeerInLargeRing = 16

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
	r, owner := newRing(total, func(yield func(point uint32, peer int32)) {
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
	return uint32(hash.Nth(p.hash, uint64(n)) >> 32) //nolint:gosec // the upper half of the hash
}

// sortedByHash returns the serving peers ordered by the hash of their names, independent of their
// order in peers.
func sortedByHash(peers []Peer, index []int32, count int) []peerHash {
	list := make([]peerHash, count)
	for i := range list {
		peer := originalIndex(index, uint64(i))
		list[i] = peerHash{hash.String(peers[peer].Name), int32(peer)} //nolint:gosec // as in servingPeers
	}
	slices.SortFunc(list, func(a, b peerHash) int { return cmp.Compare(a.hash, b.hash) })
	return list
}

// ringScale returns the number of points per unit of weight, a power of two.
func ringScale(peers []Peer, index []int32, count int, o Options) float64 {
	sum, minWeight := 0.0, math.Inf(1)
	for i := range count {
		weight := float64(peers[originalIndex(index, uint64(i))].Weight)
		sum += weight
		minWeight = min(minWeight, weight)
	}
	maxSize := float64(o.MaxRingSize)
	if maxSize <= 0 {
		maxSize = defaultMaxRingSize
	}
	size := max(pointsPerPeer*float64(count), pointsOfLightestPeer*sum/minWeight)
	size = min(size, max(largeRing, pointsPerPeerInLargeRing*float64(count)))
	scale := math.Exp2(math.Round(math.Log2(size / sum)))
	if scale*sum < float64(o.MinRingSize) {
		scale = math.Exp2(math.Ceil(math.Log2(float64(o.MinRingSize) / sum)))
	}
	if scale*sum > maxSize {
		scale = math.Exp2(math.Floor(math.Log2(maxSize / sum)))
	}
	return scale
}

func pointsFor(p *Peer, scale float64) int {
	return max(1, int(math.Round(float64(p.Weight)*scale)))
}

// newRing builds the table entries for the points that forEachPoint yields, and returns the owner
// of each entry. points is the number of points. The first of several equal points owns the entry.
func newRing(points int, forEachPoint func(yield func(point uint32, peer int32))) (r *ring, owner []int32) {
	indexBits := min(max(bits.Len(uint(2*points-1)), minTableBits), 32) //nolint:gosec // positive
	r = &ring{shift: 32 - indexBits}
	const none = -1
	owner = make([]int32, 1<<indexBits)
	lowest := make([]uint32, 1<<indexBits) // lowest point in each entry
	for i := range owner {
		owner[i] = none
	}
	forEachPoint(func(point uint32, peer int32) {
		if entry := point >> r.shift; owner[entry] == none || point < lowest[entry] {
			owner[entry], lowest[entry] = peer, point
		}
	})
	// An entry without points has the owner of the next entry; the first entry follows the last.
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

// ensureEntries gives an entry to each peer that owns none because its few points share entries
// with those of other peers. It takes the entry from a peer that owns more than one.
func (r *ring) ensureEntries(list []peerHash, owner []int32, peers int) {
	entryCount := make([]int32, peers)
	for _, peer := range owner {
		entryCount[peer]++
	}
	for _, p := range list {
		for n := 0; entryCount[p.index] == 0; n++ {
			entry := p.point(n) >> r.shift
			if entryCount[owner[entry]] > 1 {
				entryCount[owner[entry]]--
				entryCount[p.index]++
				owner[entry] = p.index
			}
		}
	}
}

func (r *ring) Pick(k Key) int {
	return r.table.peer(hash.Nth(k.Hash, uint64(k.Draw)) >> (32 + r.shift)) //nolint:gosec // never negative
}
