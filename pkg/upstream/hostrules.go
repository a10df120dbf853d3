package upstream

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/hash"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// groupRules holds the rules of a hostSet and, for each set of hosts that they select, a hostSet of
// these. It is made when an exchange first needs it:
//
//	exchange ─▶ chain.Select ─▶ set ─▶ find ─▶ group
//	                                    └─ not there: Cluster.makeRuleGroup
type groupRules struct {
	chain config.HostChain
	sets  sync.Pool // of *config.HostSet, for Select

	groups atomic.Pointer[map[uint64]*ruleGroup] // by hashes of sets; replaced with Cluster.mu held; nil: none
}

// ruleGroup is the hostSet of one selected set. Immutable.
type ruleGroup struct {
	allowed config.HostSet
	group   *hostSet
	next    *ruleGroup // with the same hash
}

// Bounds of the host sets that rules select in a cluster. An exchange that exceeds one drops all of
// them; those still in use are made again.
const (
	maxRuleGroups = 256
	maxRuleSeats  = 1 << 18 // hosts in all of them
)

// newGroupRules returns the rules for exchanges with these labels; nil: there are none.
func newGroupRules(rules config.HostRules, labels *Labels) *groupRules {
	if rules == nil {
		return nil
	}
	var values map[string]string
	if labels != nil {
		values = make(map[string]string, len(labels.list))
		for _, l := range labels.list {
			values[l.name] = l.value
		}
	}
	r := &groupRules{chain: rules.Chain(values)}
	r.sets.New = func() any {
		set := config.NewHostSet(r.chain.Len())
		return &set
	}
	return r
}

// hashOf returns the hash of a set.
func hashOf(set config.HostSet) (sum uint64) {
	for _, word := range set {
		sum = hash.Mix(sum*3 + word)
	}
	return sum
}

// find returns the hostSet of a set, or nil if it was not made.
func (r *groupRules) find(allowed config.HostSet) *hostSet {
	known := r.groups.Load()
	if known == nil {
		return nil
	}
	for n := (*known)[hashOf(allowed)]; n != nil; n = n.next {
		if slices.Equal(n.allowed, allowed) {
			return n.group
		}
	}
	return nil
}

// applyRules returns the hosts of g that the rules of the cluster select for x.
func (c *Cluster) applyRules(s *state, g *hostSet, x *protocol.Exchange) *hostSet {
	r := g.rules
	allowed, _ := r.sets.Get().(*config.HostSet)
	r.chain.Select(x, *allowed)
	to := r.find(*allowed)
	if to == nil {
		to = c.makeRuleGroup(s, g, *allowed)
	}
	r.sets.Put(allowed)
	return to
}

// makeRuleGroup makes a hostSet of the hosts of g that are in a set. It follows their health while
// s is the cluster's state.
func (c *Cluster) makeRuleGroup(s *state, g *hostSet, allowed config.HostSet) *hostSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	if to := g.rules.find(allowed); to != nil {
		return to
	}
	to := g.with(func(h *Host) bool { return g.rules.chain.Has(allowed, h.Config()) })
	var seats []*extraSeat
	each([]*hostSet{to}, func(_ *hostSet, b *localityGroup, h *Host) {
		up := h.health.up()
		if up {
			b.up++
		}
		seats = append(seats, &extraSeat{membership: membership{to, b, up}, host: h})
	})
	to.replan()
	if c.state.Load() != s {
		return to // for this exchange only: later ones use another state
	}
	if s.ruleGroups++; s.ruleGroups > maxRuleGroups || s.ruleSeats+len(seats) > maxRuleSeats {
		s.dropRuleGroups()
	}
	s.ruleSeats += len(seats)
	g.rules.add(&ruleGroup{allowed: slices.Clone(allowed), group: to})
	for _, one := range seats {
		one.next = one.host.extraSeats.Load()
		one.host.extraSeats.Store(one)
		one.host.updateHealthCounts() // apply health changes since the read above
	}
	return to
}

// add adds a ruleGroup. Cluster.mu is held.
func (r *groupRules) add(n *ruleGroup) {
	all := make(map[uint64]*ruleGroup)
	if known := r.groups.Load(); known != nil {
		maps.Copy(all, *known)
	}
	sum := hashOf(n.allowed)
	n.next = all[sum]
	all[sum] = n
	r.groups.Store(&all)
}

// dropRuleGroups drops the host sets that rules made. It does not affect exchanges that have found
// one. Cluster.mu is held.
func (s *state) dropRuleGroups() {
	s.ruleGroups, s.ruleSeats = 1, 0
	forget := func(g *hostSet) {
		if g.rules != nil {
			g.rules.groups.Store(nil)
		}
	}
	forget(s.all)
	if s.subsets != nil {
		for _, first := range s.subsets.bySum {
			for one := first; one != nil; one = one.next {
				forget(one.group)
			}
		}
	}
	for _, h := range s.hosts {
		h.extraSeats.Store(nil)
	}
}

// with returns a hostSet of the hosts of g for which fits returns true.
func (g *hostSet) with(fits func(*Host) bool) *hostSet {
	to := &hostSet{hostSets: g.hostSets}
	for i := range g.levels {
		var hosts []*Host
		for _, h := range g.levels[i].hosts {
			if fits(h) {
				hosts = append(hosts, h)
			}
		}
		if len(hosts) > 0 {
			to.levels = append(to.levels, g.level(hosts))
		}
	}
	return to
}

// extraSeat is the membership of a host in a hostSet that rules made.
type extraSeat struct {
	membership

	host *Host
	next *extraSeat // of the same host
}

// forConnections returns the hosts for forwarded connections and sessions: none if there are rules,
// because rules match requests.
func (s *state) forConnections() *hostSet {
	if s.all.rules != nil {
		return new(hostSet)
	}
	return s.all
}
