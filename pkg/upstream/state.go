package upstream

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// state is what a cluster serves with. It is immutable except for its counts and replaced as a
// whole. The previous and the next state share its hosts.
type state struct {
	config  *config.Cluster
	hosts   []*Host
	all     *hostSet // for exchanges that match no subset, and for all if subsets is nil
	subsets *subsets // nil: none

	// Guarded by Cluster.mu: number of host sets that rules made, and of the hosts in them.
	ruleGroups, ruleSeats int

	removed bool // no longer configured; config is the last one
	demand  bool // the hosts are on demand

	destinations *originalDstHosts // replaces hosts in a cluster of type ORIGINAL_DST; else nil
}

// connectBy returns the deadline of a connect that starts now, or the zero time for none.
func (s *state) connectBy() time.Time {
	if s.config.ConnectTimeout <= 0 {
		return time.Time{}
	}
	return time.Now().Add(s.config.ConnectTimeout)
}

// check returns an error if cfg cannot be installed.
func (e *env) check(cfg *config.Cluster) error {
	if e.Policies[cfg.Policy] == nil && cfg.Type != config.ClusterOriginalDst {
		return fmt.Errorf("cluster %s: unknown load-balancing policy %q", cfg.Name, cfg.Policy)
	}
	for i := range cfg.Hosts {
		if cfg.Hosts[i].Address == "" {
			return fmt.Errorf("cluster %s: host %d has no address", cfg.Name, i)
		}
	}
	return e.checkable(cfg)
}

// install makes the cluster serve with cfg and these hosts. It keeps hosts whose address is
// unchanged, with their health, connections and counts. It returns the removed hosts, which the
// caller retires when it holds no lock.
func (c *Cluster) install(cfg *config.Cluster, entries []config.Host) (gone []*Host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries = merged(entries)
	old := c.state.Load()
	hosts, gone := c.reuse(old, cfg, entries)
	next := newState(c.env, cfg, hosts, old != nil && old.all.asked())
	d, left := c.destinationsFor(old, cfg)
	next.destinations = d
	c.state.Store(next)
	if !cfg.OnDemand.Asleep {
		c.onDemand.Come()
	}
	for _, h := range hosts {
		h.updateHealthCounts() // apply health changes that occurred while the state was made
	}
	for p := range c.breakers {
		c.breakers[p].grantSlots() // the limit may be larger now
	}
	c.configureChecks(cfg, hosts)
	if cfg.Pool.Warm != "" {
		c.env.start(func() { c.warm(cfg, hosts) })
	}
	return append(gone, left...)
}

// warm opens connections to hosts that have none.
func (c *Cluster) warm(cfg *config.Cluster, hosts []*Host) {
	if c.env.Meter != nil {
		c.openAccount()
	}
	for _, h := range hosts {
		if p, ok := h.pool(cfg.Pool.Warm, cfg.Pool.Mode, config.DefaultPriority).(*multiplexPool); ok {
			p.warm()
		}
	}
}

// newState divides hosts into host sets and counts healthy hosts; asked says that the balancers of
// the previous state were in use.
func newState(e *env, cfg *config.Cluster, hosts []*Host, asked bool) *state {
	s := &state{config: cfg, hosts: hosts, demand: cfg.OnDemand.Applies()}
	d := newDivision(e, cfg, hosts)
	if len(cfg.Subsets.Selectors) == 0 {
		s.all = d.group(everyone(hosts))
	} else {
		s.subsets = newSubsets(d, &cfg.Subsets)
		s.all = s.subsets.fallback
	}
	s.all.rules = newGroupRules(cfg.Rules, nil)
	s.all.prepare(asked)
	d.seat()
	return s
}

// remove marks the cluster as not configured and returns its hosts, which the caller retires.
func (c *Cluster) remove() (gone []*Host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state.Load()
	if s == nil || s.removed {
		return nil
	}
	c.state.Store(&state{config: s.config, all: new(hostSet), removed: true})
	c.onDemand.Come() // waiting exchanges resume and see the removal
	c.era.Add(1)
	c.ledger.close()
	c.detect(nil, nil)
	if s.destinations != nil {
		return s.destinations.close()
	}
	return s.hosts
}

func retire(hosts []*Host) {
	for _, h := range hosts {
		h.retire()
	}
}

