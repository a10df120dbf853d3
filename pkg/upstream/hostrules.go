package upstream

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/hash"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/share"
)

// hostSetRules holds the rules of a hostSet and, for each set of hosts that they select, a hostSet
// of these. It is made when an exchange first needs it:
//
//	exchange ─▶ chain.Select ─▶ set ─▶ find ─▶ group
//	                                    └─ not there: Cluster.makeRuleHostSet
type hostSetRules struct {
	chain       config.HostChain
	scratchSets sync.Pool // of *config.HostSet, for Select

	ruleSets atomic.Pointer[map[uint64]*ruleHostSet] // by hashes of sets; replaced with Cluster.mu held; nil: none
}

// ruleHostSet is the hostSet of one selected set. Immutable.
type ruleHostSet struct {
	allowed config.HostSet
	set     *hostSet
	next    *ruleHostSet // with the same hash
}

// Bounds of the host sets that rules select in a cluster. An exchange that exceeds one drops all of
// them; those still in use are made again.
const (
	maxRuleHostSets    = 256
	maxRuleMemberships = 1 << 18 // hosts in all of them
)

// newHostSetRules returns the rules for exchanges with these labels; nil: there are none.
func newHostSetRules(rules config.HostRules, labels map[string]string) *hostSetRules {
	if rules == nil {
		return nil
	}
	r := &hostSetRules{chain: rules.Chain(labels)}
	r.scratchSets.New = func() any {
		set := config.NewHostSet(r.chain.Len())
		return &set
	}
	return r
}

// hashHostSet returns the hash of a set.
func hashHostSet(set config.HostSet) (sum uint64) {
	for _, word := range set {
		sum = hash.Mix(sum*3 + word)
	}
	return sum
}

// find returns the hostSet of a set, or nil if it was not made.
func (r *hostSetRules) find(allowed config.HostSet) *hostSet {
	known := r.ruleSets.Load()
	if known == nil {
		return nil
	}
	for n := (*known)[hashHostSet(allowed)]; n != nil; n = n.next {
		if slices.Equal(n.allowed, allowed) {
			return n.set
		}
	}
	return nil
}

// applyRules returns the hosts of g that the rules of the cluster select for x.
func (c *Cluster) applyRules(s *state, g *hostSet, x *protocol.Exchange) *hostSet {
	r := g.rules
	allowed, _ := r.scratchSets.Get().(*config.HostSet)
	r.chain.Select(x, *allowed)
	to := r.find(*allowed)
	if to == nil {
		to = c.makeRuleHostSet(s, g, *allowed)
	}
	r.scratchSets.Put(allowed)
	return to
}

// makeRuleHostSet makes a hostSet of the hosts of g that are in a set. It follows their health
// while s is the cluster's state.
func (c *Cluster) makeRuleHostSet(s *state, g *hostSet, allowed config.HostSet) *hostSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	if to := g.rules.find(allowed); to != nil {
		return to
	}
	to := g.filter(func(h *Host) bool { return g.rules.chain.Allows(allowed, h.Config()) })
	var seats []*ruleMembership
	forEachHost([]*hostSet{to}, func(_ *hostSet, counts *share.Locality, h *Host) {
		up := h.health.Up()
		if up {
			counts.Healthy++
		}
		seats = append(seats, &ruleMembership{membership: membership{to, counts, up}, host: h})
	})
	to.replan()
	if c.state.Load() != s {
		return to // for this exchange only: later ones use another state
	}
	if s.ruleSetCount++; s.ruleSetCount > maxRuleHostSets || s.ruleMembershipCount+len(seats) > maxRuleMemberships {
		s.dropRuleHostSets()
	}
	s.ruleMembershipCount += len(seats)
	g.rules.add(&ruleHostSet{allowed: slices.Clone(allowed), set: to})
	for _, one := range seats {
		one.next = one.host.ruleMemberships.Load()
		one.host.ruleMemberships.Store(one)
		one.host.updateHealthCounts() // apply health changes since the read above
	}
	return to
}

// add adds a ruleHostSet. Cluster.mu is held.
func (r *hostSetRules) add(n *ruleHostSet) {
	all := make(map[uint64]*ruleHostSet)
	if known := r.ruleSets.Load(); known != nil {
		maps.Copy(all, *known)
	}
	sum := hashHostSet(n.allowed)
	n.next = all[sum]
	all[sum] = n
	r.ruleSets.Store(&all)
}

// dropRuleHostSets drops the host sets that rules made. It does not affect exchanges that have
// found one. Cluster.mu is held.
func (s *state) dropRuleHostSets() {
	s.ruleSetCount, s.ruleMembershipCount = 1, 0
	forget := func(g *hostSet) {
		if g.rules != nil {
			g.rules.ruleSets.Store(nil)
		}
	}
	forget(s.defaultSet)
	if s.subsets != nil {
		for _, set := range s.subsets.sets {
			forget(set)
		}
	}
	for _, h := range s.hosts {
		h.ruleMemberships.Store(nil)
	}
}

// filter returns a hostSet of the hosts of g for which fits returns true.
func (g *hostSet) filter(fits func(*Host) bool) *hostSet {
	to := &hostSet{hostSetBuilder: g.hostSetBuilder}
	for i := range g.levels {
		var hosts []*Host
		for _, h := range g.levels[i].hosts {
			if fits(h) {
				hosts = append(hosts, h)
			}
		}
		if len(hosts) > 0 {
			to.addLevel(g.newLevel(hosts))
		}
	}
	return to
}

// ruleMembership is the membership of a host in a hostSet that rules made.
type ruleMembership struct {
	membership

	host *Host
	next *ruleMembership // of the same host
}

// connectionHosts returns the hosts for forwarded connections and sessions: none if there are
// rules, because rules match requests.
func (s *state) connectionHosts() *hostSet {
	if s.defaultSet.rules != nil {
		return new(hostSet)
	}
	return s.defaultSet
}
