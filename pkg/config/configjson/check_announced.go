package configjson

import (
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
)

// checkAnnounced refuses the routes of a table to clusters whose connections say for
// whom they are, if p would have several callers share them.
func (r *reader) checkAnnounced(p *config.Proxy, t *table) {
	at := 0
	for _, v := range t.model.VirtualHosts {
		for _, route := range v.Routes {
			node := t.routes[at]
			at++
			if route.Forward == nil {
				continue
			}
			for _, name := range targetsOf(route.Forward) {
				c := r.clusters[name]
				if c == nil || c.ProxyProtocol == 0 {
					continue
				}
				where := node.Get("route").Or(node)
				switch {
				case c.Pool.Mode != config.Bind:
					r.report.Errorf(where, "the cluster %q says proxy_protocol, and requests of several callers share its connections: expected a connection_pool with the mode %q, or a %q", name, config.Bind, TCPProxyFilter)
				case onlyHTTP1(p, route.Forward):
					r.report.Errorf(where, "the cluster %q says proxy_protocol, and requests of several callers share its connections of HTTP/1.1: expected another upstream_protocol, or a %q", name, TCPProxyFilter)
				}
			}
		}
	}
}

// targetsOf lists the clusters that a route names.
func targetsOf(f *config.Forward) []string {
	var names []string
	if f.Cluster != "" {
		names = append(names, f.Cluster)
	}
	for _, w := range f.Weighted {
		names = append(names, w.Cluster)
	}
	return names
}

// onlyHTTP1 reports whether all that p sends by the route is HTTP/1.1.
func onlyHTTP1(p *config.Proxy, f *config.Forward) bool {
	speak := f.Upstream
	if speak == "" {
		speak = p.Upstream
	}
	if speak == "" || speak == config.Auto {
		return !slices.ContainsFunc(p.Downstream, func(d config.Protocol) bool { return d != config.HTTP1 })
	}
	return speak == config.HTTP1
}
