package xds

import (
	"context"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
)

// omitUnreadableClusters finds the control planes whose certificates cannot be read. Their clusters
// cannot be put in force, and nothing could together with them: they are left out until
// the certificates are there. Nothing runs yet.
func (s *Source) omitUnreadableClusters() {
	s.omittedClusters = map[string]bool{}
	for _, name := range []string{s.boot.adsCluster, s.boot.lrsCluster} {
		if name == "" || s.omittedClusters[name] {
			continue
		}
		_, forget, err := s.boot.targets[name].loadTLS(s.reloader)
		if err == nil {
			forget()
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

// withoutOmitted is a configuration without the clusters that are left out. s.work is held.
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

// addOmittedCluster puts the cluster of a control plane in force that was left out and is
// connected to now. s.work is held.
func (s *Source) addOmittedCluster(ctx context.Context, name string) {
	if !s.omittedClusters[name] {
		return
	}
	delete(s.omittedClusters, name)
	if err := s.opts.Apply(ctx, s.state.snapshot(s.fileSnapshot)); err != nil {
		s.omittedClusters[name] = true
		s.opts.Log.Error("cannot apply the cluster of the control plane", logControl, name, logError, err)
	}
}
