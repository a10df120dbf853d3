package upstream

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/share"
)

// aggregate picks hosts for a cluster of type AGGREGATE. The priority levels of its member clusters
// follow each other in the order of the members, and share the exchanges like the levels of one
// cluster. Settings of connections and limits are those of the member to which a host belongs.
//
// The health and the hosts of a member change at any time. So aggregate keeps the plan of all levels
// together with the plans of the members from which it was computed, and computes it again when one
// of these was replaced.
type aggregate struct {
	failover *config.Failover // immutable
	members  []*Cluster       // immutable; some may not be configured
	latest   atomic.Pointer[aggregatePlan]
}

// aggregatePlan holds the shares of the levels of all members. Immutable.
type aggregatePlan struct {
	sources []memberPlan     // one for each member
	levels  []aggregateLevel // levels of all members
	plan    *share.Plan      // one level for each of levels; nil: there are no hosts
}

// memberPlan is the host set of a member and its plan. The zero value means that the member has no
// hosts.
type memberPlan struct {
	hosts *hostSet
	plan  *share.Plan
}

// aggregateLevel is a level of a member.
type aggregateLevel struct{ member, level int }

// newAggregate returns the aggregate of a cluster, or nil if the cluster has another type.
func (e *env) newAggregate(cfg *config.Cluster) *aggregate {
	if cfg.Type != config.ClusterAggregate {
		return nil
	}
	a := &aggregate{failover: &cfg.Failover}
	for _, name := range cfg.Aggregate {
		if m := e.findOrCreate(name); !slices.Contains(a.members, m) { // the first of several equal names counts
			a.members = append(a.members, m)
		}
	}
	return a
}

// memberPlan returns the current memberPlan of a member.
func (c *Cluster) memberPlan() memberPlan {
	s := c.state.Load()
	if s == nil || s.removed || s.aggregate != nil || s.originalDst != nil {
		return memberPlan{}
	}
	return memberPlan{s.defaultSet, s.defaultSet.plan.Load()}
}

// currentPlan returns the plan for the current health of all members.
func (a *aggregate) currentPlan() *aggregatePlan {
	p := a.latest.Load()
	if p != nil && p.isCurrent(a.members) {
		return p
	}
	p = a.newPlan()
	a.latest.Store(p) // a concurrent call may store an older plan, which the next call replaces
	return p
}

func (p *aggregatePlan) isCurrent(members []*Cluster) bool {
	for i, m := range members {
		if m.memberPlan() != p.sources[i] {
			return false
		}
	}
	return true
}

func (a *aggregate) newPlan() *aggregatePlan {
	p := &aggregatePlan{sources: make([]memberPlan, len(a.members))}
	var counts []share.Level
	for i, m := range a.members {
		source := m.memberPlan()
		p.sources[i] = source
		if source.plan == nil {
			continue
		}
		for level, count := range source.hosts.copyCounts() {
			p.levels = append(p.levels, aggregateLevel{i, level})
			counts = append(counts, count)
		}
	}
	if len(counts) > 0 {
		p.plan = share.NewPlan(a.failover, counts)
	}
	return p
}

// copyCounts returns the current counts of the levels.
func (hs *hostSet) copyCounts() []share.Level {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	counts := make([]share.Level, len(hs.counts))
	for i := range hs.counts {
		counts[i].Localities = slices.Clone(hs.counts[i].Localities)
	}
	return counts
}

// unsubscribed reports whether an exchange has to wait for the hosts of a member. It records that an
// exchange uses all members.
func (a *aggregate) unsubscribed() (result bool) {
	for _, m := range a.members {
		result = m.mustAwaitHosts(m.state.Load()) || result
	}
	return result
}

