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
	Rejected      []ads.ResourceError
	NameConflicts []NameConflict
	Unknown       []UnknownFields // unknown fields of the accepted resources
	// AwaitedLayers are rejected runtime layers that listeners still wait for, with the reasons: an
	// empty layer in their place would make other resources invalid.
	AwaitedLayers []ads.ResourceError
}

// NameConflict describes a rejected resource. Another owner already defines the resource with the
// type URL Type and the name Name: the rejected resource itself, or a route table that it refers
// to.
type NameConflict struct {
	Rejected   string // name of the rejected resource
	Type, Name string
}

// UnknownFields are the fields of one resource that this build does not know.
type UnknownFields struct {
	Name   string // name of the resource
	Fields []string
}

// stage is one call of Stage.
type stage struct {
	*State

	client *ads.Client // holds the resources that were accepted earlier
	source resource.SecretSource
	now    time.Time
	result Staged
}

// Stage stores the valid resources of an update for the next Reconcile. c is the client that
// received the update. source identifies the SDS server that c is connected to; zero: c uses ADS.
func (s *State) Stage(c *ads.Client, source resource.SecretSource, u ads.Update, now time.Time) Staged {
	st := &stage{State: s, client: c, source: source, now: now}
	if u.Type == resource.ClusterType {
		s.recordCDSResponse()
	}
	if u.Type == resource.EndpointType {
		for _, r := range u.Changed {
			s.recordEDSResponse(r.Name)
		}
		for _, name := range u.Removed {
			s.recordEDSResponse(name)
		}
	}
	for _, r := range u.Changed {
		st.reject(r.Name, st.stageResource(u.Type, r))
	}
	for _, name := range u.Removed {
		if s.ReservedBy(u.Type, name) == "" { // the control plane can only remove its own resources
			st.reject(name, st.stageRemoval(u.Type, name))
		}
	}
	return st.result
}

// reject records that a resource is rejected if err is not nil.
func (st *stage) reject(name string, err error) {
	if err != nil {
		st.result.Rejected = append(st.result.Rejected, ads.ResourceError{Name: name, Reason: err.Error()})
	}
}

// recordUnknown records which of the ignored fields of an accepted resource this build does not
// know.
func (st *stage) recordUnknown(name string, ignored []string) {
	if fields := resource.UnknownFields(ignored); fields != nil {
		st.result.Unknown = append(st.result.Unknown, UnknownFields{Name: name, Fields: fields})
	}
}

// stageRemoval removes a resource. A secret stays in use.
func (st *stage) stageRemoval(typeURL, name string) error {
	switch typeURL {
	case resource.ClusterType:
		st.clusters.remove(name)
	case resource.ListenerType:
		st.listeners.remove(name)
	case resource.EndpointType:
		st.setAssignment(name, nil)
	case resource.RouteType:
		st.setTable(name, nil)
	case resource.DubboRouteType:
		st.setTable(resource.DubboTableName(name), nil)
	case resource.ExtensionType:
		st.setExtension(name, nil)
	case resource.RuntimeType:
		return st.setLayer(name, &resource.Layer{})
	}
	return nil
}

