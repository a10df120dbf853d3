package configjson

import "github.com/weft-proxy/weft/pkg/config"

// checkAnnounced refuses the routes of a table to clusters whose connections say for
// whom they are, if several callers would share them.
func (r *reader) checkAnnounced(t *table) {
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
				if c.Pool.Mode != config.Bind {
					r.report.Errorf(node.Get("route").Or(node), "the cluster %q says proxy_protocol, and requests of several callers share its connections: expected a connection_pool with the mode %q, or a %q", name, config.Bind, TCPProxyFilter)
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
