package upstream

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

// hostSet is the set of hosts that some exchanges may use: all of a cluster, or a subset.
//
//	hostSet ─▶ priorityLevel, one for each priority ─▶ localityGroup, one for each locality ─▶ balancer
//
// Its members never change. A loadPlan holds the share of each level and locality. It is replaced
// when the health of a host changes; exchanges only read it. Hosts of weight 0 are in no set. The
// zero value has no hosts.
type hostSet struct {
	*hostSets
	levels []priorityLevel // sorted by priority, most preferred first; none is empty
	rules  *groupRules     // immutable; rules that match exchanges; nil: none

	plan atomic.Pointer[loadPlan]
	// nextTrial is when hosts without a share may be probed again: ns of the set's clock.
	nextTrial atomic.Int64

	prepared bool // most exchanges use this set: its panic is logged

	mu sync.Mutex // held while the plan is replaced
}

// priorityLevel holds the hosts of one priority.
type priorityLevel struct {
	hosts  []*Host
	blocks []localityGroup // one per locality if localities have weights, in their order; else one
}

// localityGroup is a group of hosts among which the cluster's policy balances.
type localityGroup struct {
	hosts  []*Host
	weight uint32 // of the locality
	up     int    // guarded by hostSet.mu: number of healthy hosts

	made     sync.Once
	balancer balance.Balancer // written under made
	built    atomic.Bool      // there is a balancer
}

// membership is a host's position in a hostSet. The zero value is no membership.
type membership struct {
	group *hostSet
	block *localityGroup
	up    bool // guarded by group.mu: how it is counted
}

// hostSets is what the host sets of one state are made from. It does not change after seat.
type hostSets struct {
	env    *env
	config *config.Cluster
	hosts  []*Host
	groups []*hostSet

	hashing bool // the policy uses an exchange's hash
	slow    bool // slow start applies: new hosts are skipped at times
}

// newDivision returns the hostSets of hosts. The cluster's mu is held, as for seat.
func newDivision(e *env, cfg *config.Cluster, hosts []*Host) *hostSets {
	for i, h := range hosts {
		h.place = i
	}
	d := &hostSets{env: e, config: cfg, hosts: hosts}
	d.hashing = cfg.Policy.Hashes()
	d.slow = cfg.SlowStart.Duration > 0 && !d.hashing && cfg.Policy != config.RequestRoundRobin
	return d
}

// everyone returns the indexes of all hosts.
func everyone(hosts []*Host) []int32 {
	list := make([]int32, len(hosts))
	for i := range list {
		list[i] = int32(i) //nolint:gosec // a cluster has far fewer than 2^31 hosts
	}
	return list
}

// group makes a hostSet of the hosts at those indexes.
func (d *hostSets) group(places []int32) *hostSet {
	g := &hostSet{hostSets: d}
	d.groups = append(d.groups, g)
	for _, hosts := range byPriority(d.hosts, places) {
		if l := d.level(hosts); len(l.blocks) > 0 {
			g.levels = append(g.levels, l)
		}
	}
	return g
}

// byPriority returns the hosts with a weight, grouped by priority.
func byPriority(all []*Host, places []int32) [][]*Host {
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

// level divides the hosts of one priority by locality. It leaves out hosts whose locality has no
// weight.
func (d *hostSets) level(hosts []*Host) priorityLevel {
	if len(d.config.Localities) == 0 {
		return priorityLevel{hosts, []localityGroup{{hosts: hosts, weight: 1}}}
	}
	priority := hosts[0].Config().Priority
	weights := make(map[config.Locality]uint32)
	for _, l := range d.config.Localities {
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
			i = len(l.blocks)
			blocks[at] = i
			l.blocks = append(l.blocks, localityGroup{weight: weight})
		}
		l.blocks[i].hosts = append(l.blocks[i].hosts, h)
		l.hosts = append(l.hosts, h)
	}
	return l
}

