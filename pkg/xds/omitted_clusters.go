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
}

// withoutOmitted returns all without the omitted clusters.
func (s *Source) withoutOmitted(all []*config.Cluster) []*config.Cluster {
	if len(s.omittedClusters) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(c *config.Cluster) bool { return s.omittedClusters[c.Name] })
}

// addOmittedCluster applies the omitted cluster of a control plane that has connected. Called with
// the stack locked.
func (s *Source) addOmittedCluster(ctx context.Context, name string) {
	if !s.omittedClusters[name] {
		return
	}
	delete(s.omittedClusters, name)
	if err := s.stack.Apply(ctx, config.Delta{Full: true}); err != nil {
		s.omittedClusters[name] = true
		s.opts.Log.Error("cannot apply the cluster of the control plane", logControl, name, logError, err)
	}
}
