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

// SetStatic stores static_resources for the next Reconcile, in place of the previous ones.
// Unchanged resources stay. An error is of type bootstrap.FieldErrors; the caller rolls back then.
func (s *State) SetStatic(next *bootstrap.StaticResources, now time.Time) error {
	var wrong bootstrap.FieldErrors
	before := s.static
	had := before.Bodies()
	differs := func(kind string, g bootstrap.StaticResource) bool {
		body, ok := had[kind+g.Name]
		return !ok || body != string(g.Body)
	}
	// exists: a resource of that name is there, which is the control plane's unless before has it.
	checkName := func(typeURL, prefix, name string, exists bool) error {
		owner := s.otherOwner(typeURL, name)
		if _, ours := had[prefix+name]; exists && !ours {
			owner = ownerControlPlane
		}
		if owner == "" {
			return nil
		}
		return fmt.Errorf("%s also defines the name %q", owner, name)
	}
	s.setStaticNames(next)
	for _, g := range next.Secrets {
		if ref := (resource.SecretRef{Name: g.Name}); differs("secret/", g) {
			s.setSecret(ref, next.ParsedSecrets[ref])
		}
	}
	for _, g := range next.Clusters {
		c := next.ParsedClusters[g.Name]
		err := cmp.Or(checkName(resource.ClusterType, "cluster/", g.Name, s.clusters.byName[g.Name] != nil), s.checkReferences(c.EDSServiceName != "", c.Secrets()))
		if err != nil {
			wrong = append(wrong, bootstrap.FieldError{Field: g.Field, Reason: err.Error()})
		} else if differs("cluster/", g) {
			s.setCluster(g.Name, c, now)
		}
	}
	k := s.capabilitiesWith(s.runtime)
	for _, g := range next.Listeners {
		l, err := resource.ReadListener(g.Body, k)
		if err == nil {
			err = s.checkReferences(len(l.RouteConfigNames)+len(l.DynamicFilters) > 0, l.Secrets())
		}
		if err == nil {
			err = cmp.Or(bootstrap.CompileRoutes(l.InlineTables), checkName(resource.ListenerType, "listener/", g.Name, s.listeners.byName[g.Name] != nil), s.checkTableNames(l))
		}
		if err != nil {
			wrong = append(wrong, g.FieldErrors(err)...)
		} else if differs("listener/", g) {
			s.setListener(g.Name, l, now)
		}
	}
	s.removeStatic(before)
	if wrong != nil {
		return wrong
	}
	return nil
}

// removeStatic removes the clusters and listeners of before that are static no longer.
func (s *State) removeStatic(before *bootstrap.StaticResources) {
	for _, g := range before.Clusters {
		if !s.staticNames.clusters[g.Name] {
			s.clusters.remove(g.Name)
		}
	}
	for _, g := range before.Listeners {
		if !s.staticNames.listeners[g.Name] {
			s.listeners.remove(g.Name)
		}
	}
}

// checkReferences returns an error if a static resource refers to something that is not available:
// a secret, or, if others is set, another resource of the control plane.
func (s *State) checkReferences(others bool, secrets []resource.SecretRef) error {
	if others && s.boot.ADSCluster == "" {
		return errors.New("refers to resources of a control plane, but dynamic_resources.ads_config does not define one")
	}
	for _, r := range secrets {
		_, known := s.boot.Targets[r.From.Cluster]
		switch {
		case r.From.Cluster != "" && !known:
			return unknownSecretSource(r)
		case r.From.Cluster == "" && s.boot.ADSCluster == "" && !s.staticNames.secrets[r.Name]:
			return fmt.Errorf("secret %q is not defined in static_resources.secrets, and there is no control plane", r.Name)
		}
	}
	return nil
}
