package explain

import (
	"fmt"
	"maps"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/router"
)

// findRoute finds the route of a request. It calls ask for a new copy of the request when needed,
// because routes change requests.
func (res *Answer) findRoute(c *config.Snapshot, upstreams Upstreams, p *config.Proxy, newExchange func() *exchange) {
	res.RouteTable = p.RouteTable
	var tableConfig *config.RouteTable
	for _, t := range c.Routes {
		if t.Name == p.RouteTable {
			tableConfig = t
		}
	}
	if tableConfig == nil {
		res.End = fmt.Sprintf("route table %q is not defined", p.RouteTable)
		return
	}
	table, err := router.Compile(tableConfig)
	if err != nil {
		res.End = err.Error() // cannot happen with an active configuration
		return
	}
	e := table.Explain(newExchange())
	for _, other := range e.Others {
		reason := fmt.Sprintf("none of its domains matches %q", e.Authority)
		if other.Domain != "" {
			reason = fmt.Sprintf("its domain %q is less specific", other.Domain)
		}
		res.OtherVirtualHosts = append(res.OtherVirtualHosts, Other{other.VirtualHost.Name, []string{reason}})
	}
	if e.VirtualHost == nil {
		res.End = fmt.Sprintf("no virtual host has a domain that matches %q: the request fails with no_route", e.Authority)
		return
	}
	res.VirtualHost = &Selected{e.VirtualHost.Name, fmt.Sprintf("its domain %q is the most specific for %q", e.Domain, e.Authority)}
	for _, r := range e.Routes {
		described := Route{Name: r.Route.Config.Name, Outcome: outcome(r.Outcome), Why: r.Why, Percent: r.Percent}
		if r.Outcome == router.Taken || r.Outcome == router.ByChance {
			route := r.Route
			if p.CallerFields.OverrideTimeouts {
				route = route.WithTimeoutFields()
			}
			described.Action = action(route, upstreams, newExchange())
		}
		res.Routes = append(res.Routes, described)
	}
	if e.Route == nil {
		res.End = "no route of the virtual host matches the request: it fails with no_route"
		for _, r := range e.Routes {
			if r.Outcome == router.ByChance {
				res.End = "if no fraction selects one of these routes, the request fails with no_route"
			}
		}
	}
}

func outcome(o router.Outcome) Outcome {
	switch o {
	case router.Taken:
		return Taken
	case router.ByChance:
		return ByChance
	case router.Shadowed:
		return Shadowed
	case router.Rejected:
	}
	return Rejected
}

// action returns the action of r for x. It changes x.
func action(r *router.Route, upstreams Upstreams, x *exchange) *Action {
	f := r.Config.Forward
	if f == nil {
		r.Reply(x)
		return &Action{Status: x.Response.Status, Location: x.Response.Header.Get("Location")}
	}
	a := &Action{Timeout: "none"}
	if global, _ := r.Timeouts(x); global > 0 {
		a.Timeout = global.String()
	}
	a.clusters(r, upstreams, x)
	r.RewriteRequest(x)
	a.Authority, a.Path = x.Request.Authority, x.Request.Path
	if f.AutoHostRewrite {
		a.Authority = "the name of the host"
	}
	return a
}

// clusters sets the clusters to which r may send x.
func (a *Action) clusters(r *router.Route, upstreams Upstreams, x *exchange) {
	f := r.Config.Forward
	if len(f.WeightedClusters) == 0 {
		name, _ := r.ChooseCluster(x, 0)
		if name == "" {
			a.Missing = fmt.Sprintf("the variable %s, which names the cluster, has no value: the request fails with no_cluster", f.ClusterVariable)
			return
		}
		a.Clusters = []Cluster{cluster(upstreams, name, 100, f.Metadata, x)}
		return
	}
	total := uint64(0)
	for i := range f.WeightedClusters {
		total += uint64(f.WeightedClusters[i].Weight)
	}
	if total == 0 {
		a.Missing = "all weights are 0: the request fails with no_cluster"
	}
	for i := range f.WeightedClusters {
		w := &f.WeightedClusters[i]
		labels := f.Metadata
		if len(w.Metadata) > 0 {
			labels = maps.Clone(w.Metadata)
			for name, value := range f.Metadata {
				if _, ok := labels[name]; !ok {
					labels[name] = value
				}
			}
		}
		percent := 0.0
		if total > 0 {
			percent = 100 * float64(w.Weight) / float64(total)
		}
		a.Clusters = append(a.Clusters, cluster(upstreams, w.Cluster, percent, labels, x))
	}
}
