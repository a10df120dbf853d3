// Package share computes the fraction of the exchanges that each part of a set of hosts gets:
// priorities and localities by their health and weights (plan.go), and hosts in slow start by their
// age (slowstart.go). It follows Envoy's rules for priority levels. docs/balancing.md explains
// them.
//
// All functions are pure: the caller passes health, age and random bits.
package share

import (
	"math"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
)

// Level holds the host counts of one priority, from which NewPlan computes a share. It has at least
// one host.
type Level struct {
	Localities []Locality // at least one
}

// Locality counts the hosts of one locality of a Level.
type Locality struct {
	Weight  uint32 // above 0
	Hosts   int    // above 0
	Healthy int    // healthy hosts among Hosts
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

// Plan holds the share of the exchanges that each level and each locality of a level gets. The most
// preferred level gets all exchanges while Overprovisioning times its healthy fraction is at least
// 1; otherwise the next level gets the rest. The weight of a locality is scaled in the same way.
// Immutable.
type Plan struct {
	levels []levelShare

	// Split reports that there is more than one level or locality.
	Split bool
	// Starved reports that hosts that are down are in levels or localities without a share, so that
	// no exchange would ever find them recovered.
	Starved bool
}

// levelShare is the share of one level. Of the random points below randomPoints, the level gets
// those from the end of the previous level up to its own end. The localities of a level divide all
// points in the same way.
type levelShare struct {
	end        uint64
	inPanic    bool     // the level is in panic: its health is ignored
	localities []uint64 // end of each locality; nil if there is only one
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

// epsilon exceeds the rounding error of shares: factors such as 1.4 have no exact representation.
const epsilon = 1e-9

// failover holds the failover parameters of one cluster.
type failover struct {
	overprovisioning float64
	panicThreshold   float64 // percentage of hosts that must be healthy; below 0: no panic
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

// AllowsPanic reports whether the health of a level is ignored if too few of its hosts are healthy.
func AllowsPanic(c *config.Failover) bool { return failoverOf(c).panicThreshold > 0 }

// capacity returns the fraction of its load that a group of hosts can carry.
func (f failover) capacity(healthy, hosts int) float64 {
	if hosts == 0 {
		return 0
	}
	return min(1, f.overprovisioning*float64(healthy)/float64(hosts))
}

// NewPlan computes the plan of at least one level. Levels are in the order of their priority, most
// preferred first. NewPlan does not retain levels.
func NewPlan(c *config.Failover, levels []Level) *Plan {
	f := failoverOf(c)
	p := &Plan{levels: make([]levelShare, len(levels))}
	shares := f.levelShares(levels, p.levels)
	end := 0.0
	p.Split = len(levels) > 1
	for i := range levels {
		end += shares[i]
		p.levels[i].end = uint64(math.Round(end * randomPoints))
		p.levels[i].localities = f.localityShares(levels[i].Localities, p.levels[i].inPanic)
		p.Split = p.Split || p.levels[i].localities != nil
		p.Starved = p.Starved || levels[i].hasStarvedHosts(shares[i], p.levels[i].localities)
	}
	return p
}

// levelShares returns the fraction of the exchanges that each level gets, 1 in total, and marks the
// levels that are in panic.
func (f failover) levelShares(levels []Level, plans []levelShare) []float64 {
	shares := make([]float64, len(levels))
	capacity, hosts := 0.0, 0
	for i := range levels {
		n := levels[i].hosts()
		shares[i] = f.capacity(levels[i].healthy(), n)
		capacity += shares[i]
		hosts += n
	}
	panicCount := 0
	if capacity < 1-epsilon {
		for i := range levels {
			if float64(100*levels[i].healthy()) < f.panicThreshold*float64(levels[i].hosts()) {
				plans[i].inPanic = true
				panicCount++
			}
		}
	}
	switch {
	case panicCount == len(levels): // all levels are in panic: all hosts get the same share
		for i := range levels {
			shares[i] = float64(levels[i].hosts()) / float64(hosts)
		}
	case capacity == 0: // no host is healthy: the most preferred level gets everything
		shares[0] = 1
	default:
		remaining := 1.0
		for i := range shares {
			shares[i] = min(remaining, shares[i]/min(1, capacity))
			if remaining -= shares[i]; remaining < epsilon {
				shares[i] += remaining
				remaining = 0
			}
		}
	}
	return shares
}

// localityShares returns the end of each locality of a level, nil if there is only one. In panic,
// and if no host is healthy, only the weights count.
func (f failover) localityShares(localities []Locality, inPanic bool) []uint64 {
	if len(localities) < 2 {
		return nil
	}
	weights := make([]float64, len(localities))
	sum := 0.0
	for i := range localities {
		weights[i] = float64(localities[i].Weight) * f.capacity(localities[i].Healthy, localities[i].Hosts)
		sum += weights[i]
	}
	if inPanic || sum == 0 {
		sum = 0
		for i := range localities {
			weights[i] = float64(localities[i].Weight)
			sum += weights[i]
		}
	}
	ends := make([]uint64, len(localities))
	end := 0.0
	for i := range weights {
		end += weights[i]
		ends[i] = uint64(math.Round(end / sum * randomPoints))
	}
	return ends
}

// hasStarvedHosts reports whether hosts of l that are down get no exchanges. share is the share of
// the level; ends holds the ends of its localities.
func (l *Level) hasStarvedHosts(share float64, ends []uint64) bool {
	var previousEnd uint64
	for i := range l.Localities {
		loc := &l.Localities[i]
		noShare := share == 0
		if ends != nil {
			noShare = noShare || ends[i] == previousEnd
			previousEnd = ends[i]
		}
		if noShare && loc.Healthy < loc.Hosts {
			return true
		}
	}
	return false
}

// InPanic reports whether any level is in panic. A nil plan has no levels.
func (p *Plan) InPanic() bool {
	return p != nil && slices.ContainsFunc(p.levels, func(l levelShare) bool { return l.inPanic })
}

// LevelPanics reports whether the level at an index is in panic: its health is ignored.
func (p *Plan) LevelPanics(level int) bool { return p.levels[level].inPanic }

// Levels returns the number of levels.
func (p *Plan) Levels() int { return len(p.levels) }

// LevelAt returns the index of the level that random bits select.
func (p *Plan) LevelAt(random uint64) int {
	point, last := toPoint(random), len(p.levels)-1
	for i := range last {
		if point < p.levels[i].end {
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
	for i, end := range p.levels[level].localities {
		if point < end {
			return i
		}
	}
	return 0 // there is only one locality: the last of several ends at randomPoints
}
