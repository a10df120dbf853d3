package xds

import (
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// lazy is the part of a world that knows what is left with the control plane until it is
// used: hosts of clusters, and routes of listeners. These are complete without.
//
//	           wake                    they come, or have been waited for
//	asleep ───────────▶ waking ─────────────────────────────────────────▶ awake
//	   ▲    it is asked for, and in force as asleep                          │
//	   └─────────────────────────────────────────────────────────────────────┘
//	                              sleep
//
// Who is awake stays so when the resource is another.
type lazy struct {
	config.ControlPlaneLazy // immutable

	clusters, tables wakeful
}

// wakeful are those that are waking or awake, by name.
type wakeful struct {
	all map[string]*waking
	// late is when those that are waking have waited long enough, if ever.
	late map[string]time.Time
}

// waking is one that is not asleep.
type waking struct {
	used  time.Time // when it was seen to be used last
	awake bool      // what it waits for has come once, or was waited for long enough
}

// newLazy returns what leaves with the control plane what o says; nil: nothing.
func newLazy(o config.ControlPlaneLazy) *lazy {
	if o.Idle == 0 {
		return nil
	}
	none := func() wakeful { return wakeful{map[string]*waking{}, map[string]time.Time{}} }
	return &lazy{o, none(), none()}
}

// begin makes one of a name that is waking, if it was asleep. limit is how long it waits
// at most, 0: for ever.
func (f *wakeful) begin(name string, limit time.Duration, now time.Time) (began bool) {
	if one := f.all[name]; one != nil {
		one.used = now
		return false
	}
	f.all[name] = &waking{used: now}
	if limit > 0 {
		f.late[name] = now.Add(limit)
	}
	return true
}

// end makes one fall asleep.
func (f *wakeful) end(name string) {
	delete(f.all, name)
	delete(f.late, name)
}

// isAwake reports whether one is.
func (f *wakeful) isAwake(name string) bool {
	one := f.all[name]
	return one != nil && one.awake
}

// come makes one awake if it is waking: what it waits for is there.
func (w *world) come(f *wakeful, name string) {
	if one := f.all[name]; one != nil && !one.awake {
		w.change(func(undo bool) { one.awake = !undo })
	}
}

// expired takes those that have waited long enough out of late, makes them awake, and
// returns those that were not.
func (f *wakeful) expired(now time.Time) (names []string) {
	for name, limit := range f.late {
		if now.Before(limit) {
			continue
		}
		delete(f.late, name)
		if one := f.all[name]; !one.awake {
			one.awake = true
			names = append(names, name)
		}
	}
	return names
}

// wakeCluster has a cluster ask for its hosts, and reports whether it did not before.
func (w *world) wakeCluster(name string, now time.Time) bool {
	s := w.clusters[name]
	if w.lazy == nil || s == nil || s.last == nil || s.last.Endpoints == "" {
		return false
	}
	if !w.lazy.clusters.begin(name, s.last.EndpointTimeout, now) {
		return false
	}
	w.references.clusters.changed[name] = true
	for _, one := range []*resource.Cluster{s.last, s.live} {
		if one != nil && one.Endpoints != "" {
			note(w.users.assignments, &w.references.assignments, name, one.Endpoints) // which is forgotten of what nobody wants
		}
	}
	if w.assignments[s.last.Endpoints] != nil { // another has asked for them
		w.dirtyClusters[name] = true
	}
	return true
}

// wakeTable has the listeners that refer to a table ask for it, and reports whether they
// did not before.
func (w *world) wakeTable(name string, now time.Time) bool {
	if w.lazy == nil || !w.lazy.Routes {
		return false
	}
	known, limit := false, time.Duration(0)
	for user, s := range w.listeners {
		for _, one := range []*resource.Listener{s.last, s.live} {
			if one != nil && slices.Contains(one.Routes, name) {
				known, limit = true, max(limit, one.RoutesTimeout)
				note(w.users.tables, &w.references.tables, user, name) // as of clusters
				w.references.listeners.changed[user] = true
			}
		}
	}
	return known && w.lazy.tables.begin(name, limit, now)
}

// sleepCluster leaves the hosts of a cluster with the control plane.
func (w *world) sleepCluster(name string) {
	w.lazy.clusters.end(name)
	w.dirtyClusters[name], w.references.clusters.changed[name] = true, true
}

// sleepTable is sleepCluster of routes.
func (w *world) sleepTable(name string) {
	w.lazy.tables.end(name)
	touch(w.dirtyListeners, w.users.tables[name])
	touch(w.references.listeners.changed, w.users.tables[name])
}

// expireLazy makes those dirty who have waited long enough for what they were woken for.
func (w *world) expireLazy(now time.Time) {
	if w.lazy == nil {
		return
	}
	for _, name := range w.lazy.clusters.expired(now) {
		w.dirtyClusters[name] = true
	}
	for _, name := range w.lazy.tables.expired(now) {
		touch(w.dirtyListeners, w.users.tables[name])
	}
}

// lateLazy are the times at which expireLazy has something to do.
func (w *world) lateLazy() []map[string]time.Time {
	if w.lazy == nil {
		return nil
	}
	return []map[string]time.Time{w.lazy.clusters.late, w.lazy.tables.late}
}

// asksForHosts reports whether the hosts of a cluster are asked for.
func (w *world) asksForHosts(cluster string) bool {
	return w.lazy == nil || w.lazy.clusters.all[cluster] != nil
}

// asksForTables are those of the tables that are asked for.
func (w *world) asksForTables(names []string) []string {
	if w.lazy == nil || !w.lazy.Routes {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return w.lazy.tables.all[name] == nil })
}

