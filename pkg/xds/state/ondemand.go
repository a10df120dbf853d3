package state

import (
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// onDemandState records the on-demand subscriptions to the endpoints of clusters and to route
// tables. A cluster can be active while its endpoints are not subscribed, but has no hosts then. A
// listener can be active while a route table is not subscribed; the table has no routes then.
//
//	               request             arrival or timeout
//	unsubscribed ───────────▶ pending ────────────────────▶ subscribed
//	      ▲                                                     │
//	      └─────────────────────────────────────────────────────┘
//	                          idle timeout
//
// A pending resource also becomes unsubscribed after the idle timeout. A new version of a cluster
// or listener does not change the subscription. Removing the cluster, or the last reference of a
// listener to the table, ends the subscription.
type onDemandState struct {
	config.XDSOnDemand // immutable

	clusters, tables onDemandSet
}

// onDemandSet holds the pending and subscribed resources of a type, by name.
type onDemandSet struct {
	entries map[string]*onDemandEntry
	// deadlines holds when the waits for resources time out; no entry: no timeout. A deadline stays
	// until it has passed or the resource is unsubscribed, even if the resource has arrived.
	deadlines map[string]time.Time
}

// onDemandEntry is a resource that is pending or subscribed.
type onDemandEntry struct {
	lastUsed time.Time // when the resource was last requested or seen in use
	ready    bool      // the resource has arrived once, or the wait has timed out
}

// newOnDemandState returns the state for o; nil if o disables on-demand loading.
func newOnDemandState(o config.XDSOnDemand) *onDemandState {
	if o.Idle == 0 {
		return nil
	}
	empty := func() onDemandSet { return onDemandSet{map[string]*onDemandEntry{}, map[string]time.Time{}} }
	return &onDemandState{o, empty(), empty()}
}

// subscribe makes an unsubscribed resource pending, and reports whether it was unsubscribed.
// timeout is the maximum wait; 0: no limit.
func (set *onDemandSet) subscribe(name string, timeout time.Duration, now time.Time) (added bool) {
	if e := set.entries[name]; e != nil {
		e.lastUsed = now
		return false
	}
	set.entries[name] = &onDemandEntry{lastUsed: now}
	if timeout > 0 {
		set.deadlines[name] = now.Add(timeout)
	}
	return true
}

func (set *onDemandSet) unsubscribe(name string) {
	delete(set.entries, name)
	delete(set.deadlines, name)
}

// isSubscribed reports whether a resource is subscribed, not pending.
func (set *onDemandSet) isSubscribed(name string) bool {
	e := set.entries[name]
	return e != nil && e.ready
}

// markReady ends the wait for a pending resource, because it has arrived.
func (s *State) markReady(set *onDemandSet, name string) {
	if e := set.entries[name]; e != nil && !e.ready {
		s.undo.do(func(undo bool) { e.ready = !undo })
	}
}

// expirePending ends the wait for resources whose deadline has passed, and returns those that were
// pending.
func (set *onDemandSet) expirePending(now time.Time) (names []string) {
	for name, deadline := range set.deadlines {
		if now.Before(deadline) {
			continue
		}
		delete(set.deadlines, name)
		if e := set.entries[name]; !e.ready {
			e.ready = true
			names = append(names, name)
		}
	}
	return names
}

// SubscribeCluster subscribes to the endpoints of a cluster. It returns false if the endpoints are
// already pending or subscribed, the cluster is unknown or does not use EDS, or on-demand loading
// is off.
func (s *State) SubscribeCluster(name string, now time.Time) bool {
	e := s.clusters.byName[name]
	if s.onDemand == nil || e == nil || e.Received == nil || e.Received.EDSServiceName == "" {
		return false
	}
	if !s.onDemand.clusters.subscribe(name, e.Received.InitialFetchTimeout, now) {
		return false
	}
	s.clusters.referrers.changed[name] = true
	for _, version := range []*resource.Cluster{e.Received, e.Active} {
		if version != nil && version.EDSServiceName != "" {
			// TakeSubscriptionChanges drops the dependents of unsubscribed resources.
			addDependent(s.dependents.assignments, &s.references.assignments, name, version.EDSServiceName)
		}
	}
	if s.assignments[e.Received.EDSServiceName] != nil { // received for another cluster
		s.clusters.dirty[name] = true
	}
	return true
}

// SubscribeTable subscribes to a route table. It returns false if the table is already pending or
// subscribed, no listener refers to the table, or route tables are not on demand.
func (s *State) SubscribeTable(name string, now time.Time) bool {
	if s.onDemand == nil || !s.onDemand.Routes {
		return false
	}
	var timeouts []time.Duration // timeouts of the listeners that refer to the table; 0: no limit
	for listener, e := range s.listeners.byName {
		for _, version := range []*resource.Listener{e.Received, e.Active} {
			if version != nil && slices.Contains(version.RouteConfigNames, name) {
				timeouts = append(timeouts, version.RouteTimeouts[name])
				// TakeSubscriptionChanges drops the dependents of unsubscribed resources.
				addDependent(s.dependents.tables, &s.references.tables, listener, name)
				s.listeners.referrers.changed[listener] = true
			}
		}
	}
	if len(timeouts) == 0 {
		return false
	}
	longest := slices.Max(timeouts)
	if slices.Contains(timeouts, 0) {
		longest = 0
	}
	return s.onDemand.tables.subscribe(name, longest, now)
}

// UnsubscribedClusters returns the number of clusters whose endpoints are unsubscribed, as of the
// last TakeSubscriptionChanges.
func (s *State) UnsubscribedClusters() int { return s.references.unsubscribed }

// UnsubscribedTables returns the number of unsubscribed route tables that listeners refer to.
func (s *State) UnsubscribedTables() int { return len(s.unsubscribedTables()) }

// HasOnDemand reports whether an on-demand resource is pending or subscribed.
func (s *State) HasOnDemand() bool {
	return s.onDemand != nil && len(s.onDemand.clusters.entries)+len(s.onDemand.tables.entries) > 0
}

// SubscribeCached subscribes to the resources of u, which an earlier process received on demand and
// saved in the xDS cache.
func (s *State) SubscribeCached(u ads.Update, now time.Time) {
	if s.onDemand == nil {
		return
	}
	cached := map[string]bool{}
	for _, r := range u.Changed {
		cached[r.Name] = true
	}
	switch u.Type {
	case resource.EndpointType:
		for name, e := range s.clusters.byName {
			if e.Received != nil && cached[e.Received.EDSServiceName] {
				s.SubscribeCluster(name, now)
			}
		}
	case resource.RouteType:
		for name := range cached {
			s.SubscribeTable(name, now)
		}
	case resource.DubboRouteType:
		for name := range cached {
			s.SubscribeTable(resource.DubboTableName(name), now)
		}
	}
}

// UnsubscribeIdle unsubscribes from the clusters and route tables that have been unused for the
// idle timeout, and reports whether there were any. clusterInUse and tableInUse report whether the
// cluster or table is in use or has been used since their last call. On-demand loading must be
// enabled.
func (s *State) UnsubscribeIdle(clusterInUse, tableInUse func(name string) bool, now time.Time) bool {
	clusters := s.onDemand.clusters.idleNames(clusterInUse, now, s.onDemand.Idle)
	for _, name := range clusters {
		s.unsubscribeCluster(name)
	}
	tables := s.onDemand.tables.idleNames(tableInUse, now, s.onDemand.Idle)
	for _, name := range tables {
		s.unsubscribeTable(name)
	}
	return len(clusters)+len(tables) > 0
}

// idleNames returns the names that have been unused for at least idle.
func (set *onDemandSet) idleNames(used func(name string) bool, now time.Time, idle time.Duration) (names []string) {
	for name, e := range set.entries {
		switch {
		case used(name):
			e.lastUsed = now
		case now.Sub(e.lastUsed) >= idle:
			names = append(names, name)
		}
	}
	return names
}

// unsubscribeCluster unsubscribes from the endpoints of a cluster. The cluster becomes dirty.
func (s *State) unsubscribeCluster(name string) {
	s.onDemand.clusters.unsubscribe(name)
	s.clusters.dirty[name], s.clusters.referrers.changed[name] = true, true
}

// unsubscribeTable unsubscribes from a route table. The listeners that refer to it become dirty.
func (s *State) unsubscribeTable(name string) {
	s.onDemand.tables.unsubscribe(name)
	s.listeners.markDirty(s.dependents.tables[name])
	maps.Copy(s.listeners.referrers.changed, s.dependents.tables[name]) // all values are true
}

// expireOnDemand marks dirty the clusters and listeners whose wait for an on-demand resource has
// timed out.
func (s *State) expireOnDemand(now time.Time) {
	if s.onDemand == nil {
		return
	}
	for _, name := range s.onDemand.clusters.expirePending(now) {
		s.clusters.dirty[name] = true
	}
	for _, name := range s.onDemand.tables.expirePending(now) {
		s.listeners.markDirty(s.dependents.tables[name])
	}
}

// onDemandDeadlines returns the deadlines that expireOnDemand checks.
func (s *State) onDemandDeadlines() []map[string]time.Time {
	if s.onDemand == nil {
		return nil
	}
	return []map[string]time.Time{s.onDemand.clusters.deadlines, s.onDemand.tables.deadlines}
}

// requestsEndpoints reports whether the endpoints of a cluster are pending or subscribed. Without
// on-demand loading they always are.
func (s *State) requestsEndpoints(cluster string) bool {
	return s.onDemand == nil || s.onDemand.clusters.entries[cluster] != nil
}

// requestedTables returns the names of the pending and subscribed tables among names.
func (s *State) requestedTables(names []string) []string {
	if s.onDemand == nil || !s.onDemand.Routes {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return s.onDemand.tables.entries[name] == nil })
}

