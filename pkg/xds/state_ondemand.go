package xds

import (
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// onDemandState is the part of a world that knows what is left with the control plane until it is
// used: hosts of clusters, and routes of listeners. These are complete without.
//
//	           wake                    they come, or have been waited for
//	asleep ───────────▶ waking ─────────────────────────────────────────▶ awake
//	   ▲    it is asked for, and in force as asleep                          │
//	   └─────────────────────────────────────────────────────────────────────┘
//	                              sleep
//
// Who is awake stays so when the resource is another.
type onDemandState struct {
	config.XDSOnDemand // immutable

	clusters, tables onDemandSet
}

// onDemandSet are those that are waking or awake, by name.
type onDemandSet struct {
	entries map[string]*onDemandEntry
	// deadlines is when those that are waking have waited long enough, if ever.
	deadlines map[string]time.Time
}

// onDemandEntry is one that is not asleep.
type onDemandEntry struct {
	lastUsed time.Time // when it was seen to be used last
	ready    bool      // what it waits for has come once, or was waited for long enough
}

// newOnDemandState returns what leaves with the control plane what o says; nil: nothing.
func newOnDemandState(o config.XDSOnDemand) *onDemandState {
	if o.Idle == 0 {
		return nil
	}
	none := func() onDemandSet { return onDemandSet{map[string]*onDemandEntry{}, map[string]time.Time{}} }
	return &onDemandState{o, none(), none()}
}

// subscribe makes one of a name that is waking, if it was asleep. limit is how long it waits
// at most, 0: for ever.
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

// unsubscribe makes one fall asleep.
func (f *onDemandSet) unsubscribe(name string) {
	delete(f.entries, name)
	delete(f.deadlines, name)
}

// isReady reports whether one is.
func (f *onDemandSet) isReady(name string) bool {
	one := f.entries[name]
	return one != nil && one.ready
}

// markReady makes one awake if it is waking: what it waits for is there.
func (w *state) markReady(f *onDemandSet, name string) {
	if one := f.entries[name]; one != nil && !one.ready {
		w.mutate(func(undo bool) { one.ready = !undo })
	}
}

// expirePending takes those that have waited long enough out of late, makes them awake, and
// returns those that were not.
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

// subscribeCluster has a cluster ask for its hosts, and reports whether it did not before.
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
			addDependent(w.dependents.assignments, &w.references.assignments, name, one.EDSServiceName) // which is forgotten of what nobody wants
		}
	}
	if w.assignments[s.received.EDSServiceName] != nil { // another has asked for them
		w.dirtyClusters[name] = true
	}
	return true
}

// subscribeTable has the listeners that refer to a table ask for it, and reports whether they
// did not before.
func (w *state) subscribeTable(name string, now time.Time) bool {
	if w.onDemand == nil || !w.onDemand.Routes {
		return false
	}
	known, limit := false, time.Duration(0)
	for user, s := range w.listeners {
		for _, one := range []*resource.Listener{s.received, s.active} {
			if one != nil && slices.Contains(one.RouteConfigNames, name) {
				known, limit = true, max(limit, one.InitialFetchTimeout)
				addDependent(w.dependents.tables, &w.references.tables, user, name) // as of clusters
				w.references.listeners.changed[user] = true
			}
		}
	}
	return known && w.onDemand.tables.subscribe(name, limit, now)
}

// unsubscribeCluster leaves the hosts of a cluster with the control plane.
func (w *state) unsubscribeCluster(name string) {
	w.onDemand.clusters.unsubscribe(name)
	w.dirtyClusters[name], w.references.clusters.changed[name] = true, true
}

// unsubscribeTable is unsubscribeCluster of routes.
func (w *state) unsubscribeTable(name string) {
	w.onDemand.tables.unsubscribe(name)
	markDirty(w.dirtyListeners, w.dependents.tables[name])
	markDirty(w.references.listeners.changed, w.dependents.tables[name])
}

// expireOnDemand makes those dirty who have waited long enough for what they were woken for.
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

// onDemandDeadlines are the times at which expireOnDemand has something to do.
func (w *state) onDemandDeadlines() []map[string]time.Time {
	if w.onDemand == nil {
		return nil
	}
	return []map[string]time.Time{w.onDemand.clusters.deadlines, w.onDemand.tables.deadlines}
}

// requestsEndpoints reports whether the hosts of a cluster are asked for.
func (w *state) requestsEndpoints(cluster string) bool {
	return w.onDemand == nil || w.onDemand.clusters.entries[cluster] != nil
}

// requestedTables are those of the tables that are asked for.
func (w *state) requestedTables(names []string) []string {
	if w.onDemand == nil || !w.onDemand.Routes {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return w.onDemand.tables.entries[name] == nil })
}

// readyWithoutHosts reports whether a cluster is complete without its hosts.
func (w *state) readyWithoutHosts(cluster string) bool {
	return w.onDemand != nil && !w.onDemand.clusters.isReady(cluster)
}

// readyWithoutTable is readyWithoutHosts of a table.
func (w *state) readyWithoutTable(name string) bool {
	return w.onDemand != nil && w.onDemand.Routes && !w.onDemand.tables.isReady(name)
}

// resolveCluster is one with its secrets, and with its hosts unless they are left with the control
// plane; false: it lacks a secret.
func (w *state) resolveCluster(name string, one *resource.Cluster) (*config.Cluster, bool) {
	hosts := w.assignments[one.EDSServiceName]
	if w.onDemand == nil || one.EDSServiceName == "" {
		return one.Resolve(hosts, w.secrets)
	}
	if !w.requestsEndpoints(name) {
		hosts = nil // they are another's
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

// activeTable is the table of a name as it is in force: without routes as long as there is none
// of the name, or it is left with the control plane.
func (w *state) activeTable(name string) *config.RouteTable {
	t := w.tables[name]
	demand := w.tableOnDemand()
	demand.Unsubscribed = demand.Enabled() && !w.onDemand.tables.isReady(name)
	if t == nil || demand.Unsubscribed {
		return &config.RouteTable{Name: name, OnDemand: demand} // nothing matches
	}
	return t.Config
}

// tableOnDemand is that of a table that is awake.
func (w *state) tableOnDemand() (d config.OnDemand) {
	if w.onDemand != nil && w.onDemand.Routes {
		d.Wait = w.onDemand.Wait
	}
	return d
}

// OnDemandStatus is what is told of what is left with the control plane until it is used.
type OnDemandStatus struct {
	// SubscribedClusters and SubscribedRoutes are how many are used, or were within the idle time.
	SubscribedClusters int `json:"awake_clusters"`
	SubscribedRoutes   int `json:"awake_routes"`
	// UnsubscribedClusters are in force without their hosts, UnsubscribedRoutes are not held at all.
	// Both are in order.
	UnsubscribedClusters []string `json:"asleep_clusters,omitempty"`
	UnsubscribedRoutes   []string `json:"asleep_routes,omitempty"`
}

// onDemandStatus is what is told of what is left with the control plane; nil: nothing is, ever.
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

// unsubscribedTables are the tables that listeners refer to and nobody asks for.
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
