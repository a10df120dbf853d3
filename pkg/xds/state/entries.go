package state

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// Entry is the state of one cluster or listener. R is the type of the resource, C the type of the
// configuration that is built from it.
type Entry[R, C any] struct {
	Received     *R        // last accepted version; nil: removed
	ReceivedAt   time.Time // when Received arrived, or the time of a later RestartWait
	Active       *R        // active version; nil: none
	ActiveConfig *C        // configuration built from Active
	HeldBack     *R        // version that HoldBack keeps inactive; nil: none
}

// Cluster is the state of a cluster.
type Cluster = Entry[resource.Cluster, config.Cluster]

// Listener is the state of a listener.
type Listener = Entry[resource.Listener, config.Listener]

// entryFuncs holds the functions that differ between clusters and listeners.
type entryFuncs[R, C any] struct {
	typeURL string
	secrets func(version *R) []resource.SecretRef
	// dependencies returns the missing dependencies of e.Received.
	dependencies func(name string, e *Entry[R, C]) []dependency
	// resolve returns the configuration of a version; false: a secret is missing.
	resolve func(name string, version *R) (*C, bool)
	// activated and removed record a change of the active configuration. versionChanged reports
	// whether the active version has changed, in addition to the configuration built from it.
	activated func(c *Change, name string, cfg *C, versionChanged bool)
	removed   func(c *Change, name string)
}

// entries holds the clusters or the listeners of a State.
type entries[R, C any] struct {
	funcs  entryFuncs[R, C] // immutable
	undo   *undoLog         // undo log of the State
	byName map[string]*Entry[R, C]
	// dirty holds the names to evaluate in the next reconcile. The value is true if the active
	// configuration must be built again, because a resource that it is built from has changed.
	dirty     map[string]bool
	deadlines map[string]time.Time // when to evaluate a name again even if nothing arrives
	referrers referrers
}

func newEntries[R, C any](funcs entryFuncs[R, C], undo *undoLog) entries[R, C] {
	return entries[R, C]{
		funcs: funcs, undo: undo, byName: map[string]*Entry[R, C]{}, dirty: map[string]bool{}, deadlines: map[string]time.Time{},
		referrers: referrers{map[string]reference{}, map[string]bool{}},
	}
}

// all yields a copy of each entry with its name, in no particular order.
func (es *entries[R, C]) all(yield func(string, Entry[R, C]) bool) {
	for name, e := range es.byName {
		if !yield(name, *e) {
			return
		}
	}
}

// mutable returns an entry for modification, and creates it if needed. It marks the entry dirty and
// records its value for rollback.
func (es *entries[R, C]) mutable(name string) *Entry[R, C] {
	addDirty(es.dirty, name)
	es.referrers.changed[name] = true
	e := es.byName[name]
	if e == nil {
		e = &Entry[R, C]{}
		es.byName[name] = e
	}
	es.save(name, e)
	return e
}

// save records the value of e for rollback.
func (es *entries[R, C]) save(name string, e *Entry[R, C]) {
	saved := *e
	es.undo.add(func() {
		es.dirty[name], es.referrers.changed[name] = true, true
		es.byName[name] = &saved
	})
}

// set stores the received version of a name.
func (es *entries[R, C]) set(name string, version *R, now time.Time) {
	e := es.mutable(name)
	e.Received, e.ReceivedAt = version, now
}

// remove marks an entry as removed. The next reconcile deletes it.
func (es *entries[R, C]) remove(name string) {
	if es.byName[name] != nil {
		es.mutable(name).Received = nil
	}
}

// markDirty marks the entries of names dirty because a resource that they refer to has changed.
func (es *entries[R, C]) markDirty(names map[string]bool) {
	maps.Copy(es.dirty, names) // all values are true
}

