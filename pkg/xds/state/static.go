package state

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// Static returns the static resources of the last SetStatic.
func (s *State) Static() *bootstrap.StaticResources { return s.static }

// SetStatic replaces the static resources with next, for the next Reconcile. Unchanged resources
// stay. After an error, which is of type bootstrap.FieldErrors, the caller rolls back. SetStatic
// does not compare names with other layers: see CheckStaticNames.
func (s *State) SetStatic(next *bootstrap.StaticResources, now time.Time) error {
	var fieldErrors bootstrap.FieldErrors
	previous := s.static
	previousBodies := previous.Bodies()
	differs := func(kind string, r bootstrap.StaticResource) bool {
		body, ok := previousBodies[kind+r.Name]
		return !ok || body != string(r.Body)
	}
	// exists means that the State has a resource with the name. The control plane has defined the
	// resource if previous does not contain it.
	checkName := func(prefix, name string, exists bool) error {
		if _, isStatic := previousBodies[prefix+name]; exists && !isStatic {
			return nameConflict(ownerControlPlane, name)
		}
		return nil
	}
	s.setStaticNames(next)
	for _, r := range next.Secrets {
		if ref := (resource.SecretRef{Name: r.Name}); differs("secret/", r) {
			s.setSecret(ref, next.ParsedSecrets[ref])
		}
	}
	for _, r := range next.Clusters {
		c := next.ParsedClusters[r.Name]
		err := cmp.Or(checkName("cluster/", r.Name, s.clusters.byName[r.Name] != nil), s.checkReferences(c.EDSServiceName != "", c.Secrets()))
		if err != nil {
			fieldErrors = append(fieldErrors, bootstrap.FieldError{Field: r.Field, Reason: err.Error()})
		} else if differs("cluster/", r) {
			s.setCluster(r.Name, c, now)
		}
	}
	capabilities := s.capabilitiesWith(s.runtime)
	for _, r := range next.Listeners {
		l, err := resource.ReadListener(r.Body, capabilities)
		if err == nil {
			err = s.checkReferences(len(l.RouteConfigNames)+len(l.DynamicFilters) > 0, l.Secrets())
		}
		if err == nil {
			err = cmp.Or(bootstrap.CompileRoutes(l.InlineTables), checkName("listener/", r.Name, s.listeners.byName[r.Name] != nil))
		}
		if err != nil {
			fieldErrors = append(fieldErrors, r.FieldErrors(err)...)
		} else if differs("listener/", r) {
			s.setListener(r.Name, l, now)
		}
	}
	s.removeStatic(previous)
	if fieldErrors != nil {
		return fieldErrors
	}
	return nil
}

// checkStaticName returns an error if another layer defines a static resource.
func (s *State) checkStaticName(typeURL, name string) error {
	if owner := s.otherOwner(typeURL, name); owner != "" {
		return nameConflict(owner, name)
	}
	return nil
}

// nameConflict returns the error for a static resource that owner also defines.
func nameConflict(owner, name string) error {
	return fmt.Errorf("%s also defines the name %q", owner, name)
}

// CheckStaticNames returns an error if another layer defines a static resource, or a route table
// that a static listener refers to. It is of type bootstrap.FieldErrors.
func (s *State) CheckStaticNames() error {
	var fieldErrors bootstrap.FieldErrors
	for _, r := range s.static.Clusters {
		if err := s.checkStaticName(resource.ClusterType, r.Name); err != nil {
			fieldErrors = append(fieldErrors, bootstrap.FieldError{Field: r.Field, Reason: err.Error()})
		}
	}
	for _, r := range s.static.Listeners {
		err := s.checkStaticName(resource.ListenerType, r.Name)
		if e := s.listeners.byName[r.Name]; err == nil && e != nil && e.Received != nil {
			_, err = s.checkTableNames(e.Received)
		}
		if err != nil {
			fieldErrors = append(fieldErrors, bootstrap.FieldError{Field: r.Field, Reason: err.Error()})
		}
	}
	if fieldErrors != nil {
		return fieldErrors
	}
	return nil
}

// removeStatic removes the clusters and listeners of previous that are no longer static.
func (s *State) removeStatic(previous *bootstrap.StaticResources) {
	for _, r := range previous.Clusters {
		if !s.staticNames.clusters[r.Name] {
			s.clusters.remove(r.Name)
		}
	}
	for _, r := range previous.Listeners {
		if !s.staticNames.listeners[r.Name] {
			s.listeners.remove(r.Name)
		}
	}
}

// checkReferences returns an error if a static resource refers to a secret that is not available.
// It also returns an error if the resource needs a control plane for other resources, but the
// bootstrap defines none.
func (s *State) checkReferences(needsControlPlane bool, secrets []resource.SecretRef) error {
	if needsControlPlane && s.boot.ADSCluster == "" {
		return errors.New("refers to resources of a control plane, but dynamic_resources.ads_config does not define one")
	}
	for _, r := range secrets {
		_, isTarget := s.boot.Targets[r.From.Cluster]
		switch {
		case r.From.Cluster != "" && !isTarget:
			return unknownSecretSource(r)
		case r.From.Cluster == "" && s.boot.ADSCluster == "" && !s.staticNames.secrets[r.Name]:
			return fmt.Errorf("secret %q is not defined in static_resources.secrets, and there is no control plane", r.Name)
		}
	}
	return nil
}
