package xds

import (
	"context"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
)

// omitUnreadableClusters finds the control planes whose certificates cannot be read. Their clusters
// would fail every Apply, so the Source omits each of them until it has connected to that control
// plane. Called by New.
func (s *Source) omitUnreadableClusters() {
	s.omittedClusters = map[string]bool{}
	for _, name := range []string{s.boot.ADSCluster, s.boot.LRSCluster} {
		if name == "" || s.omittedClusters[name] {
			continue
		}
		d := s.newDialer(name)
		err := d.LoadTLS()
		d.Close()
		if err == nil {
			continue
		}
		s.omittedClusters[name] = true
		s.opts.Log.Error("the cluster of the control plane is not active until its certificates can be read", logControl, name, logError, err)
	}
	apply, some := s.opts.Apply, s.opts.ApplyClusters
	s.opts.Apply = func(ctx context.Context, next *config.Snapshot) error { return apply(ctx, s.withoutOmitted(next)) }
	s.opts.ApplyClusters = func(ctx context.Context, changed []*config.Cluster, whole func() *config.Snapshot) error {
		return some(ctx, s.withoutOmittedClusters(changed), func() *config.Snapshot { return s.withoutOmitted(whole()) })
	}
	if routes := s.opts.ApplyRoutes; routes != nil {
		s.opts.ApplyRoutes = func(ctx context.Context, changed []*config.RouteTable, whole func() *config.Snapshot) error {
			return routes(ctx, changed, func() *config.Snapshot { return s.withoutOmitted(whole()) })
		}
	}
}

// withoutOmitted returns a configuration without the omitted clusters. Called with applyMu held.
func (s *Source) withoutOmitted(next *config.Snapshot) *config.Snapshot {
	if len(s.omittedClusters) == 0 {
		return next
	}
	out := *next
	out.Clusters = s.withoutOmittedClusters(next.Clusters)
	return &out
}

func (s *Source) withoutOmittedClusters(all []*config.Cluster) []*config.Cluster {
	if len(s.omittedClusters) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(c *config.Cluster) bool { return s.omittedClusters[c.Name] })
}

// addOmittedCluster applies the omitted cluster of a control plane that has connected. Called with
// applyMu held.
func (s *Source) addOmittedCluster(ctx context.Context, name string) {
	if !s.omittedClusters[name] {
		return
	}
	delete(s.omittedClusters, name)
	if err := s.opts.Apply(ctx, s.state.Snapshot(s.fileSnapshot)); err != nil {
		s.omittedClusters[name] = true
		s.opts.Log.Error("cannot apply the cluster of the control plane", logControl, name, logError, err)
	}
}
