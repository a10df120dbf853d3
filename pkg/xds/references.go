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
	assignments, tables, extensions tally[string]
	secrets                         tally[resource.SecretRef]
	asleep                          int // clusters whose hosts are left with the control plane
}

// referrers are those who refer to resources, by name.
type referrers struct {
	counted map[string]reference // what each referred to then, if to anything
	changed map[string]bool      // who is to be counted anew
}

// reference is what one refers to, a resource perhaps more than once.
type reference struct {
	assignments, tables, extensions []string
	secrets                         []resource.SecretRef
	asleep                          bool
}

// tally counts how often each resource of a type is referred to.
type tally[K comparable] struct {
	counts map[K]int
	before map[K]bool   // of those that may have changed since the last turn: one was asked for
	spares func(K) bool // reports that one is not to be asked for, though it is referred to; nil: none is
}

// turn is what has changed of a tally.
type turn[K comparable] struct {
	more []K // are to be asked for, and were not
	// less are not. Some may not have been before: something refers to them that did not
	// come to count, or they are spared.
	less []K
}

// turns are those of all types, in no order.
type turns struct {
	assignments, tables, extensions turn[string]
	secrets                         turn[resource.SecretRef]
	listeners                       bool // some listeners may refer to others
}

func newReferences() references {
	none := func() referrers { return referrers{map[string]reference{}, map[string]bool{}} }
	return references{
		clusters: none(), listeners: none(),
		assignments: newTally[string](), tables: newTally[string](), extensions: newTally[string](), secrets: newTally[resource.SecretRef](),
	}
}

func newTally[K comparable]() tally[K] { return tally[K]{map[K]int{}, map[K]bool{}, nil} }

// asks reports whether a resource is to be asked for.
func (t *tally[K]) asks(k K) bool { return t.counts[k] > 0 && (t.spares == nil || !t.spares(k)) }

// notice has the next turn tell how it stands with resources.
func (t *tally[K]) notice(all []K) {
	for _, k := range all {
		if _, known := t.before[k]; !known {
			t.before[k] = t.asks(k)
		}
	}
}

// add counts each of all n times more.
func (t *tally[K]) add(all []K, n int) {
	t.notice(all)
	for _, k := range all {
		if t.counts[k] += n; t.counts[k] == 0 {
			delete(t.counts, k)
		}
	}
}

// turn returns what has changed since it was called last.
func (t *tally[K]) turn() (c turn[K]) {
	for k, was := range t.before {
		switch is := t.asks(k); {
		case !is:
			c.less = append(c.less, k)
		case !was:
			c.more = append(c.more, k)
		}
	}
	t.before = emptied(t.before)
	return c
}

// count counts what those refer to now who have changed.
func (r *references) count(of *referrers, now func(name string) reference) {
	for name := range of.changed {
		before, after := of.counted[name], now(name)
		r.add(&after, 1)
		r.add(&before, -1)
		if after.isNothing() {
			delete(of.counted, name)
		} else {
			of.counted[name] = after
		}
	}
	of.changed = emptied(of.changed)
}

func (r *references) add(one *reference, n int) {
	r.assignments.add(one.assignments, n)
	r.tables.add(one.tables, n)
	r.extensions.add(one.extensions, n)
	r.secrets.add(one.secrets, n)
	if one.asleep {
		r.asleep += n
	}
}

func (r *reference) isNothing() bool {
	return len(r.assignments)+len(r.tables)+len(r.extensions)+len(r.secrets) == 0 && !r.asleep
}

// ofCluster is what the cluster of a name, if there is one, refers to.
func (w *world) ofCluster(name string) (r reference) {
	s := w.clusters[name]
	if s == nil {
		return r
	}
	asks := w.asksForHosts(name)
	for _, c := range slices.Compact([]*resource.Cluster{s.last, s.live}) {
		if c == nil {
			continue
		}
		if c.Endpoints != "" && asks {
			r.assignments = append(r.assignments, c.Endpoints)
		}
		r.secrets = append(r.secrets, c.Secrets()...)
	}
	r.asleep = !asks && s.last != nil && s.last.Endpoints != ""
	return r
}

// ofListener is ofCluster of a listener.
func (w *world) ofListener(name string) (r reference) {
	s := w.listeners[name]
	if s == nil {
		return r
	}
	for _, l := range slices.Compact([]*resource.Listener{s.last, s.live}) {
		if l == nil {
			continue
		}
		r.tables = append(r.tables, w.asksForTables(l.Routes)...)
		r.secrets = append(r.secrets, l.Secrets()...)
		for _, slot := range l.Slots {
			r.extensions = append(r.extensions, slot.Name)
		}
	}
	return r
}

// turn returns what is to be asked for from now on, and what not any more, since it was
// called last. What is not any more is forgotten: if it is wanted again it comes again.
func (w *world) turn() turns {
	r := &w.references
	if w.lazy != nil {
		for name := range r.clusters.changed {
			if w.clusters[name] == nil {
				w.lazy.clusters.end(name)
			}
		}
	}
	listeners := len(r.listeners.changed) > 0
	r.count(&r.clusters, w.ofCluster)
	r.count(&r.listeners, w.ofListener)
	all := turns{r.assignments.turn(), r.tables.turn(), r.extensions.turn(), r.secrets.turn(), listeners}
	forget(all.assignments.less, w.assignments, w.users.assignments)
	forget(all.tables.less, w.tables, w.users.tables)
	forget(all.extensions.less, w.extensions, w.users.extensions)
	gone := slices.DeleteFunc(slices.Clone(all.secrets.less), w.isFixed) // the file has the others
	forget(gone, w.secrets, w.users.secrets)
	forget(gone, w.secrets, w.users.own)
	if w.lazy != nil {
		for _, name := range all.tables.less {
			w.lazy.tables.end(name)
		}
	}
	return all
}

// forget drops resources, and who refers to them.
func forget[K comparable, V any](all []K, held map[K]V, users map[K]map[string]bool) {
	for _, k := range all {
		delete(held, k)
		delete(users, k)
	}
}

// isAsked reports whether a secret is asked for.
func (w *world) isAsked(ref resource.SecretRef) bool { return w.references.secrets.asks(ref) }

// sorted are references in order.
func sorted(all []resource.SecretRef) []resource.SecretRef {
	slices.SortFunc(all, resource.SecretRef.Compare)
	return all
}
