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
	secrets     map[string]*resource.Secret

	// Who is looked at again by the next settle.
	dirtyClusters  map[string]bool
	dirtyListeners map[string]bool
	users          users

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
}

// users are the names of those who refer to a resource, by its name.
type users struct {
	assignments map[string]map[string]bool // clusters
	secrets     map[string]map[string]bool // clusters
	tables      map[string]map[string]bool // listeners
	own         map[string]map[string]bool // listeners, of secrets
}

// change is what a settle changed.
type change struct {
	clusters []*config.Cluster // new and changed, by name
	removed  []string          // clusters, by name
	// routing: listeners or routes changed, too.
	routing bool
}

func (c *change) empty() bool { return len(c.clusters)+len(c.removed) == 0 && !c.routing }

func newWorld() *world {
	return &world{
		clusters:       map[string]*clusterState{},
		listeners:      map[string]*listenerState{},
		assignments:    map[string]*resource.Assignment{},
		tables:         map[string]*resource.RouteTable{},
		secrets:        map[string]*resource.Secret{},
		dirtyClusters:  map[string]bool{},
		dirtyListeners: map[string]bool{},
		users: users{
			assignments: map[string]map[string]bool{},
			secrets:     map[string]map[string]bool{},
			tables:      map[string]map[string]bool{},
			own:         map[string]map[string]bool{},
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
	w.dirtyClusters[name] = true
	s := w.clusters[name]
	if s == nil {
		s = &clusterState{}
		w.clusters[name] = s
	}
	before := *s
	w.undo = append(w.undo, func() {
		w.dirtyClusters[name] = true
		w.clusters[name] = &before
	})
	return s
}

// listener is cluster of a listener.
func (w *world) listener(name string) *listenerState {
	w.dirtyListeners[name] = true
	s := w.listeners[name]
	if s == nil {
		s = &listenerState{}
		w.listeners[name] = s
	}
	before := *s
	w.undo = append(w.undo, func() {
		w.dirtyListeners[name] = true
		w.listeners[name] = &before
	})
	return s
}

func (w *world) setCluster(name string, c *resource.Cluster, now time.Time) {
	s := w.cluster(name)
	s.last, s.since = c, now
	w.users.note(w.users.assignments, name, c.Endpoints)
	w.users.note(w.users.secrets, name, c.Secrets()...)
}

func (w *world) removeCluster(name string) {
	if w.clusters[name] != nil {
		w.cluster(name).last = nil
	}
}

func (w *world) setListener(name string, l *resource.Listener, now time.Time) {
	s := w.listener(name)
	s.last, s.since = l, now
	w.users.note(w.users.tables, name, l.Routes...)
	w.users.note(w.users.own, name, l.Secrets()...)
}

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
func (w *world) setSecret(name string, s *resource.Secret) {
	before := w.secrets[name]
	w.change(func(undo bool) {
		put(w.secrets, name, pick(undo, before, s))
		touch(w.dirtyClusters, w.users.secrets[name])
		touch(w.dirtyListeners, w.users.own[name])
	})
}

func put[T any](m map[string]*T, name string, v *T) {
	if v == nil {
		delete(m, name)
	} else {
		m[name] = v
	}
}

func touch(dirty, names map[string]bool) {
	for n := range names {
		dirty[n] = true
	}
}

// note says that name refers to others. What it does not refer to any more is found
// out when these change.
func (*users) note(of map[string]map[string]bool, name string, others ...string) {
	for _, o := range others {
		if o == "" {
			continue
		}
		if of[o] == nil {
			of[o] = map[string]bool{}
		}
		of[o][name] = true
	}
}

// settle puts in force what is complete, and returns what that changes, and when it is
// to be called again because something has been waited for long enough; zero: never.
func (w *world) settle(now time.Time) (c change, next time.Time) {
	for _, name := range slices.Sorted(maps.Keys(w.dirtyClusters)) {
		wait := w.settleCluster(name, now, &c)
		if wait.IsZero() {
			delete(w.dirtyClusters, name)
		}
		next = sooner(next, wait)
	}
	for _, name := range slices.Sorted(maps.Keys(w.dirtyListeners)) {
		wait := w.settleListener(name, now, &c)
		if wait.IsZero() {
			delete(w.dirtyListeners, name)
		}
		next = sooner(next, wait)
	}
	return c, next
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// settleCluster returns when it is to be looked at again, zero for when something
// changes.
func (w *world) settleCluster(name string, now time.Time, c *change) (again time.Time) {
	s := w.clusters[name]
	if s == nil {
		return time.Time{} // it was removed
	}
	if s.last == nil {
		if s.made != nil {
			c.removed = append(c.removed, name)
		}
		delete(w.clusters, name)
		return time.Time{}
	}
	a := w.assignments[s.last.Endpoints]
	if s.last.Endpoints != "" && a == nil && s.live != s.last {
		limit := s.since.Add(s.last.EndpointTimeout)
		switch {
		case s.last.EndpointTimeout == 0:
			return time.Time{}
		case now.Before(limit):
			return limit
		}
	}
	made, ok := s.last.With(a, w.secrets)
	if !ok {
		return time.Time{} // until the secret comes
	}
	s.live, s.made = s.last, made
	c.clusters = append(c.clusters, made)
	return time.Time{}
}

func (w *world) settleListener(name string, now time.Time, c *change) (again time.Time) {
	s := w.listeners[name]
	if s == nil {
		return time.Time{}
	}
	if s.last == nil {
		c.routing = c.routing || s.made != nil
		delete(w.listeners, name)
		return time.Time{}
	}
	if s.live != s.last && !w.knows(s.last.Routes) {
		limit := s.since.Add(s.last.RoutesTimeout)
		switch {
		case s.last.RoutesTimeout == 0:
			return time.Time{}
		case now.Before(limit):
			return limit
		}
	}
	made, ok := s.last.With(w.secrets)
	if !ok {
		return time.Time{}
	}
	s.live, s.made = s.last, made
	c.routing = true
	return time.Time{}
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
type wanted struct{ assignments, tables, secrets []string }

func (w *world) wanted() wanted {
	assignments, tables, secrets := map[string]bool{}, map[string]bool{}, map[string]bool{}
	add := func(to map[string]bool, names ...string) {
		for _, n := range names {
			if n != "" {
				to[n] = true
			}
		}
	}
	for _, s := range w.clusters {
		for _, c := range []*resource.Cluster{s.last, s.live} {
			if c != nil {
				add(assignments, c.Endpoints)
				add(secrets, c.Secrets()...)
			}
		}
	}
	for _, s := range w.listeners {
		for _, l := range []*resource.Listener{s.last, s.live} {
			if l != nil {
				add(tables, l.Routes...)
				add(secrets, l.Secrets()...)
			}
		}
	}
	sorted := func(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }
	return wanted{sorted(assignments), sorted(tables), sorted(secrets)}
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
