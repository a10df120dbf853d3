package balance

import (
	"math"
	"sync/atomic"
)

// leastRequest draws one host by weight, compares it with random other hosts and picks the least
// loaded one. Two draws are enough to keep the longest queue short (Mitzenmacher, "The Power of Two
// Choices in Randomized Load Balancing", 2001). A search for the minimum would send every request
// to a host that was idle a moment ago.
type leastRequest struct {
	sampler      *weightedRandom
	hosts        []loadedHost // the serving hosts
	choices      int
	bias         float64
	equalWeights bool
}

type loadedHost struct {
	count  *atomic.Int64 // requests or connections
	weight float64
}

// LeastRequest returns a balancer that compares o.ChoiceCount hosts and picks the one with the
// least load for its weight: in-flight requests to the power of o.ActiveRequestBias, divided by
// weight. It draws the first host by weight and keeps it unless another host has a strictly lower
// load, so idle hosts are picked in proportion to their weights.
func LeastRequest(hosts []Host, o Options) Balancer {
	return newLeastRequest(hosts, o, o.ActiveRequestBias, func(l *Load) *atomic.Int64 { return &l.inFlight })
}

// LeastConnection is LeastRequest with open connections instead of requests, and without a bias.
func LeastConnection(hosts []Host, o Options) Balancer {
	return newLeastRequest(hosts, o, 1, func(l *Load) *atomic.Int64 { return &l.connections })
}

func newLeastRequest(hosts []Host, o Options, bias float64, count func(*Load) *atomic.Int64) Balancer {
	index, n := servingHosts(hosts)
	if b := fixedBalancer(index, n); b != nil {
		return b
	}
	b := &leastRequest{
		sampler:      newWeightedRandom(hosts, index, n, o),
		hosts:        make([]loadedHost, n),
		choices:      o.choices(n),
		bias:         bias,
		equalWeights: equalWeights(hosts),
	}
	for i := range b.hosts {
		p := &hosts[originalIndex(index, uint64(i))]
		b.hosts[i] = loadedHost{count(p.Load), float64(p.Weight)}
	}
	return b
}

func (b *leastRequest) Pick(Key) int {
	best := b.sampler.drawIndex()
	if !b.equalWeights && b.bias == 0 {
		return originalIndex(b.sampler.index, best)
	}
	for range b.choices - 1 {
		// Exclude best, so that each draw compares two different hosts.
		other, _ := scaleRandom(b.sampler.count-1, b.sampler.random())
		if other >= best {
			other++
		}
		if b.lessLoaded(&b.hosts[other], &b.hosts[best]) {
			best = other
		}
	}
	return originalIndex(b.sampler.index, best)
}

// lessLoaded reports whether p has less load for its weight than q.
func (b *leastRequest) lessLoaded(p, q *loadedHost) bool {
	pLoad, qLoad := float64(p.count.Load()), float64(q.count.Load())
	if b.equalWeights {
		return pLoad < qLoad
	}
	if b.bias != 1 {
		pLoad, qLoad = math.Pow(pLoad, b.bias), math.Pow(qLoad, b.bias)
	}
	return pLoad*q.weight < qLoad*p.weight
}

// choices returns how many of n hosts to compare.
func (o *Options) choices(n int) int {
	if o.ChoiceCount <= 0 {
		return min(2, n)
	}
	return min(o.ChoiceCount, n)
}
