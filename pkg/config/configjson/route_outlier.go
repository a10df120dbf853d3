package configjson

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
)

// outlierFilter is a stream filter that configures outlier detection for the clusters of its routes.
type outlierFilter struct {
	filter    string // its name
	listener  proxyNode
	detection *config.OutlierDetection
}

// enableOutlierDetection configures outlier detection for the clusters of a listener's routes as the
// listener's filters request it. It does not change a cluster with its own outlier_detection. If
// two listeners request different settings, the first one wins.
func (r *routeChecker) enableOutlierDetection() {
	own := map[*config.Cluster]bool{}
	for _, c := range r.clusters.all {
		own[c] = c.OutlierDetection != nil
	}
	by := map[*config.Cluster]*outlierFilter{}
	for _, use := range r.proxies {
		t := r.routes.tables[use.proxy.RouteTable]
		if t == nil {
			continue // reported
		}
		for _, f := range use.proxy.StreamFilters {
			d, ok := f.Config.(filter.OutlierPolicy)
			if !ok {
				continue
			}
			if o := d.Outlier(); o != nil {
				r.setOutlierDetection(t, &outlierFilter{f.Name, use, o}, own, by)
			}
		}
	}
}

// setOutlierDetection sets the outlier detection of the clusters of a table.
func (r *routeChecker) setOutlierDetection(t *table, e *outlierFilter, own map[*config.Cluster]bool, by map[*config.Cluster]*outlierFilter) {
	names, variable := tableClusters(t.model)
	for _, name := range names {
		c := r.clusters.byName[name]
		switch first := by[c]; {
		case c == nil: // reported
		case own[c]:
			r.report.Warnf(e.listener.node, "cluster %q has its own outlier_detection: the stream filter %q has no effect on it", name, e.filter)
		case first == nil:
			by[c], c.OutlierDetection = e, e.detection
		case !first.detection.Equal(e.detection):
			r.report.Warnf(e.listener.node, "the stream filter %q has no effect on cluster %q: another listener has different settings, which apply", first.filter, name)
		}
	}
	if variable {
		r.report.Warnf(e.listener.node, "the stream filter %q has no effect on clusters that a variable selects", e.filter)
	}
}

// tableClusters returns the names of the clusters of a table's routes, and whether a variable selects
// some of them.
func tableClusters(t *config.RouteTable) (names []string, variable bool) {
	for _, v := range t.VirtualHosts {
		for _, route := range v.Routes {
			f := route.Forward
			if f == nil {
				continue
			}
			if f.Cluster != "" {
				names = append(names, f.Cluster)
			}
			for _, w := range f.WeightedClusters {
				names = append(names, w.Cluster)
			}
			variable = variable || f.ClusterVariable != ""
		}
	}
	slices.Sort(names)
	return slices.Compact(names), variable
}
