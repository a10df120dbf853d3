package xds

import (
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// onDemandState records which endpoints of clusters and which route tables are subscribed on
// demand. While one is unsubscribed, the cluster or listener is complete without it.
//
//	               request             arrival or timeout
//	unsubscribed ───────────▶ pending ────────────────────▶ subscribed
//	      ▲                                                     │
//	      └─────────────────────────────────────────────────────┘
//	                          idle timeout
//
// A new version of a cluster or listener does not change the subscription.
type onDemandState struct {
	config.XDSOnDemand // immutable

	clusters, tables onDemandSet
}

// onDemandSet are the pending and subscribed resources of a type, by name.
type onDemandSet struct {
	entries map[string]*onDemandEntry
	// deadlines is when the wait for a pending resource times out; no entry: no timeout.
	deadlines map[string]time.Time
}

// onDemandEntry is a resource that is pending or subscribed.
type onDemandEntry struct {
	lastUsed time.Time // when it was last seen in use
	ready    bool      // its resource has arrived once, or the wait has timed out
}

// newOnDemandState returns the state for o; nil if o disables on-demand loading.
func newOnDemandState(o config.XDSOnDemand) *onDemandState {
	if o.Idle == 0 {
		return nil
	}
	none := func() onDemandSet { return onDemandSet{map[string]*onDemandEntry{}, map[string]time.Time{}} }
	return &onDemandState{o, none(), none()}
}

// subscribe makes an unsubscribed resource pending, and reports whether it did. limit is the
// longest wait, 0 for no limit.
func (f *onDemandSet) subscribe(name string, limit time.Duration, now time.Time) (began bool) {
	if one := f.entries[name]; one != nil {
		one.lastUsed = now
		return false
	}
	f.entries[name] = &onDemandEntry{lastUsed: now}
	if limit > 0 {
		f.deadlines[name] = now.Add(limit)
	}
	return true
}

// unsubscribe makes a resource unsubscribed.
func (f *onDemandSet) unsubscribe(name string) {
	delete(f.entries, name)
	delete(f.deadlines, name)
}

// isReady reports whether a resource is subscribed and no longer pending.
func (f *onDemandSet) isReady(name string) bool {
	one := f.entries[name]
	return one != nil && one.ready
}

// markReady ends the wait for a pending resource, because it has arrived.
func (w *state) markReady(f *onDemandSet, name string) {
	if one := f.entries[name]; one != nil && !one.ready {
		w.mutate(func(undo bool) { one.ready = !undo })
	}
}

// expirePending ends the wait for resources whose deadline has passed, and returns those that were
// pending.
func (f *onDemandSet) expirePending(now time.Time) (names []string) {
	for name, limit := range f.deadlines {
		if now.Before(limit) {
			continue
		}
		delete(f.deadlines, name)
		if one := f.entries[name]; !one.ready {
			one.ready = true
			names = append(names, name)
		}
	}
	return names
}

// subscribeCluster subscribes to the endpoints of a cluster, and reports whether they were not
// subscribed before.
func (w *state) subscribeCluster(name string, now time.Time) bool {
	s := w.clusters[name]
	if w.onDemand == nil || s == nil || s.received == nil || s.received.EDSServiceName == "" {
		return false
	}
	if !w.onDemand.clusters.subscribe(name, s.received.InitialFetchTimeout, now) {
		return false
	}
	w.references.clusters.changed[name] = true
	for _, one := range []*resource.Cluster{s.received, s.active} {
		if one != nil && one.EDSServiceName != "" {
			// takeSubscriptionChanges drops the dependents of unsubscribed resources.
			addDependent(w.dependents.assignments, &w.references.assignments, name, one.EDSServiceName)
		}
	}
	if w.assignments[s.received.EDSServiceName] != nil { // another cluster has subscribed to them
		w.dirtyClusters[name] = true
	}
	return true
}

// subscribeTable subscribes to a table that listeners refer to, and reports whether it was not
// subscribed before.
func (w *state) subscribeTable(name string, now time.Time) bool {
	if w.onDemand == nil || !w.onDemand.Routes {
		return false
	}
	known, limit := false, time.Duration(0)
	for user, s := range w.listeners {
		for _, one := range []*resource.Listener{s.received, s.active} {
			if one != nil && slices.Contains(one.RouteConfigNames, name) {
				known, limit = true, max(limit, one.InitialFetchTimeout)
				addDependent(w.dependents.tables, &w.references.tables, user, name) // as in subscribeCluster
				w.references.listeners.changed[user] = true
			}
		}
	}
	return known && w.onDemand.tables.subscribe(name, limit, now)
}

// unsubscribeCluster unsubscribes from the endpoints of a cluster.
func (w *state) unsubscribeCluster(name string) {
	w.onDemand.clusters.unsubscribe(name)
	w.dirtyClusters[name], w.references.clusters.changed[name] = true, true
}

// unsubscribeTable unsubscribes from a route table.
func (w *state) unsubscribeTable(name string) {
	w.onDemand.tables.unsubscribe(name)
	markDirty(w.dirtyListeners, w.dependents.tables[name])
	markDirty(w.references.listeners.changed, w.dependents.tables[name])
}

// expireOnDemand marks clusters and listeners dirty whose wait for an on-demand resource has timed
// out.
func (w *state) expireOnDemand(now time.Time) {
	if w.onDemand == nil {
		return
	}
	for _, name := range w.onDemand.clusters.expirePending(now) {
		w.dirtyClusters[name] = true
	}
	for _, name := range w.onDemand.tables.expirePending(now) {
		markDirty(w.dirtyListeners, w.dependents.tables[name])
	}
}

// onDemandDeadlines returns the deadlines that expireOnDemand checks.
func (w *state) onDemandDeadlines() []map[string]time.Time {
	if w.onDemand == nil {
		return nil
	}
	return []map[string]time.Time{w.onDemand.clusters.deadlines, w.onDemand.tables.deadlines}
}

// requestsEndpoints reports whether the endpoints of a cluster are subscribed.
func (w *state) requestsEndpoints(cluster string) bool {
	return w.onDemand == nil || w.onDemand.clusters.entries[cluster] != nil
}

// requestedTables returns those of the tables that are subscribed.
func (w *state) requestedTables(names []string) []string {
	if w.onDemand == nil || !w.onDemand.Routes {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return w.onDemand.tables.entries[name] == nil })
}

