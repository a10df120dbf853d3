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
	"github.com/weft-proxy/weft/pkg/upstream/subset"
)

// hostSetRules holds the rules of a hostSet, and caches one hostSet for each set of hosts that the
// rules have selected. The first exchange that needs a cached hostSet creates it:
//
//	exchange ─▶ chain.Select ─▶ set ─▶ find ─▶ hostSet
//	                                    └─ not found: Cluster.makeRuleHostSet
type hostSetRules struct {
	chain       config.HostChain
	scratchSets sync.Pool // of *config.HostSet, for Select

	ruleSets atomic.Pointer[map[uint64]*ruleHostSet] // by the hash of the allowed hosts; replaced with Cluster.mu held; nil: none
}

// ruleHostSet is the hostSet of one set of hosts that the rules select. Immutable.
type ruleHostSet struct {
	allowed config.HostSet
	set     *hostSet
	next    *ruleHostSet // with the same hash
}

// Bounds of the host sets that rules select in a cluster. If the new set of an exchange would
// exceed a bound, makeRuleHostSet drops all other sets; later exchanges create those that they
// need.
const (
	maxRuleHostSets    = 256
	maxRuleMemberships = 1 << 18 // sum of the hosts of these sets
)

// newHostSetRules returns the rules for a hostSet whose subset has these labels, or nil if the
// cluster has no rules.
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

func hashHostSet(set config.HostSet) (sum uint64) {
	for _, word := range set {
		sum = hash.Mix(sum*3 + word)
	}
	return sum
}

// find returns the hostSet of the allowed hosts, or nil if there is none.
func (r *hostSetRules) find(allowed config.HostSet) *hostSet {
	sets := r.ruleSets.Load()
	if sets == nil {
		return nil
	}
	for n := (*sets)[hashHostSet(allowed)]; n != nil; n = n.next {
		if slices.Equal(n.allowed, allowed) {
			return n.set
		}
	}
	return nil
}

// applyRules returns the hosts of hs that the rules of the cluster select for x.
func (c *Cluster) applyRules(s *state, hs *hostSet, x *protocol.Exchange) *hostSet {
	r := hs.rules
	allowed, _ := r.scratchSets.Get().(*config.HostSet)
	r.chain.Select(x, *allowed)
	selected := r.find(*allowed)
	if selected == nil {
		selected = c.makeRuleHostSet(s, hs, *allowed)
	}
	r.scratchSets.Put(allowed)
	return selected
}

// makeRuleHostSet creates a hostSet of the hosts of hs that the rules allow. The hostSet follows
// their health until dropRuleHostSets drops it or another state replaces s.
func (c *Cluster) makeRuleHostSet(s *state, hs *hostSet, allowed config.HostSet) *hostSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	if selected := hs.rules.find(allowed); selected != nil {
		return selected
	}
	selected := hs.filter(func(h *Host) bool { return hs.rules.chain.Allows(allowed, h.Config()) })
	var memberships []*ruleMembership
	forEachHost([]*hostSet{selected}, func(_ *hostSet, counts *share.Locality, h *Host) {
		up := h.health.Up()
		if up {
			counts.Healthy++
		}
		memberships = append(memberships, &ruleMembership{membership: membership{selected, counts, up}, host: h})
	})
	selected.replan()
	if c.state.Load() != s {
		return selected // for this exchange only: later exchanges use another state
	}
	if s.ruleSetCount++; s.ruleSetCount > maxRuleHostSets || s.ruleMembershipCount+len(memberships) > maxRuleMemberships {
		s.dropRuleHostSets()
	}
	s.ruleMembershipCount += len(memberships)
	hs.rules.add(&ruleHostSet{allowed: slices.Clone(allowed), set: selected})
	for _, m := range memberships {
		m.next = m.host.ruleMemberships.Load()
		m.host.ruleMemberships.Store(m)
		m.host.updateHealthCounts() // apply health changes since the read above
	}
	return selected
}

// add makes find return n.set for n.allowed. The caller holds Cluster.mu.
func (r *hostSetRules) add(n *ruleHostSet) {
	updated := make(map[uint64]*ruleHostSet)
	if sets := r.ruleSets.Load(); sets != nil {
		maps.Copy(updated, *sets)
	}
	sum := hashHostSet(n.allowed)
	n.next = updated[sum]
	updated[sum] = n
	r.ruleSets.Store(&updated)
}

// dropRuleHostSets drops the host sets of rules. An exchange that has found one still uses it. The
// caller holds Cluster.mu.
func (s *state) dropRuleHostSets() {
	s.ruleSetCount, s.ruleMembershipCount = 1, 0 // makeRuleHostSet adds its new set
	drop := func(hs *hostSet) {
		if hs.rules != nil {
			hs.rules.ruleSets.Store(nil)
		}
	}
	drop(s.defaultSet)
	if s.subsets != nil {
		for _, set := range s.subsets.sets {
			drop(set)
		}
	}
	for _, h := range s.hosts {
		h.ruleMemberships.Store(nil)
	}
}

// filter returns a hostSet of the hosts of hs for which match returns true.
func (hs *hostSet) filter(match func(*Host) bool) *hostSet {
	filtered := &hostSet{hostSetBuilder: hs.hostSetBuilder}
	for i := range hs.levels {
		var hosts []*Host
		for _, h := range hs.levels[i].hosts {
			if match(h) {
				hosts = append(hosts, h)
			}
		}
		if len(hosts) > 0 {
			filtered.addLevel(hs.newLevel(hosts))
		}
	}
	return filtered
}

// ruleMembership is the membership of a host in a hostSet of rules.
type ruleMembership struct {
	membership

	host *Host
	next *ruleMembership // of the same host
}

// connectionHosts returns the hosts with labels for forwarded connections and sessions: none if there
// are rules, because rules match requests. labels may be nil.
func (s *state) connectionHosts(labels *subset.Labels) *hostSet {
	hosts := s.defaultSet
	if labels != nil {
		hosts = s.hostsFor(subset.Request{Route: labels})
	}
	if hosts.rules != nil {
		return new(hostSet)
	}
	return hosts
}