// seat gives the hosts their memberships and makes the first plans. Until then the previous plans,
// if any, followed their health.
func (d *hostSets) seat() {
	counts := make([]int, len(d.hosts))
	total := 0
	each(d.groups, func(_ *hostSet, _ *localityGroup, h *Host) {
		counts[h.place]++
		total++
	})
	storage := make([]membership, total)
	lists := make([][]membership, len(d.hosts))
	for i, n := range counts {
		lists[i], storage = storage[:0:n], storage[n:]
	}
	each(d.groups, func(g *hostSet, b *localityGroup, h *Host) {
		up := h.health.up()
		if up {
			b.up++
		}
		lists[h.place] = append(lists[h.place], membership{g, b, up})
	})
	for _, g := range d.groups {
		g.replan()
	}
	for i, h := range d.hosts {
		h.seats.Store(&lists[i])
		h.extraSeats.Store(nil)
	}
}

// each calls f for every host in every hostSet.
func each(groups []*hostSet, f func(g *hostSet, b *localityGroup, h *Host)) {
	for _, g := range groups {
		for i := range g.levels {
			blocks := g.levels[i].blocks
			for j := range blocks {
				for _, h := range blocks[j].hosts {
					f(g, &blocks[j], h)
				}
			}
		}
	}
}

// updateHealthCounts updates the counts and plans of all hostSets of the host. It is called after
// its health changed and after seat; the last caller sees the current health.
func (h *Host) updateHealthCounts() {
	seats := h.seats.Load()
	if seats == nil {
		return
	}
	for i := range *seats {
		s := &(*seats)[i]
		s.group.updateCount(s, h)
	}
	for s := h.extraSeats.Load(); s != nil; s = s.next {
		s.group.updateCount(&s.membership, h)
	}
}

func (g *hostSet) updateCount(s *membership, h *Host) {
	g.mu.Lock()
	before := g.panics()
	if up := h.health.up(); up != s.up {
		s.up = up
		if up {
			s.block.up++
		} else {
			s.block.up--
		}
		g.replan()
	}
	after := g.panics()
	g.mu.Unlock()
	if g.prepared && before != after {
		g.tell(after)
	}
}

// tell logs that the cluster's panic has begun or ended.
func (g *hostSet) tell(panics bool) {
	if panics {
		g.env.Log.Warn("upstream cluster in panic: too few hosts are healthy, so health is ignored", logCluster, g.config.Name)
	} else {
		g.env.Log.Info("upstream cluster no longer in panic", logCluster, g.config.Name)
	}
}

// prepare builds the balancers that the first exchanges will use. Others are built at their first
// use, because most of thousands of subsets may never be used. So are hash tables, unless the
// previous ones were used: they are large, and most of a thousand clusters may get no exchange.
func (g *hostSet) prepare(asked bool) {
	g.prepared = true
	if g.hashing && !asked {
		return
	}
	for i := range g.levels {
		for j := range g.levels[i].blocks {
			b := &g.levels[i].blocks[j]
			b.made.Do(func() { g.build(b) })
		}
	}
}

// asked reports whether there is a balancer.
func (g *hostSet) asked() bool {
	return slices.ContainsFunc(g.levels, func(l priorityLevel) bool {
		for i := range l.blocks {
			if l.blocks[i].built.Load() {
				return true
			}
		}
		return false
	})
}

// choose returns the pick of the balancer of a localityGroup.
func (g *hostSet) choose(b *localityGroup, k balance.Key) int {
	b.made.Do(func() { g.build(b) })
	return b.balancer.Pick(k)
}

func (g *hostSet) build(b *localityGroup) {
	peers := make([]balance.Peer, len(b.hosts))
	for i, h := range b.hosts {
		peers[i] = balance.Peer{Name: h.address, Weight: h.Config().Weight, Load: &h.load}
	}
	c := g.config
	b.balancer = g.env.Policies[c.Policy](peers, balance.Options{
		ChoiceCount:       c.ChoiceCount,
		ActiveRequestBias: c.ActiveRequestBias,
		MinRingSize:       c.MinRingSize,
		MaxRingSize:       c.MaxRingSize,
		TableSize:         c.TableSize,
		Now:               b.hosts[0].cluster.lastObserved,
	})
	b.built.Store(true)
}
