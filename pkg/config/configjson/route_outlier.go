package configjson

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
)

// outlierFilter is a stream filter that configures outlier detection for the clusters of its
// routes.
type outlierFilter struct {
	filter    string    // name of the filter
	proxy     proxyNode // the proxy with the filter
	detection *config.OutlierDetection
}

// enableOutlierDetection configures outlier detection for the clusters of routes whose listener has
// a filter with an outlier policy. It does not change a cluster with its own outlier_detection. If
// two filters request different settings, the settings of the first filter apply.
func (r *routeChecker) enableOutlierDetection() {
	explicit := map[*config.Cluster]bool{}
	for _, c := range r.clusters.list {
		explicit[c] = c.OutlierDetection != nil
	}
	setBy := map[*config.Cluster]*outlierFilter{}
	for _, pn := range r.proxies {
		t := r.routes.tables[pn.proxy.RouteTable]
		if t == nil {
			continue // already reported
		}
		for _, f := range pn.proxy.StreamFilters {
			d, ok := f.Config.(filter.OutlierPolicy)
			if !ok {
				continue
			}
			if o := d.Outlier(); o != nil {
				r.setOutlierDetection(t, &outlierFilter{f.Name, pn, o}, explicit, setBy)
			}
		}
	}
}

// setOutlierDetection sets the outlier detection of the clusters of a table.
func (r *routeChecker) setOutlierDetection(t *table, f *outlierFilter, explicit map[*config.Cluster]bool, setBy map[*config.Cluster]*outlierFilter) {
	names, variable := tableClusters(t.model)
	for _, name := range names {
		c := r.clusters.byName[name]
		switch first := setBy[c]; {
		case c == nil: // already reported
		case explicit[c]:
			r.report.Warnf(f.proxy.node, "cluster %q has its own outlier_detection: the stream filter %q has no effect on it", name, f.filter)
		case first == nil:
			setBy[c], c.OutlierDetection = f, f.detection
		case !first.detection.Equal(f.detection):
			r.report.Warnf(f.proxy.node, "the stream filter %q has no effect on cluster %q: the stream filter %q of %s has different settings, which apply", f.filter, name, first.filter, first.proxy.node.Path())
		}
	}
	if variable {
		r.report.Warnf(f.proxy.node, "the stream filter %q has no effect on clusters that a variable selects", f.filter)
	}
}

// tableClusters returns the names of the clusters of a table's routes, and whether a variable
// selects some of them.
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