// reconcile evaluates the dirty entries and those whose deadline has passed. If adjust is not nil,
// reconcile passes it the next evaluation time of each of these entries and uses the result
// instead. With a zero time only a change causes the next evaluation.
func (es *entries[R, C]) reconcile(now time.Time, c *Change, adjust func(name string, next time.Time) time.Time) {
	for name, deadline := range es.deadlines {
		if !now.Before(deadline) {
			addDirty(es.dirty, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(es.dirty)) {
		delete(es.deadlines, name)
		next := es.reconcileEntry(name, now, c)
		if adjust != nil {
			next = adjust(name, next)
		}
		if !next.IsZero() {
			es.deadlines[name] = next
		}
	}
	es.dirty = resetSet(es.dirty)
	if len(es.deadlines) == 0 {
		es.deadlines = map[string]time.Time{} // iterating over an empty map that was large is expensive
	}
}

// reconcileEntry deletes the entry if it was removed. It activates the received version unless that
// version is held back, lacks a secret, or waits for another dependency. Otherwise it builds the
// active version again if a resource that the active version uses has changed. It returns when to
// evaluate the entry again even if nothing changes; zero: never.
func (es *entries[R, C]) reconcileEntry(name string, now time.Time, c *Change) time.Time {
	e := es.byName[name]
	if e == nil {
		return time.Time{} // already removed
	}
	if e.Received == nil {
		es.save(name, e)
		es.referrers.changed[name] = true
		if e.ActiveConfig != nil {
			es.funcs.removed(c, name)
		}
		delete(es.byName, name)
		return time.Time{}
	}
	if e.Active == e.Received && e.ActiveConfig != nil && !es.dirty[name] {
		return time.Time{} // no resource that the entry is built from has changed
	}
	complete, next := waitExpired(es.funcs.dependencies(name, e), now)
	if complete && e.HeldBack != e.Received && es.activate(name, e, e.Received, c) {
		return time.Time{}
	}
	if e.Active != nil && e.Active != e.Received && es.dirty[name] {
		es.activate(name, e, e.Active, c)
	}
	return next
}

// activate makes version the active version. It returns false if a secret is missing.
func (es *entries[R, C]) activate(name string, e *Entry[R, C], version *R, c *Change) bool {
	cfg, ok := es.funcs.resolve(name, version)
	if !ok {
		return false
	}
	es.save(name, e)
	versionChanged := e.Active != version
	if versionChanged { // else, such as after an endpoint update, the references stay the same
		es.referrers.changed[name] = true
	}
	e.Active, e.ActiveConfig = version, cfg
	es.funcs.activated(c, name, cfg, versionChanged)
	return true
}

func (s *State) clusterFuncs() entryFuncs[resource.Cluster, config.Cluster] {
	return entryFuncs[resource.Cluster, config.Cluster]{
		typeURL:      resource.ClusterType,
		secrets:      (*resource.Cluster).Secrets,
		dependencies: s.clusterDependencies,
		resolve:      s.resolveCluster,
		activated:    func(c *Change, _ string, cfg *config.Cluster, _ bool) { c.Clusters = append(c.Clusters, cfg) },
		removed:      func(c *Change, name string) { c.RemovedClusters = append(c.RemovedClusters, name) },
	}
}

func (s *State) listenerFuncs() entryFuncs[resource.Listener, config.Listener] {
	return entryFuncs[resource.Listener, config.Listener]{
		typeURL:      resource.ListenerType,
		secrets:      (*resource.Listener).Secrets,
		dependencies: s.listenerDependencies,
		resolve: func(_ string, version *resource.Listener) (*config.Listener, bool) {
			return version.Resolve(s.secrets, s.extensions)
		},
		activated: func(c *Change, name string, _ *config.Listener, versionChanged bool) {
			c.ListenersChanged = true
			if versionChanged {
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

// HoldBack keeps the received version of a listener inactive until Release or a new version. A
// change of a route table, secret, filter or runtime key of the listener also ends HoldBack.
func (s *State) HoldBack(listener string) {
	e := s.listeners.mutable(listener)
	e.HeldBack = e.Received
}

// Release undoes HoldBack.
func (s *State) Release(listener string) { s.listeners.mutable(listener).HeldBack = nil }

// releaseAll releases the given listeners, if they are held back.
func (s *State) releaseAll(listeners map[string]bool) {
	for name := range listeners {
		if e := s.listeners.byName[name]; e != nil && e.HeldBack != nil {
			s.Release(name)
		}
	}
}

// RestartWait restarts the wait of a cluster for its missing dependencies, after a change that
// includes the cluster could not be applied.
func (s *State) RestartWait(cluster string, now time.Time) {
	s.clusters.mutable(cluster).ReceivedAt = now
	s.recordFailedCluster(cluster)
}

// HasPrivateKey reports whether the received version of a cluster or a listener contains an inline
// private key. It returns false for other types.
func (s *State) HasPrivateKey(typeURL, name string) bool {
	var contexts []*resource.TLS
	if e := s.listeners.byName[name]; typeURL == resource.ListenerType && e != nil && e.Received != nil {
		contexts = e.Received.TLS
	}
	if e := s.clusters.byName[name]; typeURL == resource.ClusterType && e != nil && e.Received != nil {
		for _, match := range e.Received.TransportSocketMatches {
			contexts = append(contexts, match.TLS)
		}
	}
	return slices.ContainsFunc(contexts, func(t *resource.TLS) bool { return t != nil && t.Config.Key.Text != "" })
}

// resetSet returns an empty map: m after clearing it or, if m is large, a new map. A large map
// stays expensive to iterate over and to clear even when it is empty (TestCost in test/xds).
func resetSet[K comparable](m map[K]bool) map[K]bool {
	const maxCleared = 16
	if len(m) > maxCleared {
		return map[K]bool{}
	}
	clear(m)
	return m
}

// addDirty adds name to dirty with the value false. If dirty contains name, its value stays.
func addDirty(dirty map[string]bool, name string) {
	if !dirty[name] {
		dirty[name] = false
	}
}

func addKeys[K comparable](set map[K]bool, keys []K) {
	for _, k := range keys {
		set[k] = true
	}
}
