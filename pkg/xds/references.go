package xds

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// references knows which resources clusters and listeners refer to, and so ask for, be it
// by what is in force or by what is to come. They are counted, so that a change costs what
// has changed: TestCost in test/xds.
type references struct {
	clusters, listeners             referrers
	assignments, tables, extensions refCounts[string]
	secrets                         refCounts[resource.SecretRef]
	unsubscribed                    int // clusters whose hosts are left with the control plane
}

// referrers are those who refer to resources, by name.
type referrers struct {
	current map[string]reference // what each referred to then, if to anything
	changed map[string]bool      // who is to be counted anew
}

// reference is what one refers to, a resource perhaps more than once.
type reference struct {
	assignments, tables, extensions []string
	secrets                         []resource.SecretRef
	unsubscribed                    bool
}

// refCounts counts how often each resource of a type is referred to.
type refCounts[K comparable] struct {
	counts       map[K]int
	wasRequested map[K]bool   // of those that may have changed since the last turn: one was asked for
	isExcluded   func(K) bool // reports that one is not to be asked for, though it is referred to; nil: none is
}

// subscriptionChange is what has changed of a tally.
type subscriptionChange[K comparable] struct {
	added []K // are to be asked for, and were not
	// removed are not. Some may not have been before: something refers to them that did not
	// come to count, or they are spared.
	removed []K
}

// subscriptionChanges are those of all types, in no order.
type subscriptionChanges struct {
	assignments, tables, extensions subscriptionChange[string]
	secrets                         subscriptionChange[resource.SecretRef]
	listenersChanged                bool // some listeners may refer to others
}

func newReferences() references {
	none := func() referrers { return referrers{map[string]reference{}, map[string]bool{}} }
	return references{
		clusters: none(), listeners: none(),
		assignments: newRefCounts[string](), tables: newRefCounts[string](), extensions: newRefCounts[string](), secrets: newRefCounts[resource.SecretRef](),
	}
}

func newRefCounts[K comparable]() refCounts[K] { return refCounts[K]{map[K]int{}, map[K]bool{}, nil} }

// isRequested reports whether a resource is to be asked for.
func (t *refCounts[K]) isRequested(k K) bool {
	return t.counts[k] > 0 && (t.isExcluded == nil || !t.isExcluded(k))
}

// recordPrevious has the next turn tell how it stands with resources.
func (t *refCounts[K]) recordPrevious(all []K) {
	for _, k := range all {
		if _, known := t.wasRequested[k]; !known {
			t.wasRequested[k] = t.isRequested(k)
		}
	}
}

// add counts each of all n times more.
func (t *refCounts[K]) add(all []K, n int) {
	t.recordPrevious(all)
	for _, k := range all {
		if t.counts[k] += n; t.counts[k] == 0 {
			delete(t.counts, k)
		}
	}
}

// takeChange returns what has changed since it was called last.
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

// update counts what those refer to now who have changed.
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

// clusterReference is what the cluster of a name, if there is one, refers to.
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

// listenerReference is clusterReference of a listener.
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

// takeSubscriptionChanges returns what is to be asked for from now on, and what not any more, since it was
// called last. What is not any more is forgotten: if it is wanted again it comes again.
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
	gone := slices.DeleteFunc(slices.Clone(all.secrets.removed), w.isStaticSecret) // the file has the others
	forgetResources(gone, w.secrets, w.dependents.clusterSecrets)
	forgetResources(gone, w.secrets, w.dependents.listenerSecrets)
	if w.onDemand != nil {
		for _, name := range all.tables.removed {
			w.onDemand.tables.unsubscribe(name)
		}
	}
	return all
}

// forgetResources drops resources, and who refers to them.
func forgetResources[K comparable, V any](all []K, held map[K]V, users map[K]map[string]bool) {
	for _, k := range all {
		delete(held, k)
		delete(users, k)
	}
}

// isSecretRequested reports whether a secret is asked for.
func (w *state) isSecretRequested(ref resource.SecretRef) bool {
	return w.references.secrets.isRequested(ref)
}

// sortedSecrets are references in order.
func sortedSecrets(all []resource.SecretRef) []resource.SecretRef {
	slices.SortFunc(all, resource.SecretRef.Compare)
	return all
}
