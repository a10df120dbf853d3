package layers

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
)

// Change is the difference from the previous content of an Overlay. Neither the caller nor the
// Overlay modifies the values that a Change points to.
type Change struct {
	Clusters []*config.Cluster  // new or changed
	Removed  []string           // names of clusters
	Routes   *config.RouteTable // all routes of the Overlay; nil: unchanged
}

// Overlay is a layer with clusters, and with routes for one route table. The routes of the file for
// that table come first. The lock of the Stack guards it.
type Overlay struct {
	stack    *Stack
	owner    string // see Layer.Owner; immutable
	table    string // name of the route table; immutable
	clusters map[string]*config.Cluster
	routes   *config.RouteTable // nil: none yet
	merged   *config.RouteTable // the route table of the file, extended with routes
}

// NewOverlay adds an empty Overlay to s. owner is the owner of its resources in errors; table is
// the name of its route table.
func NewOverlay(s *Stack, owner, table string) *Overlay {
	o := &Overlay{stack: s, owner: owner, table: table, clusters: map[string]*config.Cluster{}, merged: &config.RouteTable{Name: table}}
	s.Add(o)
	return o
}

// Reset replaces the content without applying it. The caller calls Reset only before the first
// SetFile has succeeded.
func (o *Overlay) Reset(clusters []*config.Cluster, routes *config.RouteTable) {
	o.stack.Lock()
	defer o.stack.Unlock()
	clear(o.clusters)
	for _, c := range clusters {
		o.clusters[c.Name] = c
	}
	o.routes = routes
}

// CheckName returns an error if another layer defines a cluster with this name. It waits while a
// configuration is applied.
func (o *Overlay) CheckName(cluster string) error {
	o.stack.Lock()
	defer o.stack.Unlock()
	return o.checkName(cluster)
}

func (o *Overlay) checkName(cluster string) error {
	if owner := o.stack.Owner(o, Cluster, cluster); owner != "" {
		return conflict(Cluster, cluster, owner)
	}
	return nil
}

// Apply changes the content and applies the result. On an error the content stays unchanged. Unless
// clusters are removed, the cost is proportional to the new and changed clusters, and, if c has
// routes, to all routes of the table.
func (o *Overlay) Apply(ctx context.Context, c Change) error {
	o.stack.Lock()
	defer o.stack.Unlock()
	for _, cluster := range c.Clusters {
		if err := o.checkName(cluster.Name); err != nil {
			return err
		}
	}
	d := config.Delta{Clusters: c.Clusters}
	previousRoutes, previousMerged := o.routes, o.merged
	if c.Routes != nil {
		merged, err := o.merge(o.stack.file.snapshot, c.Routes)
		if err != nil {
			return err
		}
		o.routes, o.merged = c.Routes, merged
		d.Routes = []*config.RouteTable{merged}
	}
	if len(c.Removed) > 0 {
		d = config.Delta{Full: true}
	}
	previousClusters := o.replaceClusters(c)
	if err := o.stack.Apply(ctx, d); err != nil {
		o.routes, o.merged = previousRoutes, previousMerged
		for name, cluster := range previousClusters {
			o.set(name, cluster)
		}
		return err
	}
	if len(c.Removed) > 0 {
		o.stack.namesFreed(o)
	}
	return nil
}

// replaceClusters changes the clusters. It returns the previous cluster of each changed name; nil:
// there was none.
func (o *Overlay) replaceClusters(c Change) map[string]*config.Cluster {
	previous := make(map[string]*config.Cluster, len(c.Removed)+len(c.Clusters))
	for _, name := range c.Removed {
		previous[name] = o.clusters[name]
	}
	for _, cluster := range c.Clusters {
		previous[cluster.Name] = o.clusters[cluster.Name]
	}
	for _, name := range c.Removed {
		o.set(name, nil)
	}
	for _, cluster := range c.Clusters {
		o.set(cluster.Name, cluster)
	}
	return previous
}

