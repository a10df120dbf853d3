package balance

// requestRoundRobin picks the hosts in order, starting with the first for every exchange.
type requestRoundRobin struct {
	count int
	index []int32 // see servingHosts
}

// RequestRoundRobin returns a balancer that starts with the first host for each exchange and picks
// the next one when the caller rejects it: later hosts are backups of earlier ones. It ignores
// weights, except that 0 excludes a host.
func RequestRoundRobin(hosts []Host, _ Options) Balancer {
	index, count := servingHosts(hosts)
	if b := fixedBalancer(index, count); b != nil {
		return b
	}
	return &requestRoundRobin{count, index}
}

func (b *requestRoundRobin) Pick(k Key) int {
	return originalIndex(b.index, uint64(k.Draw%b.count)) //nolint:gosec // neither is negative
}
