package balance

import "math/bits"

// weightedRandom draws by the alias method: the line of all weights is cut into
// as many columns as there are peers, each as wide as the mean weight, so that
// a column holds its own peer and at most one other.
type weightedRandom struct {
	random  func() uint64
	count   uint64
	columns []column // nil: weights are equal
	index   []int32  // see serving
}

// column is one draw in count: its own peer below keep, the other above.
type column struct {
	keep  uint64 // part of 2^64
	other int32
}

// Random returns a balancer that draws peers at random, each as often as its
// weight says.
func Random(peers []Peer, o Options) Balancer {
	index, count := weightedPeers(peers)
	if b := few(index, count); b != nil {
		return b
	}
	return newWeightedRandom(peers, index, count, o)
}

func newWeightedRandom(peers []Peer, index []int32, count int, o Options) *weightedRandom {
	b := &weightedRandom{random: o.random(), count: uint64(count), index: index}
	if !equal(peers) {
		b.columns = columns(peers, index, count)
	}
	return b
}

func (b *weightedRandom) Pick(Key) int { return at(b.index, b.place()) }

// place draws a place among the serving peers.
func (b *weightedRandom) place() uint64 {
	place, rest := below(b.count, b.random())
	if b.columns == nil {
		return place
	}
	if c := &b.columns[place]; rest >= c.keep {
		return uint64(c.other) //nolint:gosec // a place, never negative
	}
	return place
}

// columns fills the columns: a peer that does not fill its own gets the rest of
// it filled by one that has more than its own.
func columns(peers []Peer, index []int32, count int) []column {
	table := make([]column, count)
	left := make([]uint64, count) // weight not yet placed, in units of mean/sum
	var short, long []int32
	var sum uint64
	for i := range count {
		weight := uint64(peers[at(index, uint64(i))].Weight)
		sum += weight
		left[i] = weight * uint64(count)
	}
	for i := range int32(count) { //nolint:gosec // as in serving
		if left[i] < sum {
			short = append(short, i)
		} else {
			long = append(long, i)
		}
	}
	for len(short) > 0 && len(long) > 0 {
		s, l := short[len(short)-1], long[len(long)-1]
		short = short[:len(short)-1]
		keep, _ := bits.Div64(left[s], 0, sum) // left[s] < sum
		table[s] = column{keep: keep, other: l}
		left[l] -= sum - left[s]
		if left[l] < sum {
			long = long[:len(long)-1]
			short = append(short, l)
		}
	}
	// What remains fills its column: the arithmetic is exact, so it is long.
	for _, l := range long {
		table[l] = column{keep: ^uint64(0), other: l}
	}
	return table
}

// equal reports whether all weights above 0 are the same.
func equal(peers []Peer) bool {
	var weight uint32
	for i := range peers {
		switch peers[i].Weight {
		case 0, weight:
		default:
			if weight != 0 {
				return false
			}
			weight = peers[i].Weight
		}
	}
	return true
}
