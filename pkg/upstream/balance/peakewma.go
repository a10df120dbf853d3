package balance

import "time"

// peakEWMA draws peers by weight and takes the one where an exchange would be
// answered first, as far as that is known.
type peakEWMA struct {
	draw    *weightedRandom
	loads   []*Load // of the serving peers
	choices int
	now     func() time.Duration
}

// defaultLatency is what an exchange in flight is thought to take at a host that has not
// answered yet: so long that it gets no second one while others answer.
const defaultLatency = time.Second

// PeakEWMA returns a balancer that draws o.ChoiceCount peers by weight and takes
// the one with the least latency times work: Load.Latency, multiplied by the
// exchanges in flight and the one to come. Of equals it takes the first drawn, so
// that hosts that are equally fast are chosen in proportion to their weights. The
// average is that of Finagle's balancer of the name.
func PeakEWMA(peers []Peer, o Options) Balancer {
	index, n := weightedPeers(peers)
	if b := few(index, n); b != nil {
		return b
	}
	b := &peakEWMA{
		draw:    newWeightedRandom(peers, index, n, o),
		loads:   make([]*Load, n),
		choices: o.choices(n),
		now:     o.Now,
	}
	if b.now == nil {
		b.now = func() time.Duration { return 0 }
	}
	for i := range b.loads {
		b.loads[i] = peers[at(index, uint64(i))].Load
	}
	return b
}

func (b *peakEWMA) Pick(Key) int {
	now := b.now()
	best := b.draw.place()
	least := cost(b.loads[best], now)
	for range b.choices - 1 {
		other := b.draw.place()
		if other == best { // rather any other than none
			other, _ = below(b.draw.count-1, b.draw.random())
			if other >= best {
				other++
			}
		}
		if c := cost(b.loads[other], now); c < least {
			best, least = other, c
		}
	}
	return at(b.draw.index, best)
}

// cost is how long the host would take for what it has and one exchange more.
func cost(l *Load, now time.Duration) float64 {
	average, work := l.average(now), float64(l.InFlight())
	if average == 0 {
		return float64(defaultLatency) * work
	}
	return average * (work + 1)
}
