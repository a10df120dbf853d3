package upstream

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/pool"
)

// state is what a cluster serves with. It is immutable except for its counts and replaced as a
// whole. The previous and the next state share its hosts.
type state struct {
	config     *config.Cluster
	hosts      []*Host
	defaultSet *hostSet // for exchanges that match no subset, and for all if subsets is nil
	subsets    *subsets // nil: none

	// Guarded by Cluster.mu: number of host sets that rules made, and of the hosts in them.
	ruleSetCount, ruleMembershipCount int

	removed  bool // no longer configured; config is the last one
	onDemand bool // the hosts are on demand

	originalDst *originalDstHosts // replaces hosts in a cluster of type ORIGINAL_DST; else nil
}

// validate returns an error if cfg cannot be installed.
func (e *env) validate(cfg *config.Cluster) error {
	if e.Policies[cfg.LBPolicy] == nil && cfg.Type != config.ClusterOriginalDst {
		return fmt.Errorf("cluster %s: unknown load-balancing policy %q", cfg.Name, cfg.LBPolicy)
	}
	for i := range cfg.Hosts {
		if cfg.Hosts[i].Address == "" {
			return fmt.Errorf("cluster %s: host %d has no address", cfg.Name, i)
		}
	}
	return e.validateChecks(cfg)
}

// install makes the cluster serve with cfg and these hosts. It keeps hosts whose address is
// unchanged, with their health, connections and counts. It returns the removed hosts, which the
// caller retires when it holds no lock.
func (c *Cluster) install(cfg *config.Cluster, entries []config.Host) (gone []*Host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries = mergeDuplicates(entries)
	old := c.state.Load()
	hosts, gone := c.reuseHosts(old, cfg, entries)
	next := newState(c.env, cfg, hosts, old != nil && old.defaultSet.hasBalancers())
	d, left := c.originalDstHostsFor(old, cfg)
	next.originalDst = d
	c.config.Store(cfg)
	c.state.Store(next)
	if !cfg.OnDemand.Unsubscribed {
		c.onDemand.Notify()
	}
	for _, h := range hosts {
		h.updateHealthCounts() // apply health changes that occurred while the state was made
	}
	for p := range c.breakers {
		c.breakers[p].GrantSlots() // the new limit may be higher
	}
	c.configureChecks(cfg, hosts)
	if cfg.Pool.WarmProtocol != "" {
		c.env.tasks.Go(func() { c.warm(cfg, hosts) })
	}
	return append(gone, left...)
}

// warm opens connections to hosts that have none.
func (c *Cluster) warm(cfg *config.Cluster, hosts []*Host) {
	if c.env.Meter != nil {
		c.openRecorder()
	}
	for _, h := range hosts {
		pool.Warm(h.pool(cfg.Pool.WarmProtocol, cfg.Pool.Mode, config.DefaultPriority))
	}
}

// newState divides hosts into host sets and counts healthy hosts. asked reports whether exchanges
// used the balancers of the previous state.
func newState(e *env, cfg *config.Cluster, hosts []*Host, asked bool) *state {
	s := &state{config: cfg, hosts: hosts, onDemand: cfg.OnDemand.Enabled()}
	d := newHostSetBuilder(e, cfg, hosts)
	if len(cfg.Subsets.Selectors) == 0 {
		s.defaultSet = d.addSet(allIndexes(hosts))
	} else {
		s.subsets = newSubsets(d, &cfg.Subsets)
		s.defaultSet = s.subsets.fallback
	}
	s.defaultSet.rules = newHostSetRules(cfg.HostRules, nil)
	s.defaultSet.buildBalancers(asked)
	d.assignMemberships()
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
	c.state.Store(&state{config: s.config, defaultSet: new(hostSet), removed: true})
	c.onDemand.Notify() // waiting exchanges resume and see the removal
	c.generation.Add(1)
	c.recorder.close()
	c.configureOutlierDetection(nil, nil)
	if s.originalDst != nil {
		return s.originalDst.close()
	}
	return s.hosts
}

func retire(hosts []*Host) {
	for _, h := range hosts {
		h.retire()
	}
}

// reuseHosts returns a host for each entry, and the hosts of old without an entry. A host whose TLS
// or PROXY header configuration changed is replaced, because its open connections do not match the
// configuration. c.mu is held.
func (c *Cluster) reuseHosts(old *state, cfg *config.Cluster, entries []config.Host) (hosts, gone []*Host) {
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
		if h := known[e.Address]; h != nil && SameTLS(cfg, old.config) && e.NoTLS == h.Config().NoTLS && e.TLSIndex == h.Config().TLSIndex &&
			cfg.ProxyProtocol == old.config.ProxyProtocol {
			if e.ResolvedAddress != h.Config().ResolvedAddress {
				h.health.ResetBackoff()
			}
			h.entry.Store(e)
			h.setDiscoveryHealth(e.Health)
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

// mergeDuplicates returns entries with each address once: its first entry, with the sum of the
// weights. The usual cause is two names that resolve to one address.
func mergeDuplicates(entries []config.Host) []config.Host {
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

// errChangeOpen is returned by Prepare.
var errChangeOpen = errors.New("upstream: another change is neither committed nor rolled back")

// sameCluster reports whether a and b are equivalent, so that nothing has to change.
// TestSameClusterComparesEveryField finds a field that it does not compare.
func sameCluster(a, b *config.Cluster) bool {
	return a == b ||
		a.Name == b.Name &&
			a.Type == b.Type &&
			a.LBPolicy == b.LBPolicy &&
			a.Protocol == b.Protocol &&
			a.GRPCOverHTTP1 == b.GRPCOverHTTP1 &&
			a.ChoiceCount == b.ChoiceCount &&
			a.ActiveRequestBias == b.ActiveRequestBias &&
			a.MinRingSize == b.MinRingSize &&
			a.MaxRingSize == b.MaxRingSize &&
			a.MaglevTableSize == b.MaglevTableSize &&
			sameSubsets(&a.Subsets, &b.Subsets) &&
			reflect.DeepEqual(a.HostRules, b.HostRules) &&
			a.SlowStart == b.SlowStart &&
			a.Failover == b.Failover &&
			slices.Equal(a.LocalityWeights, b.LocalityWeights) &&
			a.ConnectTimeout == b.ConnectTimeout &&
			a.IdleTimeout == b.IdleTimeout &&
			a.MaxRequestsPerConn == b.MaxRequestsPerConn &&
			a.Pool == b.Pool &&
			a.Mark == b.Mark &&
			a.Mesh == b.Mesh &&
			a.OriginalDst == b.OriginalDst &&
			a.Heartbeat == b.Heartbeat &&
			a.CircuitBreakers == b.CircuitBreakers &&
			a.HighCircuitBreakers == b.HighCircuitBreakers &&
			SameTLS(a, b) &&
			a.ProxyProtocol == b.ProxyProtocol &&
			a.Socket == b.Socket &&
			a.HealthCheck.Equal(b.HealthCheck) &&
			a.OutlierDetection.Equal(b.OutlierDetection) &&
			slices.EqualFunc(a.Hosts, b.Hosts, sameHost) &&
			slices.Equal(a.DropOverloads, b.DropOverloads) &&
			a.OnDemand == b.OnDemand &&
			a.DNS.Equal(&b.DNS)
}

func sameHost(a, b config.Host) bool {
	return a.Address == b.Address &&
		a.ResolvedAddress == b.ResolvedAddress &&
		a.Hostname == b.Hostname &&
		a.Weight == b.Weight &&
		a.NoTLS == b.NoTLS &&
		a.TLSIndex == b.TLSIndex &&
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
