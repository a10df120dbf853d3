package balance

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/weft-proxy/weft/internal/hash"
)

// ring has points of every host on a circle. A hash belongs to the host of the first point at or
// after it. A removed host gives up only its own points, and so only its own hashes.
//
// The circle is stored as a table with at least twice as many entries as points. An entry belongs
// to the host that its first hash belongs to. So a pick reads one entry, whereas a binary search
// would miss the CPU cache several times. All rings of up to 2^15 points have tables of the same
// size, because a change of the size moves some hashes to other hosts.
type ring struct {
	table table
	shift int // shift of the upper 32 bits of a hash to a table index
}

// Bounds of a ring.
const (
	defaultMaxRingSize = 8 << 20

	// RingHash aims at pointsPerHost points per host on average, and at least pointsOfLightestHost
	// points for the host with the lowest weight. It limits the ring to largeRing points, or to
	// pointsPerHostInLargeRing points per host if that is more.
	pointsPerHost            = 256
	pointsOfLightestHost     = 64
	largeRing                = 1 << 16
	pointsPerHostInLargeRing = 16

	minTableBits = 16 // minimum bits of a table index: 128 KB
)

// RingHash returns a balancer that gives every host points on a ring in proportion to its weight
// (consistent hashing; Karger et al., 1997). The share of a host with n points is exact to about 1
// part in √n. The number of points per weight changes by powers of two only, so adding or removing
// a host rarely moves points of others.
func RingHash(hosts []Host, o Options) Balancer {
	index, count := servingHosts(hosts)
	if b := fixedBalancer(index, count); b != nil {
		return b
	}
	scale := ringScale(hosts, index, count, o)
	total := 0
	for i := range count {
		total += pointsFor(&hosts[originalIndex(index, uint64(i))], scale)
	}
	list := sortedByHash(hosts, index, count)
	r, owner := newRing(total, func(yield func(point uint32, host int32)) {
		for _, p := range list {
			for n := range pointsFor(&hosts[p.index], scale) {
				yield(p.point(n), p.index)
			}
		}
	})
	r.ensureEntries(list, owner, len(hosts))
	r.table = newTable(owner, len(hosts))
	return r
}

// hostHash is the index of a host and the hash of its name.
type hostHash struct {
	hash  uint64
	index int32
}

// point returns point number n of the host.
func (p hostHash) point(n int) uint32 {
	return uint32(hash.Nth(p.hash, uint64(n)) >> 32) //nolint:gosec // the upper half of the hash
}

// sortedByHash returns the serving hosts ordered by the hash of their names, independent of their
// order in hosts.
func sortedByHash(hosts []Host, index []int32, count int) []hostHash {
	list := make([]hostHash, count)
	for i := range list {
		host := originalIndex(index, uint64(i))
		list[i] = hostHash{hash.String(hosts[host].Name), int32(host)} //nolint:gosec // as in servingHosts
	}
	slices.SortFunc(list, func(a, b hostHash) int { return cmp.Compare(a.hash, b.hash) })
	return list
}

// ringScale returns the number of points per unit of weight, a power of two.
func ringScale(hosts []Host, index []int32, count int, o Options) float64 {
	sum, minWeight := 0.0, math.Inf(1)
	for i := range count {
		weight := float64(hosts[originalIndex(index, uint64(i))].Weight)
		sum += weight
		minWeight = min(minWeight, weight)
	}
	maxSize := float64(o.MaxRingSize)
	if maxSize <= 0 {
		maxSize = defaultMaxRingSize
	}
	size := max(pointsPerHost*float64(count), pointsOfLightestHost*sum/minWeight)
	size = min(size, max(largeRing, pointsPerHostInLargeRing*float64(count)))
	scale := math.Exp2(math.Round(math.Log2(size / sum)))
	if scale*sum < float64(o.MinRingSize) {
		scale = math.Exp2(math.Ceil(math.Log2(float64(o.MinRingSize) / sum)))
	}
	if scale*sum > maxSize {
		scale = math.Exp2(math.Floor(math.Log2(maxSize / sum)))
	}
	return scale
}

func pointsFor(p *Host, scale float64) int {
	return max(1, int(math.Round(float64(p.Weight)*scale)))
}

// newRing builds the table entries for the points that forEachPoint yields, and returns the owner
// of each entry. points is the number of points. The host of the lowest point in an entry owns it;
// of equal points, the first one yielded counts.
func newRing(points int, forEachPoint func(yield func(point uint32, host int32))) (r *ring, owner []int32) {
	indexBits := min(max(bits.Len(uint(2*points-1)), minTableBits), 32) //nolint:gosec // positive
	r = &ring{shift: 32 - indexBits}
	const none = -1
	owner = make([]int32, 1<<indexBits)
	lowest := make([]uint32, 1<<indexBits) // lowest point in each entry
	for i := range owner {
		owner[i] = none
	}
	forEachPoint(func(point uint32, host int32) {
		if entry := point >> r.shift; owner[entry] == none || point < lowest[entry] {
			owner[entry], lowest[entry] = host, point
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
	for i, host := range slices.Backward(owner) {
		if host == none {
			owner[i] = next
		}
		next = owner[i]
	}
	return r, owner
}

// ensureEntries gives an entry to each host that owns none because its few points share entries
// with those of other hosts. It takes the entry from a host that owns more than one.
func (r *ring) ensureEntries(list []hostHash, owner []int32, hostCount int) {
	entryCount := make([]int32, hostCount)
	for _, host := range owner {
		entryCount[host]++
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
	return r.table.hostIndex(hash.Nth(k.Hash, uint64(k.Draw)) >> (32 + r.shift)) //nolint:gosec // never negative
}
