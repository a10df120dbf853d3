package state

import (
	"errors"
	"fmt"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// Staged is the result of Stage.
type Staged struct {
	Rejected []ads.ResourceError
	// NameConflicts are the names of the rejected resources that something else defines.
	NameConflicts []string
	Unknown       []UnknownFields // of the accepted resources
	// AwaitedLayers are rejected runtime layers that listeners still wait for, and the reasons why
	// they do.
	AwaitedLayers []ads.ResourceError
}

// UnknownFields are the fields of one resource that this build does not know.
type UnknownFields struct {
	Name   string // of the resource
	Fields []string
}

// stage is one call of Stage.
type stage struct {
	*State

	client *ads.Client // has the resources that were accepted before
	source resource.SecretSource
	now    time.Time
	staged Staged
}

// Stage stores the valid resources of an update for the next Reconcile. c is the client that
// received the update, and source is what it serves: the zero value for ADS, else secrets.
func (s *State) Stage(c *ads.Client, source resource.SecretSource, u ads.Update, now time.Time) Staged {
	g := &stage{State: s, client: c, source: source, now: now}
	if u.Type == resource.ClusterType {
		s.noteCDSResponse()
	}
	if u.Type == resource.EndpointType {
		for _, n := range u.Changed {
			s.noteEDSResponse(n.Name)
		}
		for _, name := range u.Removed {
			s.noteEDSResponse(name)
		}
	}
	for _, n := range u.Changed {
		g.reject(n.Name, g.stageResource(u.Type, n))
	}
	for _, name := range u.Removed {
		if s.reservedBy(u.Type, name) == "" { // else the control plane cannot remove it
			g.reject(name, g.stageRemoval(u.Type, name))
		}
	}
	return g.staged
}

// reject records that a resource is rejected if err is not nil.
func (g *stage) reject(name string, err error) {
	if err != nil {
		g.staged.Rejected = append(g.staged.Rejected, ads.ResourceError{Name: name, Reason: err.Error()})
	}
}

// noteUnknown records the fields of an accepted resource that this build does not know. ignored are
// its fields without effect.
func (g *stage) noteUnknown(name string, ignored []string) {
	if fields := resource.UnknownFields(ignored); fields != nil {
		g.staged.Unknown = append(g.staged.Unknown, UnknownFields{Name: name, Fields: fields})
	}
}

// stageRemoval removes a resource. Secrets stay.
func (g *stage) stageRemoval(typeURL, name string) error {
	switch typeURL {
	case resource.ClusterType:
		g.clusters.remove(name)
	case resource.ListenerType:
		g.listeners.remove(name)
	case resource.EndpointType:
		g.setAssignment(name, nil)
	case resource.RouteType:
		g.setTable(name, nil)
	case resource.DubboRouteType:
		g.setTable(resource.DubboTableName(name), nil)
	case resource.ExtensionType:
		g.setExtension(name, nil)
	case resource.RuntimeType:
		return g.setLayer(name, &resource.Layer{})
	}
	return nil
}

// stageResource decodes a resource and stores it.
func (g *stage) stageResource(typeURL string, n ads.Resource) error {
	if n.DecodeError != "" {
		return errors.New(n.DecodeError)
	}
	if name, err := resource.Name(n.Body); err != nil {
		return err
	} else if name != n.Name {
		return fmt.Errorf("the name inside the resource is %q", name)
	}
	if g.source == (resource.SecretSource{}) {
		if err := g.checkName(typeURL, n.Name); err != nil {
			g.staged.NameConflicts = append(g.staged.NameConflicts, n.Name)
			return err
		}
	}
	k := g.capabilitiesWith(g.runtime)
	switch typeURL {
	case resource.ClusterType:
		c, err := resource.ReadCluster(n.Body, k)
		if err == nil {
			err = g.checkSecretSources(c.Secrets())
		}
		if err != nil {
			return err
		}
		g.noteUnknown(n.Name, c.Ignored)
		g.setCluster(n.Name, c, g.now)
	case resource.EndpointType:
		a, err := resource.ReadLoadAssignment(n.Body, k)
		if err != nil {
			return err
		}
		g.noteUnknown(n.Name, a.Ignored)
		g.setAssignment(n.Name, a)
	case resource.ListenerType:
		return g.stageListener(n, k)
	case resource.RouteType:
		t, err := g.tables[n.Name].Update(n.Body, k)
		if err != nil {
			return err
		}
		g.noteUnknown(n.Name, t.Ignored)
		g.setTable(n.Name, t)
	case resource.DubboRouteType:
		t, err := resource.ReadDubboRoutes(n.Body, k)
		if err != nil {
			return err
		}
		g.noteUnknown(n.Name, t.Ignored)
		g.setTable(resource.DubboTableName(n.Name), t)
	case resource.RuntimeType:
		return g.stageLayer(n)
	case resource.ExtensionType:
		return g.stageExtension(n, k)
	case resource.SecretType:
		secret, err := resource.ReadSecret(n.Body, k)
		if err != nil {
			return err
		}
		g.noteUnknown(n.Name, secret.Ignored)
		g.setSecret(resource.SecretRef{Name: n.Name, From: g.source}, secret)
	default:
		return fmt.Errorf("resource type %s is not supported", typeURL)
	}
	return nil
}

// stageListener is stageResource for a listener.
func (g *stage) stageListener(n ads.Resource, k resource.Capabilities) error {
	l, err := resource.ReadListener(n.Body, k)
	if err != nil {
		return err
	}
	if err := g.checkSecretSources(l.Secrets()); err != nil {
		return err
	}
	if err := g.checkTableNames(l); err != nil {
		return err
	}
	g.noteUnknown(n.Name, l.Ignored)
	g.setListener(n.Name, l, g.now)
	return nil
}

// stageExtension is stageResource for an extension. Listeners do not wait for a rejected one.
func (g *stage) stageExtension(n ads.Resource, k resource.Capabilities) error {
	e, err := resource.ReadExtension(n.Body, k)
	if err == nil {
		err = g.checkExtension(n.Name, e)
	}
	if err != nil {
		g.endExtensionWait(n.Name)
		return err
	}
	g.noteUnknown(n.Name, e.Ignored)
	g.setExtension(n.Name, e)
	return nil
}

// checkSecretSources returns an error if a secret comes from a cluster that is not a known control
// plane.
func (s *State) checkSecretSources(all []resource.SecretRef) error {
	for _, r := range all {
		if _, ok := s.boot.Targets[r.From.Cluster]; !ok && r.From.Cluster != "" {
			return unknownSecretSource(r)
		}
	}
	return nil
}

func unknownSecretSource(r resource.SecretRef) error {
	return fmt.Errorf("secret %q: envoy_grpc.cluster_name: %q is not a cluster of static_resources with an address", r.Name, r.From.Cluster)
}
