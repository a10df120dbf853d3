package balance

import "math/bits"

// weightedRandom draws by the alias method. The sum of all weights is cut into one column per host,
// each as wide as the mean weight. A column holds its own host and at most one other.
type weightedRandom struct {
	random  func() uint64
	count   uint64
	columns []column // nil: weights are equal
	index   []int32  // see servingHosts
}

// column is drawn with probability 1/count. A second random number decides between the hosts of the
// column: below keep it selects the column's own host, otherwise other.
type column struct {
	keep  uint64 // fraction of 2^64
	other int32
}

// Random returns a balancer that draws hosts at random in proportion to their weights.
func Random(hosts []Host, o Options) Balancer {
	index, count := servingHosts(hosts)
	if b := fixedBalancer(index, count); b != nil {
		return b
	}
	return newWeightedRandom(hosts, index, count, o)
}

func newWeightedRandom(hosts []Host, index []int32, count int, o Options) *weightedRandom {
	b := &weightedRandom{random: o.random(), count: uint64(count), index: index}
	if !equalWeights(hosts) {
		b.columns = aliasColumns(hosts, index, count)
	}
	return b
}

func (b *weightedRandom) Pick(Key) int { return originalIndex(b.index, b.drawIndex()) }

// drawIndex draws an index of the serving hosts.
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

// aliasColumns fills the columns. A host with excess weight fills the part of a column that the
// column's own host does not fill.
func aliasColumns(hosts []Host, index []int32, count int) []column {
	columns := make([]column, count)
	remaining := make([]uint64, count) // unassigned weight of each host, times count; a column takes sum
	var lightHosts, heavyHosts []int32
	var sum uint64
	for i := range count {
		weight := uint64(hosts[originalIndex(index, uint64(i))].Weight)
		sum += weight
		remaining[i] = weight * uint64(count)
	}
	for i := range int32(count) { //nolint:gosec // as in servingHosts
		if remaining[i] < sum {
			lightHosts = append(lightHosts, i)
		} else {
			heavyHosts = append(heavyHosts, i)
		}
	}
	for len(lightHosts) > 0 && len(heavyHosts) > 0 {
		s, l := lightHosts[len(lightHosts)-1], heavyHosts[len(heavyHosts)-1]
		lightHosts = lightHosts[:len(lightHosts)-1]
		keep, _ := bits.Div64(remaining[s], 0, sum) // remaining[s] < sum
		columns[s] = column{keep: keep, other: l}
		remaining[l] -= sum - remaining[s]
		if remaining[l] < sum {
			heavyHosts = heavyHosts[:len(heavyHosts)-1]
			lightHosts = append(lightHosts, l)
		}
	}
	// The arithmetic is exact, so the remaining hosts are all in heavyHosts and fill their columns
	// exactly.
	for _, l := range heavyHosts {
		columns[l] = column{keep: ^uint64(0), other: l}
	}
	return columns
}

// equalWeights reports whether all weights above 0 are the same.
func equalWeights(hosts []Host) bool {
	var weight uint32
	for i := range hosts {
		switch hosts[i].Weight {
		case 0, weight:
		default:
			if weight != 0 {
				return false
			}
			weight = hosts[i].Weight
		}
	}
	return true
}
