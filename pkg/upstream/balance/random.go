package balance

import "math/bits"

// weightedRandom draws by the alias method. The sum of all weights is cut into one column per peer,
// each as wide as the mean weight. A column holds its own peer and at most one other.
type weightedRandom struct {
	random  func() uint64
	count   uint64
	columns []column // nil: weights are equal
	index   []int32  // see servingPeers
}

// column is drawn with probability 1/count: it selects its own peer below keep, else other.
type column struct {
	keep  uint64 // fraction of 2^64
	other int32
}

// Random returns a balancer that draws peers at random in proportion to their weights.
func Random(peers []Peer, o Options) Balancer {
	index, count := servingPeers(peers)
	if b := fixedBalancer(index, count); b != nil {
		return b
	}
	return newWeightedRandom(peers, index, count, o)
}

func newWeightedRandom(peers []Peer, index []int32, count int, o Options) *weightedRandom {
	b := &weightedRandom{random: o.random(), count: uint64(count), index: index}
	if !equalWeights(peers) {
		b.columns = aliasColumns(peers, index, count)
	}
	return b
}

func (b *weightedRandom) Pick(Key) int { return originalIndex(b.index, b.drawIndex()) }

// drawIndex draws an index of the serving peers.
func (b *weightedRandom) drawIndex() uint64 {
	i, rest := scaleRandom(b.count, b.random())
	if b.columns == nil {
		return i
	}
	if c := &b.columns[i]; rest >= c.keep {
		return uint64(c.other) //nolint:gosec // an index, never negative
	}
	return i
}

// aliasColumns fills the columns. A peer with excess weight fills the part of a column that the
// column's own peer does not fill.
func aliasColumns(peers []Peer, index []int32, count int) []column {
	columns := make([]column, count)
	remaining := make([]uint64, count) // unassigned weight, in units of mean/sum
	var short, long []int32
	var sum uint64
	for i := range count {
		weight := uint64(peers[originalIndex(index, uint64(i))].Weight)
		sum += weight
		remaining[i] = weight * uint64(count)
	}
	for i := range int32(count) { //nolint:gosec // as in servingPeers
		if remaining[i] < sum {
			short = append(short, i)
		} else {
			long = append(long, i)
		}
	}
	for len(short) > 0 && len(long) > 0 {
		s, l := short[len(short)-1], long[len(long)-1]
		short = short[:len(short)-1]
		keep, _ := bits.Div64(remaining[s], 0, sum) // left[s] < sum
		columns[s] = column{keep: keep, other: l}
		remaining[l] -= sum - remaining[s]
		if remaining[l] < sum {
			long = long[:len(long)-1]
			short = append(short, l)
		}
	}
	// The arithmetic is exact, so the remaining peers are all in long and fill their columns
	// exactly.
	for _, l := range long {
		columns[l] = column{keep: ^uint64(0), other: l}
	}
	return columns
}

// equalWeights reports whether all weights above 0 are the same.
func equalWeights(peers []Peer) bool {
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
