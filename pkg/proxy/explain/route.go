package explain

import (
	"fmt"
	"maps"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// normalizeTarget applies the rules of a listener to x, and sets Target if they change the
// authority or the path. If a rule rejects or redirects x, it sets EndReason and returns false.
func (res *Result) normalizeTarget(rules *config.TargetNormalization, x *exchange) bool {
	before := Target{x.Request.Authority, x.Request.Path}
	redirected, err := router.NormalizeTarget(x, rules)
	switch {
	case err != nil:
		res.EndReason = fmt.Sprintf("the request fails with %v: %v", protocol.MalformedRequest, err)
		return false
	case redirected:
		res.EndReason = fmt.Sprintf("the listener redirects the request to %s, with status %d", x.Response.Header.Get("Location"), x.Response.Status)
		return false
	}
	if after := (Target{x.Request.Authority, x.Request.Path}); after != before {
		res.Target = &after
	}
	return true
}

// findRoute finds the route of a request. It calls newExchange whenever it needs an unchanged
// request, because routes change requests.
func (res *Result) findRoute(c *config.Snapshot, upstreams Upstreams, p *config.Proxy, newExchange func() *exchange) {
	res.RouteTable = p.RouteTable
	var tableConfig *config.RouteTable
	for _, t := range c.Routes {
		if t.Name == p.RouteTable {
			tableConfig = t
		}
	}
	if tableConfig == nil {
		res.EndReason = fmt.Sprintf("route table %q is not defined", p.RouteTable)
		return
	}
	table, err := router.Compile(tableConfig)
	if err != nil {
		res.EndReason = err.Error() // cannot happen with an active configuration
		return
	}
	e := table.Explain(newExchange())
	for _, other := range e.OtherVirtualHosts {
		reason := fmt.Sprintf("none of its domains matches %q", e.Authority)
		if other.Domain != "" {
			reason = fmt.Sprintf("its domain %q is less specific", other.Domain)
		}
		res.OtherVirtualHosts = append(res.OtherVirtualHosts, Alternative{other.VirtualHost.Name, []string{reason}})
	}
	if e.VirtualHost == nil {
		res.EndReason = fmt.Sprintf("no virtual host has a domain that matches %q: the request fails with no_route", e.Authority)
		return
	}
	res.VirtualHost = &Selected{e.VirtualHost.Name, fmt.Sprintf("its domain %q is the most specific for %q", e.Domain, e.Authority)}
	for _, r := range e.Routes {
		result := Route{Name: r.Route.Config.Name, Outcome: outcomeOf(r.Outcome), Reasons: r.Reasons, Percent: r.Percent}
		if r.Outcome == router.Chosen || r.Outcome == router.Sampled {
			route := r.Route
			if p.ClientHeaders.OverrideTimeouts {
				route = route.WithTimeoutHeaders()
			}
			result.Action = describeAction(route, upstreams, newExchange())
		}
		res.Routes = append(res.Routes, result)
	}
	if e.Route == nil {
		res.EndReason = "no route of the virtual host matches the request: it fails with no_route"
		for _, r := range e.Routes {
			if r.Outcome == router.Sampled {
				res.EndReason = "the request fails with no_route unless it is in the percentage of one of these routes"
			}
		}
	}
}

func outcomeOf(o router.Outcome) Outcome {
	switch o {
	case router.Chosen:
		return Chosen
	case router.Sampled:
		return Sampled
	case router.Shadowed:
		return Shadowed
	case router.Rejected:
	}
	return Rejected
}

// describeAction returns the action of r for x. It changes x.
func describeAction(r *router.Route, upstreams Upstreams, x *exchange) *Action {
	f := r.Config.Forward
	if f == nil {
		r.Reply(x)
		return &Action{Status: x.Response.Status, Location: x.Response.Header.Get("Location")}
	}
	a := &Action{Timeout: "none"}
	if global, _ := r.Timeouts(x); global > 0 {
		a.Timeout = global.String()
	}
	a.setClusters(r, upstreams, x)
	r.RewriteRequest(x)
	a.Authority, a.Path = x.Request.Authority, x.Request.Path
	const hostname = "hostname.invalid" // stands for the name of any host
	if r.RewriteHost(x, hostname); x.Request.Authority == hostname {
		a.Authority = "the name of the host"
	}
	return a
}

// setClusters sets the clusters to which r may send x.
func (a *Action) setClusters(r *router.Route, upstreams Upstreams, x *exchange) {
	f := r.Config.Forward
	if len(f.WeightedClusters) == 0 {
		name, _ := r.ChooseCluster(x, 0)
		if name == "" {
			a.MissingReason = fmt.Sprintf("the variable %s, which names the cluster, has no value: the request fails with no_cluster", f.ClusterVariable)
			return
		}
		a.Clusters = []Cluster{describeCluster(upstreams, name, 100, f.Metadata, x)}
		return
	}
	total := uint64(0)
	for i := range f.WeightedClusters {
		total += uint64(f.WeightedClusters[i].Weight)
	}
	if total == 0 {
		a.MissingReason = "all weights are 0: the request fails with no_cluster"
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
		a.Clusters = append(a.Clusters, describeCluster(upstreams, w.Cluster, percent, labels, x))
	}
}