// readyWithoutHosts reports whether a cluster can become active without its endpoints.
func (s *State) readyWithoutHosts(cluster string) bool {
	return s.onDemand != nil && !s.onDemand.clusters.isSubscribed(cluster)
}

// readyWithoutTable reports whether a listener can become active without a route table.
func (s *State) readyWithoutTable(name string) bool {
	return s.onDemand != nil && s.onDemand.Routes && !s.onDemand.tables.isSubscribed(name)
}

// resolveCluster returns the configuration of c with its secrets and, unless the endpoints are
// unsubscribed, its endpoints. It returns false if a secret is missing.
func (s *State) resolveCluster(name string, c *resource.Cluster) (*config.Cluster, bool) {
	hosts := s.assignments[c.EDSServiceName]
	if s.onDemand == nil || c.EDSServiceName == "" {
		return c.Resolve(hosts, s.secrets)
	}
	if !s.requestsEndpoints(name) {
		hosts = nil // received for another cluster
	}
	cfg, ok := c.Resolve(hosts, s.secrets)
	if !ok {
		return nil, false
	}
	if hosts != nil {
		s.markReady(&s.onDemand.clusters, name)
	}
	cfg.OnDemand = config.OnDemand{Wait: s.onDemand.Wait, Unsubscribed: !s.onDemand.clusters.isSubscribed(name)}
	return cfg, true
}

// activeTable returns the active version of a table. That version has no routes if the table has
// not arrived or is not subscribed.
func (s *State) activeTable(name string) *config.RouteTable {
	t := s.tables[name]
	settings := s.tableOnDemand()
	settings.Unsubscribed = settings.Enabled() && !s.onDemand.tables.isSubscribed(name)
	if t == nil || settings.Unsubscribed {
		return &config.RouteTable{Name: name, OnDemand: settings} // no request matches
	}
	return t.Config
}

// tableOnDemand returns the on-demand settings of a subscribed table.
func (s *State) tableOnDemand() (d config.OnDemand) {
	if s.onDemand != nil && s.onDemand.Routes {
		d.Wait = s.onDemand.Wait
	}
	return d
}

// unsubscribedTables returns the unsubscribed route tables that listeners refer to.
func (s *State) unsubscribedTables() map[string]bool {
	if s.onDemand == nil || !s.onDemand.Routes {
		return nil
	}
	tables := map[string]bool{}
	for _, e := range s.listeners.byName {
		if e.Received != nil {
			addKeys(tables, e.Received.RouteConfigNames)
		}
	}
	maps.DeleteFunc(tables, func(name string, _ bool) bool { return s.onDemand.tables.entries[name] != nil })
	return tables
}
