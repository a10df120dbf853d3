package xds

import (
	"context"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
)

// holdUnreadable finds the control planes whose certificates cannot be read. Their clusters
// cannot be put in force, and nothing could together with them: they are left out until
// the certificates are there. Nothing runs yet.
func (s *Source) holdUnreadable() {
	s.unreadable = map[string]bool{}
	for _, name := range []string{s.boot.control, s.boot.load} {
		if name == "" || s.unreadable[name] {
			continue
		}
		_, forget, err := s.boot.targets[name].secure(s.store)
		if err == nil {
			forget()
			continue
		}
		s.unreadable[name] = true
		s.o.Log.Error("the cluster of the control plane is not active until its certificates can be read", logControl, name, logError, err)
	}
	apply, some := s.o.Apply, s.o.ApplyClusters
	s.o.Apply = func(ctx context.Context, next *config.Snapshot) error { return apply(ctx, s.readable(next)) }
	s.o.ApplyClusters = func(ctx context.Context, changed []*config.Cluster, whole func() *config.Snapshot) error {
		return some(ctx, s.readableOf(changed), func() *config.Snapshot { return s.readable(whole()) })
	}
	if routes := s.o.ApplyRoutes; routes != nil {
		s.o.ApplyRoutes = func(ctx context.Context, changed []*config.RouteTable, whole func() *config.Snapshot) error {
			return routes(ctx, changed, func() *config.Snapshot { return s.readable(whole()) })
		}
	}
}

// readable is a configuration without the clusters that are left out. s.work is held.
func (s *Source) readable(next *config.Snapshot) *config.Snapshot {
	if len(s.unreadable) == 0 {
		return next
	}
	out := *next
	out.Clusters = s.readableOf(next.Clusters)
	return &out
}

func (s *Source) readableOf(all []*config.Cluster) []*config.Cluster {
	if len(s.unreadable) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(c *config.Cluster) bool { return s.unreadable[c.Name] })
}

// admitCluster puts the cluster of a control plane in force that was left out and is
// connected to now. s.work is held.
func (s *Source) admitCluster(ctx context.Context, name string) {
	if !s.unreadable[name] {
		return
	}
	delete(s.unreadable, name)
	if err := s.o.Apply(ctx, s.world.snapshot(s.base)); err != nil {
		s.unreadable[name] = true
		s.o.Log.Error("cannot apply the cluster of the control plane", logControl, name, logError, err)
	}
}