// stageResource decodes a resource and stores it.
func (st *stage) stageResource(typeURL string, r ads.Resource) error {
	if r.DecodeError != "" {
		return errors.New(r.DecodeError)
	}
	if name, err := resource.Name(r.Body); err != nil {
		return err
	} else if name != r.Name {
		return fmt.Errorf("the name inside the resource is %q", name)
	}
	if st.source == (resource.SecretSource{}) {
		if err := st.checkName(typeURL, r.Name); err != nil {
			st.result.NameConflicts = append(st.result.NameConflicts, NameConflict{r.Name, typeURL, r.Name})
			return err
		}
	}
	capabilities := st.capabilitiesWith(st.runtime)
	switch typeURL {
	case resource.ClusterType:
		c, err := resource.ReadCluster(r.Body, capabilities)
		if err == nil {
			err = st.checkStagedReferences(c.EDSServiceName != "", c.Secrets())
		}
		if err != nil {
			return err
		}
		st.recordUnknown(r.Name, c.Ignored)
		st.setCluster(r.Name, c, st.now)
	case resource.EndpointType:
		a, err := resource.ReadLoadAssignment(r.Body, capabilities)
		if err != nil {
			return err
		}
		st.recordUnknown(r.Name, a.Ignored)
		st.setAssignment(r.Name, a)
	case resource.ListenerType:
		return st.stageListener(r, capabilities)
	case resource.RouteType:
		t, err := st.tables[r.Name].Update(r.Body, capabilities)
		if err != nil {
			return err
		}
		st.recordUnknown(r.Name, t.Ignored)
		st.setTable(r.Name, t)
	case resource.DubboRouteType:
		t, err := resource.ReadDubboRoutes(r.Body, capabilities)
		if err != nil {
			return err
		}
		st.recordUnknown(r.Name, t.Ignored)
		st.setTable(resource.DubboTableName(r.Name), t)
	case resource.RuntimeType:
		return st.stageLayer(r)
	case resource.ExtensionType:
		return st.stageExtension(r, capabilities)
	case resource.SecretType:
		secret, err := resource.ReadSecret(r.Body, capabilities)
		if err != nil {
			return err
		}
		st.recordUnknown(r.Name, secret.Ignored)
		st.setSecret(resource.SecretRef{Name: r.Name, From: st.source}, secret)
	default:
		return fmt.Errorf("resource type %s is not supported", typeURL)
	}
	return nil
}

// stageListener is stageResource for a listener.
func (st *stage) stageListener(r ads.Resource, capabilities resource.Capabilities) error {
	l, err := resource.ReadListener(r.Body, capabilities)
	if err != nil {
		return err
	}
	if err := st.checkStagedReferences(len(l.RouteConfigNames)+len(l.DynamicFilters) > 0, l.Secrets()); err != nil {
		return err
	}
	if table, err := st.checkTableNames(l); err != nil {
		st.result.NameConflicts = append(st.result.NameConflicts, NameConflict{r.Name, resource.RouteType, table})
		return err
	}
	st.recordUnknown(r.Name, l.Ignored)
	st.setListener(r.Name, l, st.now)
	return nil
}

// stageExtension is stageResource for an extension. After a rejection, listeners no longer wait for
// the extension.
func (st *stage) stageExtension(r ads.Resource, capabilities resource.Capabilities) error {
	e, err := resource.ReadExtension(r.Body, capabilities)
	if err == nil {
		err = st.checkExtension(r.Name, e)
	}
	if err != nil {
		st.endExtensionWait(r.Name)
		return err
	}
	st.recordUnknown(r.Name, e.Ignored)
	st.setExtension(r.Name, e)
	return nil
}

// checkStagedReferences returns an error if a resource refers to resources that no control plane can
// send: the bootstrap has no ADS for them, or does not define the cluster of a secret.
func (s *State) checkStagedReferences(needsControlPlane bool, secrets []resource.SecretRef) error {
	if s.boot.ADSCluster == "" {
		return s.checkReferences(needsControlPlane, secrets)
	}
	return s.checkSecretSources(secrets)
}

// checkSecretSources returns an error if a secret comes from a cluster that static_resources does
// not define with an address.
func (s *State) checkSecretSources(refs []resource.SecretRef) error {
	for _, r := range refs {
		if _, ok := s.boot.Targets[r.From.Cluster]; !ok && r.From.Cluster != "" {
			return unknownSecretSource(r)
		}
	}
	return nil
}

func unknownSecretSource(r resource.SecretRef) error {
	return fmt.Errorf("secret %q: envoy_grpc.cluster_name: %q is not a cluster of static_resources with an address", r.Name, r.From.Cluster)
}
