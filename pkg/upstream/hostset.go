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

// hostSet is a set of hosts that some exchanges may use: all hosts of a cluster, those of a subset,
// or those that rules select from one of these sets.
//
//	hostSet ─▶ priorityLevel, one for each priority ─▶ localityGroup, one for each locality ─▶ balancer
//
// The hosts of a set never change. A share.Plan holds the share of each level and locality. A new
// Plan replaces it when the health of a host changes; exchanges only read it. Hosts of weight 0 are
// in no set. If the cluster has LocalityWeights, hosts whose locality has no weight are in no set
// either. The zero value has no hosts.
type hostSet struct {
	*hostSetBuilder
	levels []priorityLevel // immutable; sorted by priority, most preferred first; none is empty
	rules  *hostSetRules   // immutable; rules that match exchanges; nil: none

	plan atomic.Pointer[share.Plan] // nil: there are no hosts
	// nextProbe is when hosts without a share may be probed again, as nanoseconds of env.now.
	nextProbe atomic.Int64

	isDefault bool // the default set of its state, whose panic is logged

	mu     sync.Mutex    // held while the plan is replaced
	counts []share.Level // hosts of each of levels; the counts of healthy hosts are guarded by mu
}

// priorityLevel holds the hosts of one priority.
type priorityLevel struct {
	hosts      []*Host
	localities []localityGroup // one for each locality in the order of the hosts; only one if localities have no weights
}

// localityGroup is a group of hosts among which the cluster's policy balances.
type localityGroup struct {
	hosts  []*Host
	weight uint32 // of the locality

	buildOnce sync.Once
	balancer  balance.Balancer // written under buildOnce
	built     atomic.Bool      // balancer is set
}

// membership records that a host is in a hostSet, and how the set counts the host.
type membership struct {
	set       *hostSet
	locality  *share.Locality // of set.counts
	countedUp bool            // guarded by the mu of set: the host is counted as healthy
}

// hostSetBuilder builds the host sets of one state. It does not change after assignMemberships.
type hostSetBuilder struct {
	env    *env
	config *config.Cluster
	hosts  []*Host
	sets   []*hostSet

	usesHash  bool // the policy uses an exchange's hash
	slowStart bool // slow start applies: some picks skip new hosts
}

// newHostSetBuilder returns the hostSetBuilder of hosts. The caller holds the cluster's mu, here
// and for assignMemberships.
func newHostSetBuilder(e *env, cfg *config.Cluster, hosts []*Host) *hostSetBuilder {
	for i, h := range hosts {
		h.index = i
	}
	b := &hostSetBuilder{env: e, config: cfg, hosts: hosts}
	b.usesHash = cfg.LBPolicy.UsesHash()
	b.slowStart = cfg.SlowStart.Duration > 0 && !b.usesHash && cfg.LBPolicy != config.RequestRoundRobin
	return b
}

func allIndexes(hosts []*Host) []int32 {
	list := make([]int32, len(hosts))
	for i := range list {
		list[i] = int32(i) //nolint:gosec // a cluster has far fewer than 2^31 hosts
	}
	return list
}

// addSet creates a hostSet of the hosts at these indexes.
func (b *hostSetBuilder) addSet(indexes []int32) *hostSet {
	hs := &hostSet{hostSetBuilder: b}
	b.sets = append(b.sets, hs)
	for _, hosts := range groupByPriority(b.hosts, indexes) {
		if l := b.newLevel(hosts); len(l.localities) > 0 {
			hs.addLevel(l)
		}
	}
	return hs
}

// addLevel adds a level and the counts of its hosts, none healthy yet.
func (hs *hostSet) addLevel(l priorityLevel) {
	counts := make([]share.Locality, len(l.localities))
	for i := range l.localities {
		counts[i] = share.Locality{Weight: l.localities[i].weight, Hosts: len(l.localities[i].hosts)}
	}
	hs.levels = append(hs.levels, l)
	hs.counts = append(hs.counts, share.Level{Localities: counts})
}

