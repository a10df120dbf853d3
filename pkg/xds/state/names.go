package state

import (
	"fmt"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// staticNames are the names of the resources in static_resources. A control plane can neither
// remove nor replace those resources.
type staticNames struct{ clusters, listeners, secrets map[string]bool }

// setStaticNames makes next the static resources, as far as their names are concerned.
func (s *State) setStaticNames(next *bootstrap.StaticResources) {
	name := func(g bootstrap.StaticResource) string { return g.Name }
	before, names := s.static, s.staticNames
	after := staticNames{clusters: namesOf(next.Clusters, name), listeners: namesOf(next.Listeners, name), secrets: namesOf(next.Secrets, name)}
	s.undo.do(func(undo bool) {
		for _, secrets := range []map[string]bool{names.secrets, after.secrets} {
			for name := range secrets {
				s.references.secrets.recordPrevious([]resource.SecretRef{{Name: name}}) // before the names change
			}
		}
		s.static, s.staticNames = chooseValue(undo, before, next), chooseValue(undo, names, after)
	})
}

// isStaticSecret reports whether static_resources defines a secret, so that it is not requested.
func (s *State) isStaticSecret(ref resource.SecretRef) bool {
	return ref.From == (resource.SecretSource{}) && s.staticNames.secrets[ref.Name]
}

// fileNames are the names that the file defines, which a control plane cannot use.
type fileNames struct {
	file                        *config.Snapshot
	clusters, listeners, tables map[string]bool // of file; nil: not computed yet
}

// SetFile makes the names that the file defines itself reserved, in place of those of the previous
// file. A Rollback does not undo it.
func (s *State) SetFile(file *config.Snapshot) { s.file = fileNames{file: file} }

// compute computes the names, unless an earlier call did. SetFile does not, because a file may
// change often while the control plane sends nothing.
func (f *fileNames) compute() {
	if f.clusters != nil || f.file == nil {
		return
	}
	f.clusters = namesOf(f.file.Clusters, func(c *config.Cluster) string { return c.Name })
	f.listeners = namesOf(f.file.Listeners, func(l *config.Listener) string { return l.Name })
	f.tables = namesOf(f.file.Routes, func(t *config.RouteTable) string { return t.Name })
}

func namesOf[T any](all []T, name func(T) string) map[string]bool {
	names := make(map[string]bool, len(all))
	for _, one := range all {
		names[name(one)] = true
	}
	return names
}

// IsReserved reports whether the file defines a resource, by itself or in static_resources. For
// SecretType it covers only secrets without a source of their own.
func (s *State) IsReserved(typeURL, name string) bool {
	s.file.compute()
	switch typeURL {
	case resource.ClusterType:
		return s.file.clusters[name] || s.staticNames.clusters[name]
	case resource.ListenerType:
		return s.file.listeners[name] || s.staticNames.listeners[name]
	case resource.RouteType:
		return s.file.tables[name]
	case resource.SecretType:
		return s.staticNames.secrets[name]
	}
	return false
}

// CheckNameConflicts returns an error if the file defines a cluster or listener that
// static_resources or the control plane also defines, active or not, or a route table that one of
// their listeners refers to.
func (s *State) CheckNameConflicts(file *config.Snapshot) error {
	taken := func(kind, name string, fixed map[string]bool) error {
		if fixed[name] {
			return fmt.Errorf("%s %q: static_resources also defines this name", kind, name)
		}
		return fmt.Errorf("%s %q: the control plane also defines this name", kind, name)
	}
	for _, c := range file.Clusters {
		if s.clusters.byName[c.Name] != nil {
			return taken("cluster", c.Name, s.staticNames.clusters)
		}
	}
	for _, l := range file.Listeners {
		if s.listeners.byName[l.Name] != nil {
			return taken("listener", l.Name, s.staticNames.listeners)
		}
	}
	tables := map[string]bool{}
	for _, e := range s.listeners.byName {
		for _, l := range []*resource.Listener{e.Received, e.Active} {
			if l != nil {
				addKeys(tables, l.RouteConfigNames)
			}
		}
	}
	for _, t := range file.Routes {
		if tables[t.Name] {
			return taken("route table", t.Name, nil)
		}
	}
	return nil
}
