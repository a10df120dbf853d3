package state

import (
	"maps"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/resource"
)

func (s *State) setCluster(name string, c *resource.Cluster, now time.Time) {
	s.clusters.set(name, c, now)
	if c.EDSServiceName != "" {
		addDependent(s.dependents.assignments, &s.references.assignments, name, c.EDSServiceName)
	}
	addDependent(s.dependents.clusterSecrets, &s.references.secrets, name, c.Secrets()...)
}

func (s *State) setListener(name string, l *resource.Listener, now time.Time) {
	s.listeners.set(name, l, now)
	addDependent(s.dependents.tables, &s.references.tables, name, l.RouteConfigNames...)
	addDependent(s.dependents.listenerSecrets, &s.references.secrets, name, l.Secrets()...)
	for _, dynamic := range l.DynamicFilters {
		addDependent(s.dependents.extensions, &s.references.extensions, name, dynamic.Name)
	}
}

// replaceListener replaces a listener with l, the same resource decoded with another runtime.
func (s *State) replaceListener(name string, l *resource.Listener) {
	e := s.listeners.mutable(name)
	s.listeners.dirty[name] = true
	if e.Active == e.Received {
		e.Active = l
	}
	e.Received, e.HeldBack = l, nil
}

// addDependent records that the cluster or listener name refers to keys. The record may outlive the
// reference, which only causes unnecessary evaluations.
func addDependent[K comparable](dependents map[K]map[string]bool, counts *refCounts[K], name string, keys ...K) {
	counts.recordPrevious(keys)
	for _, k := range keys {
		if dependents[k] == nil {
			dependents[k] = map[string]bool{}
		}
		dependents[k][name] = true
	}
}

// setAssignment stores the load assignment of a name; nil removes it.
func (s *State) setAssignment(name string, a *resource.LoadAssignment) {
	previous := s.assignments[name]
	s.undo.do(func(undo bool) {
		setOrDelete(s.assignments, name, chooseValue(undo, previous, a))
		s.clusters.markDirty(s.dependents.assignments[name])
	})
}

// setTable stores the route table of a name and sets its on-demand settings; nil removes it.
func (s *State) setTable(name string, t *resource.RouteTable) {
	if t != nil {
		t.Config.OnDemand = s.tableOnDemand()
	}
	if s.onDemand != nil && t != nil {
		s.markReady(&s.onDemand.tables, name)
	}
	s.releaseAll(s.dependents.tables[name])
	previous := s.tables[name]
	s.undo.do(func(undo bool) {
		setOrDelete(s.tables, name, chooseValue(undo, previous, t))
		s.dirtyTables[name] = true
		for listener := range s.dependents.tables[name] {
			addDirty(s.listeners.dirty, listener) // the listener may have waited for the table
		}
	})
}

// setSecret stores a secret. The control plane cannot remove a secret: the last version stays in
// use.
func (s *State) setSecret(ref resource.SecretRef, secret *resource.Secret) {
	s.releaseAll(s.dependents.listenerSecrets[ref])
	previous := s.secrets[ref]
	s.undo.do(func(undo bool) {
		setOrDelete(s.secrets, ref, chooseValue(undo, previous, secret))
		s.clusters.markDirty(s.dependents.clusterSecrets[ref])
		s.listeners.markDirty(s.dependents.listenerSecrets[ref])
	})
}

// setExtension stores the configuration of an extension; nil removes it.
func (s *State) setExtension(name string, e *resource.Extension) {
	s.releaseAll(s.dependents.extensions[name])
	previous := s.extensions[name]
	s.undo.do(func(undo bool) {
		setOrDelete(s.extensions, name, chooseValue(undo, previous, e))
		s.listeners.markDirty(s.dependents.extensions[name])
	})
}

// checkExtension returns an error if listeners refer to the extension and none of them can use the
// configuration.
func (s *State) checkExtension(name string, extension *resource.Extension) (err error) {
	for _, listener := range slices.Sorted(maps.Keys(s.dependents.extensions[name])) {
		e := s.listeners.byName[listener]
		if e == nil {
			continue
		}
		for _, l := range []*resource.Listener{e.Received, e.Active} {
			if l == nil {
				continue
			}
			for _, dynamic := range l.DynamicFilters {
				if dynamic.Name != name {
					continue
				}
				if err = dynamic.Check(extension); err == nil {
					return nil
				}
			}
		}
	}
	return err
}

// endExtensionWait ends the wait for an extension whose configuration was rejected, unless an
// earlier version exists.
func (s *State) endExtensionWait(name string) {
	if s.extensions[name] == nil {
		s.setExtension(name, &resource.Extension{})
	}
}

func setOrDelete[K comparable, T any](m map[K]*T, name K, v *T) {
	if v == nil {
		delete(m, name)
	} else {
		m[name] = v
	}
}

func chooseValue[T any](undo bool, previous, next T) T {
	if undo {
		return previous
	}
	return next
}