// pickHost returns the next host for x, and the state of its cluster. Errors are Faults.
func (a *aggregate) pickHost(cp *ClusterPicker, x *protocol.Exchange, first int) (*Host, *state, error) {
	p := a.currentPlan()
	if p.plan == nil {
		return nil, nil, protocol.Faultf(protocol.NoHealthyHost, "cluster %s: none of its clusters has a host", cp.Cluster.name)
	}
	attempts := x.Record.Attempts
	if h := a.hostToProbe(p, attempts); h != nil {
		return a.admit(cp, h)
	}
	hash := x.Record.Hash
	if hash == 0 {
		hash = cp.Cluster.env.random()
	}
	selected := p.levels[p.plan.LevelAt(hash)]
	if s := a.members[selected.member].state.Load(); s != nil && s.subsets == nil && s.defaultSet.rules == nil {
		if h := s.defaultSet.pickAt(selected.level, x.Record.Hash, attempts, first); h != nil {
			return a.admit(cp, h)
		}
	}
	for i := range a.members { // first the selected member, then the others in their order
		m := a.members[(selected.member+i)%len(a.members)]
		if s := m.state.Load(); s != nil && !s.removed && s.aggregate == nil {
			member := *cp
			member.Cluster = m
			if h, err := member.pickHost(s, x, first); err == nil {
				return a.admit(cp, h)
			}
		}
	}
	return nil, nil, protocol.Faultf(protocol.NoHealthyHost, "cluster %s: none of its clusters has a healthy host", cp.Cluster.name)
}

// hostToProbe returns a host of a level without a share that is due for a recovery probe, or nil.
func (a *aggregate) hostToProbe(p *aggregatePlan, attempts []protocol.Attempt) *Host {
	if !p.plan.Starved {
		return nil
	}
	for _, source := range p.sources {
		if source.plan != nil {
			if h := source.hosts.hostToProbe(attempts); h != nil {
				return h
			}
		}
	}
	return nil
}

// admit checks whether the cluster of a picked host accepts an exchange, and returns its state.
func (*aggregate) admit(cp *ClusterPicker, h *Host) (*Host, *state, error) {
	s, err := h.cluster.admit(cp.Priority)
	return h, s, err
}

// pickForConn returns the next host for a forwarded connection, or nil. With labels, the members are
// tried in their order.
func (a *aggregate) pickForConn(choice ConnChoice, random uint64, tried []protocol.Attempt) *Host {
	if choice.Labels != nil {
		for _, m := range a.members {
			if h := m.state.Load().connectionHosts(choice.Labels).pick(choice.Hash, tried, 0); h != nil {
				return h
			}
		}
		return nil
	}
	p := a.currentPlan()
	if p.plan == nil {
		return nil
	}
	selected := p.levels[p.plan.LevelAt(random)]
	if h := p.sources[selected.member].hosts.pickAt(selected.level, choice.Hash, tried, 0); h != nil {
		return h
	}
	for _, source := range p.sources {
		if source.plan != nil {
			if h := source.hosts.pick(choice.Hash, tried, 0); h != nil {
				return h
			}
		}
	}
	return nil
}

// waitForMembers sends an exchange to an aggregate cluster after waiting for on-demand hosts of its
// members. If the hosts of a member do not arrive in time, the exchange uses the other members.
type waitForMembers struct {
	*ClusterPicker
	aggregate *aggregate
}

// Serve implements protocol.BlockingService.
func (w waitForMembers) Serve(ctx context.Context, x *protocol.Exchange) error {
	x.Detach()
	for _, m := range w.aggregate.members {
		if !m.mustAwaitHosts(m.state.Load()) {
			continue
		}
		err := m.awaitHosts(ctx, m.Breaker(w.Priority), x.EffectiveDeadline(), x.Downstream)
		if err != nil && protocol.ReasonOf(err) != protocol.ReasonOnDemandTimeout {
			return err
		}
	}
	return x.Serve(ctx, aggregatePicker{w.ClusterPicker})
}

// aggregatePicker is a ClusterPicker that does not wait for hosts.
type aggregatePicker struct{ *ClusterPicker }

// Start implements protocol.Service.
func (a aggregatePicker) Start(ctx context.Context, x *protocol.Exchange) error {
	s, err := a.Cluster.admit(a.Priority)
	if err != nil {
		return err
	}
	return a.startOnHost(ctx, s, x)
}
