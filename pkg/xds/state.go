package xds

import (
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// state holds the received xDS resources and decides which of them are active. A cluster becomes
// active when its endpoints and secrets are there, a listener when its route tables, filters and
// secrets are; until then the previous version stays active. The order in which resources arrive
// does not change the resulting configuration. A state does no I/O and is not safe for concurrent
// use; the caller passes the time.
type state struct {
	clusters    map[string]*clusterState
	listeners   map[string]*listenerState
	assignments map[string]*resource.LoadAssignment
	tables      map[string]*resource.RouteTable
	secrets     map[resource.SecretRef]*resource.Secret
	extensions  map[string]*resource.Extension
	runtime     layeredRuntime
	staticNames staticNames // names of the static resources among the above

	// Names to evaluate in the next reconcile. The value is true if a resource that they refer to
	// has changed, too.
	dirtyClusters  map[string]bool
	dirtyListeners map[string]bool
	dirtyTables    map[string]bool // tables that have changed
	// When to evaluate a name again even if nothing arrives.
	clusterDeadlines  map[string]time.Time
	listenerDeadlines map[string]time.Time
	dependents        dependents
	references        references
	onDemand          *onDemandState // nil: all referenced resources are subscribed
	warmup            *warmup        // nil: the warm-up has ended

	undoLog []func() // undoes the changes since the last checkpoint, in order of the changes
}

// clusterState is the state of one cluster.
type clusterState struct {
	received     *resource.Cluster // last accepted version; nil: removed
	receivedAt   time.Time         // when received arrived
	active       *resource.Cluster // active version; nil: none
	activeConfig *config.Cluster   // configuration built from active
}

// listenerState is the state of one listener, like clusterState.
type listenerState struct {
	received     *resource.Listener
	receivedAt   time.Time
	active       *resource.Listener
	activeConfig *config.Listener
	heldBack     *resource.Listener // version that is not activated although it is complete; nil: none
}

// dependents maps each resource to the names of the clusters or listeners that refer to it.
type dependents struct {
	assignments     map[string]map[string]bool             // clusters
	clusterSecrets  map[resource.SecretRef]map[string]bool // clusters
	tables          map[string]map[string]bool             // listeners
	listenerSecrets map[resource.SecretRef]map[string]bool // listeners
	extensions      map[string]map[string]bool             // listeners
}

// change is the result of a reconcile.
type change struct {
	clusters        []*config.Cluster    // new and changed clusters, sorted by name
	removedClusters []string             // sorted
	tables          []*config.RouteTable // changed tables that active listeners use, sorted by name
	// listenersChanged: the configuration of a listener changed, or a listener was removed.
	listenersChanged   bool
	activatedListeners []string // listeners that have another active version now, sorted
}

func (c *change) empty() bool {
	return len(c.clusters)+len(c.removedClusters)+len(c.tables) == 0 && !c.listenersChanged
}

func newState() *state {
	w := &state{
		clusters:          map[string]*clusterState{},
		listeners:         map[string]*listenerState{},
		assignments:       map[string]*resource.LoadAssignment{},
		tables:            map[string]*resource.RouteTable{},
		secrets:           map[resource.SecretRef]*resource.Secret{},
		extensions:        map[string]*resource.Extension{},
		dirtyClusters:     map[string]bool{},
		dirtyListeners:    map[string]bool{},
		dirtyTables:       map[string]bool{},
		clusterDeadlines:  map[string]time.Time{},
		listenerDeadlines: map[string]time.Time{},
		references:        newReferences(),
		dependents: dependents{
			assignments:     map[string]map[string]bool{},
			clusterSecrets:  map[resource.SecretRef]map[string]bool{},
			tables:          map[string]map[string]bool{},
			listenerSecrets: map[resource.SecretRef]map[string]bool{},
			extensions:      map[string]map[string]bool{},
		},
	}
	w.references.secrets.isExcluded = w.isStaticSecret
	return w
}

// checkpoint makes the current state the one that rollback restores.
func (w *state) checkpoint() { w.commit() }

// commit makes the changes since the checkpoint final: rollback no longer undoes them. It drops the
// undo log, whose functions keep the replaced resources reachable. Every operation on the state
// ends with it.
func (w *state) commit() {
	const few = 64
	if cap(w.undoLog) > few { // do not keep the storage of one large update
		w.undoLog = nil
		return
	}
	clear(w.undoLog)
	w.undoLog = w.undoLog[:0]
}

// rollback undoes the changes since the checkpoint. The caller reconciles afterwards.
func (w *state) rollback() {
	for _, f := range slices.Backward(w.undoLog) {
		f()
	}
	w.commit()
}

// mutableCluster returns the state of a cluster for modification, and creates it if needed.
func (w *state) mutableCluster(name string) *clusterState {
	addDirty(w.dirtyClusters, name)
	w.references.clusters.changed[name] = true
	s := w.clusters[name]
	if s == nil {
		s = &clusterState{}
		w.clusters[name] = s
	}
	w.saveCluster(name, s)
	return s
}

// mutableListener is mutableCluster for a listener.
func (w *state) mutableListener(name string) *listenerState {
	addDirty(w.dirtyListeners, name)
	w.references.listeners.changed[name] = true
	s := w.listeners[name]
	if s == nil {
		s = &listenerState{}
		w.listeners[name] = s
	}
	w.saveListener(name, s)
	return s
}

// saveCluster records the value of s for rollback.
func (w *state) saveCluster(name string, s *clusterState) {
	before := *s
	w.undoLog = append(w.undoLog, func() {
		w.dirtyClusters[name], w.references.clusters.changed[name] = true, true
		w.clusters[name] = &before
	})
}

// saveListener is saveCluster for a listener.
func (w *state) saveListener(name string, s *listenerState) {
	before := *s
	w.undoLog = append(w.undoLog, func() {
		w.dirtyListeners[name], w.references.listeners.changed[name] = true, true
		w.listeners[name] = &before
	})
}

func (w *state) setCluster(name string, c *resource.Cluster, now time.Time) {
	s := w.mutableCluster(name)
	s.received, s.receivedAt = c, now
	if c.EDSServiceName != "" {
		addDependent(w.dependents.assignments, &w.references.assignments, name, c.EDSServiceName)
	}
	addDependent(w.dependents.clusterSecrets, &w.references.secrets, name, c.Secrets()...)
}

func (w *state) removeCluster(name string) {
	if w.clusters[name] != nil {
		w.mutableCluster(name).received = nil
	}
}

func (w *state) setListener(name string, l *resource.Listener, now time.Time) {
	s := w.mutableListener(name)
	s.received, s.receivedAt = l, now
	addDependent(w.dependents.tables, &w.references.tables, name, l.RouteConfigNames...)
	addDependent(w.dependents.listenerSecrets, &w.references.secrets, name, l.Secrets()...)
	for _, slot := range l.DynamicFilters {
		addDependent(w.dependents.extensions, &w.references.extensions, name, slot.Name)
	}
}

// holdBack keeps the received version of a listener inactive until release, until a new version
// arrives, or until one of its route tables, secrets or filters changes.
func (w *state) holdBack(name string) {
	s := w.mutableListener(name)
	s.heldBack = s.received
}

// release undoes holdBack.
func (w *state) release(name string) { w.mutableListener(name).heldBack = nil }

// releaseAll releases those of the listeners that are held back.
func (w *state) releaseAll(names map[string]bool) {
	for name := range names {
		if s := w.listeners[name]; s != nil && s.heldBack != nil {
			w.release(name)
		}
	}
}

// restartWait restarts the wait of a cluster that could not be applied for its missing dependencies.
func (w *state) restartWait(name string, now time.Time) {
	w.mutableCluster(name).receivedAt = now
	w.noteFailedCluster(name)
}

func (w *state) removeListener(name string) {
	if w.listeners[name] != nil {
		w.mutableListener(name).received = nil
	}
}

// setAssignment stores the load assignment of a name; nil removes it.
func (w *state) setAssignment(name string, a *resource.LoadAssignment) {
	before := w.assignments[name]
	w.mutate(func(undo bool) {
		setOrDelete(w.assignments, name, chooseValue(undo, before, a))
		markDirty(w.dirtyClusters, w.dependents.assignments[name])
	})
}

// mutate calls do(false), and do(true) on rollback.
func (w *state) mutate(do func(undo bool)) {
	do(false)
	w.undoLog = append(w.undoLog, func() { do(true) })
}

func chooseValue[T any](undo bool, before, after T) T {
	if undo {
		return before
	}
	return after
}

// setTable stores the route table of a name; nil removes it.
func (w *state) setTable(name string, t *resource.RouteTable) {
	if w.onDemand != nil && t != nil {
		w.markReady(&w.onDemand.tables, name)
	}
	w.releaseAll(w.dependents.tables[name])
	before := w.tables[name]
	w.mutate(func(undo bool) {
		setOrDelete(w.tables, name, chooseValue(undo, before, t))
		w.dirtyTables[name] = true
		for user := range w.dependents.tables[name] {
			addDirty(w.dirtyListeners, user) // it may have waited for the table
		}
	})
}

// setSecret stores a secret. A removal by the control plane never gets here: the last version stays
// in use.
func (w *state) setSecret(ref resource.SecretRef, s *resource.Secret) {
	w.releaseAll(w.dependents.listenerSecrets[ref])
	before := w.secrets[ref]
	w.mutate(func(undo bool) {
		setOrDelete(w.secrets, ref, chooseValue(undo, before, s))
		markDirty(w.dirtyClusters, w.dependents.clusterSecrets[ref])
		markDirty(w.dirtyListeners, w.dependents.listenerSecrets[ref])
	})
}

func setOrDelete[K comparable, T any](m map[K]*T, name K, v *T) {
	if v == nil {
		delete(m, name)
	} else {
		m[name] = v
	}
}

// addDirty adds name to dirty. It keeps the value of a name that is there.
func addDirty(dirty map[string]bool, name string) {
	if !dirty[name] {
		dirty[name] = false
	}
}

func markDirty(dirty, names map[string]bool) {
	for n := range names {
		dirty[n] = true
	}
}

// addDependent records that name refers to others. Entries of references that no longer exist stay;
// they cause only an additional evaluation.
func addDependent[K comparable](of map[K]map[string]bool, counted *refCounts[K], name string, others ...K) {
	counted.recordPrevious(others)
	for _, o := range others {
		if of[o] == nil {
			of[o] = map[string]bool{}
		}
		of[o][name] = true
	}
}

// reconcile activates the resources that are complete and returns the changes. next is when the
// caller must call it again because a timeout expires; zero: never.
func (w *state) reconcile(now time.Time) (c change, next time.Time) {
	w.expireOnDemand(now)
	markExpired(w.clusterDeadlines, w.dirtyClusters, now)
	for _, name := range slices.Sorted(maps.Keys(w.dirtyClusters)) {
		delete(w.clusterDeadlines, name)
		if limit := w.updateWarmup(name, w.reconcileCluster(name, now, &c), now); !limit.IsZero() {
			w.clusterDeadlines[name] = limit
		}
	}
	w.dirtyClusters = resetSet(w.dirtyClusters)
	next = w.endWarmupIfDone(now)
	markExpired(w.listenerDeadlines, w.dirtyListeners, now)
	for _, name := range slices.Sorted(maps.Keys(w.dirtyListeners)) {
		delete(w.listenerDeadlines, name)
		if limit := w.reconcileListener(name, now, &c); !limit.IsZero() {
			w.listenerDeadlines[name] = limit
		}
	}
	w.dirtyListeners = resetSet(w.dirtyListeners)
	for _, name := range slices.Sorted(maps.Keys(w.dirtyTables)) {
		if w.usesTable(name) {
			c.tables = append(c.tables, w.activeTable(name))
		}
	}
	w.dirtyTables = resetSet(w.dirtyTables)
	if len(w.clusterDeadlines)+len(w.listenerDeadlines) == 0 {
		w.clusterDeadlines, w.listenerDeadlines = map[string]time.Time{}, map[string]time.Time{}
	}
	for _, late := range append(w.onDemandDeadlines(), w.clusterDeadlines, w.listenerDeadlines) {
		for _, limit := range late {
			if next.IsZero() || limit.Before(next) {
				next = limit
			}
		}
	}
	return c, next
}

// usesTable reports whether an active listener refers to a route table.
func (w *state) usesTable(table string) bool {
	for user := range w.dependents.tables[table] {
		if s := w.listeners[user]; s != nil && s.activeConfig != nil && slices.Contains(s.active.RouteConfigNames, table) {
			return true
		}
	}
	return false
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

// markExpired adds the names whose deadline has passed to dirty.
func markExpired(late map[string]time.Time, dirty map[string]bool, now time.Time) {
	for name, limit := range late {
		if !now.Before(limit) {
			addDirty(dirty, name)
		}
	}
}

// reconcileCluster activates a cluster if it is complete. It returns when to evaluate the cluster
// again; zero: not before something changes. While the received version waits, the active one
// follows changes of its own dependencies.
func (w *state) reconcileCluster(name string, now time.Time, c *change) time.Time {
	s := w.clusters[name]
	if s == nil {
		return time.Time{} // already removed
	}
	if s.received == nil {
		w.saveCluster(name, s)
		w.references.clusters.changed[name] = true
		if s.activeConfig != nil {
			c.removedClusters = append(c.removedClusters, name)
		}
		delete(w.clusters, name)
		return time.Time{}
	}
	complete, again := waitExpired(w.clusterDependencies(name, s), now)
	if complete && w.activateCluster(name, s, s.received, c) {
		return time.Time{}
	}
	if s.active != nil && s.active != s.received && w.dirtyClusters[name] {
		w.activateCluster(name, s, s.active, c)
	}
	return again
}

// activateCluster makes one the active version. It returns false if a secret is missing.
func (w *state) activateCluster(name string, s *clusterState, one *resource.Cluster, c *change) bool {
	made, ok := w.resolveCluster(name, one)
	if ok {
		w.saveCluster(name, s)
		if s.active != one { // else its references are the same, as after an endpoint update
			w.references.clusters.changed[name] = true
		}
		s.active, s.activeConfig = one, made
		c.clusters = append(c.clusters, made)
	}
	return ok
}

// reconcileListener is reconcileCluster for a listener.
func (w *state) reconcileListener(name string, now time.Time, c *change) time.Time {
	s := w.listeners[name]
	if s == nil {
		return time.Time{}
	}
	if s.received == nil {
		w.saveListener(name, s)
		w.references.listeners.changed[name] = true
		c.listenersChanged = c.listenersChanged || s.activeConfig != nil
		delete(w.listeners, name)
		return time.Time{}
	}
	if s.active == s.received && s.activeConfig != nil && !w.dirtyListeners[name] {
		return time.Time{} // only its routes have changed
	}
	complete, again := waitExpired(w.listenerDependencies(name, s), now)
	if complete && s.heldBack != s.received && w.activateListener(name, s, s.received, c) {
		return time.Time{}
	}
	if s.active != nil && s.active != s.received && w.dirtyListeners[name] {
		w.activateListener(name, s, s.active, c)
	}
	return again
}

// activateListener is activateCluster for a listener.
func (w *state) activateListener(name string, s *listenerState, one *resource.Listener, c *change) bool {
	made, ok := one.Resolve(w.secrets, w.extensions)
	if ok {
		w.saveListener(name, s)
		if s.active != one {
			w.references.listeners.changed[name] = true
			c.activatedListeners = append(c.activatedListeners, name)
		}
		s.active, s.activeConfig = one, made
		c.listenersChanged = true
	}
	return ok
}

func addKeys[K comparable](to map[K]bool, names []K) {
	for _, n := range names {
		to[n] = true
	}
}

// hasPrivateKey reports whether the received version of a resource contains an inline private key.
func (w *state) hasPrivateKey(typeURL, name string) bool {
	var contexts []*resource.TLS
	if s := w.listeners[name]; typeURL == resource.ListenerType && s != nil && s.received != nil {
		contexts = s.received.TLS
	}
	if s := w.clusters[name]; typeURL == resource.ClusterType && s != nil && s.received != nil {
		for _, one := range s.received.TransportSocketMatches {
			contexts = append(contexts, one.TLS)
		}
	}
	return slices.ContainsFunc(contexts, func(t *resource.TLS) bool { return t != nil && t.Config.Key.Text != "" })
}

func newSet[K comparable](names []K) map[K]bool {
	s := make(map[K]bool, len(names))
	addKeys(s, names)
	return s
}

// snapshot returns base with the active clusters, listeners and route tables added.
func (w *state) snapshot(base *config.Snapshot) *config.Snapshot {
	next := *base
	next.Clusters = slices.Clone(base.Clusters)
	for _, name := range slices.Sorted(maps.Keys(w.clusters)) {
		if s := w.clusters[name]; s.activeConfig != nil {
			next.Clusters = append(next.Clusters, s.activeConfig)
		}
	}
	next.Listeners, next.Routes = slices.Clone(base.Listeners), slices.Clone(base.Routes)
	tables := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(w.listeners)) {
		s := w.listeners[name]
		if s.activeConfig == nil {
			continue
		}
		next.Listeners = append(next.Listeners, s.activeConfig)
		next.Routes = append(next.Routes, s.active.InlineTables...)
		for _, t := range s.active.RouteConfigNames {
			tables[t] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		next.Routes = append(next.Routes, w.activeTable(name))
	}
	return &next
}