// reuse returns a host for each entry, and the hosts of old without an entry. A host whose TLS or
// PROXY header configuration changed is replaced, because its open connections do not match the
// configuration. c.mu is held.
func (c *Cluster) reuse(old *state, cfg *config.Cluster, entries []config.Host) (hosts, gone []*Host) {
	hosts = make([]*Host, len(entries))
	var known map[string]*Host
	if old != nil && len(old.hosts) > 0 {
		known = make(map[string]*Host, len(old.hosts))
		for _, h := range old.hosts {
			known[h.address] = h
		}
	}
	for i := range entries {
		e := &entries[i]
		if h := known[e.Address]; h != nil && SameTLS(cfg, old.config) && e.NoTLS == h.Config().NoTLS && e.TLS == h.Config().TLS &&
			cfg.ProxyProtocol == old.config.ProxyProtocol {
			if e.Target != h.Config().Target {
				h.health.resetBackoff()
			}
			h.entry.Store(e)
			h.tell(e.Health)
			hosts[i] = h
			delete(known, e.Address)
			continue
		}
		hosts[i] = newHost(c, e)
	}
	for _, h := range known {
		gone = append(gone, h)
	}
	return hosts, gone
}

// merged returns entries with each address once: its first entry, with the sum of the weights. The
// usual cause is two names that resolve to one address.
func merged(entries []config.Host) []config.Host {
	if len(entries) < 2 {
		return entries
	}
	place := make(map[string]int, len(entries))
	kept := entries
	for i := range entries {
		e := &entries[i]
		first, again := place[e.Address]
		if !again {
			place[e.Address] = len(place)
			if len(kept) < len(entries) {
				kept = append(kept, *e)
			}
			continue
		}
		if len(kept) == len(entries) {
			kept = slices.Clone(entries[:i]) // the caller owns the argument
		}
		kept[first].Weight += e.Weight
	}
	return kept
}

// errBusy is returned by Prepare.
var errBusy = errors.New("upstream: another change is neither committed nor rolled back")

// same reports whether a and b are equivalent, so that nothing has to change.
// TestEveryClusterFieldCounts finds a field that it does not compare.
func same(a, b *config.Cluster) bool {
	return a == b ||
		a.Name == b.Name &&
			a.Type == b.Type &&
			a.Policy == b.Policy &&
			a.Protocol == b.Protocol &&
			a.GRPCInHTTP1 == b.GRPCInHTTP1 &&
			a.ChoiceCount == b.ChoiceCount &&
			a.ActiveRequestBias == b.ActiveRequestBias &&
			a.MinRingSize == b.MinRingSize &&
			a.MaxRingSize == b.MaxRingSize &&
			a.TableSize == b.TableSize &&
			sameSubsets(&a.Subsets, &b.Subsets) &&
			reflect.DeepEqual(a.Rules, b.Rules) &&
			a.SlowStart == b.SlowStart &&
			a.Failover == b.Failover &&
			slices.Equal(a.Localities, b.Localities) &&
			a.ConnectTimeout == b.ConnectTimeout &&
			a.IdleTimeout == b.IdleTimeout &&
			a.MaxRequestsPerConn == b.MaxRequestsPerConn &&
			a.Pool == b.Pool &&
			a.Mark == b.Mark &&
			a.Mesh == b.Mesh &&
			a.OriginalDst == b.OriginalDst &&
			a.KeepAlive == b.KeepAlive &&
			a.Breakers == b.Breakers &&
			a.HighBreakers == b.HighBreakers &&
			SameTLS(a, b) &&
			a.ProxyProtocol == b.ProxyProtocol &&
			a.Socket == b.Socket &&
			a.Health.Equal(b.Health) &&
			a.Outlier.Equal(b.Outlier) &&
			slices.EqualFunc(a.Hosts, b.Hosts, sameHost) &&
			slices.Equal(a.Drops, b.Drops) &&
			a.OnDemand == b.OnDemand &&
			a.DNS.Equal(&b.DNS)
}

func sameHost(a, b config.Host) bool {
	return a.Address == b.Address &&
		a.Target == b.Target &&
		a.Hostname == b.Hostname &&
		a.Weight == b.Weight &&
		a.NoTLS == b.NoTLS &&
		a.TLS == b.TLS &&
		maps.Equal(a.Metadata, b.Metadata) &&
		a.Priority == b.Priority &&
		a.Locality == b.Locality &&
		a.Workload == b.Workload &&
		a.Health == b.Health
}

func sameSubsets(a, b *config.Subsets) bool {
	return a.Fallback == b.Fallback &&
		maps.Equal(a.Default, b.Default) &&
		slices.EqualFunc(a.Selectors, b.Selectors, slices.Equal)
}
