package upstream

import (
	"math"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
)

// loadPlan holds the share of the exchanges that each level of a hostSet gets, and each locality of
// a level. It follows Envoy's rules: a priority level gets all load while Overprovisioning times
// its healthy fraction is at least 1; the rest goes to the next level. A locality's weight is
// scaled likewise. Immutable.
type loadPlan struct {
	levels []priorityLoad
	split  bool // there is more than one level or locality
	// starved: hosts that are down are in levels or localities without a share, so that no exchange
	// would ever find them recovered.
	starved bool
}

// priorityLoad is the share of one level. Of random points below 2^53, the level gets those below
// its upTo that are not below upTo of the previous level. Its localities divide the points in the
// same way.
type priorityLoad struct {
	upTo       uint64
	panic      bool     // the level is in panic: its health is ignored
	localities []uint64 // upTo of each locality; nil: there is one
}

// randomPoints is the number of points: 53 bits, so that shares are exact as floats.
const randomPoints = 1 << 53

// toPoint converts random bits to a point.
func toPoint(random uint64) uint64 { return random >> 11 }

// Defaults of config.Failover.
const (
	defaultOverprovisioning = 1.4
	defaultPanicThreshold   = 50
)

// shareEpsilon exceeds the error of shares, because factors such as 1.4 are not exact.
const shareEpsilon = 1e-9

// failoverParams are the failover parameters of one cluster.
type failoverParams struct {
	overprovisioning float64 // overprovisioning
	panicThreshold   float64 // percent of hosts that must be healthy; below 0: none
}

func failoverParamsOf(f *config.Failover) failoverParams {
	m := failoverParams{f.Overprovisioning, f.PanicThreshold}
	if m.overprovisioning == 0 {
		m.overprovisioning = defaultOverprovisioning
	}
	if m.panicThreshold == 0 {
		m.panicThreshold = defaultPanicThreshold
	}
	return m
}

// capacity returns the fraction of its load that a group with up of its hosts healthy can take.
func (m failoverParams) capacity(up, of int) float64 {
	if of == 0 {
		return 0
	}
	return min(1, m.overprovisioning*float64(up)/float64(of))
}

// replan computes the plan from the counts. g.mu is held, or g is not shared yet.
func (g *hostSet) replan() {
	if len(g.levels) == 0 {
		return
	}
	m := failoverParamsOf(&g.config.Failover)
	p := &loadPlan{levels: make([]priorityLoad, len(g.levels))}
	shares := m.levelShares(g.levels, p.levels)
	upTo := 0.0
	p.split = len(g.levels) > 1
	for i := range g.levels {
		upTo += shares[i]
		p.levels[i].upTo = uint64(math.Round(upTo * randomPoints))
		p.levels[i].localities = m.localityShares(g.levels[i].localities, p.levels[i].panic)
		p.split = p.split || p.levels[i].localities != nil
		p.starved = p.starved || hasStarvedHosts(&g.levels[i], shares[i], p.levels[i].localities)
	}
	g.plan.Store(p)
}

// levelShares returns the fraction of the exchanges that each level gets, 1 in total, and marks the
// levels that are in panic.
func (m failoverParams) levelShares(levels []priorityLevel, plans []priorityLoad) []float64 {
	shares := make([]float64, len(levels))
	able, hosts := 0.0, 0
	for i := range levels {
		shares[i] = m.capacity(levels[i].healthyCount(), len(levels[i].hosts))
		able += shares[i]
		hosts += len(levels[i].hosts)
	}
	panics := 0
	if able < 1-shareEpsilon {
		for i := range levels {
			if float64(100*levels[i].healthyCount()) < m.panicThreshold*float64(len(levels[i].hosts)) {
				plans[i].panic = true
				panics++
			}
		}
	}
	switch {
	case panics == len(levels): // all levels are in panic: all hosts get the same share
		for i := range levels {
			shares[i] = float64(len(levels[i].hosts)) / float64(hosts)
		}
	case able == 0: // no capacity at all
		shares[0] = 1
	default:
		left := 1.0
		for i := range shares {
			shares[i] = min(left, shares[i]/min(1, able))
			if left -= shares[i]; left < shareEpsilon {
				shares[i] += left
				left = 0
			}
		}
	}
	return shares
}

// localityShares returns upTo of each locality of a level, nil if there is one. In panic, and when no host
// is healthy, only the weights count.
func (m failoverParams) localityShares(blocks []localityGroup, panics bool) []uint64 {
	if len(blocks) < 2 {
		return nil
	}
	weights := make([]float64, len(blocks))
	sum := 0.0
	for i := range blocks {
		b := &blocks[i]
		weights[i] = float64(b.weight) * m.capacity(b.healthy, len(b.hosts))
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
		points[i] = uint64(math.Round(upTo / sum * randomPoints))
	}
	return points
}

// healthyCount returns the number of healthy hosts.
func (l *priorityLevel) healthyCount() int {
	n := 0
	for i := range l.localities {
		n += l.localities[i].healthy
	}
	return n
}

// hasStarvedHosts reports whether hosts of l that are down get no exchanges.
func hasStarvedHosts(l *priorityLevel, share float64, points []uint64) bool {
	var before uint64
	for i := range l.localities {
		b := &l.localities[i]
		nothing := share == 0
		if points != nil {
			nothing = nothing || points[i] == before
			before = points[i]
		}
		if nothing && b.healthy < len(b.hosts) {
			return true
		}
	}
	return false
}

// inPanic reports whether a level is in panic.
func (g *hostSet) inPanic() bool {
	p := g.plan.Load()
	return p != nil && slices.ContainsFunc(p.levels, func(l priorityLoad) bool { return l.panic })
}

// levelAt returns the index of the level that a point belongs to.
func (p *loadPlan) levelAt(point uint64) int {
	last := len(p.levels) - 1
	for i := range last {
		if point < p.levels[i].upTo {
			return i
		}
	}
	return last
}

// localityAt returns the index of the locality that a point belongs to.
func (l *priorityLoad) localityAt(point uint64) int {
	for i, upTo := range l.localities {
		if point < upTo {
			return i
		}
	}
	return 0 // there is one, or rounding left a point over
}
