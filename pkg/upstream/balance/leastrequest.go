package balance

import "math"

// leastRequest draws one peer by weight and lets others challenge it; the one
// with the least work in flight wins. Two draws are enough to keep the longest
// queue short, and unlike a search for the minimum they do not send everybody
// to the host that was idle a moment ago.
type leastRequest struct {
	first   *weightedRandom
	peers   []challenger // the serving peers
	choices int
	bias    float64
	even    bool // weights are equal
}

type challenger struct {
	load   *Load
	weight float64
}

// LeastRequest returns a balancer that compares o.ChoiceCount peers and takes
// the one with the least work for its weight: in-flight exchanges to the power
// of o.ActiveRequestBias, divided by weight. The first of them is drawn by
// weight and keeps its place unless another has strictly less, so idle hosts
// are chosen in proportion to their weights.
func LeastRequest(peers []Peer, o Options) Balancer {
	index, count := serving(peers)
	if b := few(index, count); b != nil {
		return b
	}
	b := &leastRequest{
		first:   newWeightedRandom(peers, index, count, o),
		peers:   make([]challenger, count),
		choices: o.ChoiceCount,
		bias:    o.ActiveRequestBias,
		even:    equal(peers),
	}
	if b.choices <= 0 {
		b.choices = 2
	}
	b.choices = min(b.choices, count)
	for i := range b.peers {
		p := &peers[at(index, uint64(i))]
		b.peers[i] = challenger{p.Load, float64(p.Weight)}
	}
	return b
}

func (b *leastRequest) Pick() int {
	best := b.first.place()
	if !b.even && b.bias == 0 {
		return at(b.first.index, best)
	}
	for range b.choices - 1 {
		// Among the others, so that each comparison is one.
		other, _ := below(b.first.count-1, b.first.random())
		if other >= best {
			other++
		}
		if b.lighter(&b.peers[other], &b.peers[best]) {
			best = other
		}
	}
	return at(b.first.index, best)
}

// lighter reports whether p has less work for its weight than q.
func (b *leastRequest) lighter(p, q *challenger) bool {
	active, than := float64(p.load.InFlight()), float64(q.load.InFlight())
	if b.even {
		return active < than
	}
	if b.bias != 1 {
		active, than = math.Pow(active, b.bias), math.Pow(than, b.bias)
	}
	return active*q.weight < than*p.weight
}
