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

// Maglev returns a balancer that hashes by a table. The peers fill the entries in turns, each in
// its own order and as often as its weight says (Eisenbud et al., "Maglev: A Fast and Reliable
// Software Network Load Balancer", 2016). Shares are exact to one or two entries, much better than
// RingHash's. When a peer is removed, a few hashes of other peers move too.
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
	list := fillTable(newMaglevPeers(peers, index, count, uint64(size)), size) //nolint:gosec // positive
	return &maglev{newTable(list, len(peers))}
}

// maglevPeer is a peer that fills table entries.
type maglevPeer struct {
	next   uint64 // the next entry to try
	step   uint64 // distance to the entry after next, below the table's size
	weight uint64
	credit uint64 // grows by the largest weight with each entry taken
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

// fillTable lets the peers take entries in turns until none is free. After round n a peer of weight
// w has taken n·w/top entries, rounded up, unless the table filled up before.
func fillTable(list []maglevPeer, size int) []int32 {
	const free = -1
	table := make([]int32, size)
	for i := range table {
		table[i] = free
	}
	var top uint64
	for i := range list {
		top = max(top, list[i].weight)
	}
	for left, round := size, uint64(1); ; round++ {
		for i := range list {
			c := &list[i]
			if c.credit >= round*c.weight {
				continue
			}
			c.credit += top
			for table[c.next] != free {
				c.advance(uint64(size)) //nolint:gosec // positive
			}
			table[c.next] = c.peer
			c.advance(uint64(size)) //nolint:gosec // positive
			if left--; left == 0 {
				return table
			}
		}
	}
}

func (c *maglevPeer) advance(size uint64) {
	if c.next += c.step; c.next >= size {
		c.next -= size
	}
}

func (b *maglev) Pick(k Key) int {
	place, _ := scaleRandom(uint64(b.table.size()), hash.Nth(k.Hash, uint64(k.Draw))) //nolint:gosec // never negative
	return b.table.peer(place)
}