// sparesHosts reports whether a cluster is complete without its hosts.
func (w *world) sparesHosts(cluster string) bool {
	return w.lazy != nil && !w.lazy.clusters.isAwake(cluster)
}

// sparesTable is sparesHosts of a table.
func (w *world) sparesTable(name string) bool {
	return w.lazy != nil && w.lazy.Routes && !w.lazy.tables.isAwake(name)
}

// fill is one with its secrets, and with its hosts unless they are left with the control
// plane; false: it lacks a secret.
func (w *world) fill(name string, one *resource.Cluster) (*config.Cluster, bool) {
	hosts := w.assignments[one.Endpoints]
	if w.lazy == nil || one.Endpoints == "" {
		return one.With(hosts, w.secrets)
	}
	if !w.asksForHosts(name) {
		hosts = nil // they are another's
	}
	made, ok := one.With(hosts, w.secrets)
	if !ok {
		return nil, false
	}
	if hosts != nil {
		w.come(&w.lazy.clusters, name)
	}
	made.OnDemand = config.OnDemand{Wait: w.lazy.Wait, Asleep: !w.lazy.clusters.isAwake(name)}
	return made, true
}

// routes is the table of a name as it is in force: without routes as long as there is none
// of the name, or it is left with the control plane.
func (w *world) routes(name string) *config.RouteTable {
	t := w.tables[name]
	demand := w.tableDemand()
	demand.Asleep = demand.Applies() && !w.lazy.tables.isAwake(name)
	if t == nil || demand.Asleep {
		return &config.RouteTable{Name: name, OnDemand: demand} // nothing matches
	}
	return t.Config
}

// tableDemand is that of a table that is awake.
func (w *world) tableDemand() (d config.OnDemand) {
	if w.lazy != nil && w.lazy.Routes {
		d.Wait = w.lazy.Wait
	}
	return d
}

// Lazy is what is told of what is left with the control plane until it is used.
type Lazy struct {
	// AwakeClusters and AwakeTables are how many are used, or were within the idle time.
	AwakeClusters int `json:"awake_clusters"`
	AwakeTables   int `json:"awake_routes"`
	// AsleepClusters are in force without their hosts, AsleepTables are not held at all.
	// Both are in order.
	AsleepClusters []string `json:"asleep_clusters,omitempty"`
	AsleepTables   []string `json:"asleep_routes,omitempty"`
}

// lazyStatus is what is told of what is left with the control plane; nil: nothing is, ever.
func (w *world) lazyStatus() *Lazy {
	if w.lazy == nil {
		return nil
	}
	l := &Lazy{AwakeClusters: len(w.lazy.clusters.all), AwakeTables: len(w.lazy.tables.all)}
	for name, s := range w.clusters {
		if s.last != nil && s.last.Endpoints != "" && !w.asksForHosts(name) {
			l.AsleepClusters = append(l.AsleepClusters, name)
		}
	}
	slices.Sort(l.AsleepClusters)
	for _, name := range slices.Sorted(maps.Keys(w.asleepTables())) {
		l.AsleepTables = append(l.AsleepTables, tableName(name))
	}
	return l
}

// asleepTables are the tables that listeners refer to and nobody asks for.
func (w *world) asleepTables() map[string]bool {
	if !w.lazy.Routes {
		return nil
	}
	tables := map[string]bool{}
	for _, s := range w.listeners {
		if s.last != nil {
			add(tables, s.last.Routes)
		}
	}
	maps.DeleteFunc(tables, func(name string, _ bool) bool { return w.lazy.tables.all[name] != nil })
	return tables
}
