package balance

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/weft-proxy/weft/internal/hash"
)

// ring has points of every peer on a circle of 2^32; a hash belongs to the peer of
// the first point that is not before it. A peer that leaves gives up its own points
// only, and so its hashes only.
type ring struct {
	points []point // in ascending order
	// first holds, for each value of a hash's upper bits, the first point that is not
	// below it. There are about half as many values as points, so that next to nothing
	// is left to search.
	first []int32
	shift int // what makes the upper bits of a hash
}

// point is small: a pick among many hosts costs as much memory as it has to fetch.
type point struct {
	at   uint32
	peer int32
}

// Bounds of a ring.
const (
	defaultMaxRing = 8 << 20

	pointsOfPeer  = 256     // aimed at for each peer,
	pointsOfLight = 64      // and for the one of the least weight,
	fullRing      = 1 << 16 // unless that makes more points than this,
	pointsInFull  = 16      // and more than this for each peer
)

// RingHash returns a balancer that gives every peer points on a ring in proportion
// to its weight (consistent hashing; Karger et al., 1997). The share of a peer with n
// points is right to 1 part in √n, about. The number of points for a weight changes
// by powers of two only, so that a peer that comes or goes seldom moves points of
// others.
func RingHash(peers []Peer, o Options) Balancer {
	index, count := serving(peers)
	if b := few(index, count); b != nil {
		return b
	}
	scale := ringScale(peers, index, count, o)
	total := 0
	for i := range count {
		total += pointsFor(&peers[at(index, uint64(i))], scale)
	}
	loose := make([]point, 0, total)
	for _, i := range byName(peers, index, count) {
		for n := range pointsFor(&peers[i.place], scale) {
			loose = append(loose, point{uint32(hash.Nth(i.name, uint64(n)) >> 32), i.place}) //nolint:gosec // its upper half
		}
	}
	return newRing(loose)
}

// named is the place of a peer and the hash of its name.
type named struct {
	name  uint64
	place int32
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

// newRing sorts the points. Hashes are spread evenly: each point is put where it
// belongs at once, and neighbours are set right.
func newRing(loose []point) *ring {
	width := bits.Len(uint(len(loose)-1)) - 1
	r := &ring{points: make([]point, len(loose)), shift: 32 - width}
	r.first = make([]int32, 1<<width+1)
	for i := range loose {
		r.first[loose[i].at>>r.shift+1]++
	}
	for i := 1; i < len(r.first); i++ {
		r.first[i] += r.first[i-1]
	}
	// first[v] is where the points of v begin; as they are placed, it moves to where
	// they end, which is where those of v+1 begin.
	for _, p := range loose {
		v := p.at >> r.shift
		i := int(r.first[v])
		r.first[v]++
		for ; i > 0 && r.points[i-1].at > p.at && r.points[i-1].at>>r.shift == v; i-- {
			r.points[i] = r.points[i-1]
		}
		r.points[i] = p
	}
	copy(r.first[1:], r.first)
	r.first[0] = 0
	return r
}

func (r *ring) Pick(k Key) int {
	h := uint32(hash.Nth(k.Hash, uint64(k.Draw)) >> 32) //nolint:gosec // its upper half
	i := int(r.first[h>>r.shift])
	for i < len(r.points) && r.points[i].at < h {
		i++
	}
	if i == len(r.points) {
		i = 0
	}
	return int(r.points[i].peer)
}
