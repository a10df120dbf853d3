package configjson

import (
	"cmp"

	"github.com/weft-proxy/weft/pkg/config"
)

// checkKeepAlive warns about a keepalive timeout that is less than the interval, unless all
// connections to the cluster use HTTP: HTTP/2 observes the timeout exactly, and HTTP/1.1 has no
// heartbeats. A cluster that no route refers to may be for RPC unless its own protocol is HTTP.
func (r *routeChecker) checkKeepAlive() {
	if len(r.clusters.shortTimeouts) == 0 {
		return
	}
	hasRoute, mayUseRPC := map[string]bool{}, map[string]bool{}
	for _, pn := range r.proxies {
		t := r.routes.tables[pn.proxy.RouteTable]
		if t == nil {
			continue // already reported
		}
		for _, v := range t.model.VirtualHosts {
			for _, route := range v.Routes {
				if route.Forward == nil {
					continue
				}
				for _, name := range routeClusters(route.Forward) {
					if c := r.clusters.byName[name]; c != nil {
						hasRoute[name] = true
						mayUseRPC[name] = mayUseRPC[name] || canForwardRPC(pn.proxy, cmp.Or(route.Forward.Upstream, c.Protocol, pn.proxy.Upstream))
					}
				}
			}
		}
	}
	for _, s := range r.clusters.shortTimeouts {
		name, heartbeat := s.cluster.Name, s.cluster.Heartbeat
		if mayUseRPC[name] || !hasRoute[name] && !isHTTP(s.cluster.Protocol) {
			r.report.Warnf(s.node, "the timeout of %v is less than the interval of %v: Weft closes an RPC connection one interval after a heartbeat without a response", heartbeat.Timeout, heartbeat.Interval)
		}
	}
}

// canForwardRPC reports whether a proxy may send RPC requests to hosts of protocol upstream.
func canForwardRPC(p *config.Proxy, upstream config.Protocol) bool {
	for _, d := range p.Downstream {
		if !isHTTP(d.UpstreamProtocol(upstream)) {
			return true
		}
	}
	return false
}

// isHTTP reports whether p is HTTP/1.1 or HTTP/2.
func isHTTP(p config.Protocol) bool { return p == config.HTTP1 || p == config.HTTP2 }
