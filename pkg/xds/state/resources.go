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
	for _, slot := range l.DynamicFilters {
		addDependent(s.dependents.extensions, &s.references.extensions, name, slot.Name)
	}
}

// replaceListener replaces a listener by the same resource decoded with another runtime.
func (s *State) replaceListener(name string, l *resource.Listener) {
	e := s.listeners.mutable(name)
	s.listeners.dirty[name] = true
	if e.Active == e.Received {
		e.Active = l
	}
	e.Received, e.HeldBack = l, nil
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

// setAssignment stores the load assignment of a name; nil removes it.
func (s *State) setAssignment(name string, a *resource.LoadAssignment) {
	before := s.assignments[name]
	s.undo.do(func(undo bool) {
		setOrDelete(s.assignments, name, chooseValue(undo, before, a))
		s.clusters.markDirty(s.dependents.assignments[name])
	})
}

// setTable stores the route table of a name, with the on-demand settings of tables; nil removes it.
func (s *State) setTable(name string, t *resource.RouteTable) {
	if t != nil {
		t.Config.OnDemand = s.tableOnDemand()
	}
	if s.onDemand != nil && t != nil {
		s.markReady(&s.onDemand.tables, name)
	}
	s.releaseAll(s.dependents.tables[name])
	before := s.tables[name]
	s.undo.do(func(undo bool) {
		setOrDelete(s.tables, name, chooseValue(undo, before, t))
		s.dirtyTables[name] = true
		for user := range s.dependents.tables[name] {
			addDirty(s.listeners.dirty, user) // it may have waited for the table
		}
	})
}

// setSecret stores a secret. A removal by the control plane never gets here: the last version stays
// in use.
func (s *State) setSecret(ref resource.SecretRef, secret *resource.Secret) {
	s.releaseAll(s.dependents.listenerSecrets[ref])
	before := s.secrets[ref]
	s.undo.do(func(undo bool) {
		setOrDelete(s.secrets, ref, chooseValue(undo, before, secret))
		s.clusters.markDirty(s.dependents.clusterSecrets[ref])
		s.listeners.markDirty(s.dependents.listenerSecrets[ref])
	})
}

// setExtension stores the configuration of an extension; nil removes it.
func (s *State) setExtension(name string, e *resource.Extension) {
	s.releaseAll(s.dependents.extensions[name])
	before := s.extensions[name]
	s.undo.do(func(undo bool) {
		setOrDelete(s.extensions, name, chooseValue(undo, before, e))
		s.listeners.markDirty(s.dependents.extensions[name])
	})
}

// checkExtension returns an error if listeners refer to the extension and none of them can use the
// configuration.
func (s *State) checkExtension(name string, extension *resource.Extension) (wrong error) {
	for _, user := range slices.Sorted(maps.Keys(s.dependents.extensions[name])) {
		e := s.listeners.byName[user]
		if e == nil {
			continue
		}
		for _, l := range []*resource.Listener{e.Received, e.Active} {
			if l == nil {
				continue
			}
			for _, slot := range l.DynamicFilters {
				if slot.Name != name {
					continue
				}
				if wrong = slot.Check(extension); wrong == nil {
					return nil
				}
			}
		}
	}
	return wrong
}

// endExtensionWait ends the wait for an extension whose configuration was rejected, unless an
// earlier version is there.
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

func chooseValue[T any](undo bool, before, after T) T {
	if undo {
		return before
	}
	return after
}
