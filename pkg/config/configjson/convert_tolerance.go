package configjson

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
)

// ejector is a stream filter that configures outlier detection for the clusters of its routes.
type ejector struct {
	filter   string // its name
	listener proxyUse
	outlier  *config.Outlier
}

// watchForFilters configures outlier detection for the clusters of a listener's routes as the
// listener's filters request it. It does not change a cluster with its own outlier_detection. If
// two listeners request different settings, the first one wins.
func (r *reader) watchForFilters() {
	own := map[*config.Cluster]bool{}
	for _, c := range r.snapshot.Clusters {
		own[c] = c.Outlier != nil
	}
	by := map[*config.Cluster]*ejector{}
	for _, use := range r.proxies {
		t := r.tables[use.model.RouteTable]
		if t == nil {
			continue // reported
		}
		for _, f := range use.model.StreamFilters {
			d, ok := f.Config.(filter.OutlierPolicy)
			if !ok {
				continue
			}
			if o := d.Outlier(); o != nil {
				r.watch(t, &ejector{f.Name, use, o}, own, by)
			}
		}
	}
}

// watch sets the outlier detection of the clusters of a table.
func (r *reader) watch(t *table, e *ejector, own map[*config.Cluster]bool, by map[*config.Cluster]*ejector) {
	names, variable := clustersOf(t.model)
	for _, name := range names {
		c := r.clusters[name]
		switch first := by[c]; {
		case c == nil: // reported
		case own[c]:
			r.report.Warnf(e.listener.node, "cluster %q has its own outlier_detection: the stream filter %q has no effect on it", name, e.filter)
		case first == nil:
			by[c], c.Outlier = e, e.outlier
		case !first.outlier.Equal(e.outlier):
			r.report.Warnf(e.listener.node, "the stream filter %q has no effect on cluster %q: another listener has different settings, which apply", first.filter, name)
		}
	}
	if variable {
		r.report.Warnf(e.listener.node, "the stream filter %q has no effect on clusters that a variable selects", e.filter)
	}
}

// clustersOf returns the names of the clusters of a table's routes, and whether a variable selects
// some of them.
func clustersOf(t *config.RouteTable) (names []string, variable bool) {
	for _, v := range t.VirtualHosts {
		for _, route := range v.Routes {
			f := route.Forward
			if f == nil {
				continue
			}
			if f.Cluster != "" {
				names = append(names, f.Cluster)
			}
			for _, w := range f.Weighted {
				names = append(names, w.Cluster)
			}
			variable = variable || f.ClusterVariable != ""
		}
	}
	slices.Sort(names)
	return slices.Compact(names), variable
}
