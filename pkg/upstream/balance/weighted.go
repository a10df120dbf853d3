package balance

import "sync/atomic"

// weightedRoundRobin is a smooth weighted round robin without a lock or a queue.
//
// Pick visits the hosts in order, round after round. In round r it picks the host of weight w if
// the line w·r + offset crosses a multiple of max, the largest weight, before round r+1; otherwise
// it skips the host. Over any max rounds the line rises by w·max, so each host is picked exactly w
// times. The crossings of a line are evenly spaced, so the picks of a host are spread evenly over
// the rounds. Offsets differ, so that light hosts are not all picked in the same round.
//
//	weights 5 1 1, max 5      round 0  1  2  3  4
//	                     a         a  a  a  a  a
//	                     b            b
//	                     c                  c       a a b a a c a
//
// A pick visits max/mean hosts on average, where mean is the mean weight. If the mean is small (see
// maxScheduleTurns), WeightedRoundRobin returns a schedule instead, which stores the order of one
// period (max rounds).
type weightedRoundRobin struct {
	weights   []uint32 // divided by their greatest common divisor; none is 0
	index     []int32  // see servingHosts
	maxWeight uint64
	random    func() uint64
	position  atomic.Uint64 // round·len(weights) + index of the host that was visited last
}

// schedule stores the order of one period of a weighted round robin.
type schedule struct {
	turns  []int32
	random func() uint64
	turn   atomic.Uint64
}

// maxScheduleTurns is the maximum average number of turns per host in a schedule, so that a
// schedule takes at most 64 bytes per host. Without a schedule, a pick visits at most max/16 hosts
// on average: 8 with the weights up to 128 that config.json allows. A control plane may send higher
// weights.
const maxScheduleTurns = 16

// WeightedRoundRobin returns a balancer that picks the hosts in turn in proportion to their
// weights: in any w1+w2+… consecutive picks, host i is picked wi times (weights divided by their
// greatest common divisor). Further draws for an exchange are random, as in RoundRobin, and by
// weight.
func WeightedRoundRobin(hosts []Host, o Options) Balancer {
	index, count := servingHosts(hosts)
	if b := fixedBalancer(index, count); b != nil {
		return b
	}
	divisor := uint32(0)
	for i := range count {
		divisor = gcd(divisor, hosts[originalIndex(index, uint64(i))].Weight)
	}
	b := &weightedRoundRobin{weights: make([]uint32, count), index: index, random: o.random()}
	sum := uint64(0)
	for i := range count {
		b.weights[i] = hosts[originalIndex(index, uint64(i))].Weight / divisor
		b.maxWeight = max(b.maxWeight, uint64(b.weights[i]))
		sum += uint64(b.weights[i])
	}
	switch {
	case b.maxWeight == 1:
		return RoundRobin(hosts, o)
	case sum <= maxScheduleTurns*uint64(count):
		return b.newSchedule(sum, o)
	}
	// Start at a random visit of the period: see RoundRobin.
	start, _ := scaleRandom(uint64(count)*b.maxWeight, o.random()())
	b.position.Store(start)
	return b
}

func (b *weightedRoundRobin) Pick(k Key) int {
	if k.Draw > 0 {
		return b.drawRandom()
	}
	count := uint64(len(b.weights))
	for {
		visit := b.position.Add(1)
		round, i := visit/count, visit%count
		weight := uint64(b.weights[i])
		if (weight*round+b.offset(i))%b.maxWeight+weight >= b.maxWeight {
			return originalIndex(b.index, i)
		}
	}
}

// drawRandom returns a random host by weight.
func (b *weightedRoundRobin) drawRandom() int {
	for {
		i, rest := scaleRandom(uint64(len(b.weights)), b.random())
		if threshold, _ := scaleRandom(b.maxWeight, rest); threshold < uint64(b.weights[i]) {
			return originalIndex(b.index, i)
		}
	}
}

// offset returns the offset of a host's line. Multiples of the golden ratio spread the offsets
// evenly for any number of hosts.
func (b *weightedRoundRobin) offset(i uint64) uint64 {
	const goldenRatio = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	scaled, _ := scaleRandom(b.maxWeight, i*goldenRatio)
	return scaled
}

// newSchedule returns a schedule with the turns of one period in Pick's order. sum is the number of
// turns.
func (b *weightedRoundRobin) newSchedule(sum uint64, o Options) *schedule {
	heights := make([]uint64, len(b.weights)) // of each line above the last multiple of maxWeight
	for i := range heights {
		heights[i] = b.offset(uint64(i))
	}
	s := &schedule{turns: make([]int32, 0, sum), random: b.random}
	for range b.maxWeight {
		for i, weight := range b.weights {
			heights[i] += uint64(weight)
			if heights[i] >= b.maxWeight {
				heights[i] -= b.maxWeight
				s.turns = append(s.turns, int32(originalIndex(b.index, uint64(i)))) //nolint:gosec // as in servingHosts
			}
		}
	}
	start, _ := scaleRandom(sum, o.random()())
	s.turn.Store(start)
	return s
}

func (s *schedule) Pick(k Key) int {
	if k.Draw > 0 {
		turn, _ := scaleRandom(uint64(len(s.turns)), s.random())
		return int(s.turns[turn])
	}
	return int(s.turns[s.turn.Add(1)%uint64(len(s.turns))])
}

func gcd(a, b uint32) uint32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