// readyWithoutHosts reports whether a cluster can become active without its endpoints.
func (w *state) readyWithoutHosts(cluster string) bool {
	return w.onDemand != nil && !w.onDemand.clusters.isReady(cluster)
}

// readyWithoutTable reports whether a listener can become active without a route table.
func (w *state) readyWithoutTable(name string) bool {
	return w.onDemand != nil && w.onDemand.Routes && !w.onDemand.tables.isReady(name)
}

// resolveCluster returns the configuration of one with its secrets and, if they are subscribed, its
// endpoints. It returns false if a secret is missing.
func (w *state) resolveCluster(name string, one *resource.Cluster) (*config.Cluster, bool) {
	hosts := w.assignments[one.EDSServiceName]
	if w.onDemand == nil || one.EDSServiceName == "" {
		return one.Resolve(hosts, w.secrets)
	}
	if !w.requestsEndpoints(name) {
		hosts = nil // another cluster has subscribed to them
	}
	made, ok := one.Resolve(hosts, w.secrets)
	if !ok {
		return nil, false
	}
	if hosts != nil {
		w.markReady(&w.onDemand.clusters, name)
	}
	made.OnDemand = config.OnDemand{Wait: w.onDemand.Wait, Unsubscribed: !w.onDemand.clusters.isReady(name)}
	return made, true
}

// activeTable returns the active version of a table. It has no routes if the table has not arrived
// or is not subscribed.
func (w *state) activeTable(name string) *config.RouteTable {
	t := w.tables[name]
	demand := w.tableOnDemand()
	demand.Unsubscribed = demand.Enabled() && !w.onDemand.tables.isReady(name)
	if t == nil || demand.Unsubscribed {
		return &config.RouteTable{Name: name, OnDemand: demand} // nothing matches
	}
	return t.Config
}

// tableOnDemand returns the on-demand settings of a subscribed table.
func (w *state) tableOnDemand() (d config.OnDemand) {
	if w.onDemand != nil && w.onDemand.Routes {
		d.Wait = w.onDemand.Wait
	}
	return d
}

// OnDemandStatus is the status of the resources that are fetched on demand.
type OnDemandStatus struct {
	// SubscribedClusters and SubscribedRoutes count the resources in use, or used within the idle
	// timeout.
	SubscribedClusters int `json:"awake_clusters"`
	SubscribedRoutes   int `json:"awake_routes"`
	// UnsubscribedClusters are clusters without their endpoints; UnsubscribedRoutes are tables that
	// were not fetched. Neither is an error.
	UnsubscribedClusters []string `json:"asleep_clusters,omitempty"`
	UnsubscribedRoutes   []string `json:"asleep_routes,omitempty"`
}

// onDemandStatus returns the status; nil if on-demand loading is off.
func (w *state) onDemandStatus() *OnDemandStatus {
	if w.onDemand == nil {
		return nil
	}
	l := &OnDemandStatus{SubscribedClusters: len(w.onDemand.clusters.entries), SubscribedRoutes: len(w.onDemand.tables.entries)}
	for name, s := range w.clusters {
		if s.received != nil && s.received.EDSServiceName != "" && !w.requestsEndpoints(name) {
			l.UnsubscribedClusters = append(l.UnsubscribedClusters, name)
		}
	}
	slices.Sort(l.UnsubscribedClusters)
	for _, name := range slices.Sorted(maps.Keys(w.unsubscribedTables())) {
		l.UnsubscribedRoutes = append(l.UnsubscribedRoutes, displayTableName(name))
	}
	return l
}

// unsubscribedTables returns the tables that listeners refer to and that are not subscribed.
func (w *state) unsubscribedTables() map[string]bool {
	if !w.onDemand.Routes {
		return nil
	}
	tables := map[string]bool{}
	for _, s := range w.listeners {
		if s.received != nil {
			addKeys(tables, s.received.RouteConfigNames)
		}
	}
	maps.DeleteFunc(tables, func(name string, _ bool) bool { return w.onDemand.tables.entries[name] != nil })
	return tables
}
