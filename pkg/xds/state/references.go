package state

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// references counts the references of clusters and listeners to each resource, in their active and
// received versions. The counts make the cost of an update proportional to the number of changes
// (TestCost in test/xds).
type references struct {
	assignments, tables, extensions refCounts[string]
	secrets                         refCounts[resource.SecretRef]
	unsubscribed                    int // number of clusters whose endpoints are unsubscribed
}

// referrers holds the references of all clusters or of all listeners, by their names.
type referrers struct {
	current map[string]reference // references that are counted; no entry if there are none
	changed map[string]bool      // names whose references must be counted again
}

// reference lists the resources that one cluster or listener refers to, possibly more than once.
type reference struct {
	assignments, tables, extensions []string
	secrets                         []resource.SecretRef
	unsubscribed                    bool // the endpoints of the cluster are unsubscribed
}

// refCounts counts the references to each resource of a type.
type refCounts[K comparable] struct {
	counts       map[K]int
	wasRequested map[K]bool   // result of isRequested at the last takeChange, for resources for which it may have changed
	isExcluded   func(K) bool // reports whether a resource is not requested although it is referenced; nil: none is
}

// SubscriptionChange is the change of the subscription to one type.
type SubscriptionChange[K comparable] struct {
	Added []K // newly requested
	// Removed are the resources that may have been requested before and are not requested now.
	Removed []K
}

// SubscriptionChanges are the changes of all types, in no particular order, except that added
// secrets are sorted.
type SubscriptionChanges struct {
	Assignments, Routes, DubboRoutes, Extensions SubscriptionChange[string]
	Secrets                                      SubscriptionChange[resource.SecretRef]
	ListenersChanged                             bool // the references of listeners may have changed
}

func newReferences() references {
	return references{
		assignments: newRefCounts[string](), tables: newRefCounts[string](), extensions: newRefCounts[string](), secrets: newRefCounts[resource.SecretRef](),
	}
}

func newRefCounts[K comparable]() refCounts[K] { return refCounts[K]{map[K]int{}, map[K]bool{}, nil} }

// isRequested reports whether a resource must be subscribed.
func (rc *refCounts[K]) isRequested(k K) bool {
	return rc.counts[k] > 0 && (rc.isExcluded == nil || !rc.isExcluded(k))
}

// recordPrevious records whether resources are requested, for the next takeChange. The caller calls
// recordPrevious before it changes the counts or the result of isExcluded.
func (rc *refCounts[K]) recordPrevious(keys []K) {
	for _, k := range keys {
		if _, recorded := rc.wasRequested[k]; !recorded {
			rc.wasRequested[k] = rc.isRequested(k)
		}
	}
}

// add adds n to the count of each resource.
func (rc *refCounts[K]) add(keys []K, n int) {
	rc.recordPrevious(keys)
	for _, k := range keys {
		if rc.counts[k] += n; rc.counts[k] == 0 {
			delete(rc.counts, k)
		}
	}
}

// takeChange returns the changes since its last call.
func (rc *refCounts[K]) takeChange() (c SubscriptionChange[K]) {
	for k, wasRequested := range rc.wasRequested {
		switch isRequested := rc.isRequested(k); {
		case !isRequested:
			c.Removed = append(c.Removed, k)
		case !wasRequested:
			c.Added = append(c.Added, k)
		}
	}
	rc.wasRequested = resetSet(rc.wasRequested)
	return c
}

// update counts the references of the changed names again. referenceOf returns the references of a
// name.
func (r *references) update(refs *referrers, referenceOf func(name string) reference) {
	for name := range refs.changed {
		previous, current := refs.current[name], referenceOf(name)
		r.add(&current, 1)
		r.add(&previous, -1)
		if current.isEmpty() {
			delete(refs.current, name)
		} else {
			refs.current[name] = current
		}
	}
	refs.changed = resetSet(refs.changed)
}

func (r *references) add(ref *reference, n int) {
	r.assignments.add(ref.assignments, n)
	r.tables.add(ref.tables, n)
	r.extensions.add(ref.extensions, n)
	r.secrets.add(ref.secrets, n)
	if ref.unsubscribed {
		r.unsubscribed += n
	}
}

func (r *reference) isEmpty() bool {
	return len(r.assignments)+len(r.tables)+len(r.extensions)+len(r.secrets) == 0 && !r.unsubscribed
}

// clusterReference returns the references of a cluster; none if it does not exist.
func (s *State) clusterReference(name string) (r reference) {
	e := s.clusters.byName[name]
	if e == nil {
		return r
	}
	requested := s.requestsEndpoints(name)
	for _, c := range slices.Compact([]*resource.Cluster{e.Received, e.Active}) {
		if c == nil {
			continue
		}
		if c.EDSServiceName != "" && requested {
			r.assignments = append(r.assignments, c.EDSServiceName)
		}
		r.secrets = append(r.secrets, c.Secrets()...)
	}
	r.unsubscribed = !requested && e.Received != nil && e.Received.EDSServiceName != ""
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
		for _, dynamic := range l.DynamicFilters {
			r.extensions = append(r.extensions, dynamic.Name)
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
	listenersChanged := len(s.listeners.referrers.changed) > 0
	r.update(&s.clusters.referrers, s.clusterReference)
	r.update(&s.listeners.referrers, s.listenerReference)
	tables := r.tables.takeChange()
	changes := SubscriptionChanges{Assignments: r.assignments.takeChange(), Extensions: r.extensions.takeChange(), Secrets: r.secrets.takeChange(), ListenersChanged: listenersChanged}
	changes.Routes.Added, changes.DubboRoutes.Added = splitTables(tables.Added)
	changes.Routes.Removed, changes.DubboRoutes.Removed = splitTables(tables.Removed)
	slices.SortFunc(changes.Secrets.Added, resource.SecretRef.Compare)
	forgetResources(changes.Assignments.Removed, s.assignments, s.dependents.assignments)
	forgetResources(tables.Removed, s.tables, s.dependents.tables)
	forgetResources(changes.Extensions.Removed, s.extensions, s.dependents.extensions)
	removedSecrets := slices.DeleteFunc(slices.Clone(changes.Secrets.Removed), s.isStaticSecret) // static secrets stay
	forgetResources(removedSecrets, s.secrets, s.dependents.clusterSecrets)
	forgetResources(removedSecrets, s.secrets, s.dependents.listenerSecrets)
	if s.onDemand != nil {
		for _, name := range tables.Removed {
			s.onDemand.tables.unsubscribe(name)
		}
	}
	return changes
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
func forgetResources[K comparable, V any](keys []K, resources map[K]V, dependents map[K]map[string]bool) {
	for _, k := range keys {
		delete(resources, k)
		delete(dependents, k)
	}
}
