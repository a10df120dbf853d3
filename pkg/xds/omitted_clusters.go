package xds

import (
	"context"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
)

// omitUnreadableClusters omits the clusters of control planes whose certificates cannot be read,
// because they would fail every Apply. The Source adds the cluster of a channel when the channel
// has connected. A cluster that only receives load reports has no channel and stays omitted. New
// calls omitUnreadableClusters.
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

// withoutOmitted returns clusters without the omitted ones.
func (s *Source) withoutOmitted(clusters []*config.Cluster) []*config.Cluster {
	if len(s.omittedClusters) == 0 {
		return clusters
	}
	return slices.DeleteFunc(slices.Clone(clusters), func(c *config.Cluster) bool { return s.omittedClusters[c.Name] })
}

// addOmittedCluster applies the omitted cluster of a control plane that has connected. The caller
// holds the lock of the stack.
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
