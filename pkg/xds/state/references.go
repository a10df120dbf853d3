package state

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// references counts which resources the clusters and listeners refer to, in their active and in
// their received versions. The counts make the cost of an update proportional to what has changed:
// TestCost in test/xds.
type references struct {
	assignments, tables, extensions refCounts[string]
	secrets                         refCounts[resource.SecretRef]
	unsubscribed                    int // clusters whose endpoints are not subscribed
}

// referrers are the clusters or the listeners that refer to resources, by name.
type referrers struct {
	current map[string]reference // references that are counted; no entry if there are none
	changed map[string]bool      // names to count again
}

// reference is what one cluster or listener refers to. It may list a resource more than once.
type reference struct {
	assignments, tables, extensions []string
	secrets                         []resource.SecretRef
	unsubscribed                    bool
}

// refCounts counts the references to each resource of a type.
type refCounts[K comparable] struct {
	counts       map[K]int
	wasRequested map[K]bool   // whether a resource was requested at the last takeChange, for those that may have changed since
	isExcluded   func(K) bool // reports that a referenced resource is not requested; nil: none
}

// SubscriptionChange is the change of the subscription to one type.
type SubscriptionChange[K comparable] struct {
	Added []K // newly requested
	// Removed are not requested. Some were not requested before either: their references were never
	// counted, or they are excluded.
	Removed []K
}

// SubscriptionChanges are the changes of all types, in no particular order, except that added
// secrets are sorted.
type SubscriptionChanges struct {
	Assignments, Routes, DubboRoutes, Extensions SubscriptionChange[string]
	Secrets                                      SubscriptionChange[resource.SecretRef]
	ListenersChanged                             bool // the references of some listeners may have changed
}

func newReferences() references {
	return references{
		assignments: newRefCounts[string](), tables: newRefCounts[string](), extensions: newRefCounts[string](), secrets: newRefCounts[resource.SecretRef](),
	}
}

func newRefCounts[K comparable]() refCounts[K] { return refCounts[K]{map[K]int{}, map[K]bool{}, nil} }

// isRequested reports whether a resource must be subscribed.
func (t *refCounts[K]) isRequested(k K) bool {
	return t.counts[k] > 0 && (t.isExcluded == nil || !t.isExcluded(k))
}

// recordPrevious records whether resources are requested, for the next takeChange. The caller calls
// it before a change.
func (t *refCounts[K]) recordPrevious(all []K) {
	for _, k := range all {
		if _, known := t.wasRequested[k]; !known {
			t.wasRequested[k] = t.isRequested(k)
		}
	}
}

// add adds n to the count of each resource.
func (t *refCounts[K]) add(all []K, n int) {
	t.recordPrevious(all)
	for _, k := range all {
		if t.counts[k] += n; t.counts[k] == 0 {
			delete(t.counts, k)
		}
	}
}

// takeChange returns the changes since its last call.
func (t *refCounts[K]) takeChange() (c SubscriptionChange[K]) {
	for k, was := range t.wasRequested {
		switch is := t.isRequested(k); {
		case !is:
			c.Removed = append(c.Removed, k)
		case !was:
			c.Added = append(c.Added, k)
		}
	}
	t.wasRequested = resetSet(t.wasRequested)
	return c
}

// update counts the references of the changed names again.
func (r *references) update(of *referrers, now func(name string) reference) {
	for name := range of.changed {
		before, after := of.current[name], now(name)
		r.add(&after, 1)
		r.add(&before, -1)
		if after.isEmpty() {
			delete(of.current, name)
		} else {
			of.current[name] = after
		}
	}
	of.changed = resetSet(of.changed)
}

func (r *references) add(one *reference, n int) {
	r.assignments.add(one.assignments, n)
	r.tables.add(one.tables, n)
	r.extensions.add(one.extensions, n)
	r.secrets.add(one.secrets, n)
	if one.unsubscribed {
		r.unsubscribed += n
	}
}

