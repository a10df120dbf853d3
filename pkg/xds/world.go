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

	// Who is looked at again by the next settle; true: something that it refers to has
	// changed, too.
	dirtyClusters  map[string]bool
	dirtyListeners map[string]bool
	// Who is looked at then, though nothing came.
	lateClusters  map[string]time.Time
	lateListeners map[string]time.Time
	users         users

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
}

// change is what a settle changed.
type change struct {
	clusters []*config.Cluster // new and changed, by name
	removed  []string          // clusters, by name
	// routing: listeners or routes changed, too.
	routing bool
	started []string // listeners of which something else is in force now, or something at all, by name
}

func (c *change) empty() bool { return len(c.clusters)+len(c.removed) == 0 && !c.routing }

func newWorld() *world {
	return &world{
		clusters:       map[string]*clusterState{},
		listeners:      map[string]*listenerState{},
		assignments:    map[string]*resource.Assignment{},
		tables:         map[string]*resource.RouteTable{},
		secrets:        map[resource.SecretRef]*resource.Secret{},
		dirtyClusters:  map[string]bool{},
		dirtyListeners: map[string]bool{},
		lateClusters:   map[string]time.Time{},
		lateListeners:  map[string]time.Time{},
		users: users{
			assignments: map[string]map[string]bool{},
			secrets:     map[resource.SecretRef]map[string]bool{},
			tables:      map[string]map[string]bool{},
			own:         map[resource.SecretRef]map[string]bool{},
		},
	}
}

// mark makes the state the one that takeBack goes back to.
func (w *world) mark() { w.undo = w.undo[:0] }

// takeBack undoes everything since mark. It is to be settled.
func (w *world) takeBack() {
	for _, f := range slices.Backward(w.undo) {
		f()
	}
	w.undo = w.undo[:0]
}

// cluster returns the state of a name, which is about to change.
func (w *world) cluster(name string) *clusterState {
	enter(w.dirtyClusters, name)
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
		w.dirtyClusters[name] = true
		w.clusters[name] = &before
	})
}

// keepListener is keepCluster of a listener.
func (w *world) keepListener(name string, s *listenerState) {
	before := *s
	w.undo = append(w.undo, func() {
		w.dirtyListeners[name] = true
		w.listeners[name] = &before
	})
}

func (w *world) setCluster(name string, c *resource.Cluster, now time.Time) {
	s := w.cluster(name)
	s.last, s.since = c, now
	if c.Endpoints != "" {
		note(w.users.assignments, name, c.Endpoints)
	}
	note(w.users.secrets, name, c.Secrets()...)
}

func (w *world) removeCluster(name string) {
	if w.clusters[name] != nil {
		w.cluster(name).last = nil
	}
}

func (w *world) setListener(name string, l *resource.Listener, now time.Time) {
	s := w.listener(name)
	s.last, s.since = l, now
	note(w.users.tables, name, l.Routes...)
	note(w.users.own, name, l.Secrets()...)
}

// hold keeps what was said of a listener from being put in force until it is released,
// or something else is said.
func (w *world) hold(name string) {
	s := w.listener(name)
	s.held = s.last
}

// release undoes hold.
func (w *world) release(name string) { w.listener(name).held = nil }

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
	before := w.tables[name]
	w.change(func(undo bool) {
		put(w.tables, name, pick(undo, before, t))
		touch(w.dirtyListeners, w.users.tables[name])
	})
}

