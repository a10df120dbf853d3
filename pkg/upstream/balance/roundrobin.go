package balance

import "sync/atomic"

// roundRobin picks the serving hosts in turn.
type roundRobin struct {
	count  uint64
	index  []int32 // see servingHosts
	random func() uint64
	turn   atomic.Uint64
}

// RoundRobin returns a balancer that picks the hosts in turn and ignores their weights, except that
// 0 excludes a host. It starts at a random host: sidecars that start together must not all begin
// with the first host. Further draws for an exchange are random: otherwise the host after a series
// of unusable hosts would get the requests of all these hosts.
func RoundRobin(hosts []Host, o Options) Balancer {
	index, count := servingHosts(hosts)
	if b := fixedBalancer(index, count); b != nil {
		return b
	}
	b := &roundRobin{count: uint64(count), index: index, random: o.random()}
	start, _ := scaleRandom(b.count, b.random())
	b.turn.Store(start)
	return b
}

func (b *roundRobin) Pick(k Key) int {
	if k.Draw > 0 {
		i, _ := scaleRandom(b.count, b.random())
		return originalIndex(b.index, i)
	}
	return originalIndex(b.index, b.turn.Add(1)%b.count)
}
