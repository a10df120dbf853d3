package balance

import "math"

// table holds the peer of each entry. Indices of few peers use half the memory: the cost of a pick
// is mostly the memory read.
type table struct {
	narrow []uint16
	wide   []int32 // nil unless there are too many peers for narrow
}

// newTable returns a table of list, whose entries are indices below peers. It may retain list.
func newTable(entries []int32, peers int) table {
	if peers > math.MaxUint16+1 {
		return table{wide: entries}
	}
	narrow := make([]uint16, len(entries))
	for i, peer := range entries {
		narrow[i] = uint16(peer) //nolint:gosec // below the number of peers
	}
	return table{narrow: narrow}
}

func (t *table) peer(entry uint64) int {
	if t.wide != nil {
		return int(t.wide[entry])
	}
	return int(t.narrow[entry])
}

// size returns the number of entries.
func (t *table) size() int { return max(len(t.narrow), len(t.wide)) }