// setSecret takes a secret. One that is gone stays: what was built of it is in use.
func (w *world) setSecret(ref resource.SecretRef, s *resource.Secret) {
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
func note[K comparable](of map[K]map[string]bool, name string, others ...K) {
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
	expire(w.lateClusters, w.dirtyClusters, now)
	for _, name := range slices.Sorted(maps.Keys(w.dirtyClusters)) {
		delete(w.lateClusters, name)
		if limit := w.settleCluster(name, now, &c); !limit.IsZero() {
			w.lateClusters[name] = limit
		}
	}
	w.dirtyClusters = emptied(w.dirtyClusters)
	expire(w.lateListeners, w.dirtyListeners, now)
	for _, name := range slices.Sorted(maps.Keys(w.dirtyListeners)) {
		delete(w.lateListeners, name)
		if limit := w.settleListener(name, now, &c); !limit.IsZero() {
			w.lateListeners[name] = limit
		}
	}
	w.dirtyListeners = emptied(w.dirtyListeners)
	if len(w.lateClusters)+len(w.lateListeners) == 0 {
		w.lateClusters, w.lateListeners = map[string]time.Time{}, map[string]time.Time{}
	}
	for _, late := range []map[string]time.Time{w.lateClusters, w.lateListeners} {
		for _, limit := range late {
			if next.IsZero() || limit.Before(next) {
				next = limit
			}
		}
	}
	return c, next
}

// emptied returns a map without m's names. A map that once was large stays dear to walk
// through and to clear, however few are in it: TestCost in test/xds.
func emptied(m map[string]bool) map[string]bool {
	const few = 16
	if len(m) > few {
		return map[string]bool{}
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
func (w *world) settleCluster(name string, now time.Time, c *change) (again time.Time) {
	s := w.clusters[name]
	if s == nil {
		return time.Time{} // it was removed
	}
	if s.last == nil {
		w.keepCluster(name, s)
		if s.made != nil {
			c.removed = append(c.removed, name)
		}
		delete(w.clusters, name)
		return time.Time{}
	}
	complete := s.live == s.last || s.last.Endpoints == "" || w.assignments[s.last.Endpoints] != nil
	if !complete {
		complete, again = waited(s.since, s.last.EndpointTimeout, now)
	}
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
	made, ok := one.With(w.assignments[one.Endpoints], w.secrets)
	if ok {
		w.keepCluster(name, s)
		s.live, s.made = one, made
		c.clusters = append(c.clusters, made)
	}
	return ok
}

// waited reports whether something is long enough ago; again is when it will be, zero
// for never: without a limit it never is.
func waited(since time.Time, limit time.Duration, now time.Time) (enough bool, again time.Time) {
	switch end := since.Add(limit); {
	case limit == 0:
		return false, time.Time{}
	case now.Before(end):
		return false, end
	}
	return true, time.Time{}
}

// settleListener is settleCluster of a listener.
func (w *world) settleListener(name string, now time.Time, c *change) (again time.Time) {
	s := w.listeners[name]
	if s == nil {
		return time.Time{}
	}
	if s.last == nil {
		w.keepListener(name, s)
		c.routing = c.routing || s.made != nil
		delete(w.listeners, name)
		return time.Time{}
	}
	complete := s.live == s.last || w.knows(s.last.Routes)
	if !complete {
		complete, again = waited(s.since, s.last.RoutesTimeout, now)
	}
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
	made, ok := one.With(w.secrets)
	if ok {
		w.keepListener(name, s)
		if s.live != one {
			c.started = append(c.started, name)
		}
		s.live, s.made = one, made
		c.routing = true
	}
	return ok
}

// knows reports whether there are routes of all names.
func (w *world) knows(tables []string) bool {
	for _, t := range tables {
		if w.tables[t] == nil {
			return false
		}
	}
	return true
}

// wanted are the names of resources that others refer to, in order: of what is in
// force and of what is to come.
type wanted struct {
	assignments, tables []string
	secrets             []resource.SecretRef
}

func (w *world) wanted() wanted {
	assignments, tables, secrets := map[string]bool{}, map[string]bool{}, map[resource.SecretRef]bool{}
	for _, s := range w.clusters {
		for _, c := range []*resource.Cluster{s.last, s.live} {
			if c == nil {
				continue
			}
			if c.Endpoints != "" {
				assignments[c.Endpoints] = true
			}
			add(secrets, c.Secrets())
		}
	}
	for _, s := range w.listeners {
		for _, l := range []*resource.Listener{s.last, s.live} {
			if l != nil {
				add(tables, l.Routes)
				add(secrets, l.Secrets())
			}
		}
	}
	return wanted{
		assignments: slices.Sorted(maps.Keys(assignments)),
		tables:      slices.Sorted(maps.Keys(tables)),
		secrets:     slices.SortedFunc(maps.Keys(secrets), resource.SecretRef.Compare),
	}
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

// forget drops what nobody refers to any more: what is wanted again comes again.
func (w *world) forget(all wanted) {
	drop(w.assignments, w.users.assignments, set(all.assignments))
	drop(w.tables, w.users.tables, set(all.tables))
	secrets := set(all.secrets)
	drop(w.secrets, w.users.secrets, secrets)
	drop(w.secrets, w.users.own, secrets)
}

func set[K comparable](names []K) map[K]bool {
	s := make(map[K]bool, len(names))
	add(s, names)
	return s
}

// drop takes all but wanted out of what is held, and of its users.
func drop[K comparable, V any](held map[K]V, users map[K]map[string]bool, wanted map[K]bool) {
	maps.DeleteFunc(held, func(name K, _ V) bool { return !wanted[name] })
	maps.DeleteFunc(users, func(name K, _ map[string]bool) bool { return !wanted[name] })
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
		if t := w.tables[name]; t != nil {
			next.Routes = append(next.Routes, t.Config)
		} else {
			next.Routes = append(next.Routes, &config.RouteTable{Name: name}) // nothing matches
		}
	}
	return &next
}
