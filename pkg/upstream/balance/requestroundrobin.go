package balance

// inOrder gives every exchange the peers in order, from the first.
type inOrder struct {
	count int
	index []int32 // see serving
}

// RequestRoundRobin returns a balancer that begins with the first peer for each
// exchange and goes on to the next when that one is refused: the peers stand by for
// those before them. It does not look at weights.
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
