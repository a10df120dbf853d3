package balance

import "math"

// table says which peer is in each place. Few peers are written in half the memory:
// what a pick costs is mostly to fetch it.
type table struct {
	narrow []uint16
	wide   []int32 // nil, unless there are too many peers for narrow
}

// newTable returns a table of what list says about so many peers. It may keep list.
func newTable(list []int32, peers int) table {
	if peers > math.MaxUint16+1 {
		return table{wide: list}
	}
	narrow := make([]uint16, len(list))
	for i, peer := range list {
		narrow[i] = uint16(peer) //nolint:gosec // below the number of peers
	}
	return table{narrow: narrow}
}

func (t *table) peer(place uint64) int {
	if t.wide != nil {
		return int(t.wide[place])
	}
	return int(t.narrow[place])
}

// size returns the number of places.
func (t *table) size() int { return max(len(t.narrow), len(t.wide)) }
