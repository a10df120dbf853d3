package xds

import (
	"errors"
	"fmt"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// stageUpdate stores the valid resources of an update in the state and returns the rejected ones.
func (s *Source) stageUpdate(f *xdsChannel, u ads.Update, now time.Time) (wrong []ads.ResourceError) {
	if u.Type == resource.ClusterType {
		s.state.noteCDSResponse()
	}
	if u.Type == resource.EndpointType {
		for _, n := range u.Changed {
			s.state.noteEDSResponse(n.Name)
		}
		for _, name := range u.Removed {
			s.state.noteEDSResponse(name)
		}
	}
	for _, n := range u.Changed {
		if err := s.stageResource(f, u.Type, n, now); err != nil {
			wrong = append(wrong, ads.ResourceError{Name: n.Name, Reason: err.Error()})
		}
	}
	for _, name := range u.Removed {
		if s.isReserved(u.Type, name) {
			continue // a static resource or one of the file, which the control plane cannot remove
		}
		switch u.Type {
		case resource.ClusterType:
			s.state.removeCluster(name)
		case resource.ListenerType:
			s.state.removeListener(name)
		case resource.EndpointType:
			s.state.setAssignment(name, nil)
		case resource.RouteType:
			s.state.setTable(name, nil)
		case resource.DubboRouteType:
			s.state.setTable(resource.DubboTableName(name), nil)
		case resource.ExtensionType:
			s.state.setExtension(name, nil)
		case resource.RuntimeType:
			if err := s.setLayer(f, name, &resource.Layer{}); err != nil {
				wrong = append(wrong, ads.ResourceError{Name: name, Reason: err.Error()})
			}
		}
	}
	return wrong
}

// stageResource decodes a resource and stores it in the state. It reports the fields that this
// build does not know.
func (s *Source) stageResource(f *xdsChannel, typeURL string, n ads.Resource, now time.Time) error {
	if n.DecodeError != "" {
		return errors.New(n.DecodeError)
	}
	if name, err := resource.Name(n.Body); err != nil {
		return err
	} else if name != n.Name {
		return fmt.Errorf("the name inside the resource is %q", name)
	}
	if s.isReserved(typeURL, n.Name) && f.secretSource == (resource.SecretSource{}) {
		return errors.New("the file defines a static resource with this name")
	}
	switch typeURL {
	case resource.ClusterType:
		c, err := resource.ReadCluster(n.Body, s.capabilities(s.state.runtime))
		if err != nil {
			return err
		}
		if err := s.checkSecretSources(c.Secrets()); err != nil {
			return err
		}
		s.reportUnknownFields(typeURL, n.Name, c.Ignored)
		s.state.setCluster(n.Name, c, now)
	case resource.EndpointType:
		a, err := resource.ReadLoadAssignment(n.Body, s.capabilities(s.state.runtime))
		if err != nil {
			return err
		}
		s.reportUnknownFields(typeURL, n.Name, a.Ignored)
		s.state.setAssignment(n.Name, a)
	case resource.ListenerType:
		return s.stageListener(n, now)
	case resource.RouteType:
		t, err := s.state.tables[n.Name].Update(n.Body, s.capabilities(s.state.runtime))
		if err != nil {
			return err
		}
		s.reportUnknownFields(typeURL, n.Name, t.Ignored)
		s.setTable(n.Name, t)
	case resource.DubboRouteType:
		t, err := resource.ReadDubboRoutes(n.Body, s.capabilities(s.state.runtime))
		if err != nil {
			return err
		}
		s.reportUnknownFields(typeURL, n.Name, t.Ignored)
		s.setTable(resource.DubboTableName(n.Name), t)
	case resource.RuntimeType:
		return s.stageLayer(f, n)
	case resource.ExtensionType:
		e, err := resource.ReadExtension(n.Body, s.capabilities(s.state.runtime))
		if err == nil {
			err = s.state.checkExtension(n.Name, e)
		}
		if err != nil {
			s.state.endExtensionWait(n.Name)
			return err
		}
		s.reportUnknownFields(typeURL, n.Name, e.Ignored)
		s.state.setExtension(n.Name, e)
	case resource.SecretType:
		secret, err := resource.ReadSecret(n.Body, s.capabilities(s.state.runtime))
		if err != nil {
			return err
		}
		s.reportUnknownFields(typeURL, n.Name, secret.Ignored)
		s.state.setSecret(resource.SecretRef{Name: n.Name, From: f.secretSource}, secret)
	default:
		return fmt.Errorf("resource type %s is not supported", typeURL)
	}
	return nil
}

// stageListener is stageResource for a listener.
func (s *Source) stageListener(n ads.Resource, now time.Time) error {
	l, err := resource.ReadListener(n.Body, s.capabilities(s.state.runtime))
	if err != nil {
		return err
	}
	if err := s.checkSecretSources(l.Secrets()); err != nil {
		return err
	}
	for _, table := range l.RouteConfigNames {
		if s.isReserved(resource.RouteType, table) {
			return fmt.Errorf("route table %q: the file defines a static route table with this name", table)
		}
	}
	s.reportUnknownFields(resource.ListenerType, n.Name, l.Ignored)
	s.state.setListener(n.Name, l, now)
	return nil
}

// checkSecretSources returns an error if a secret comes from a cluster that is not a known control
// plane.
func (s *Source) checkSecretSources(all []resource.SecretRef) error {
	for _, r := range all {
		if _, ok := s.boot.targets[r.From.Cluster]; !ok && r.From.Cluster != "" {
			return unknownSecretSource(r)
		}
	}
	return nil
}
