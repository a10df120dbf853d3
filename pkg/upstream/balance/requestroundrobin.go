package balance

// inOrder picks the peers in order for every exchange, from the first.
type inOrder struct {
	count int
	index []int32 // see weightedPeers
}

// RequestRoundRobin returns a balancer that starts with the first peer for each exchange and picks
// the next one when the caller rejects it: later peers are backups of earlier ones. It ignores
// weights, except that 0 excludes a peer.
func RequestRoundRobin(peers []Peer, _ Options) Balancer {
	index, count := weightedPeers(peers)
	if b := few(index, count); b != nil {
		return b
	}
	return &inOrder{count, index}
}

func (b *inOrder) Pick(k Key) int {
	return at(b.index, uint64(k.Draw%b.count)) //nolint:gosec // neither is negative
}
