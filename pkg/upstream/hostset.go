package upstream

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
	"github.com/weft-proxy/weft/pkg/upstream/share"
)

// hostSet is the set of hosts that some exchanges may use: all of a cluster, or a subset.
//
//	hostSet ─▶ priorityLevel, one for each priority ─▶ localityGroup, one for each locality ─▶ balancer
//
// Its members never change. A share.Plan holds the share of each level and locality. It is replaced
// when the health of a host changes; exchanges only read it. Hosts of weight 0 are in no set. The
// zero value has no hosts.
type hostSet struct {
	*hostSetBuilder
	levels []priorityLevel // immutable; sorted by priority, most preferred first; none is empty
	rules  *hostSetRules   // immutable; rules that match exchanges; nil: none

	plan atomic.Pointer[share.Plan] // nil: there are no hosts
	// nextProbe is when hosts without a share may be probed again: ns of the set's clock.
	nextProbe atomic.Int64

	primary bool // most exchanges use this set: its panic is logged

	mu     sync.Mutex    // held while the plan is replaced
	counts []share.Level // of levels; the counts of healthy hosts are guarded by mu
}

// priorityLevel holds the hosts of one priority.
type priorityLevel struct {
	hosts      []*Host
	localities []localityGroup // one per locality if localities have weights, in their order; else one
}

// localityGroup is a group of hosts among which the cluster's policy balances.
type localityGroup struct {
	hosts  []*Host
	weight uint32 // of the locality

	buildOnce sync.Once
	balancer  balance.Balancer // written under buildOnce
	built     atomic.Bool      // there is a balancer
}

// membership is a host's position in a hostSet. The zero value is no membership.
type membership struct {
	set       *hostSet
	locality  *share.Locality // of set.counts
	countedUp bool            // guarded by the mu of set: how it is counted
}

// hostSetBuilder builds the host sets of one state. It does not change after assignMemberships.
type hostSetBuilder struct {
	env    *env
	config *config.Cluster
	hosts  []*Host
	sets   []*hostSet

	usesHash  bool // the policy uses an exchange's hash
	slowStart bool // slow start applies: new hosts are skipped at times
}

// newHostSetBuilder returns the hostSetBuilder of hosts. The cluster's mu is held, as for
// assignMemberships.
func newHostSetBuilder(e *env, cfg *config.Cluster, hosts []*Host) *hostSetBuilder {
	for i, h := range hosts {
		h.index = i
	}
	d := &hostSetBuilder{env: e, config: cfg, hosts: hosts}
	d.usesHash = cfg.LBPolicy.UsesHash()
	d.slowStart = cfg.SlowStart.Duration > 0 && !d.usesHash && cfg.LBPolicy != config.RequestRoundRobin
	return d
}

// allIndexes returns the indexes of all hosts.
func allIndexes(hosts []*Host) []int32 {
	list := make([]int32, len(hosts))
	for i := range list {
		list[i] = int32(i) //nolint:gosec // a cluster has far fewer than 2^31 hosts
	}
	return list
}

// addSet makes a hostSet of the hosts at those indexes.
func (d *hostSetBuilder) addSet(places []int32) *hostSet {
	g := &hostSet{hostSetBuilder: d}
	d.sets = append(d.sets, g)
	for _, hosts := range groupByPriority(d.hosts, places) {
		if l := d.newLevel(hosts); len(l.localities) > 0 {
			g.addLevel(l)
		}
	}
	return g
}

// addLevel adds a level and the counts of its hosts, none healthy yet.
func (g *hostSet) addLevel(l priorityLevel) {
	counts := make([]share.Locality, len(l.localities))
	for i := range l.localities {
		counts[i] = share.Locality{Weight: l.localities[i].weight, Hosts: len(l.localities[i].hosts)}
	}
	g.levels = append(g.levels, l)
	g.counts = append(g.counts, share.Level{Localities: counts})
}

// groupByPriority returns the hosts with a weight, grouped by priority.
func groupByPriority(all []*Host, places []int32) [][]*Host {
	hosts := make([]*Host, 0, len(places))
	mixed := false
	for _, i := range places {
		h := all[i]
		if entry := h.Config(); entry.Weight > 0 {
			mixed = mixed || entry.Priority != all[places[0]].Config().Priority
			hosts = append(hosts, h)
		}
	}
	switch {
	case len(hosts) == 0:
		return nil
	case !mixed:
		return [][]*Host{hosts}
	}
	slices.SortStableFunc(hosts, func(a, b *Host) int { return cmp.Compare(a.Config().Priority, b.Config().Priority) })
	var levels [][]*Host
	for from := 0; from < len(hosts); {
		to := from + 1
		for to < len(hosts) && hosts[to].Config().Priority == hosts[from].Config().Priority {
			to++
		}
		levels = append(levels, hosts[from:to:to])
		from = to
	}
	return levels
}

// newLevel divides the hosts of one priority by locality. It leaves out hosts whose locality has no
// weight.
func (d *hostSetBuilder) newLevel(hosts []*Host) priorityLevel {
	if len(d.config.LocalityWeights) == 0 {
		return priorityLevel{hosts, []localityGroup{{hosts: hosts, weight: 1}}}
	}
	priority := hosts[0].Config().Priority
	weights := make(map[config.Locality]uint32)
	for _, l := range d.config.LocalityWeights {
		if l.Priority == priority && l.Weight > 0 {
			weights[l.Locality] = l.Weight
		}
	}
	var l priorityLevel
	blocks := make(map[config.Locality]int)
	for _, h := range hosts {
		at := h.Config().Locality
		weight := weights[at]
		if weight == 0 {
			continue
		}
		i, known := blocks[at]
		if !known {
			i = len(l.localities)
			blocks[at] = i
			l.localities = append(l.localities, localityGroup{weight: weight})
		}
		l.localities[i].hosts = append(l.localities[i].hosts, h)
		l.hosts = append(l.hosts, h)
	}
	return l
}

