package balance

import "time"

// peakEWMA draws hosts by weight and picks the one with the lowest expected latency.
type peakEWMA struct {
	sampler *weightedRandom
	loads   []*Load // of the serving hosts
	choices int
	now     func() time.Duration
}

// defaultLatency is the assumed latency per in-flight exchange of a host without an observation. It
// is so long that such a host gets no second exchange while other hosts respond.
const defaultLatency = time.Second

// PeakEWMA returns a balancer that draws o.ChoiceCount hosts by weight and picks the one with the
// lowest cost: Load.Latency × (in-flight exchanges + 1), or defaultLatency × in-flight exchanges
// for a host without a measured latency. If costs are equal, it picks the host that was drawn
// first, so equally fast hosts are picked in proportion to their weights. Load.Latency is the
// average of Finagle's Peak EWMA balancer.
func PeakEWMA(hosts []Host, o Options) Balancer {
	index, n := servingHosts(hosts)
	if b := fixedBalancer(index, n); b != nil {
		return b
	}
	b := &peakEWMA{
		sampler: newWeightedRandom(hosts, index, n, o),
		loads:   make([]*Load, n),
		choices: o.choices(n),
		now:     o.Now,
	}
	if b.now == nil {
		b.now = func() time.Duration { return 0 }
	}
	for i := range b.loads {
		b.loads[i] = hosts[originalIndex(index, uint64(i))].Load
	}
	return b
}

func (b *peakEWMA) Pick(Key) int {
	now := b.now()
	best := b.sampler.drawIndex()
	bestCost := cost(b.loads[best], now)
	for range b.choices - 1 {
		other := b.sampler.drawIndex()
		if other == best { // draw again, so that two different hosts are compared
			other, _ = scaleRandom(b.sampler.count-1, b.sampler.random())
			if other >= best {
				other++
			}
		}
		if c := cost(b.loads[other], now); c < bestCost {
			best, bestCost = other, c
		}
	}
	return originalIndex(b.sampler.index, best)
}

// cost returns the expected time for the in-flight exchanges and one more.
func cost(l *Load, now time.Duration) float64 {
	average, inFlight := l.average(now), float64(l.InFlight())
	if average == 0 {
		return float64(defaultLatency) * inFlight
	}
	return average * (inFlight + 1)
}
