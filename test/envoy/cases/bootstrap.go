package cases

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Addresses says where a proxy listens, logs and finds the origins.
type Addresses struct {
	Admin     int
	Listeners map[string]int // ports by group
	Logs      string         // directory of the access logs
	Origins   map[string]int // the port of each origin
	Dead      int            // a port on which nothing listens
	Certs     string         // directory of the certificates
}

// LogPath returns the path of the access log of a group. Each line begins with the ID of the case.
func (a *Addresses) LogPath(group string) string { return a.Logs + "/" + group + ".log" }

// object is a YAML mapping.
type object = map[string]any

const logFormat = `%REQ(X-CASE)% %RESPONSE_CODE% %RESPONSE_FLAGS% %UPSTREAM_CLUSTER% %PROTOCOL% %RESPONSE_CODE_DETAILS%` + "\n"

// Bootstrap returns a bootstrap file, in JSON, with groups and the common clusters.
func Bootstrap(groups []*Group, a *Addresses) ([]byte, error) {
	clusters, err := parse[[]any]("common clusters", commonClusters())
	if err != nil {
		return nil, err
	}
	listeners := []any{}
	for _, g := range groups {
		listener, err := g.listener(a)
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, listener)
		own, err := parse[[]any](g.Name+": clusters", g.Clusters)
		if err != nil {
			return nil, err
		}
		clusters = append(clusters, own...)
	}
	ports := maps.Clone(a.Origins)
	if ports == nil {
		ports = map[string]int{}
	}
	ports["dead"] = a.Dead
	return json.MarshalIndent(a.replace(object{
		"node":             object{"id": "n", "cluster": "c"},
		"admin":            object{"address": socketAddress(a.Admin)},
		"static_resources": object{"listeners": listeners, "clusters": clusters},
	}, ports), "", " ")
}

// listener returns the group's listener.
func (g *Group) listener(a *Addresses) (object, error) {
	filters, err := g.networkFilters(a)
	if err != nil {
		return nil, err
	}
	own, err := parse[object](g.Name+": listener", g.Listener)
	if err != nil {
		return nil, err
	}
	chains := []any{object{"filters": filters}}
	if g.FilterChains != "" {
		if chains, err = parse[[]any](g.Name+": filter chains", g.FilterChains); err != nil {
			return nil, err
		}
		for _, chain := range chains {
			c, ok := chain.(object)
			if !ok {
				return nil, fmt.Errorf("%s: a filter chain is no mapping: %v", g.Name, chain)
			}
			if c["filters"] == nil {
				c["filters"] = filters
			}
		}
	}
	listener := object{
		"name":          g.Name,
		"address":       socketAddress(a.Listeners[g.Name]),
		"filter_chains": chains,
	}
	maps.Copy(listener, own)
	return listener, nil
}

// networkFilters returns the network filters of the group's only filter chain.
func (g *Group) networkFilters(a *Addresses) ([]any, error) {
	if g.NetworkFilters != "" {
		return parse[[]any](g.Name+": network filters", g.NetworkFilters)
	}
	manager, err := g.manager(a)
	return []any{object{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}}, err
}

// manager returns the HTTP connection manager of the group.
func (g *Group) manager(a *Addresses) (object, error) {
	p := parser{group: g.Name}
	hostFields := p.object("host fields", g.HostFields)
	hosts := p.list("virtual hosts", g.VirtualHosts)
	routes := p.list("routes", g.Routes)
	routeFields := p.object("route config", g.RouteConfig)
	filters := p.list("filters", g.Filters)
	fields := p.object("hcm", g.HCM)
	if p.err != nil {
		return nil, p.err
	}
	if len(routes) == 0 {
		routes = []any{object{"match": object{"prefix": "/"}, "route": object{"cluster": "o1"}}}
	}
	if len(hosts) == 0 {
		virtualHost := object{"name": "v", "domains": []any{"*"}, "routes": routes}
		maps.Copy(virtualHost, hostFields)
		hosts = []any{virtualHost}
	}
	routeConfig := object{"name": "r-" + g.Name, "virtual_hosts": hosts}
	maps.Copy(routeConfig, routeFields)
	manager := object{
		"@type":        "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix":  g.Name,
		"codec_type":   "AUTO",
		"route_config": routeConfig,
		"http_filters": append(filters, object{
			"name":         "envoy.filters.http.router",
			"typed_config": object{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
		}),
		"access_log": []any{object{
			"name": "envoy.access_loggers.file",
			"typed_config": object{
				"@type":      "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
				"path":       a.LogPath(g.Name),
				"log_format": object{"text_format_source": object{"inline_string": logFormat}},
			},
		}},
	}
	maps.Copy(manager, fields)
	return manager, nil
}

// parser parses the YAML of a group, and keeps the first error.
type parser struct {
	group string
	err   error
}

func (p *parser) object(what, text string) object { return keep[object](p, what, text) }
func (p *parser) list(what, text string) []any    { return keep[[]any](p, what, text) }

func keep[T any](p *parser, what, text string) T {
	value, err := parse[T](p.group+": "+what, text)
	if p.err == nil {
		p.err = err
	}
	return value
}

func parse[T any](what, text string) (T, error) {
	var value T
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return value, fmt.Errorf("%s: %w\n%s", what, err, text)
	}
	return value, nil
}

// replace replaces strings in a tree: "$NAME" by the port of NAME, and "$certs" at the beginning by
// the directory of the certificates.
func (a *Addresses) replace(node any, ports map[string]int) any {
	switch n := node.(type) {
	case object:
		for key, value := range n {
			n[key] = a.replace(value, ports)
		}
	case []any:
		for i, value := range n {
			n[i] = a.replace(value, ports)
		}
	case string:
		if path, found := strings.CutPrefix(n, "$certs"); found {
			return a.Certs + path
		}
		if name, found := strings.CutPrefix(n, "$"); found {
			if port, found := ports[name]; found {
				return port
			}
		}
	}
	return node
}

func socketAddress(port int) object {
	return object{"socket_address": object{"address": "127.0.0.1", "port_value": port}}
}

// commonClusters returns the clusters of every group.
func commonClusters() string {
	var b strings.Builder
	for _, name := range []string{"o1", "o2", "o3", "o4", "o5", "o6", "t1", "dead"} {
		b.WriteString(cluster(name, "", name))
	}
	b.WriteString(cluster("many", "", "o1", "o2", "o3"))
	b.WriteString(cluster("none", ""))
	for _, name := range []string{"h1", "h2"} {
		b.WriteString(cluster(name, `
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      explicit_http_config: {http2_protocol_options: {}}
`, name))
	}
	return b.String()
}

// cluster returns a static cluster with origins as hosts, as an element of a YAML list. fields are
// further fields, indented by two spaces.
func cluster(name, fields string, origins ...string) string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, `
- name: %s
  type: STATIC
  connect_timeout: 1s
  load_assignment:
    cluster_name: %[1]s
    endpoints:
    - lb_endpoints: [`, name) // writes to memory do not fail
	for i, origin := range origins {
		if i > 0 {
			b.WriteString(", ")
		}
		_, _ = fmt.Fprintf(&b, "{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $%s}}}}", origin)
	}
	return b.String() + "]\n" + strings.TrimPrefix(fields, "\n")
}
