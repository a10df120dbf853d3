package state

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// Entry is the state of one cluster or listener. R is the resource, C the configuration that is
// built from it.
type Entry[R, C any] struct {
	Received     *R        // last accepted version; nil: removed
	ReceivedAt   time.Time // when Received arrived
	Active       *R        // active version; nil: none
	ActiveConfig *C        // configuration built from Active
	HeldBack     *R        // version that is not activated although it is complete; nil: none
}

// Cluster is the state of a cluster.
type Cluster = Entry[resource.Cluster, config.Cluster]

// Listener is the state of a listener.
type Listener = Entry[resource.Listener, config.Listener]

// kind is what differs between clusters and listeners.
type kind[R, C any] struct {
	typeURL string
	secrets func(version *R) []resource.SecretRef
	// dependencies returns the missing dependencies of e.Received.
	dependencies func(name string, e *Entry[R, C]) []dependency
	// resolve returns the configuration of a version; false: a secret is missing.
	resolve func(name string, version *R) (*C, bool)
	// activated and removed record a change of the active configuration. another: the active
	// version is another one than before.
	activated func(c *Change, name string, made *C, another bool)
	removed   func(c *Change, name string)
}

// entries are the clusters or the listeners of a State.
type entries[R, C any] struct {
	kind   kind[R, C] // immutable
	undo   *undoLog   // of the State
	byName map[string]*Entry[R, C]
	// dirty are the names to evaluate in the next reconcile. The value is true if a resource that
	// they refer to has changed, too.
	dirty     map[string]bool
	deadlines map[string]time.Time // when to evaluate a name again even if nothing arrives
	referrers referrers
}

func newEntries[R, C any](k kind[R, C], undo *undoLog) entries[R, C] {
	return entries[R, C]{
		kind: k, undo: undo, byName: map[string]*Entry[R, C]{}, dirty: map[string]bool{}, deadlines: map[string]time.Time{},
		referrers: referrers{map[string]reference{}, map[string]bool{}},
	}
}

// all yields a copy of each entry with its name, in no particular order.
func (t *entries[R, C]) all(yield func(string, Entry[R, C]) bool) {
	for name, e := range t.byName {
		if !yield(name, *e) {
			return
		}
	}
}

// mutable returns an entry for modification, and creates it if needed.
func (t *entries[R, C]) mutable(name string) *Entry[R, C] {
	addDirty(t.dirty, name)
	t.referrers.changed[name] = true
	e := t.byName[name]
	if e == nil {
		e = &Entry[R, C]{}
		t.byName[name] = e
	}
	t.save(name, e)
	return e
}

// save records the value of e for rollback.
func (t *entries[R, C]) save(name string, e *Entry[R, C]) {
	before := *e
	t.undo.add(func() {
		t.dirty[name], t.referrers.changed[name] = true, true
		t.byName[name] = &before
	})
}

// set stores the received version of a name.
func (t *entries[R, C]) set(name string, version *R, now time.Time) {
	e := t.mutable(name)
	e.Received, e.ReceivedAt = version, now
}

// remove removes a name in the next reconcile.
func (t *entries[R, C]) remove(name string) {
	if t.byName[name] != nil {
		t.mutable(name).Received = nil
	}
}

// markDirty marks the entries of names dirty because a resource that they refer to has changed.
func (t *entries[R, C]) markDirty(names map[string]bool) {
	maps.Copy(t.dirty, names) // all values are true
}

