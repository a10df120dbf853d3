package xds

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// Rebase takes what the file says, without what comes from the control plane, and puts
// both in force. It is called once before Run, and after that by whoever has read the
// file again. A file that has a name of the control plane's is refused. What has changed of
// static_resources counts at once, but for where control planes are; of that, and of the
// rest of a bootstrap, a change counts at the next start only.
func (s *Source) Rebase(ctx context.Context, file *config.Snapshot) error {
	s.work.Lock()
	defer s.work.Unlock()
	defer s.world.commit()
	taken := s.taken()
	next, err := s.changeStatic(file.Bootstrap)
	if err == nil {
		err = s.world.clash(file)
	}
	if err == nil {
		err = s.o.Apply(ctx, s.world.snapshot(file))
	}
	if err != nil {
		if next != nil {
			s.world.takeBack()
			s.restore(ctx)
		}
		return err
	}
	if s.base != nil && (next != nil && s.moved(next) || !sameBeside(file.Bootstrap, s.o.Bootstrap) && !sameBeside(file.Bootstrap, s.base.Bootstrap)) {
		s.o.Log.Warn("the change of dynamic_resources, node or the address of a control plane takes effect after a restart")
	}
	s.base = file
	if next != nil {
		s.fixtures, s.said = next, file.Bootstrap.Static
		s.ask()
		s.recount()
	}
	free := func(t topicName) bool { return !s.isStatic(t.url, t.name) }
	if plane := s.plane(); plane != nil && slices.ContainsFunc(taken, free) {
		plane.restart() // it says again what was refused for the name's sake
	}
	return nil
}

// topicName is the name of a resource of a type.
type topicName struct{ url, name string }

// taken are what the control plane has and the file, too, so that it was refused.
func (s *Source) taken() (all []topicName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, url := range []string{resource.ClusterType, resource.ListenerType} {
		for name, r := range s.tracked[url] {
			if r.Refused != "" && s.isStatic(url, name) {
				all = append(all, topicName{url, name})
			}
		}
	}
	return all
}

// sameBeside reports whether two bootstraps say the same beside static_resources.
func sameBeside(a, b config.Bootstrap) bool {
	a.Static, b.Static = nil, nil
	return reflect.DeepEqual(a, b)
}

// RebaseSome is Rebase where nothing of the file but the given clusters and route tables
// is new or changed, as by a registry of services: its cost is theirs and that of a list
// of all. Rebase was called before, and the tables were there then. After an error some
// of the clusters may be in force until the next call of Rebase.
func (s *Source) RebaseSome(ctx context.Context, file *config.Snapshot, clusters []*config.Cluster, tables []*config.RouteTable) error {
	s.work.Lock()
	defer s.work.Unlock()
	if err := s.world.clash(&config.Snapshot{Clusters: clusters}); err != nil {
		return err
	}
	whole := func() *config.Snapshot { return s.world.snapshot(file) }
	if len(clusters) > 0 {
		if err := s.o.ApplyClusters(ctx, clusters, whole); err != nil {
			return err
		}
	}
	if len(tables) > 0 {
		apply := s.o.ApplyRoutes
		if apply == nil {
			apply = func(ctx context.Context, _ []*config.RouteTable, whole func() *config.Snapshot) error {
				return s.o.Apply(ctx, whole())
			}
		}
		if err := apply(ctx, tables, whole); err != nil {
			return err
		}
	}
	s.base = file
	return nil
}

// clash returns as an error that something of a file has a name that static_resources or
// the control plane have given away, be it in force or not: that of a cluster or listener,
// or one by which a listener asks for routes.
func (w *world) clash(file *config.Snapshot) error {
	taken := func(kind, name string, fixed map[string]bool) error {
		if fixed[name] {
			return fmt.Errorf("%s %q: static_resources also defines this name", kind, name)
		}
		return fmt.Errorf("%s %q: the control plane also defines this name", kind, name)
	}
	for _, c := range file.Clusters {
		if w.clusters[c.Name] != nil {
			return taken("cluster", c.Name, w.fixed.clusters)
		}
	}
	for _, l := range file.Listeners {
		if w.listeners[l.Name] != nil {
			return taken("listener", l.Name, w.fixed.listeners)
		}
	}
	tables := map[string]bool{}
	for _, s := range w.listeners {
		for _, l := range []*resource.Listener{s.last, s.live} {
			if l != nil {
				add(tables, l.Routes)
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
