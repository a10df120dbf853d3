package xds

import (
	"errors"
	"fmt"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// take gives the world what is good in an update, and returns what is not.
func (s *Source) take(f *feed, u ads.Update, now time.Time) (wrong []ads.Wrong) {
	if u.Type == resource.ClusterType {
		s.world.receivedClusters()
	}
	for _, n := range u.Changed {
		if err := s.read(f, u.Type, n, now); err != nil {
			wrong = append(wrong, ads.Wrong{Name: n.Name, Reason: err.Error()})
		}
	}
	for _, name := range u.Removed {
		if s.isStatic(u.Type, name) {
			continue // it never came from there
		}
		switch u.Type {
		case resource.ClusterType:
			s.world.removeCluster(name)
		case resource.ListenerType:
			s.world.removeListener(name)
		case resource.EndpointType:
			s.world.setAssignment(name, nil)
		case resource.RouteType:
			s.world.setTable(name, nil)
		case resource.DubboRouteType:
			s.world.setTable(resource.DubboTable(name), nil)
		case resource.ExtensionType:
			s.world.setExtension(name, nil)
		case resource.RuntimeType:
			if err := s.takeLayer(f, name, &resource.Layer{}); err != nil {
				wrong = append(wrong, ads.Wrong{Name: name, Reason: err.Error()})
			}
		}
	}
	return wrong
}

// read reads a resource into the world. What it leaves out of account is noted.
func (s *Source) read(f *feed, typeURL string, n ads.Resource, now time.Time) error {
	if n.Fault != "" {
		return errors.New(n.Fault)
	}
	if name, err := resource.Name(n.Body); err != nil {
		return err
	} else if name != n.Name {
		return fmt.Errorf("the name inside the resource is %q", name)
	}
	if s.isStatic(typeURL, n.Name) && f.secrets == (resource.SecretSource{}) {
		return errors.New("the file defines a static resource with this name")
	}
	switch typeURL {
	case resource.ClusterType:
		c, err := resource.ReadCluster(n.Body, s.kinds(s.world.runtime))
		if err != nil {
			return err
		}
		if err := s.reachable(c.Secrets()); err != nil {
			return err
		}
		s.noteUnknown(typeURL, n.Name, c.Ignored)
		s.world.setCluster(n.Name, c, now)
	case resource.EndpointType:
		a, err := resource.ReadEndpoints(n.Body, s.kinds(s.world.runtime))
		if err != nil {
			return err
		}
		s.noteUnknown(typeURL, n.Name, a.Ignored)
		s.world.setAssignment(n.Name, a)
	case resource.ListenerType:
		return s.readListener(n, now)
	case resource.RouteType:
		t, err := s.world.tables[n.Name].Reread(n.Body, s.kinds(s.world.runtime))
		if err != nil {
			return err
		}
		s.noteUnknown(typeURL, n.Name, t.Ignored)
		s.takeTable(n.Name, t)
	case resource.DubboRouteType:
		t, err := resource.ReadDubboRoutes(n.Body, s.kinds(s.world.runtime))
		if err != nil {
			return err
		}
		s.noteUnknown(typeURL, n.Name, t.Ignored)
		s.takeTable(resource.DubboTable(n.Name), t)
	case resource.RuntimeType:
		return s.readLayer(f, n)
	case resource.ExtensionType:
		e, err := resource.ReadExtension(n.Body, s.kinds(s.world.runtime))
		if err == nil {
			err = s.world.judge(n.Name, e)
		}
		if err != nil {
			s.world.spoil(n.Name)
			return err
		}
		s.noteUnknown(typeURL, n.Name, e.Ignored)
		s.world.setExtension(n.Name, e)
	case resource.SecretType:
		secret, err := resource.ReadSecret(n.Body, s.kinds(s.world.runtime))
		if err != nil {
			return err
		}
		s.noteUnknown(typeURL, n.Name, secret.Ignored)
		s.world.setSecret(resource.SecretRef{Name: n.Name, From: f.secrets}, secret)
	default:
		return fmt.Errorf("resource type %s is not supported", typeURL)
	}
	return nil
}

// readListener is read of a listener.
func (s *Source) readListener(n ads.Resource, now time.Time) error {
	l, err := resource.ReadListener(n.Body, s.kinds(s.world.runtime))
	if err != nil {
		return err
	}
	if err := s.reachable(l.Secrets()); err != nil {
		return err
	}
	for _, table := range l.Routes {
		if s.isStatic(resource.RouteType, table) {
			return fmt.Errorf("route table %q: the file defines a static route table with this name", table)
		}
	}
	s.noteUnknown(resource.ListenerType, n.Name, l.Ignored)
	s.world.setListener(n.Name, l, now)
	return nil
}

// reachable reports as an error that one of the secrets is nobody's who can be asked.
func (s *Source) reachable(all []resource.SecretRef) error {
	for _, r := range all {
		if _, ok := s.boot.targets[r.From.Cluster]; !ok && r.From.Cluster != "" {
			return noSecretService(r)
		}
	}
	return nil
}