// reconcile evaluates the dirty entries and those whose deadline has passed. If adjust is not nil,
// it is called for each of them, with the time of its next evaluation (zero: not before something
// changes), and returns that time.
func (t *entries[R, C]) reconcile(now time.Time, c *Change, adjust func(name string, again time.Time) time.Time) {
	for name, limit := range t.deadlines {
		if !now.Before(limit) {
			addDirty(t.dirty, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.dirty)) {
		delete(t.deadlines, name)
		again := t.reconcileEntry(name, now, c)
		if adjust != nil {
			again = adjust(name, again)
		}
		if !again.IsZero() {
			t.deadlines[name] = again
		}
	}
	t.dirty = resetSet(t.dirty)
	if len(t.deadlines) == 0 {
		t.deadlines = map[string]time.Time{} // iterating over a map that was large stays expensive
	}
}

// reconcileEntry activates the received version of an entry if it is complete. It returns when to
// evaluate the entry again; zero: not before something changes. While the received version waits,
// the active one follows changes of its own dependencies.
func (t *entries[R, C]) reconcileEntry(name string, now time.Time, c *Change) time.Time {
	e := t.byName[name]
	if e == nil {
		return time.Time{} // already removed
	}
	if e.Received == nil {
		t.save(name, e)
		t.referrers.changed[name] = true
		if e.ActiveConfig != nil {
			t.kind.removed(c, name)
		}
		delete(t.byName, name)
		return time.Time{}
	}
	if e.Active == e.Received && e.ActiveConfig != nil && !t.dirty[name] {
		return time.Time{} // nothing that it is built from has changed
	}
	complete, again := waitExpired(t.kind.dependencies(name, e), now)
	if complete && e.HeldBack != e.Received && t.activate(name, e, e.Received, c) {
		return time.Time{}
	}
	if e.Active != nil && e.Active != e.Received && t.dirty[name] {
		t.activate(name, e, e.Active, c)
	}
	return again
}

// activate makes version the active one. It returns false if a secret is missing.
func (t *entries[R, C]) activate(name string, e *Entry[R, C], version *R, c *Change) bool {
	made, ok := t.kind.resolve(name, version)
	if !ok {
		return false
	}
	t.save(name, e)
	another := e.Active != version
	if another { // else its references are the same, as after an endpoint update
		t.referrers.changed[name] = true
	}
	e.Active, e.ActiveConfig = version, made
	t.kind.activated(c, name, made, another)
	return true
}

func (s *State) clusterKind() kind[resource.Cluster, config.Cluster] {
	return kind[resource.Cluster, config.Cluster]{
		typeURL:      resource.ClusterType,
		secrets:      (*resource.Cluster).Secrets,
		dependencies: s.clusterDependencies,
		resolve:      s.resolveCluster,
		activated:    func(c *Change, _ string, made *config.Cluster, _ bool) { c.Clusters = append(c.Clusters, made) },
		removed:      func(c *Change, name string) { c.RemovedClusters = append(c.RemovedClusters, name) },
	}
}

func (s *State) listenerKind() kind[resource.Listener, config.Listener] {
	return kind[resource.Listener, config.Listener]{
		typeURL:      resource.ListenerType,
		secrets:      (*resource.Listener).Secrets,
		dependencies: s.listenerDependencies,
		resolve: func(_ string, version *resource.Listener) (*config.Listener, bool) {
			return version.Resolve(s.secrets, s.extensions)
		},
		activated: func(c *Change, name string, _ *config.Listener, another bool) {
			c.ListenersChanged = true
			if another {
				c.ActivatedListeners = append(c.ActivatedListeners, name)
			}
		},
		removed: func(c *Change, _ string) { c.ListenersChanged = true },
	}
}

// Clusters yields the names and the clusters, in no particular order.
func (s *State) Clusters() iter.Seq2[string, Cluster] {
	return s.clusters.all
}

// Listeners yields the names and the listeners, in no particular order.
func (s *State) Listeners() iter.Seq2[string, Listener] {
	return s.listeners.all
}

// HoldBack keeps the received version of a listener inactive until Release, until a new version
// arrives, or until one of its route tables, secrets or filters changes.
func (s *State) HoldBack(listener string) {
	e := s.listeners.mutable(listener)
	e.HeldBack = e.Received
}

// Release undoes HoldBack.
func (s *State) Release(listener string) { s.listeners.mutable(listener).HeldBack = nil }

// releaseAll releases those of the listeners that are held back.
func (s *State) releaseAll(listeners map[string]bool) {
	for name := range listeners {
		if e := s.listeners.byName[name]; e != nil && e.HeldBack != nil {
			s.Release(name)
		}
	}
}

// RestartWait restarts the wait of a cluster that could not be applied for its missing
// dependencies.
func (s *State) RestartWait(cluster string, now time.Time) {
	s.clusters.mutable(cluster).ReceivedAt = now
	s.noteFailedCluster(cluster)
}

// HasPrivateKey reports whether the received version of a resource contains an inline private key.
func (s *State) HasPrivateKey(typeURL, name string) bool {
	var contexts []*resource.TLS
	if e := s.listeners.byName[name]; typeURL == resource.ListenerType && e != nil && e.Received != nil {
		contexts = e.Received.TLS
	}
	if e := s.clusters.byName[name]; typeURL == resource.ClusterType && e != nil && e.Received != nil {
		for _, one := range e.Received.TransportSocketMatches {
			contexts = append(contexts, one.TLS)
		}
	}
	return slices.ContainsFunc(contexts, func(t *resource.TLS) bool { return t != nil && t.Config.Key.Text != "" })
}

// resetSet returns an empty map. It replaces a large map, because iterating over it and clearing it
// stays expensive after its entries are deleted: TestCost in test/xds.
func resetSet[K comparable](m map[K]bool) map[K]bool {
	const few = 16
	if len(m) > few {
		return map[K]bool{}
	}
	clear(m)
	return m
}

// addDirty adds name to dirty. It keeps the value of a name that is there.
func addDirty(dirty map[string]bool, name string) {
	if !dirty[name] {
		dirty[name] = false
	}
}

func addKeys[K comparable](to map[K]bool, names []K) {
	for _, n := range names {
		to[n] = true
	}
}
