package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
)

// overlay adds the clusters and the route table of Dubbo services to the file's configuration.
// Guarded by process.configMu.
type overlay struct {
	file         *config.Snapshot
	fileClusters map[string]bool // names of the file's clusters
	clusters     map[string]*config.Cluster
	routes       *config.RouteTable // of the services; nil: none yet
	merged       *config.RouteTable // merge of routes and the file's table; nil: not merged yet
}

// rebase replaces the file. On error the overlay is unchanged.
func (o *overlay) rebase(file *config.Snapshot) error {
	before := *o
	o.file, o.merged = file, nil
	o.fileClusters = make(map[string]bool, len(file.Clusters))
	for _, c := range file.Clusters {
		o.fileClusters[c.Name] = true
	}
	err := o.merge()
	for name := range o.clusters {
		if err == nil && o.fileClusters[name] {
			err = clusterNameConflict(name)
		}
	}
	if err != nil {
		*o = before
	}
	return err
}

// change applies a change of the services. undo reverts it. On error the overlay is unchanged, and
// undo is nil.
func (o *overlay) change(c dubbo.Change) (undo func(), err error) {
	for _, one := range c.Clusters {
		if o.fileClusters[one.Name] {
			return nil, clusterNameConflict(one.Name)
		}
	}
	before := map[string]*config.Cluster{}
	routes, merged := o.routes, o.merged
	undo = func() {
		for name, old := range before {
			if old == nil {
				delete(o.clusters, name)
			} else {
				o.clusters[name] = old
			}
		}
		o.routes, o.merged = routes, merged
	}
	for _, name := range c.Removed {
		before[name] = o.clusters[name]
		delete(o.clusters, name)
	}
	for _, one := range c.Clusters {
		if _, ok := before[one.Name]; !ok {
			before[one.Name] = o.clusters[one.Name]
		}
		o.clusters[one.Name] = one
	}
	if c.Routes == nil {
		return undo, nil
	}
	o.routes, o.merged = c.Routes, nil
	if err := o.merge(); err != nil {
		undo()
		return nil, err
	}
	return undo, nil
}

func clusterNameConflict(name string) error {
	return fmt.Errorf("the file defines cluster %q, but the application subscribes to a service with this name: rename the cluster", name)
}

// snapshot returns the file with all services.
func (o *overlay) snapshot() *config.Snapshot {
	next := *o.file
	next.Clusters = slices.Clone(o.file.Clusters)
	for _, name := range slices.Sorted(maps.Keys(o.clusters)) {
		next.Clusters = append(next.Clusters, o.clusters[name])
	}
	next.Routes = slices.Clone(o.file.Routes)
	if at := dubboTableIndex(next.Routes); at >= 0 {
		next.Routes[at] = o.merged
	} else {
		next.Routes = append(next.Routes, o.merged)
	}
	return &next
}

// dubboTableIndex returns the index of the route table of services in tables, or a negative number.
func dubboTableIndex(tables []*config.RouteTable) int {
	return slices.IndexFunc(tables, func(t *config.RouteTable) bool { return t.Name == config.DubboRouteTable })
}

// merge builds the merged table: routes of the file come first.
func (o *overlay) merge() error {
	out := config.RouteTable{Name: config.DubboRouteTable}
	if at := dubboTableIndex(o.file.Routes); at >= 0 {
		out = *o.file.Routes[at]
		out.VirtualHosts = slices.Clone(out.VirtualHosts)
	}
	if o.routes != nil {
		for _, v := range o.routes.VirtualHosts {
			if err := appendRoutes(&out, v); err != nil {
				return err
			}
		}
	}
	o.merged = &out
	return nil
}

// appendRoutes appends the routes of a virtual host to the virtual host of the table with the same
// domain. If there is none, it adds the virtual host.
func appendRoutes(t *config.RouteTable, v *config.VirtualHost) error {
	named := map[string]bool{}
	hosts := map[string]bool{}
	at := -1
	for i, one := range t.VirtualHosts {
		hosts[one.Name] = true
		for _, r := range one.Routes {
			named[r.Name] = true
		}
		if slices.ContainsFunc(one.Domains, func(d string) bool { return slices.Contains(v.Domains, d) }) {
			at = i
		}
	}
	for _, r := range v.Routes {
		if named[r.Name] {
			return fmt.Errorf("route table %q of the file defines route %q, but a service that the application subscribes to has a route with this name: rename the route", t.Name, r.Name)
		}
	}
	if at >= 0 {
		both := *t.VirtualHosts[at]
		both.Routes = slices.Concat(both.Routes, v.Routes)
		t.VirtualHosts[at] = &both
		return nil
	}
	own := *v
	for n := 2; hosts[own.Name]; n++ {
		own.Name = fmt.Sprintf("%s#%d", v.Name, n)
	}
	t.VirtualHosts = append(t.VirtualHosts, &own)
	return nil
}
