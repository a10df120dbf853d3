package state

import (
	"fmt"
	"slices"

	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// staticNames are the names of the resources in static_resources. A control plane can neither
// remove nor replace those resources.
type staticNames struct{ clusters, listeners, secrets map[string]bool }

// setStaticNames replaces static with next, and staticNames with the names in next. The caller
// stores the resources in the other fields.
func (s *State) setStaticNames(next *bootstrap.StaticResources) {
	name := func(r bootstrap.StaticResource) string { return r.Name }
	previous, previousNames := s.static, s.staticNames
	nextNames := staticNames{clusters: namesOf(next.Clusters, name), listeners: namesOf(next.Listeners, name), secrets: namesOf(next.Secrets, name)}
	s.undo.do(func(undo bool) {
		for _, secrets := range []map[string]bool{previousNames.secrets, nextNames.secrets} {
			for name := range secrets {
				s.references.secrets.recordPrevious([]resource.SecretRef{{Name: name}}) // before the names change
			}
		}
		s.static, s.staticNames = chooseValue(undo, previous, next), chooseValue(undo, previousNames, nextNames)
	})
}

// isStaticSecret reports whether static_resources defines a secret, so that it is not requested.
func (s *State) isStaticSecret(ref resource.SecretRef) bool {
	return ref.From == (resource.SecretSource{}) && s.staticNames.secrets[ref.Name]
}

func namesOf[T any](values []T, nameOf func(T) string) map[string]bool {
	names := make(map[string]bool, len(values))
	for _, v := range values {
		names[nameOf(v)] = true
	}
	return names
}

// ReservedBy returns the owner that keeps the control plane from defining a resource:
// static_resources or another layer; "": none. For SecretType it covers only secrets of ADS.
func (s *State) ReservedBy(typeURL, name string) string {
	if s.isStatic(typeURL, name) {
		return ownerStatic
	}
	return s.otherOwner(typeURL, name)
}

// Owners of resources, for errors.
const (
	ownerStatic       = "static_resources"
	ownerControlPlane = "the control plane"
)

// isStatic reports whether static_resources defines a resource.
func (s *State) isStatic(typeURL, name string) bool {
	switch typeURL {
	case resource.ClusterType:
		return s.staticNames.clusters[name]
	case resource.ListenerType:
		return s.staticNames.listeners[name]
	case resource.SecretType:
		return s.staticNames.secrets[name]
	}
	return false
}

// Owner returns the owner of a cluster or a listener, active or not, or of a route table that a
// listener refers to: static_resources or the control plane; "": neither.
func (s *State) Owner(typeURL, name string) string {
	defined := false
	switch typeURL {
	case resource.ClusterType:
		defined = s.clusters.byName[name] != nil
	case resource.ListenerType:
		defined = s.listeners.byName[name] != nil
	case resource.RouteType:
		defined = s.refersToTable(name)
	}
	switch {
	case !defined:
		return ""
	case s.isStatic(typeURL, name):
		return ownerStatic
	}
	return ownerControlPlane
}

// refersToTable reports whether a listener, active or not, refers to a route table.
func (s *State) refersToTable(name string) bool {
	for _, e := range s.listeners.byName {
		for _, l := range []*resource.Listener{e.Received, e.Active} {
			if l != nil && slices.Contains(l.RouteConfigNames, name) {
				return true
			}
		}
	}
	return false
}

// checkName returns an error if static_resources or another layer defines a resource of the control
// plane.
func (s *State) checkName(typeURL, name string) error {
	if owner := s.ReservedBy(typeURL, name); owner != "" {
		return fmt.Errorf("%s also defines this name", owner)
	}
	return nil
}

// checkTableNames returns an error and the name of a route table if l refers to a table that
// another layer defines.
func (s *State) checkTableNames(l *resource.Listener) (table string, err error) {
	for _, name := range l.RouteConfigNames {
		if err := s.checkName(resource.RouteType, name); err != nil {
			return name, fmt.Errorf("route table %q: %w", name, err)
		}
	}
	return "", nil
}
