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

// state is the configuration and the hosts of a cluster. It is immutable except for its counts: a
// change replaces the whole state. Successive states share their hosts.
type state struct {
	config     *config.Cluster
	hosts      []*Host
	defaultSet *hostSet // for exchanges that match no subset, and for all if subsets is nil
	subsets    *subsets // nil: none

	// Guarded by Cluster.mu: number of host sets of rules and sum of their hosts, for the limits
	// maxRuleHostSets and maxRuleMemberships.
	ruleSetCount, ruleMembershipCount int

	removed  bool // no longer configured; config is the last configuration
	onDemand bool // the hosts are on demand

	originalDst *originalDstHosts // replaces hosts in a cluster of type ORIGINAL_DST; else nil
	aggregate   *aggregate        // replaces hosts in a cluster of type AGGREGATE; else nil
}

// validate returns an error if cfg cannot be installed.
func (e *env) validate(cfg *config.Cluster) error {
	if e.Policies[cfg.LBPolicy] == nil && cfg.Type != config.ClusterOriginalDst && cfg.Type != config.ClusterAggregate {
		return fmt.Errorf("cluster %s: unknown load-balancing policy %q", cfg.Name, cfg.LBPolicy)
	}
	for i := range cfg.Hosts {
		if cfg.Hosts[i].Address == "" {
			return fmt.Errorf("cluster %s: host %d has no address", cfg.Name, i)
		}
	}
	return e.validateChecks(cfg)
}

