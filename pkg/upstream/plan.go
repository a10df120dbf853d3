package upstream

import (
	"math"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
)

// loadPlan says what share of the exchanges each level of a group gets, and each block of
// a level. It follows Envoy's rules: a priority is up to its work while
// Overprovisioning times its healthy part is at least 1, and what is more than that
// goes to the next; a locality's weight counts by the same measure. Immutable.
type loadPlan struct {
	levels []priorityLoad
	split  bool // there is more than one level, or block
	// starved: hosts that are down are in levels or blocks that get nothing, so that
	// no exchange would ever find out that they are back.
	starved bool
}

// priorityLoad is the part of one level. Of random points below 2^53 the level gets
// those below upTo and not below that of the level before; so do its blocks.
type priorityLoad struct {
	upTo   uint64
	panic  bool     // the level's health is not believed
	blocks []uint64 // upTo of each; nil: there is one
}

// connPool is the number of points: of 53 bits, so that shares are exact as floats.
const connPool = 1 << 53

// pointOf makes random bits a point.
func pointOf(random uint64) uint64 { return random >> 11 }

// Defaults of config.Failover.
const (
	defaultOverprovisioning = 1.4
	defaultPanicThreshold   = 50
)

// rounding is more than shares are wrong by because such factors as 1.4 are not exact.
const rounding = 1e-9

// failoverParams are the rules of one cluster.
type failoverParams struct {
	factor    float64 // overprovisioning
	threshold float64 // percent of hosts that must be healthy; below 0: none
}

func measuresOf(f *config.Failover) failoverParams {
	m := failoverParams{f.Overprovisioning, f.PanicThreshold}
	if m.factor == 0 {
		m.factor = defaultOverprovisioning
	}
	if m.threshold == 0 {
		m.threshold = defaultPanicThreshold
	}
	return m
}

// capacity is what part of its work something can do of which a part is healthy.
func (m failoverParams) capacity(up, of int) float64 {
	if of == 0 {
		return 0
	}
	return min(1, m.factor*float64(up)/float64(of))
}

// replan computes the plan from the counts. g.mu is held, or nobody knows g yet.
func (g *hostSet) replan() {
	if len(g.levels) == 0 {
		return
	}
	m := measuresOf(&g.config.Failover)
	p := &loadPlan{levels: make([]priorityLoad, len(g.levels))}
	shares := m.shares(g.levels, p.levels)
	upTo := 0.0
	p.split = len(g.levels) > 1
	for i := range g.levels {
		upTo += shares[i]
		p.levels[i].upTo = uint64(math.Round(upTo * connPool))
		p.levels[i].blocks = m.blocks(g.levels[i].blocks, p.levels[i].panic)
		p.split = p.split || p.levels[i].blocks != nil
		p.starved = p.starved || starved(&g.levels[i], shares[i], p.levels[i].blocks)
	}
	g.plan.Store(p)
}

// shares returns what part of the exchanges each level gets, 1 in all, and marks the
// levels that are in panic.
func (m failoverParams) shares(levels []priorityLevel, plans []priorityLoad) []float64 {
	shares := make([]float64, len(levels))
	able, hosts := 0.0, 0
	for i := range levels {
		shares[i] = m.capacity(levels[i].up(), len(levels[i].hosts))
		able += shares[i]
		hosts += len(levels[i].hosts)
	}
	panics := 0
	if able < 1-rounding {
		for i := range levels {
			if float64(100*levels[i].up()) < m.threshold*float64(len(levels[i].hosts)) {
				plans[i].panic = true
				panics++
			}
		}
	}
	switch {
	case panics == len(levels): // nothing is believed: all hosts alike
		for i := range levels {
			shares[i] = float64(len(levels[i].hosts)) / float64(hosts)
		}
	case able == 0: // nothing is there
		shares[0] = 1
	default:
		left := 1.0
		for i := range shares {
			shares[i] = min(left, shares[i]/min(1, able))
			if left -= shares[i]; left < rounding {
				shares[i] += left
				left = 0
			}
		}
	}
	return shares
}

// blocks returns the points of each block of a level, nil for one. In panic, and
// when nothing is healthy, weights alone count.
func (m failoverParams) blocks(blocks []localityGroup, panics bool) []uint64 {
	if len(blocks) < 2 {
		return nil
	}
	weights := make([]float64, len(blocks))
	sum := 0.0
	for i := range blocks {
		b := &blocks[i]
		weights[i] = float64(b.weight) * m.capacity(b.up, len(b.hosts))
		sum += weights[i]
	}
	if panics || sum == 0 {
		sum = 0
		for i := range blocks {
			weights[i] = float64(blocks[i].weight)
			sum += weights[i]
		}
	}
	points := make([]uint64, len(blocks))
	upTo := 0.0
	for i := range weights {
		upTo += weights[i]
		points[i] = uint64(math.Round(upTo / sum * connPool))
	}
	return points
}

// up returns the number of healthy hosts.
func (l *priorityLevel) up() int {
	n := 0
	for i := range l.blocks {
		n += l.blocks[i].up
	}
	return n
}

// starved reports whether hosts that are down get nothing.
func starved(l *priorityLevel, share float64, points []uint64) bool {
	var before uint64
	for i := range l.blocks {
		b := &l.blocks[i]
		nothing := share == 0
		if points != nil {
			nothing = nothing || points[i] == before
			before = points[i]
		}
		if nothing && b.up < len(b.hosts) {
			return true
		}
	}
	return false
}

// panics reports whether a level is in panic.
func (g *hostSet) panics() bool {
	p := g.plan.Load()
	return p != nil && slices.ContainsFunc(p.levels, func(l priorityLoad) bool { return l.panic })
}

// level returns the place of the level that a point belongs to.
func (p *loadPlan) level(point uint64) int {
	last := len(p.levels) - 1
	for i := range last {
		if point < p.levels[i].upTo {
			return i
		}
	}
	return last
}

// block returns the place of the block that a point belongs to.
func (l *priorityLoad) block(point uint64) int {
	for i, upTo := range l.blocks {
		if point < upTo {
			return i
		}
	}
	return 0 // there is one, or rounding has left a point
}
