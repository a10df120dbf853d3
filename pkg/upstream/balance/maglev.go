package balance

import "github.com/weft-proxy/weft/internal/hash"

// maglev is a lookup table of hosts; a hash selects an entry.
type maglev struct {
	table table
}

// Table sizes. They are primes, so that every step visits every entry.
const (
	smallTableSize = 65_537
	largeTableSize = 655_373

	// minEntriesPerHost is the minimum average number of entries per host in the small table. With
	// fewer, the shares are too coarse and Maglev uses the large table.
	minEntriesPerHost = 4
)

// Maglev returns a balancer that maps a hash to a host by a table. The hosts take turns to fill the
// entries, each in its own order and in proportion to its weight (Eisenbud et al., "Maglev: A Fast
// and Reliable Software Network Load Balancer", 2016). Shares are exact to one or two entries, much
// better than RingHash's. When a host is removed, a few hashes of other hosts move too.
func Maglev(hosts []Host, o Options) Balancer {
	index, count := servingHosts(hosts)
	if b := fixedBalancer(index, count); b != nil {
		return b
	}
	size := o.TableSize
	if size <= 0 {
		size = smallTableSize
		if count > smallTableSize/minEntriesPerHost {
			size = largeTableSize
		}
	}
	entries := fillTable(newMaglevHosts(hosts, index, count, uint64(size)), size) //nolint:gosec // positive
	return &maglev{newTable(entries, len(hosts))}
}

// maglevHost is a host that fills table entries.
type maglevHost struct {
	next         uint64 // the next entry to try
	step         uint64 // distance between the entries to try, below the table's size
	weight       uint64
	filledWeight uint64 // entries filled so far, times the largest weight of all hosts
	hostIndex    int32
}

func newMaglevHosts(hosts []Host, index []int32, count int, size uint64) []maglevHost {
	list := make([]maglevHost, count)
	for i, p := range sortedByHash(hosts, index, count) {
		list[i] = maglevHost{
			next:      hash.Nth(p.hash, 1) % size,
			step:      hash.Nth(p.hash, 2)%(size-1) + 1,
			weight:    uint64(hosts[p.index].Weight),
			hostIndex: p.index,
		}
	}
	return list
}

// fillTable lets the hosts fill entries in turn until none is free. After round n, a host of weight
// w has filled n·w/maxWeight entries, rounded up, unless the table was full before.
func fillTable(hosts []maglevHost, size int) []int32 {
	const free = -1
	table := make([]int32, size)
	for i := range table {
		table[i] = free
	}
	var maxWeight uint64
	for i := range hosts {
		maxWeight = max(maxWeight, hosts[i].weight)
	}
	for remaining, round := size, uint64(1); ; round++ {
		for i := range hosts {
			p := &hosts[i]
			if p.filledWeight >= round*p.weight {
				continue
			}
			p.filledWeight += maxWeight
			for table[p.next] != free {
				p.advance(uint64(size)) //nolint:gosec // positive
			}
			table[p.next] = p.hostIndex
			p.advance(uint64(size)) //nolint:gosec // positive
			if remaining--; remaining == 0 {
				return table
			}
		}
	}
}

func (p *maglevHost) advance(size uint64) {
	if p.next += p.step; p.next >= size {
		p.next -= size
	}
}

func (b *maglev) Pick(k Key) int {
	entry, _ := scaleRandom(uint64(b.table.size()), hash.Nth(k.Hash, uint64(k.Draw))) //nolint:gosec // never negative
	return b.table.hostIndex(entry)
}
