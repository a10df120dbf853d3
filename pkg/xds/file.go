package xds

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// ApplyFile applies the configuration of the file together with the resources of the control plane.
// It is called once before Run, and again after each reload of the file. It rejects a file that
// defines a name of the control plane. Changes of static_resources take effect immediately, except
// the addresses of control planes. Those, and the rest of the bootstrap, take effect after a
// restart.
func (s *Source) ApplyFile(ctx context.Context, file *config.Snapshot) error {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	defer s.state.commit()
	taken := s.nameConflicts()
	next, err := s.updateStaticResources(file.Bootstrap)
	if err == nil {
		err = s.state.checkNameConflicts(file)
	}
	if err == nil {
		err = s.opts.Apply(ctx, s.state.snapshot(file))
	}
	if err != nil {
		if next != nil {
			s.state.rollback()
			s.reapplyActive(ctx)
		}
		return err
	}
	if s.fileSnapshot != nil && (next != nil && s.targetsChanged(next) || !equalExceptStatic(file.Bootstrap, s.opts.Bootstrap) && !equalExceptStatic(file.Bootstrap, s.fileSnapshot.Bootstrap)) {
		s.opts.Log.Warn("the change of dynamic_resources, node or the address of a control plane takes effect after a restart")
	}
	s.fileSnapshot = file
	if next != nil {
		s.staticResources, s.staticJSON = next, file.Bootstrap.StaticResources
		s.updateSubscriptions()
		s.updateResourceCounts()
	}
	free := func(t resourceKey) bool { return !s.isReserved(t.url, t.name) }
	if plane := s.mainChannel(); plane != nil && slices.ContainsFunc(taken, free) {
		plane.reconnect() // the control plane sends the resources again that were rejected for their name
	}
	return nil
}

// resourceKey is the type and name of a resource.
type resourceKey struct{ url, name string }

// nameConflicts returns the rejected resources of the control plane whose names the file defines.
func (s *Source) nameConflicts() (all []resourceKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, url := range []string{resource.ClusterType, resource.ListenerType} {
		for name, r := range s.resourceStatus[url] {
			if r.RejectReason != "" && s.isReserved(url, name) {
				all = append(all, resourceKey{url, name})
			}
		}
	}
	return all
}

// equalExceptStatic reports whether two bootstraps are equal except for static_resources.
func equalExceptStatic(a, b config.Bootstrap) bool {
	a.StaticResources, b.StaticResources = nil, nil
	return reflect.DeepEqual(a, b)
}

// ApplyFileChanges is ApplyFile for a file in which only the given clusters and route tables are
// new or changed, as with a service registry. Its cost is that of the changes and of copying the
// list of clusters. The caller has called ApplyFile before, with the same tables. After an error,
// some of the clusters may be active until the next ApplyFile.
func (s *Source) ApplyFileChanges(ctx context.Context, file *config.Snapshot, clusters []*config.Cluster, tables []*config.RouteTable) error {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if err := s.state.checkNameConflicts(&config.Snapshot{Clusters: clusters}); err != nil {
		return err
	}
	whole := func() *config.Snapshot { return s.state.snapshot(file) }
	if len(clusters) > 0 {
		if err := s.opts.ApplyClusters(ctx, clusters, whole); err != nil {
			return err
		}
	}
	if len(tables) > 0 {
		apply := s.opts.ApplyRoutes
		if apply == nil {
			apply = func(ctx context.Context, _ []*config.RouteTable, whole func() *config.Snapshot) error {
				return s.opts.Apply(ctx, whole())
			}
		}
		if err := apply(ctx, tables, whole); err != nil {
			return err
		}
	}
	s.fileSnapshot = file
	return nil
}

// checkNameConflicts returns an error if the file defines a cluster or listener that
// static_resources or the control plane also defines, active or not, or a route table that one of
// their listeners refers to.
func (w *state) checkNameConflicts(file *config.Snapshot) error {
	taken := func(kind, name string, fixed map[string]bool) error {
		if fixed[name] {
			return fmt.Errorf("%s %q: static_resources also defines this name", kind, name)
		}
		return fmt.Errorf("%s %q: the control plane also defines this name", kind, name)
	}
	for _, c := range file.Clusters {
		if w.clusters[c.Name] != nil {
			return taken("cluster", c.Name, w.staticNames.clusters)
		}
	}
	for _, l := range file.Listeners {
		if w.listeners[l.Name] != nil {
			return taken("listener", l.Name, w.staticNames.listeners)
		}
	}
	tables := map[string]bool{}
	for _, s := range w.listeners {
		for _, l := range []*resource.Listener{s.received, s.active} {
			if l != nil {
				addKeys(tables, l.RouteConfigNames)
			}
		}
	}
	for _, t := range file.Routes {
		if tables[t.Name] {
			return taken("route table", t.Name, nil)
		}
	}
	return nil
}