// set replaces a cluster; nil removes it.
func (o *Overlay) set(name string, c *config.Cluster) {
	if c == nil {
		delete(o.clusters, name)
	} else {
		o.clusters[name] = c
	}
}

// Owner implements Layer.Owner. The Overlay defines its route table, even without routes, unless
// the file does.
func (o *Overlay) Owner(kind Kind, name string) string {
	switch {
	case kind == Cluster && o.clusters[name] != nil:
		return o.owner
	case kind == RouteTable && name == o.table && tableIndex(o.stack.file.snapshot.Routes, name) < 0:
		return o.owner
	}
	return ""
}

// AppendTo implements Layer.AppendTo.
func (o *Overlay) AppendTo(next *config.Snapshot) {
	for _, name := range slices.Sorted(maps.Keys(o.clusters)) {
		next.Clusters = append(next.Clusters, o.clusters[name])
	}
	if i := tableIndex(next.Routes, o.table); i >= 0 {
		next.Routes[i] = o.merged
	} else {
		next.Routes = append(next.Routes, o.merged)
	}
}

// SetFile implements Layer.SetFile. It merges the routes of the Overlay into the table of the file.
func (o *Overlay) SetFile(file *config.Snapshot) (end func(context.Context, error), err error) {
	previous := o.merged
	if o.merged, err = o.merge(file, o.routes); err != nil {
		o.merged = previous
		return nil, err
	}
	return func(_ context.Context, reason error) {
		if reason != nil {
			o.merged = previous
		}
	}, nil
}

// NamesFreed implements Layer.NamesFreed. It does nothing, because the source of an Overlay
// retries.
func (o *Overlay) NamesFreed() {}

// merge returns the table of the file with routes added; nil routes add nothing.
func (o *Overlay) merge(file *config.Snapshot, routes *config.RouteTable) (*config.RouteTable, error) {
	merged := config.RouteTable{Name: o.table}
	if i := tableIndex(file.Routes, o.table); i >= 0 {
		merged = *file.Routes[i]
		merged.VirtualHosts = slices.Clone(merged.VirtualHosts)
	}
	if routes == nil {
		return &merged, nil
	}
	for _, h := range routes.VirtualHosts {
		if err := o.appendVirtualHost(&merged, h); err != nil {
			return nil, err
		}
	}
	return &merged, nil
}

// appendVirtualHost appends the routes of a virtual host to the virtual host of t that has one of
// its domains. If there is none, it adds the virtual host.
func (o *Overlay) appendVirtualHost(t *config.RouteTable, added *config.VirtualHost) error {
	routeNames, hostNames := map[string]bool{}, map[string]bool{}
	index := -1
	for i, h := range t.VirtualHosts {
		hostNames[h.Name] = true
		for _, r := range h.Routes {
			routeNames[r.Name] = true
		}
		if slices.ContainsFunc(h.Domains, func(d string) bool { return slices.Contains(added.Domains, d) }) {
			index = i
		}
	}
	for _, r := range added.Routes {
		if routeNames[r.Name] {
			return fmt.Errorf("route table %q: route %q: the file and %s define this name", t.Name, r.Name, o.owner)
		}
	}
	if index >= 0 {
		extended := *t.VirtualHosts[index]
		extended.Routes = slices.Concat(extended.Routes, added.Routes)
		t.VirtualHosts[index] = &extended
		return nil
	}
	renamed := *added
	for n := 2; hostNames[renamed.Name]; n++ {
		renamed.Name = fmt.Sprintf("%s#%d", added.Name, n)
	}
	t.VirtualHosts = append(t.VirtualHosts, &renamed)
	return nil
}

// tableIndex returns the index of a route table, or -1.
func tableIndex(tables []*config.RouteTable, name string) int {
	return slices.IndexFunc(tables, func(t *config.RouteTable) bool { return t.Name == name })
}
