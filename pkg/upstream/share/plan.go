// Package share computes which fraction of the exchanges the parts of a set of hosts get:
// priorities and localities by their health and weights (plan.go), and hosts in slow start by their
// age (slowstart.go). It follows Envoy's rules of priority levels. docs/balancing.md explains them.
//
// All functions are pure: the caller passes health, age and random bits.
package share

import (
	"math"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
)

// Level is what a Plan is computed from: the hosts of one priority. It has at least one host.
type Level struct {
	Localities []Locality // at least one
}

// Locality counts the hosts of one locality of a Level.
type Locality struct {
	Weight  uint32 // above 0
	Hosts   int    // above 0
	Healthy int    // of Hosts
}

// hosts returns the number of hosts of the level.
func (l *Level) hosts() (n int) {
	for i := range l.Localities {
		n += l.Localities[i].Hosts
	}
	return n
}

// healthy returns the number of healthy hosts of the level.
func (l *Level) healthy() (n int) {
	for i := range l.Localities {
		n += l.Localities[i].Healthy
	}
	return n
}

// Plan holds the share of the exchanges that each level gets, and each locality of a level. A
// priority level gets all load while Overprovisioning times its healthy fraction is at least 1; the
// rest goes to the next level. A locality's weight is scaled likewise. Immutable.
type Plan struct {
	levels []levelShare

	// Split is true if there is more than one level or locality.
	Split bool
	// Starved is true if hosts that are down are in levels or localities without a share, so that
	// no exchange would ever find them recovered.
	Starved bool
}

// levelShare is the share of one level. Of random points below 2^53, the level gets those below its
// upTo that are not below upTo of the previous level. Its localities divide the points in the same
// way.
type levelShare struct {
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

// epsilon exceeds the error of shares, because factors such as 1.4 are not exact.
const epsilon = 1e-9

// failover are the failover parameters of one cluster.
type failover struct {
	overprovisioning float64
	panicThreshold   float64 // percent of hosts that must be healthy; below 0: none
}

func failoverOf(c *config.Failover) failover {
	f := failover{c.Overprovisioning, c.PanicThreshold}
	if f.overprovisioning == 0 {
		f.overprovisioning = defaultOverprovisioning
	}
	if f.panicThreshold == 0 {
		f.panicThreshold = defaultPanicThreshold
	}
	return f
}

// AllowsPanic reports whether the health of a level is ignored when too few of its hosts are
// healthy.
func AllowsPanic(c *config.Failover) bool { return failoverOf(c).panicThreshold > 0 }

// capacity returns the fraction of its load that a group with up of its hosts healthy can take.
func (f failover) capacity(up, of int) float64 {
	if of == 0 {
		return 0
	}
	return min(1, f.overprovisioning*float64(up)/float64(of))
}

// NewPlan computes the plan of at least one level. Levels are in the order of their priority, most
// preferred first. It retains nothing of levels.
func NewPlan(c *config.Failover, levels []Level) *Plan {
	f := failoverOf(c)
	p := &Plan{levels: make([]levelShare, len(levels))}
	shares := f.levelShares(levels, p.levels)
	upTo := 0.0
	p.Split = len(levels) > 1
	for i := range levels {
		upTo += shares[i]
		p.levels[i].upTo = uint64(math.Round(upTo * randomPoints))
		p.levels[i].localities = f.localityShares(levels[i].Localities, p.levels[i].panic)
		p.Split = p.Split || p.levels[i].localities != nil
		p.Starved = p.Starved || levels[i].starves(shares[i], p.levels[i].localities)
	}
	return p
}

// levelShares returns the fraction of the exchanges that each level gets, 1 in total, and marks the
// levels that are in panic.
func (f failover) levelShares(levels []Level, plans []levelShare) []float64 {
	shares := make([]float64, len(levels))
	able, hosts := 0.0, 0
	for i := range levels {
		n := levels[i].hosts()
		shares[i] = f.capacity(levels[i].healthy(), n)
		able += shares[i]
		hosts += n
	}
	panics := 0
	if able < 1-epsilon {
		for i := range levels {
			if float64(100*levels[i].healthy()) < f.panicThreshold*float64(levels[i].hosts()) {
				plans[i].panic = true
				panics++
			}
		}
	}
	switch {
	case panics == len(levels): // all levels are in panic: all hosts get the same share
		for i := range levels {
			shares[i] = float64(levels[i].hosts()) / float64(hosts)
		}
	case able == 0: // no capacity at all
		shares[0] = 1
	default:
		left := 1.0
		for i := range shares {
			shares[i] = min(left, shares[i]/min(1, able))
			if left -= shares[i]; left < epsilon {
				shares[i] += left
				left = 0
			}
		}
	}
	return shares
}

// localityShares returns upTo of each locality of a level, nil if there is one. In panic, and when
// no host is healthy, only the weights count.
func (f failover) localityShares(all []Locality, panics bool) []uint64 {
	if len(all) < 2 {
		return nil
	}
	weights := make([]float64, len(all))
	sum := 0.0
	for i := range all {
		weights[i] = float64(all[i].Weight) * f.capacity(all[i].Healthy, all[i].Hosts)
		sum += weights[i]
	}
	if panics || sum == 0 {
		sum = 0
		for i := range all {
			weights[i] = float64(all[i].Weight)
			sum += weights[i]
		}
	}
	points := make([]uint64, len(all))
	upTo := 0.0
	for i := range weights {
		upTo += weights[i]
		points[i] = uint64(math.Round(upTo / sum * randomPoints))
	}
	return points
}

// starves reports whether hosts of l that are down get no exchanges.
func (l *Level) starves(share float64, points []uint64) bool {
	var before uint64
	for i := range l.Localities {
		b := &l.Localities[i]
		nothing := share == 0
		if points != nil {
			nothing = nothing || points[i] == before
			before = points[i]
		}
		if nothing && b.Healthy < b.Hosts {
			return true
		}
	}
	return false
}

// InPanic reports whether a level is in panic. A nil plan is not.
func (p *Plan) InPanic() bool {
	return p != nil && slices.ContainsFunc(p.levels, func(l levelShare) bool { return l.panic })
}

// LevelPanics reports whether the level at an index is in panic: its health is ignored.
func (p *Plan) LevelPanics(level int) bool { return p.levels[level].panic }

// Levels returns the number of levels.
func (p *Plan) Levels() int { return len(p.levels) }

// LevelAt returns the index of the level that random bits select.
func (p *Plan) LevelAt(random uint64) int {
	point, last := toPoint(random), len(p.levels)-1
	for i := range last {
		if point < p.levels[i].upTo {
			return i
		}
	}
	return last
}

// OneLocality reports whether the level at an index has only one locality.
func (p *Plan) OneLocality(level int) bool { return p.levels[level].localities == nil }

// LocalityAt returns the index of the locality of a level that random bits select.
func (p *Plan) LocalityAt(level int, random uint64) int {
	point := toPoint(random)
	for i, upTo := range p.levels[level].localities {
		if point < upTo {
			return i
		}
	}
	return 0 // there is one, or rounding left a point over
}
