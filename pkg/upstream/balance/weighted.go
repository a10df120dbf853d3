package balance

import "sync/atomic"

// weightedRoundRobin is a smooth weighted round robin without a lock or a queue.
//
// Pick visits the peers in order, round after round. In round r it picks the peer of weight w if
// the line w·r + offset crosses a multiple of top, the largest weight, before round r+1; otherwise
// it skips the peer. Over any top rounds the line climbs w·top, so each peer is picked exactly w
// times. The crossings of a line are evenly spaced, so the turns of a heavy peer do not come in a
// row. Offsets differ, so that light peers do not all get their turn in the same round.
//
//	weights 5 1 1, top 5      round 0  1  2  3  4
//	                     a         a  a  a  a  a
//	                     b            b
//	                     c                  c       a a b a a c a
//
// A pick skips top/mean peers on average. Where that would be many, a timetable stores the order of
// a whole period instead.
type weightedRoundRobin struct {
	weights   []uint32 // divided by their greatest common divisor; none is 0
	index     []int32  // see servingPeers
	maxWeight uint64
	random    func() uint64
	position  atomic.Uint64 // round·len(weights) + index of the next peer to visit
}

// schedule stores the order of one period of a weighted round robin.
type schedule struct {
	turns  []int32
	random func() uint64
	turn   atomic.Uint64
}

// maxScheduleTurns is the maximum average number of turns per peer for a timetable. It bounds both
// costs: a timetable takes at most 64 bytes per peer, and without one a pick skips at most 128/16
// peers on average, since weights are at most 128.
const maxScheduleTurns = 16

// WeightedRoundRobin returns a balancer that picks the peers in turn, each as often as its weight
// says: in any w1+w2+… consecutive picks, peer i is picked wi times (weights divided by their
// greatest common divisor). Further draws for an exchange are random, as in RoundRobin, and by
// weight.
func WeightedRoundRobin(peers []Peer, o Options) Balancer {
	index, count := servingPeers(peers)
	if b := fixedBalancer(index, count); b != nil {
		return b
	}
	divisor := uint32(0)
	for i := range count {
		divisor = gcd(divisor, peers[originalIndex(index, uint64(i))].Weight)
	}
	b := &weightedRoundRobin{weights: make([]uint32, count), index: index, random: o.random()}
	sum := uint64(0)
	for i := range count {
		b.weights[i] = peers[originalIndex(index, uint64(i))].Weight / divisor
		b.maxWeight = max(b.maxWeight, uint64(b.weights[i]))
		sum += uint64(b.weights[i])
	}
	switch {
	case b.maxWeight == 1:
		return RoundRobin(peers, o)
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
		round, place := visit/count, visit%count
		weight := uint64(b.weights[place])
		if (weight*round+b.offset(place))%b.maxWeight+weight >= b.maxWeight {
			return originalIndex(b.index, place)
		}
	}
}

// drawRandom returns a random peer by weight.
func (b *weightedRoundRobin) drawRandom() int {
	for {
		place, rest := scaleRandom(uint64(len(b.weights)), b.random())
		if part, _ := scaleRandom(b.maxWeight, rest); part < uint64(b.weights[place]) {
			return originalIndex(b.index, place)
		}
	}
}

// offset spreads the lines of neighboring peers by the golden ratio, which keeps any number of them
// apart.
func (b *weightedRoundRobin) offset(place uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	part, _ := scaleRandom(b.maxWeight, place*golden)
	return part
}

// newSchedule stores the sum turns of a period in Pick's order and advances the lines step by step.
func (b *weightedRoundRobin) newSchedule(sum uint64, o Options) *schedule {
	height := make([]uint64, len(b.weights)) // of each line above the last multiple of top
	for place := range height {
		height[place] = b.offset(uint64(place))
	}
	t := &schedule{turns: make([]int32, 0, sum), random: b.random}
	for range b.maxWeight {
		for place, weight := range b.weights {
			height[place] += uint64(weight)
			if height[place] >= b.maxWeight {
				height[place] -= b.maxWeight
				t.turns = append(t.turns, int32(originalIndex(b.index, uint64(place)))) //nolint:gosec // as in servingPeers
			}
		}
	}
	start, _ := scaleRandom(sum, o.random()())
	t.turn.Store(start)
	return t
}

func (t *schedule) Pick(k Key) int {
	if k.Draw > 0 {
		turn, _ := scaleRandom(uint64(len(t.turns)), t.random())
		return int(t.turns[turn])
	}
	return int(t.turns[t.turn.Add(1)%uint64(len(t.turns))])
}

func gcd(a, b uint32) uint32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
