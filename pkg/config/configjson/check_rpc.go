package configjson

import (
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// checkRPCTable checks the routes of a table that only RPC protocols use. A setting that only HTTP has
// is an error, or a warning if it merely has no effect. If HTTP uses the table too, a route may be
// meant for it.
func (r *reader) checkRPCTable(t *table) {
	if len(t.protocols) == 0 || slices.ContainsFunc(t.protocols, isHTTP) {
		return
	}
	at := 0
	for _, v := range t.model.VirtualHosts {
		for _, domain := range v.Domains {
			if unreachable(t, domain) {
				r.report.Warnf(t.domains[domain], "no request matches %q: %s requests have a service without a version, and no port", domain, joinProtocols(t.protocols))
			}
		}
		for _, route := range v.Routes {
			r.checkRPCRoute(t, t.routes[at], route)
			at++
		}
	}
}

// isHTTP reports whether p is HTTP, or Auto, which may detect HTTP.
func isHTTP(p config.Protocol) bool {
	return p == config.Auto || p == config.HTTP1 || p == config.HTTP2
}

// unreachable reports whether no call can match a domain because of its port. It ignores a domain
// that the table also contains without the port: control planes write both "x" and "x:20880".
func unreachable(t *table, domain string) bool {
	host, port, _ := strings.Cut(domain, ":")
	return port != "" && port != anyPort && port != httpPort && !t.domains[host].Exists() && !t.domains[host+":"+anyPort].Exists()
}

const (
	anyPort  = "*"
	httpPort = "80" // a domain with this port matches an authority without a port
)

func (r *reader) checkRPCRoute(t *table, at document.Node, route *config.Route) {
	f := route.Forward
	if f == nil {
		key := "redirect"
		if route.DirectResponse != nil {
			key = "direct_response"
		}
		r.report.Errorf(at.Get(key), "%s is an HTTP response, but the clients of the route table %q use %s: expected \"route\"; to reject RPC requests, use the stream filter \"fault\"", key, t.model.Name, joinProtocols(t.protocols))
		return
	}
	action, m := at.Get("route"), &route.Match
	plain := m.PathKind == config.PathPrefix || m.PathKind == config.PathExact
	if f.PrefixRewrite != "" && plain && strings.Count(f.PrefixRewrite, "/") != strings.Count(m.Path, "/") {
		r.report.Errorf(action.Get("prefix_rewrite"), "found %q, expected as many slashes as in %q: the path of an RPC request is /service/method", f.PrefixRewrite, m.Path)
	}
	for _, key := range []string{"host_rewrite", "auto_host_rewrite", "auto_host_rewrite_header", "host_rewrite_path_regex"} {
		if host := action.Get(key); !host.IsDisabled() {
			r.report.Warnf(host, "%s has no effect on %s requests, which have no host: use prefix_rewrite to change the service", key, joinProtocols(t.protocols))
		}
	}
}

// joinProtocols joins the names of protocols for a message.
func joinProtocols(protocols []config.Protocol) string {
	names := make([]string, len(protocols))
	for i, p := range protocols {
		names[i] = string(p)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
