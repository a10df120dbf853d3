package balance

import "sync/atomic"

// roundRobin gives every serving peer its turn, in order.
type roundRobin struct {
	count uint64
	index []int32 // see serving
	turn  atomic.Uint64
}

// RoundRobin returns a balancer that takes the peers in turn and does not look
// at their weights. It starts anywhere: sidecars that start together must not
// all begin with the first host.
func RoundRobin(peers []Peer, o Options) Balancer {
	index, count := serving(peers)
	if b := few(index, count); b != nil {
		return b
	}
	b := &roundRobin{count: uint64(count), index: index}
	start, _ := below(b.count, o.random()())
	b.turn.Store(start)
	return b
}

func (b *roundRobin) Pick(Key) int { return at(b.index, b.turn.Add(1)%b.count) }