// install applies cfg and entries to the cluster. It keeps the hosts that reuseHosts reuses, with
// their health, connections and counts. It returns the removed hosts, which the caller drains.
func (c *Cluster) install(cfg *config.Cluster, entries []config.Host) (removed []*Host) {
	members := c.env.newAggregate(cfg) // before c.mu, because it locks the set
	c.mu.Lock()
	defer c.mu.Unlock()
	entries = mergeDuplicates(entries)
	old := c.state.Load()
	hosts, removed := c.reuseHosts(old, cfg, entries)
	next := newState(c.env, cfg, hosts, old.hasHashTables())
	dests, removedDests := c.originalDstHostsFor(old, cfg)
	next.originalDst, next.aggregate = dests, members
	c.config.Store(cfg)
	c.state.Store(next)
	if !cfg.OnDemand.Unsubscribed {
		c.onDemand.Notify()
	}
	for _, h := range hosts {
		h.updateHealthCounts() // apply health changes since newState read them
	}
	c.logPanicChange()
	for p := range c.breakers {
		c.breakers[p].GrantSlots() // the new limit may be higher
	}
	c.configureChecks(cfg, hosts)
	if cfg.Pool.WarmProtocol != "" {
		c.env.tasks.Go(func() { c.warm(cfg, hosts) })
	}
	return append(removed, removedDests...)
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

// newState divides hosts into host sets and counts healthy hosts. hashTablesBuilt reports whether
// the previous state has built hash tables: then exchanges use the cluster, so newState builds the
// tables now instead of on first use.
func newState(e *env, cfg *config.Cluster, hosts []*Host, hashTablesBuilt bool) *state {
	s := &state{config: cfg, hosts: hosts, onDemand: cfg.OnDemand.Enabled()}
	b := newHostSetBuilder(e, cfg, hosts)
	if len(cfg.Subsets.Selectors) == 0 {
		s.defaultSet = b.addSet(allIndexes(hosts))
	} else {
		s.subsets = newSubsets(b, &cfg.Subsets)
		s.defaultSet = s.subsets.fallback
	}
	s.defaultSet.rules = newHostSetRules(cfg.HostRules, nil)
	s.defaultSet.isDefault = true
	s.defaultSet.buildBalancers(hashTablesBuilt)
	b.assignMemberships()
	return s
}

// hasHashTables reports whether the default set of s has built hash tables. It returns false for
// nil.
func (s *state) hasHashTables() bool {
	return s != nil && s.config.LBPolicy.UsesHash() && s.defaultSet.hasBalancers()
}

// remove marks the cluster as not configured and returns its hosts, which the caller drains.
func (c *Cluster) remove() (removed []*Host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state.Load()
	if s == nil || s.removed {
		return nil
	}
	c.state.Store(&state{config: s.config, defaultSet: new(hostSet), removed: true})
	c.panicLogged.Store(false)
	c.onDemand.Notify() // waiting exchanges resume and see the removal
	c.generation.Add(1)
	c.recorder.close()
	c.configureOutlierDetection(nil, nil)
	if s.originalDst != nil {
		return s.originalDst.close()
	}
	return s.hosts
}

func drainHosts(hosts []*Host) {
	for _, h := range hosts {
		h.drain()
	}
}

// reuseHosts returns a host for each entry, and the hosts of old that it does not reuse: those
// without an entry, and those whose TLS or PROXY header configuration changed. The open connections
// of the latter do not match the configuration. The caller holds c.mu.
func (c *Cluster) reuseHosts(old *state, cfg *config.Cluster, entries []config.Host) (hosts, removed []*Host) {
	hosts = make([]*Host, len(entries))
	var byAddress map[string]*Host
	if old != nil && len(old.hosts) > 0 {
		byAddress = make(map[string]*Host, len(old.hosts))
		for _, h := range old.hosts {
			byAddress[h.address] = h
		}
	}
	for i := range entries {
		entry := &entries[i]
		if h := byAddress[entry.Address]; h != nil && SameTLS(cfg, old.config) && entry.NoTLS == h.Config().NoTLS && entry.TLSIndex == h.Config().TLSIndex &&
			cfg.ProxyProtocol == old.config.ProxyProtocol {
			if entry.ResolvedAddress != h.Config().ResolvedAddress {
				h.health.ResetBackoff()
			}
			h.entry.Store(entry)
			h.setDiscoveryHealth(entry.Health)
			hosts[i] = h
			delete(byAddress, entry.Address)
			continue
		}
		hosts[i] = newHost(c, entry)
	}
	for _, h := range byAddress {
		removed = append(removed, h)
	}
	return hosts, removed
}

// mergeDuplicates returns entries with each address once: its first entry, with the sum of the
// weights. Duplicates arise, for example, when two names resolve to one address.
func mergeDuplicates(entries []config.Host) []config.Host {
	if len(entries) < 2 {
		return entries
	}
	indexes := make(map[string]int, len(entries))
	merged := entries
	for i := range entries {
		entry := &entries[i]
		first, duplicate := indexes[entry.Address]
		if !duplicate {
			indexes[entry.Address] = len(indexes)
			if len(merged) < len(entries) {
				merged = append(merged, *entry)
			}
			continue
		}
		if len(merged) == len(entries) {
			merged = slices.Clone(entries[:i]) // the caller owns the argument
		}
		merged[first].Weight += entry.Weight
	}
	return merged
}

// errChangeOpen is the error of Prepare, PrepareSome and Check while another change is open.
var errChangeOpen = errors.New("upstream: another change is neither committed nor rolled back")

// sameCluster reports whether a and b are equivalent, so that nothing has to change.
// TestSameClusterComparesEveryField verifies that it compares every field.
func sameCluster(a, b *config.Cluster) bool {
	return a == b ||
		a.Name == b.Name &&
			a.Type == b.Type &&
			a.LBPolicy == b.LBPolicy &&
			a.Protocol == b.Protocol &&
			a.GRPCOverHTTP1 == b.GRPCOverHTTP1 &&
			a.ZeroLength == b.ZeroLength &&
			a.ChoiceCount == b.ChoiceCount &&
			a.ActiveRequestBias == b.ActiveRequestBias &&
			a.MinRingSize == b.MinRingSize &&
			a.MaxRingSize == b.MaxRingSize &&
			a.MaglevTableSize == b.MaglevTableSize &&
			slices.Equal(a.Aggregate, b.Aggregate) &&
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
			a.HTTP == b.HTTP &&
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
