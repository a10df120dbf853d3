package xds

import (
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// world is what the control plane has said, and how much of it is complete. It decides
// what is in force: a cluster once its hosts and secrets are known, a listener once its
// routes and secrets are; until then what was in force before stays. In whatever order
// resources come, the same ones make the same configuration. It is one goroutine's and
// pure: the time is given to it.
type world struct {
	clusters    map[string]*clusterState
	listeners   map[string]*listenerState
	assignments map[string]*resource.Assignment
	tables      map[string]*resource.RouteTable
	secrets     map[resource.SecretRef]*resource.Secret
	extensions  map[string]*resource.Extension
	runtime     runtime
	fixed       fixed // of what is above

	// Who is looked at again by the next settle; true: something that it refers to has
	// changed, too.
	dirtyClusters  map[string]bool
	dirtyListeners map[string]bool
	dirtyTables    map[string]bool // that have changed
	// Who is looked at then, though nothing came.
	lateClusters  map[string]time.Time
	lateListeners map[string]time.Time
	users         users
	references    references
	lazy          *lazy   // nil: all that is referred to is asked for
	warmup        *warmup // nil: it is over

	undo []func() // what takes back each change since the last mark
}

// clusterState is a cluster of one name.
type clusterState struct {
	last  *resource.Cluster // what was said last; nil: it was removed
	since time.Time         // when that was
	live  *resource.Cluster // what is in force; nil: nothing is
	made  *config.Cluster   // of live
}

// listenerState is clusterState of a listener.
type listenerState struct {
	last  *resource.Listener
	since time.Time
	live  *resource.Listener
	made  *config.Listener
	held  *resource.Listener // is not put in force, though complete; nil: none is held back
}

// users are the names of those who refer to a resource, by its name.
type users struct {
	assignments map[string]map[string]bool             // clusters
	secrets     map[resource.SecretRef]map[string]bool // clusters
	tables      map[string]map[string]bool             // listeners
	own         map[resource.SecretRef]map[string]bool // listeners
	extensions  map[string]map[string]bool             // listeners
}

// change is what a settle changed.
type change struct {
	clusters []*config.Cluster    // new and changed, by name
	removed  []string             // clusters, by name
	tables   []*config.RouteTable // changed, of listeners that are in force, by name; all if routing
	// routing: listeners changed, too.
	routing bool
	started []string // listeners of which something else is in force now, or something at all, by name
}

func (c *change) empty() bool {
	return len(c.clusters)+len(c.removed)+len(c.tables) == 0 && !c.routing
}

func newWorld() *world {
	w := &world{
		clusters:       map[string]*clusterState{},
		listeners:      map[string]*listenerState{},
		assignments:    map[string]*resource.Assignment{},
		tables:         map[string]*resource.RouteTable{},
		secrets:        map[resource.SecretRef]*resource.Secret{},
		extensions:     map[string]*resource.Extension{},
		dirtyClusters:  map[string]bool{},
		dirtyListeners: map[string]bool{},
		dirtyTables:    map[string]bool{},
		lateClusters:   map[string]time.Time{},
		lateListeners:  map[string]time.Time{},
		references:     newReferences(),
		users: users{
			assignments: map[string]map[string]bool{},
			secrets:     map[resource.SecretRef]map[string]bool{},
			tables:      map[string]map[string]bool{},
			own:         map[resource.SecretRef]map[string]bool{},
			extensions:  map[string]map[string]bool{},
		},
	}
	w.references.secrets.spares = w.isFixed
	return w
}

// mark makes the state the one that takeBack goes back to.
func (w *world) mark() { w.commit() }

// commit makes the changes since mark final: takeBack undoes none of them. It drops the undo
// list, whose functions refer to the resources of before: until then these cannot be
// collected. Every operation on the world ends with it.
func (w *world) commit() {
	const few = 64
	if cap(w.undo) > few { // one large update does not keep its list for ever
		w.undo = nil
		return
	}
	clear(w.undo)
	w.undo = w.undo[:0]
}

// takeBack undoes everything since mark. It is to be settled.
func (w *world) takeBack() {
	for _, f := range slices.Backward(w.undo) {
		f()
	}
	w.commit()
}

// cluster returns the state of a name, which is about to change.
func (w *world) cluster(name string) *clusterState {
	enter(w.dirtyClusters, name)
	w.references.clusters.changed[name] = true
	s := w.clusters[name]
	if s == nil {
		s = &clusterState{}
		w.clusters[name] = s
	}
	w.keepCluster(name, s)
	return s
}

// listener is cluster of a listener.
func (w *world) listener(name string) *listenerState {
	enter(w.dirtyListeners, name)
	w.references.listeners.changed[name] = true
	s := w.listeners[name]
	if s == nil {
		s = &listenerState{}
		w.listeners[name] = s
	}
	w.keepListener(name, s)
	return s
}

// keepCluster has takeBack bring s back as it is now.
func (w *world) keepCluster(name string, s *clusterState) {
	before := *s
	w.undo = append(w.undo, func() {
		w.dirtyClusters[name], w.references.clusters.changed[name] = true, true
		w.clusters[name] = &before
	})
}

// keepListener is keepCluster of a listener.
func (w *world) keepListener(name string, s *listenerState) {
	before := *s
	w.undo = append(w.undo, func() {
		w.dirtyListeners[name], w.references.listeners.changed[name] = true, true
		w.listeners[name] = &before
	})
}

func (w *world) setCluster(name string, c *resource.Cluster, now time.Time) {
	s := w.cluster(name)
	s.last, s.since = c, now
	if c.Endpoints != "" {
		note(w.users.assignments, &w.references.assignments, name, c.Endpoints)
	}
	note(w.users.secrets, &w.references.secrets, name, c.Secrets()...)
}

func (w *world) removeCluster(name string) {
	if w.clusters[name] != nil {
		w.cluster(name).last = nil
	}
}

func (w *world) setListener(name string, l *resource.Listener, now time.Time) {
	s := w.listener(name)
	s.last, s.since = l, now
	note(w.users.tables, &w.references.tables, name, l.Routes...)
	note(w.users.own, &w.references.secrets, name, l.Secrets()...)
	for _, slot := range l.Slots {
		note(w.users.extensions, &w.references.extensions, name, slot.Name)
	}
}

// hold keeps what was said of a listener from being put in force until it is released,
// or something else is said of it, or of what it refers to.
func (w *world) hold(name string) {
	s := w.listener(name)
	s.held = s.last
}

// release undoes hold.
func (w *world) release(name string) { w.listener(name).held = nil }

// releaseAll is release of those of the listeners that are held.
func (w *world) releaseAll(names map[string]bool) {
	for name := range names {
		if s := w.listeners[name]; s != nil && s.held != nil {
			w.release(name)
		}
	}
}

// postpone has a cluster wait once more for what it lacks.
func (w *world) postpone(name string, now time.Time) { w.cluster(name).since = now }

func (w *world) removeListener(name string) {
	if w.listeners[name] != nil {
		w.listener(name).last = nil
	}
}

// setAssignment takes the hosts of a name; nil: there are none of that name.
func (w *world) setAssignment(name string, a *resource.Assignment) {
	before := w.assignments[name]
	w.change(func(undo bool) {
		put(w.assignments, name, pick(undo, before, a))
		touch(w.dirtyClusters, w.users.assignments[name])
	})
}

// change does something that can be undone.
func (w *world) change(do func(undo bool)) {
	do(false)
	w.undo = append(w.undo, func() { do(true) })
}

func pick[T any](undo bool, before, after T) T {
	if undo {
		return before
	}
	return after
}

// setTable takes the routes of a name; nil: there are none of that name.
func (w *world) setTable(name string, t *resource.RouteTable) {
	if w.lazy != nil && t != nil {
		w.come(&w.lazy.tables, name)
	}
	w.releaseAll(w.users.tables[name])
	before := w.tables[name]
	w.change(func(undo bool) {
		put(w.tables, name, pick(undo, before, t))
		w.dirtyTables[name] = true
		for user := range w.users.tables[name] {
			enter(w.dirtyListeners, user) // which may have waited for it
		}
	})
}

// setSecret takes a secret. One that is gone stays: what was built of it is in use.
func (w *world) setSecret(ref resource.SecretRef, s *resource.Secret) {
	w.releaseAll(w.users.own[ref])
	before := w.secrets[ref]
	w.change(func(undo bool) {
		put(w.secrets, ref, pick(undo, before, s))
		touch(w.dirtyClusters, w.users.secrets[ref])
		touch(w.dirtyListeners, w.users.own[ref])
	})
}

func put[K comparable, T any](m map[K]*T, name K, v *T) {
	if v == nil {
		delete(m, name)
	} else {
		m[name] = v
	}
}

// enter has name in dirty, as it was if it was there.
func enter(dirty map[string]bool, name string) {
	if !dirty[name] {
		dirty[name] = false
	}
}

func touch(dirty, names map[string]bool) {
	for n := range names {
		dirty[n] = true
	}
}

// note says that name refers to others. What it does not refer to any more is found
// out when these change.
func note[K comparable](of map[K]map[string]bool, counted *tally[K], name string, others ...K) {
	counted.notice(others)
	for _, o := range others {
		if of[o] == nil {
			of[o] = map[string]bool{}
		}
		of[o][name] = true
	}
}

// settle puts in force what is complete, and returns what that changes, and when it is
// to be called again because something has been waited for long enough; zero: never.
func (w *world) settle(now time.Time) (c change, next time.Time) {
	w.expireLazy(now)
	expire(w.lateClusters, w.dirtyClusters, now)
	for _, name := range slices.Sorted(maps.Keys(w.dirtyClusters)) {
		delete(w.lateClusters, name)
		if limit := w.warmCluster(name, w.settleCluster(name, now, &c), now); !limit.IsZero() {
			w.lateClusters[name] = limit
		}
	}
	w.dirtyClusters = emptied(w.dirtyClusters)
	next = w.endWarmup(now)
	expire(w.lateListeners, w.dirtyListeners, now)
	for _, name := range slices.Sorted(maps.Keys(w.dirtyListeners)) {
		delete(w.lateListeners, name)
		if limit := w.settleListener(name, now, &c); !limit.IsZero() {
			w.lateListeners[name] = limit
		}
	}
	w.dirtyListeners = emptied(w.dirtyListeners)
	for _, name := range slices.Sorted(maps.Keys(w.dirtyTables)) {
		if w.routesBy(name) {
			c.tables = append(c.tables, w.routes(name))
		}
	}
	w.dirtyTables = emptied(w.dirtyTables)
	if len(w.lateClusters)+len(w.lateListeners) == 0 {
		w.lateClusters, w.lateListeners = map[string]time.Time{}, map[string]time.Time{}
	}
	for _, late := range append(w.lateLazy(), w.lateClusters, w.lateListeners) {
		for _, limit := range late {
			if next.IsZero() || limit.Before(next) {
				next = limit
			}
		}
	}
	return c, next
}

// routesBy reports whether a listener that is in force goes by a table.
func (w *world) routesBy(table string) bool {
	for user := range w.users.tables[table] {
		if s := w.listeners[user]; s != nil && s.made != nil && slices.Contains(s.live.Routes, table) {
			return true
		}
	}
	return false
}

// emptied returns a map without m's names. A map that once was large stays dear to walk
// through and to clear, however few are in it: TestCost in test/xds.
func emptied[K comparable](m map[K]bool) map[K]bool {
	const few = 16
	if len(m) > few {
		return map[K]bool{}
	}
	clear(m)
	return m
}

// expire makes those dirty who have waited long enough.
func expire(late map[string]time.Time, dirty map[string]bool, now time.Time) {
	for name, limit := range late {
		if !now.Before(limit) {
			enter(dirty, name)
		}
	}
}

// settleCluster returns when the cluster is to be looked at again, zero for when
// something changes. While it waits, what is in force follows its own resources.
func (w *world) settleCluster(name string, now time.Time, c *change) time.Time {
	s := w.clusters[name]
	if s == nil {
		return time.Time{} // it was removed
	}
	if s.last == nil {
		w.keepCluster(name, s)
		w.references.clusters.changed[name] = true
		if s.made != nil {
			c.removed = append(c.removed, name)
		}
		delete(w.clusters, name)
		return time.Time{}
	}
	complete, again := waited(w.lacks(name, s), now)
	if complete && w.makeCluster(name, s, s.last, c) {
		return time.Time{}
	}
	if s.live != nil && s.live != s.last && w.dirtyClusters[name] {
		w.makeCluster(name, s, s.live, c)
	}
	return again
}

// makeCluster puts one in force; false: it lacks a secret.
func (w *world) makeCluster(name string, s *clusterState, one *resource.Cluster, c *change) bool {
	made, ok := w.fill(name, one)
	if ok {
		w.keepCluster(name, s)
		if s.live != one { // else it refers to what it did, as whenever hosts come
			w.references.clusters.changed[name] = true
		}
		s.live, s.made = one, made
		c.clusters = append(c.clusters, made)
	}
	return ok
}

// settleListener is settleCluster of a listener.
func (w *world) settleListener(name string, now time.Time, c *change) time.Time {
	s := w.listeners[name]
	if s == nil {
		return time.Time{}
	}
	if s.last == nil {
		w.keepListener(name, s)
		w.references.listeners.changed[name] = true
		c.routing = c.routing || s.made != nil
		delete(w.listeners, name)
		return time.Time{}
	}
	if s.live == s.last && s.made != nil && !w.dirtyListeners[name] {
		return time.Time{} // only its routes are others
	}
	complete, again := waited(w.lacksOf(name, s), now)
	if complete && s.held != s.last && w.makeListener(name, s, s.last, c) {
		return time.Time{}
	}
	if s.live != nil && s.live != s.last && w.dirtyListeners[name] {
		w.makeListener(name, s, s.live, c)
	}
	return again
}

// makeListener is makeCluster of a listener.
func (w *world) makeListener(name string, s *listenerState, one *resource.Listener, c *change) bool {
	made, ok := one.With(w.secrets, w.extensions)
	if ok {
		w.keepListener(name, s)
		if s.live != one {
			w.references.listeners.changed[name] = true
			c.started = append(c.started, name)
		}
		s.live, s.made = one, made
		c.routing = true
	}
	return ok
}

func add[K comparable](to map[K]bool, names []K) {
	for _, n := range names {
		to[n] = true
	}
}

// hasKey reports whether a resource holds a private key itself.
func (w *world) hasKey(typeURL, name string) bool {
	var contexts []*resource.TLS
	if s := w.listeners[name]; typeURL == resource.ListenerType && s != nil && s.last != nil {
		contexts = s.last.TLS
	}
	if s := w.clusters[name]; typeURL == resource.ClusterType && s != nil && s.last != nil {
		for _, one := range s.last.Sockets {
			contexts = append(contexts, one.TLS)
		}
	}
	return slices.ContainsFunc(contexts, func(t *resource.TLS) bool { return t != nil && t.Config.Key.Text != "" })
}

func set[K comparable](names []K) map[K]bool {
	s := make(map[K]bool, len(names))
	add(s, names)
	return s
}

// snapshot is base with what is in force.
func (w *world) snapshot(base *config.Snapshot) *config.Snapshot {
	next := *base
	next.Clusters = slices.Clone(base.Clusters)
	for _, name := range slices.Sorted(maps.Keys(w.clusters)) {
		if s := w.clusters[name]; s.made != nil {
			next.Clusters = append(next.Clusters, s.made)
		}
	}
	next.Listeners, next.Routes = slices.Clone(base.Listeners), slices.Clone(base.Routes)
	tables := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(w.listeners)) {
		s := w.listeners[name]
		if s.made == nil {
			continue
		}
		next.Listeners = append(next.Listeners, s.made)
		next.Routes = append(next.Routes, s.live.Tables...)
		for _, t := range s.live.Routes {
			tables[t] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		next.Routes = append(next.Routes, w.routes(name))
	}
	return &next
}
