package balance

import "math"

// table is the lookup table of the Maglev and ring-hash balancers: it maps the index of an entry to
// the index of a host. Up to 65,536 hosts, an index takes 16 bits: a smaller table makes a pick
// cheaper, because reading memory is most of its cost.
type table struct {
	narrow []uint16
	wide   []int32 // nil unless there are too many hosts for narrow
}

// newTable returns a table of entries, which are indices below hostCount. It may retain entries.
func newTable(entries []int32, hostCount int) table {
	if hostCount > math.MaxUint16+1 {
		return table{wide: entries}
	}
	narrow := make([]uint16, len(entries))
	for i, host := range entries {
		narrow[i] = uint16(host) //nolint:gosec // below the number of hosts
	}
	return table{narrow: narrow}
}

func (t *table) hostIndex(entry uint64) int {
	if t.wide != nil {
		return int(t.wide[entry])
	}
	return int(t.narrow[entry])
}

// size returns the number of entries.
func (t *table) size() int { return max(len(t.narrow), len(t.wide)) }