func (r *reference) isEmpty() bool {
	return len(r.assignments)+len(r.tables)+len(r.extensions)+len(r.secrets) == 0 && !r.unsubscribed
}

// clusterReference returns what a cluster refers to; nothing if it does not exist.
func (s *State) clusterReference(name string) (r reference) {
	e := s.clusters.byName[name]
	if e == nil {
		return r
	}
	asks := s.requestsEndpoints(name)
	for _, c := range slices.Compact([]*resource.Cluster{e.Received, e.Active}) {
		if c == nil {
			continue
		}
		if c.EDSServiceName != "" && asks {
			r.assignments = append(r.assignments, c.EDSServiceName)
		}
		r.secrets = append(r.secrets, c.Secrets()...)
	}
	r.unsubscribed = !asks && e.Received != nil && e.Received.EDSServiceName != ""
	return r
}

// listenerReference is clusterReference for a listener.
func (s *State) listenerReference(name string) (r reference) {
	e := s.listeners.byName[name]
	if e == nil {
		return r
	}
	for _, l := range slices.Compact([]*resource.Listener{e.Received, e.Active}) {
		if l == nil {
			continue
		}
		r.tables = append(r.tables, s.requestedTables(l.RouteConfigNames)...)
		r.secrets = append(r.secrets, l.Secrets()...)
		for _, slot := range l.DynamicFilters {
			r.extensions = append(r.extensions, slot.Name)
		}
	}
	return r
}

// TakeSubscriptionChanges returns the subscription changes since its last call. It drops the
// resources that are no longer requested; a new subscription fetches them again.
func (s *State) TakeSubscriptionChanges() SubscriptionChanges {
	if s.onDemand != nil {
		for name := range s.clusters.referrers.changed {
			if s.clusters.byName[name] == nil {
				s.onDemand.clusters.unsubscribe(name)
			}
		}
	}
	r := &s.references
	listeners := len(s.listeners.referrers.changed) > 0
	r.update(&s.clusters.referrers, s.clusterReference)
	r.update(&s.listeners.referrers, s.listenerReference)
	tables := r.tables.takeChange()
	all := SubscriptionChanges{Assignments: r.assignments.takeChange(), Extensions: r.extensions.takeChange(), Secrets: r.secrets.takeChange(), ListenersChanged: listeners}
	all.Routes.Added, all.DubboRoutes.Added = splitTables(tables.Added)
	all.Routes.Removed, all.DubboRoutes.Removed = splitTables(tables.Removed)
	slices.SortFunc(all.Secrets.Added, resource.SecretRef.Compare)
	forgetResources(all.Assignments.Removed, s.assignments, s.dependents.assignments)
	forgetResources(tables.Removed, s.tables, s.dependents.tables)
	forgetResources(all.Extensions.Removed, s.extensions, s.dependents.extensions)
	gone := slices.DeleteFunc(slices.Clone(all.Secrets.Removed), s.isStaticSecret) // static secrets stay
	forgetResources(gone, s.secrets, s.dependents.clusterSecrets)
	forgetResources(gone, s.secrets, s.dependents.listenerSecrets)
	if s.onDemand != nil {
		for _, name := range tables.Removed {
			s.onDemand.tables.unsubscribe(name)
		}
	}
	return all
}

// splitTables splits table names into the names of RouteType resources and of DubboRouteType
// resources.
func splitTables(tables []string) (http, dubbo []string) {
	for _, t := range tables {
		if name, ok := resource.DubboResourceName(t); ok {
			dubbo = append(dubbo, name)
		} else {
			http = append(http, t)
		}
	}
	return http, dubbo
}

// forgetResources deletes resources and their dependents.
func forgetResources[K comparable, V any](all []K, held map[K]V, users map[K]map[string]bool) {
	for _, k := range all {
		delete(held, k)
		delete(users, k)
	}
}
