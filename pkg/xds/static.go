package xds

import (
	"bytes"
	"reflect"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// static are the names of what a file has: a control plane cannot have them, too.
type static struct {
	of                          *config.Snapshot
	clusters, listeners, tables map[string]bool
}

func staticOf(base *config.Snapshot) static {
	return static{
		of:        base,
		clusters:  namesOf(base.Clusters, func(c *config.Cluster) string { return c.Name }),
		listeners: namesOf(base.Listeners, func(l *config.Listener) string { return l.Name }),
		tables:    namesOf(base.Routes, func(t *config.RouteTable) string { return t.Name }),
	}
}

func namesOf[T any](all []T, name func(T) string) map[string]bool {
	names := make(map[string]bool, len(all))
	for _, one := range all {
		names[name(one)] = true
	}
	return names
}

// isStatic reports whether the file has something of a name, of its own or in
// static_resources. Secrets are those that the control plane has of which it has the rest.
func (s *Source) isStatic(typeURL, name string) bool {
	if s.static.of != s.base {
		s.static = staticOf(s.base)
	}
	switch typeURL {
	case resource.ClusterType:
		return s.static.clusters[name] || s.world.fixed.clusters[name]
	case resource.ListenerType:
		return s.static.listeners[name] || s.world.fixed.listeners[name]
	case resource.RouteType:
		return s.static.tables[name]
	case resource.SecretType:
		return s.world.fixed.secrets[name]
	}
	return false
}

// plane is the feed that has everything; nil: the file has no control plane.
func (s *Source) plane() *feed {
	if s.boot.control == "" {
		return nil
	}
	return s.feeds[0]
}

// beginStatic puts what the file has in static_resources into the world. The error is
// Problems.
func (s *Source) beginStatic() error {
	now := time.Now()
	s.fixtures, s.boot.fixtures = s.boot.fixtures, nil // which would hold them after the file has others
	if err := s.fixtures.seed(s.world, nil, s.boot, s.kinds(s.world.runtime), now); err != nil {
		return err
	}
	if _, next := s.world.settle(now); !next.IsZero() { // Rebase puts it in force
		s.again.Reset(next.Sub(now))
	}
	s.world.commit()
	return nil
}

// changeStatic takes the static_resources of a file that was read again; nil: they are as
// they were, or it is the first time, and New has them. They are in the world then, settled, and the caller has it taken back if they
// cannot be put in force.
func (s *Source) changeStatic(b config.Bootstrap) (next *fixtures, err error) {
	if s.base == nil || bytes.Equal(b.Static, s.said) {
		return nil, nil //nolint:nilnil // nothing is to be done
	}
	if next, err = readFixtures(b.Static); err != nil {
		return nil, err
	}
	now := time.Now()
	s.world.mark()
	if err := next.seed(s.world, s.fixtures, s.boot, s.kinds(s.world.runtime), now); err != nil {
		return next, err
	}
	_, late := s.world.settle(now)
	s.again.Stop()
	if !late.IsZero() {
		s.again.Reset(late.Sub(now))
	}
	return next, nil
}

// moved reports whether a control plane is somewhere else by next than it is asked at.
func (s *Source) moved(next *fixtures) bool {
	targets := next.targets()
	for name, was := range s.boot.targets {
		asked := name == s.boot.load || slices.ContainsFunc(s.feeds, func(f *feed) bool { return f.name == name })
		is := targets[name]
		if asked && (is.address != was.address || is.unix != was.unix || !reflect.DeepEqual(is.tls, was.tls)) {
			return true
		}
	}
	return false
}
