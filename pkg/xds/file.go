package xds

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// ApplyFile takes what the file says, without what comes from the control plane, and puts
// both in force. It is called once before Run, and after that by whoever has read the
// file again. A file that has a name of the control plane's is refused. What has changed of
// static_resources counts at once, but for where control planes are; of that, and of the
// rest of a bootstrap, a change counts at the next start only.
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
		plane.reconnect() // it says again what was refused for the name's sake
	}
	return nil
}

// resourceKey is the name of a resource of a type.
type resourceKey struct{ url, name string }

// nameConflicts are what the control plane has and the file, too, so that it was refused.
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

// equalExceptStatic reports whether two bootstraps say the same beside static_resources.
func equalExceptStatic(a, b config.Bootstrap) bool {
	a.StaticResources, b.StaticResources = nil, nil
	return reflect.DeepEqual(a, b)
}

// ApplyFileChanges is Rebase where nothing of the file but the given clusters and route tables
// is new or changed, as by a registry of services: its cost is theirs and that of a list
// of all. Rebase was called before, and the tables were there then. After an error some
// of the clusters may be in force until the next call of Rebase.
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

// checkNameConflicts returns as an error that something of a file has a name that static_resources or
// the control plane have given away, be it in force or not: that of a cluster or listener,
// or one by which a listener asks for routes.
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
