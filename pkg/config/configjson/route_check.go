package configjson

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/router"
)

// routeFilter is an entry of per_filter_config, or request_mirror_policies, in a table.
type routeFilter struct {
	name string
	node document.Node
}

// proxyNode is a proxy with its node.
type proxyNode struct {
	node  document.Node
	proxy *config.Proxy
}

// routeChecker checks the route tables against the listeners that use them and the clusters that
// they refer to. It runs after the readers of all sections.
type routeChecker struct {
	*input
	clusters *clusterSet
	routes   *routeReader
	proxies  []proxyNode
}

// check runs after all tables are converted. It reports missing tables, and tables with routes that
// the protocols of their proxies do not support. It warns about per-route settings for filters that
// no listener of the table has.
func (r *routeChecker) check() {
	names := slices.Sorted(maps.Keys(r.routes.tables))
	for _, pn := range r.proxies {
		t := r.routes.tables[pn.proxy.RouteTable]
		if t == nil {
			if pn.proxy.RouteTable != "" {
				r.report.Unknown(pn.node.Get("router_config_name").Or(pn.node), "route table", pn.proxy.RouteTable, names)
			}
			continue
		}
		for _, f := range pn.proxy.StreamFilters {
			t.usedFilters[f.Name] = true
		}
		t.protocols = append(t.protocols, pn.proxy.Downstream...)
		if !t.failed {
			r.checkTranslation(pn.proxy, t)
		}
	}
	for _, name := range names {
		t := r.routes.tables[name]
		for _, f := range t.filters {
			if !t.usedFilters[f.name] {
				r.report.Warnf(f.node, "the settings have no effect: no listener that uses the route table %q has the stream filter %q", name, f.name)
			}
		}
		if !t.failed {
			r.checkRPCTable(t)
			r.checkProxyProtocol(t)
			r.compile(t)
		}
	}
}

// checkTranslation reports routes of a table if requests of no downstream protocol of the proxy can
// be sent to their clusters.
func (r *routeChecker) checkTranslation(p *config.Proxy, t *table) {
	index := 0
	for _, v := range t.model.VirtualHosts {
		for _, route := range v.Routes {
			node := t.routes[index]
			index++
			if route.Forward == nil {
				continue
			}
			protocolNode := node.Get("route").Get("upstream_protocol").Or(node)
			if upstream := route.Forward.Upstream; upstream != "" {
				r.checkTranslatable(protocolNode, p.Downstream, upstream, "")
				continue
			}
			for _, name := range routeClusters(route.Forward) {
				if c := r.clusters.byName[name]; c != nil {
					r.checkTranslatable(protocolNode, p.Downstream, c.Protocol, " for the cluster "+strconv.Quote(name))
				}
			}
		}
	}
}

// checkTranslatable reports an error for each protocol in downstream if requests of none of them
// can be sent as upstream. The error names the translation, followed by suffix.
func (r *routeChecker) checkTranslatable(node document.Node, downstream []config.Protocol, upstream config.Protocol, suffix string) {
	if slices.ContainsFunc(downstream, func(d config.Protocol) bool { return d == config.Auto || d.CanSendAs(upstream) }) {
		return
	}
	for _, d := range downstream {
		r.report.Unsupported(node, "translation from "+string(d)+" to "+string(upstream)+suffix)
	}
}

// compile compiles a table as the proxy does. If that fails, it compiles each route separately to
// report the error at the route.
func (r *routeChecker) compile(t *table) {
	_, err := router.Compile(t.model)
	if err == nil {
		return
	}
	errorsBefore := r.report.Errors()
	index := 0
	for _, v := range t.model.VirtualHosts {
		for _, route := range v.Routes {
			single := config.RouteTable{VirtualHosts: []*config.VirtualHost{
				{Domains: []string{"*"}, Routes: []*config.Route{route}},
			}}
			if _, err := router.Compile(&single); err != nil {
				prefix := fmt.Sprintf("virtual host %q: route %q: ", "", route.Name)
				r.report.Errorf(t.routes[index], "%s", joinLines(strings.TrimPrefix(err.Error(), prefix)))
			}
			index++
		}
	}
	if r.report.Errors() == errorsBefore {
		r.report.Errorf(t.node, "%s", joinLines(err.Error()))
	}
}

// joinLines joins the lines of an error text.
func joinLines(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// checkProxyProtocol reports routes to clusters with proxy_protocol if several clients would share
// a connection: its PROXY header contains the address of one client only.
func (r *routeChecker) checkProxyProtocol(t *table) {
	index := 0
	for _, v := range t.model.VirtualHosts {
		for _, route := range v.Routes {
			node := t.routes[index]
			index++
			if route.Forward == nil {
				continue
			}
			for _, name := range routeClusters(route.Forward) {
				c := r.clusters.byName[name]
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

// checkRPCTable checks the routes of a table that only RPC protocols use. A setting that exists
// only in HTTP is an error, or a warning if it merely has no effect. Tables of HTTP proxies are
// skipped, because such settings may be for their requests.
func (r *routeChecker) checkRPCTable(t *table) {
	if len(t.protocols) == 0 || slices.ContainsFunc(t.protocols, mayBeHTTP) {
		return
	}
	index := 0
	for _, v := range t.model.VirtualHosts {
		for _, domain := range v.Domains {
			if isUnreachable(t, domain) {
				r.report.Warnf(t.domains[domain], "no request matches %q: %s requests have a service without a version, and no port", domain, joinProtocols(t.protocols))
			}
		}
		for _, route := range v.Routes {
			r.checkRPCRoute(t, t.routes[index], route)
			index++
		}
	}
}

// mayBeHTTP reports whether p is HTTP, or Auto, which may detect HTTP.
func mayBeHTTP(p config.Protocol) bool {
	return p == config.Auto || isHTTP(p)
}

const (
	anyPort  = "*"
	httpPort = "80" // a domain with this port matches an authority without a port
)

// isUnreachable reports whether no call can match a domain because of its port. It returns false if
// the table also contains the domain without the port: control planes write both "x" and "x:20880".
func isUnreachable(t *table, domain string) bool {
	host, port, _ := strings.Cut(domain, ":")
	return port != "" && port != anyPort && port != httpPort && !t.domains[host].Exists() && !t.domains[host+":"+anyPort].Exists()
}

func (r *routeChecker) checkRPCRoute(t *table, node document.Node, route *config.Route) {
	f := route.Forward
	if f == nil {
		key := "redirect"
		if route.DirectResponse != nil {
			key = "direct_response"
		}
		r.report.Errorf(node.Get(key), "%s is an HTTP response, but the clients of the route table %q use %s: expected \"route\"; to reject RPC requests, use the stream filter \"fault\"", key, t.model.Name, joinProtocols(t.protocols))
		return
	}
	action, m := node.Get("route"), &route.Match
	isLiteral := m.PathKind == config.PathPrefix || m.PathKind == config.PathExact
	if f.PrefixRewrite != "" && isLiteral && strings.Count(f.PrefixRewrite, "/") != strings.Count(m.Path, "/") {
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
