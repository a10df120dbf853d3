package xds

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// references counts which resources the clusters and listeners refer to, in their active and in
// their received versions. The counts make the cost of an update proportional to what has changed:
// TestCost in test/xds.
type references struct {
	clusters, listeners             referrers
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

// subscriptionChange is the change of the subscription to one type.
type subscriptionChange[K comparable] struct {
	added []K // newly requested
	// removed are not requested. Some were not requested before either: their references were never
	// counted, or they are excluded.
	removed []K
}

// subscriptionChanges are the changes of all types, in no particular order.
type subscriptionChanges struct {
	assignments, tables, extensions subscriptionChange[string]
	secrets                         subscriptionChange[resource.SecretRef]
	listenersChanged                bool // the references of some listeners may have changed
}

func newReferences() references {
	none := func() referrers { return referrers{map[string]reference{}, map[string]bool{}} }
	return references{
		clusters: none(), listeners: none(),
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
func (t *refCounts[K]) takeChange() (c subscriptionChange[K]) {
	for k, was := range t.wasRequested {
		switch is := t.isRequested(k); {
		case !is:
			c.removed = append(c.removed, k)
		case !was:
			c.added = append(c.added, k)
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
func (w *state) clusterReference(name string) (r reference) {
	s := w.clusters[name]
	if s == nil {
		return r
	}
	asks := w.requestsEndpoints(name)
	for _, c := range slices.Compact([]*resource.Cluster{s.received, s.active}) {
		if c == nil {
			continue
		}
		if c.EDSServiceName != "" && asks {
			r.assignments = append(r.assignments, c.EDSServiceName)
		}
		r.secrets = append(r.secrets, c.Secrets()...)
	}
	r.unsubscribed = !asks && s.received != nil && s.received.EDSServiceName != ""
	return r
}

// listenerReference is clusterReference for a listener.
func (w *state) listenerReference(name string) (r reference) {
	s := w.listeners[name]
	if s == nil {
		return r
	}
	for _, l := range slices.Compact([]*resource.Listener{s.received, s.active}) {
		if l == nil {
			continue
		}
		r.tables = append(r.tables, w.requestedTables(l.RouteConfigNames)...)
		r.secrets = append(r.secrets, l.Secrets()...)
		for _, slot := range l.DynamicFilters {
			r.extensions = append(r.extensions, slot.Name)
		}
	}
	return r
}

// takeSubscriptionChanges returns the subscription changes since its last call. It drops the
// resources that are no longer requested; a new subscription fetches them again.
func (w *state) takeSubscriptionChanges() subscriptionChanges {
	r := &w.references
	if w.onDemand != nil {
		for name := range r.clusters.changed {
			if w.clusters[name] == nil {
				w.onDemand.clusters.unsubscribe(name)
			}
		}
	}
	listeners := len(r.listeners.changed) > 0
	r.update(&r.clusters, w.clusterReference)
	r.update(&r.listeners, w.listenerReference)
	all := subscriptionChanges{r.assignments.takeChange(), r.tables.takeChange(), r.extensions.takeChange(), r.secrets.takeChange(), listeners}
	forgetResources(all.assignments.removed, w.assignments, w.dependents.assignments)
	forgetResources(all.tables.removed, w.tables, w.dependents.tables)
	forgetResources(all.extensions.removed, w.extensions, w.dependents.extensions)
	gone := slices.DeleteFunc(slices.Clone(all.secrets.removed), w.isStaticSecret) // static secrets stay
	forgetResources(gone, w.secrets, w.dependents.clusterSecrets)
	forgetResources(gone, w.secrets, w.dependents.listenerSecrets)
	if w.onDemand != nil {
		for _, name := range all.tables.removed {
			w.onDemand.tables.unsubscribe(name)
		}
	}
	return all
}

// forgetResources deletes resources and their dependents.
func forgetResources[K comparable, V any](all []K, held map[K]V, users map[K]map[string]bool) {
	for _, k := range all {
		delete(held, k)
		delete(users, k)
	}
}

// isSecretRequested reports whether a secret is subscribed.
func (w *state) isSecretRequested(ref resource.SecretRef) bool {
	return w.references.secrets.isRequested(ref)
}

// sortedSecrets sorts all in place and returns it.
func sortedSecrets(all []resource.SecretRef) []resource.SecretRef {
	slices.SortFunc(all, resource.SecretRef.Compare)
	return all
}
