package balance

import "github.com/weft-proxy/weft/internal/hash"

// maglev is a table of peers; a hash selects an entry.
type maglev struct {
	table table
}

// Table sizes. They are primes, so that every step visits every entry.
const (
	smallTableSize = 65_537
	largeTableSize = 655_373

	// minEntriesPerPeer is the minimum average number of entries per peer in the small table. With
	// fewer, the shares are too coarse and Maglev uses the large table.
	minEntriesPerPeer = 4
)

// Maglev returns a balancer that maps a hash to a peer by a table. The peers take turns to fill the
// entries, each in its own order and in proportion to its weight (Eisenbud et al., "Maglev: A Fast
// and Reliable Software Network Load Balancer", 2016). Shares are exact to one or two entries, much
// better than RingHash's. When a peer is removed, a few hashes of other peers move too.
func Maglev(peers []Peer, o Options) Balancer {
	index, count := servingPeers(peers)
	if b := fixedBalancer(index, count); b != nil {
		return b
	}
	size := o.TableSize
	if size <= 0 {
		size = smallTableSize
		if count > smallTableSize/minEntriesPerPeer {
			size = largeTableSize
		}
	}
	entries := fillTable(newMaglevPeers(peers, index, count, uint64(size)), size) //nolint:gosec // positive
	return &maglev{newTable(entries, len(peers))}
}

// maglevPeer is a peer that fills table entries.
type maglevPeer struct {
	next   uint64 // the next entry to try
	step   uint64 // distance between the entries to try, below the table's size
	weight uint64
	credit uint64 // grows by the largest weight with each filled entry
	peer   int32
}

func newMaglevPeers(peers []Peer, index []int32, count int, size uint64) []maglevPeer {
	list := make([]maglevPeer, count)
	for i, p := range sortedByHash(peers, index, count) {
		list[i] = maglevPeer{
			next:   hash.Nth(p.hash, 1) % size,
			step:   hash.Nth(p.hash, 2)%(size-1) + 1,
			weight: uint64(peers[p.index].Weight),
			peer:   p.index,
		}
	}
	return list
}

// fillTable lets the peers fill entries in turn until none is free. After round n, a peer of weight
// w has filled n·w/maxWeight entries, rounded up, unless the table was full before.
func fillTable(peers []maglevPeer, size int) []int32 {
	const free = -1
	table := make([]int32, size)
	for i := range table {
		table[i] = free
	}
	var maxWeight uint64
	for i := range peers {
		maxWeight = max(maxWeight, peers[i].weight)
	}
	for remaining, round := size, uint64(1); ; round++ {
		for i := range peers {
			p := &peers[i]
			if p.credit >= round*p.weight {
				continue
			}
			p.credit += maxWeight
			for table[p.next] != free {
				p.advance(uint64(size)) //nolint:gosec // positive
			}
			table[p.next] = p.peer
			p.advance(uint64(size)) //nolint:gosec // positive
			if remaining--; remaining == 0 {
				return table
			}
		}
	}
}

func (p *maglevPeer) advance(size uint64) {
	if p.next += p.step; p.next >= size {
		p.next -= size
	}
}

func (b *maglev) Pick(k Key) int {
	entry, _ := scaleRandom(uint64(b.table.size()), hash.Nth(k.Hash, uint64(k.Draw))) //nolint:gosec // never negative
	return b.table.peer(entry)
}