// assignMemberships gives the hosts their memberships and makes the first plans. Until then the
// previous plans, if any, followed their health.
func (d *hostSetBuilder) assignMemberships() {
	counts := make([]int, len(d.hosts))
	total := 0
	forEachHost(d.sets, func(_ *hostSet, _ *share.Locality, h *Host) {
		counts[h.index]++
		total++
	})
	storage := make([]membership, total)
	lists := make([][]membership, len(d.hosts))
	for i, n := range counts {
		lists[i], storage = storage[:0:n], storage[n:]
	}
	forEachHost(d.sets, func(g *hostSet, counts *share.Locality, h *Host) {
		up := h.health.Up()
		if up {
			counts.Healthy++
		}
		lists[h.index] = append(lists[h.index], membership{g, counts, up})
	})
	for _, g := range d.sets {
		g.replan()
	}
	for i, h := range d.hosts {
		h.memberships.Store(&lists[i])
		h.ruleMemberships.Store(nil)
	}
}

// forEachHost calls f for every host in every hostSet, with the counts of its locality.
func forEachHost(groups []*hostSet, f func(g *hostSet, counts *share.Locality, h *Host)) {
	for _, g := range groups {
		for i := range g.levels {
			blocks := g.levels[i].localities
			for j := range blocks {
				for _, h := range blocks[j].hosts {
					f(g, &g.counts[i].Localities[j], h)
				}
			}
		}
	}
}

// updateHealthCounts updates the counts and plans of all host sets of the host. It is called after
// its health changed and after assignMemberships; the last caller sees the current health.
func (h *Host) updateHealthCounts() {
	seats := h.memberships.Load()
	if seats == nil {
		return
	}
	for i := range *seats {
		s := &(*seats)[i]
		s.set.updateMembership(s, h)
	}
	for s := h.ruleMemberships.Load(); s != nil; s = s.next {
		s.set.updateMembership(&s.membership, h)
	}
}

// replan computes the plan from the counts. g.mu is held, or g is not shared yet.
func (g *hostSet) replan() {
	if len(g.levels) > 0 {
		g.plan.Store(share.NewPlan(&g.config.Failover, g.counts))
	}
}

// inPanic reports whether a level is in panic.
func (g *hostSet) inPanic() bool { return g.plan.Load().InPanic() }

func (g *hostSet) updateMembership(s *membership, h *Host) {
	g.mu.Lock()
	before := g.inPanic()
	if up := h.health.Up(); up != s.countedUp {
		s.countedUp = up
		if up {
			s.locality.Healthy++
		} else {
			s.locality.Healthy--
		}
		g.replan()
	}
	after := g.inPanic()
	g.mu.Unlock()
	if g.primary && before != after {
		g.logPanicMode(after)
	}
}

// logPanicMode logs that the cluster's panic has begun or ended.
func (g *hostSet) logPanicMode(panics bool) {
	if panics {
		g.env.Log.Warn("upstream cluster in panic: too few hosts are healthy, so health is ignored", logCluster, g.config.Name)
	} else {
		g.env.Log.Info("upstream cluster no longer in panic", logCluster, g.config.Name)
	}
}

// buildBalancers builds the balancers that the first exchanges will use. Others are built at their
// first use, because most of thousands of subsets may never be used. So are hash tables, unless the
// previous ones were used: they are large, and most of a thousand clusters may get no exchange.
func (g *hostSet) buildBalancers(asked bool) {
	g.primary = true
	if g.usesHash && !asked {
		return
	}
	for i := range g.levels {
		for j := range g.levels[i].localities {
			b := &g.levels[i].localities[j]
			b.buildOnce.Do(func() { g.buildBalancer(b) })
		}
	}
}

// hasBalancers reports whether there is a balancer.
func (g *hostSet) hasBalancers() bool {
	return slices.ContainsFunc(g.levels, func(l priorityLevel) bool {
		for i := range l.localities {
			if l.localities[i].built.Load() {
				return true
			}
		}
		return false
	})
}

// pickIndex returns the pick of the balancer of a localityGroup.
func (g *hostSet) pickIndex(b *localityGroup, k balance.Key) int {
	b.buildOnce.Do(func() { g.buildBalancer(b) })
	return b.balancer.Pick(k)
}

func (g *hostSet) buildBalancer(b *localityGroup) {
	peers := make([]balance.Peer, len(b.hosts))
	for i, h := range b.hosts {
		peers[i] = balance.Peer{Name: h.address, Weight: h.Config().Weight, Load: &h.load}
	}
	c := g.config
	b.balancer = g.env.Policies[c.LBPolicy](peers, balance.Options{
		ChoiceCount:       c.ChoiceCount,
		ActiveRequestBias: c.ActiveRequestBias,
		MinRingSize:       c.MinRingSize,
		MaxRingSize:       c.MaxRingSize,
		TableSize:         c.MaglevTableSize,
		Now:               b.hosts[0].cluster.lastObserved,
	})
	b.built.Store(true)
}