// groupByPriority returns the hosts at the indexes whose weight is above 0, grouped by priority,
// the most preferred priority first.
func groupByPriority(hosts []*Host, indexes []int32) [][]*Host {
	weighted := make([]*Host, 0, len(indexes))
	mixedPriorities := false
	for _, i := range indexes {
		h := hosts[i]
		if entry := h.Config(); entry.Weight > 0 {
			mixedPriorities = mixedPriorities || entry.Priority != hosts[indexes[0]].Config().Priority
			weighted = append(weighted, h)
		}
	}
	switch {
	case len(weighted) == 0:
		return nil
	case !mixedPriorities:
		return [][]*Host{weighted}
	}
	slices.SortStableFunc(weighted, func(a, b *Host) int { return cmp.Compare(a.Config().Priority, b.Config().Priority) })
	var levels [][]*Host
	for start := 0; start < len(weighted); {
		end := start + 1
		for end < len(weighted) && weighted[end].Config().Priority == weighted[start].Config().Priority {
			end++
		}
		levels = append(levels, weighted[start:end:end])
		start = end
	}
	return levels
}

// newLevel divides the hosts of one priority by locality. It leaves out hosts whose locality has no
// weight.
func (b *hostSetBuilder) newLevel(hosts []*Host) priorityLevel {
	if len(b.config.LocalityWeights) == 0 {
		return priorityLevel{hosts, []localityGroup{{hosts: hosts, weight: 1}}}
	}
	priority := hosts[0].Config().Priority
	weights := make(map[config.Locality]uint32)
	for _, w := range b.config.LocalityWeights {
		if w.Priority == priority && w.Weight > 0 {
			weights[w.Locality] = w.Weight
		}
	}
	var level priorityLevel
	indexes := make(map[config.Locality]int)
	for _, h := range hosts {
		locality := h.Config().Locality
		weight := weights[locality]
		if weight == 0 {
			continue
		}
		i, ok := indexes[locality]
		if !ok {
			i = len(level.localities)
			indexes[locality] = i
			level.localities = append(level.localities, localityGroup{weight: weight})
		}
		level.localities[i].hosts = append(level.localities[i].hosts, h)
		level.hosts = append(level.hosts, h)
	}
	return level
}

// assignMemberships gives the hosts their memberships and computes the first plans. Until then,
// only the plans of the previous state follow the health of the hosts.
func (b *hostSetBuilder) assignMemberships() {
	counts := make([]int, len(b.hosts))
	total := 0
	forEachHost(b.sets, func(_ *hostSet, _ *share.Locality, h *Host) {
		counts[h.index]++
		total++
	})
	storage := make([]membership, total)
	lists := make([][]membership, len(b.hosts))
	for i, n := range counts {
		lists[i], storage = storage[:0:n], storage[n:]
	}
	forEachHost(b.sets, func(hs *hostSet, counts *share.Locality, h *Host) {
		up := h.health.Up()
		if up {
			counts.Healthy++
		}
		lists[h.index] = append(lists[h.index], membership{hs, counts, up})
	})
	for _, hs := range b.sets {
		hs.replan()
	}
	for i, h := range b.hosts {
		h.memberships.Store(&lists[i])
		h.ruleMemberships.Store(nil)
	}
}

// forEachHost calls f for every host in every hostSet, with the counts of its locality.
func forEachHost(sets []*hostSet, f func(hs *hostSet, counts *share.Locality, h *Host)) {
	for _, hs := range sets {
		for i := range hs.levels {
			localities := hs.levels[i].localities
			for j := range localities {
				for _, h := range localities[j].hosts {
					f(hs, &hs.counts[i].Localities[j], h)
				}
			}
		}
	}
}

