package configjson

import "github.com/weft-proxy/weft/pkg/config"

// checkProxyProtocol reports routes of a table to clusters with proxy_protocol if several clients would
// share their connections: such a connection names one client.
func (r *reader) checkProxyProtocol(t *table) {
	at := 0
	for _, v := range t.model.VirtualHosts {
		for _, route := range v.Routes {
			node := t.routes[at]
			at++
			if route.Forward == nil {
				continue
			}
			for _, name := range routeClusters(route.Forward) {
				c := r.clusters[name]
				if c == nil || c.ProxyProtocol == 0 {
					continue
				}
				if c.Pool.Mode != config.Bind {
					r.report.Errorf(node.Get("route").Or(node), "cluster %q has proxy_protocol, but requests of several clients share its connections: expected a connection_pool with the mode %q, or a %q", name, config.Bind, TCPProxyFilter)
				}
			}
		}
	}
}

// routeClusters returns the names of the clusters of a route.
func routeClusters(f *config.Forward) []string {
	var names []string
	if f.Cluster != "" {
		names = append(names, f.Cluster)
	}
	for _, w := range f.WeightedClusters {
		names = append(names, w.Cluster)
	}
	return names
}