// updateHealthCounts updates the counts and plans of all host sets of the host. Callers call it
// after each change of the host's health or memberships; the last call sees the current health.
func (h *Host) updateHealthCounts() {
	memberships := h.memberships.Load()
	if memberships == nil {
		return
	}
	for i := range *memberships {
		m := &(*memberships)[i]
		m.set.updateMembership(m, h)
	}
	for m := h.ruleMemberships.Load(); m != nil; m = m.next {
		m.set.updateMembership(&m.membership, h)
	}
}

// replan computes the plan from the counts. The caller holds hs.mu, or hs is not shared yet.
func (hs *hostSet) replan() {
	if len(hs.levels) > 0 {
		hs.plan.Store(share.NewPlan(&hs.config.Failover, hs.counts))
	}
}

// inPanic reports whether a level is in panic.
func (hs *hostSet) inPanic() bool { return hs.plan.Load().InPanic() }

func (hs *hostSet) updateMembership(m *membership, h *Host) {
	hs.mu.Lock()
	before := hs.inPanic()
	if up := h.health.Up(); up != m.countedUp {
		m.countedUp = up
		if up {
			m.locality.Healthy++
		} else {
			m.locality.Healthy--
		}
		hs.replan()
	}
	after := hs.inPanic()
	hs.mu.Unlock()
	if hs.isDefault && before != after {
		h.cluster.logPanicChange()
	}
}

// logPanicChange logs that the default set of the current state has gone into panic or out of it
// since the last log. install calls it, and updateMembership calls it after each change of the
// set's panic. Calls for concurrent changes may come in any order, so each repeats until the log is
// current.
func (c *Cluster) logPanicChange() {
	for {
		inPanic := c.state.Load().defaultSet.inPanic()
		if c.panicLogged.Swap(inPanic) == inPanic {
			return
		}
		if inPanic {
			c.env.Log.Warn("upstream cluster in panic: too few hosts are healthy, so health is ignored", logCluster, c.name)
		} else {
			c.env.Log.Info("upstream cluster no longer in panic", logCluster, c.name)
		}
	}
}

// buildBalancers builds the balancers of the default set. Other sets build theirs on first use,
// because most of thousands of subsets may never be used. Hash tables are large, so buildBalancers
// leaves them to the first use too, unless the previous state has built hash tables.
func (hs *hostSet) buildBalancers(hashTablesBuilt bool) {
	if hs.usesHash && !hashTablesBuilt {
		return
	}
	for i := range hs.levels {
		for j := range hs.levels[i].localities {
			lg := &hs.levels[i].localities[j]
			lg.buildOnce.Do(func() { hs.buildBalancer(lg) })
		}
	}
}

// hasBalancers reports whether any balancer was built.
func (hs *hostSet) hasBalancers() bool {
	return slices.ContainsFunc(hs.levels, func(l priorityLevel) bool {
		for i := range l.localities {
			if l.localities[i].built.Load() {
				return true
			}
		}
		return false
	})
}

// pickIndex returns the index of the host that the balancer of a localityGroup picks.
func (hs *hostSet) pickIndex(lg *localityGroup, key balance.Key) int {
	lg.buildOnce.Do(func() { hs.buildBalancer(lg) })
	return lg.balancer.Pick(key)
}

func (hs *hostSet) buildBalancer(lg *localityGroup) {
	hosts := make([]balance.Host, len(lg.hosts))
	for i, h := range lg.hosts {
		hosts[i] = balance.Host{Name: h.address, Weight: h.Config().Weight, Load: &h.load}
	}
	cfg := hs.config
	lg.balancer = hs.env.Policies[cfg.LBPolicy](hosts, balance.Options{
		ChoiceCount:       cfg.ChoiceCount,
		ActiveRequestBias: cfg.ActiveRequestBias,
		MinRingSize:       cfg.MinRingSize,
		MaxRingSize:       cfg.MaxRingSize,
		TableSize:         cfg.MaglevTableSize,
		Now:               lg.hosts[0].cluster.lastLatencyAt,
	})
	lg.built.Store(true)
}
