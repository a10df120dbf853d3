package configjson

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
)

// mirrorFilter is the stream filter that implements request_mirror_policies.
const mirrorFilter = "mirror"

// copiesInheritor is implemented by the settings of the mirror filter. InheritCopies makes a route
// use broadcast and amplification of the listener's filter.
type copiesInheritor interface{ InheritCopies() }

// routerJSON is a route table: an element of routers, or the configuration of a connection_manager.
type routerJSON struct {
	Node         document.Node     `key:"."`
	Name         string            `key:"router_config_name" doc:"Name of the table, unique; proxies refer to it." required:"true" example:"\"routes\""`
	VirtualHosts []virtualHostJSON `key:"virtual_hosts" doc:"Virtual hosts: routes by domain."`
	Directory    string            `key:"router_configs" doc:"Directory with one file for each virtual host, instead of virtual_hosts." example:"\"routes.d\""`
	Validate     bool              `key:"validate_clusters" doc:"Check that clusters exist." ignored:"clusters are always checked" example:"true"`
	mutationJSON
}

type virtualHostJSON struct {
	Node    document.Node              `key:"."`
	Name    string                     `key:"name" doc:"Name of the virtual host, for logs and route names." example:"\"shop\""`
	Domains []string                   `key:"domains" doc:"Domains: host, host:port, host:*, *.suffix, *.suffix:port, prefix.* (any port) or *. The most specific match wins: an exact host, then the longest suffix, then the longest prefix, then *. For RPC: the service, without its version." required:"true" example:"[\"shop.example\", \"*.shop.example\"]"`
	Routes  document.Stream[routeJSON] `key:"routers" doc:"Routes; the first one that matches is used."`
	TLS     string                     `key:"require_tls" doc:"Redirect plaintext requests to TLS." unsupported:"require_tls" example:"\"ALL\""`
	mutationJSON
}

type routeJSON struct {
	Node           document.Node            `key:"."`
	Name           string                   `key:"name" doc:"Name of the route, unique in its table. Absent: virtual host and index." example:"\"checkout\""`
	Match          matchJSON                `key:"match" doc:"Conditions; all must match. Empty: every request matches."`
	Route          *actionJSON              `key:"route" doc:"Forward the request. Exactly one of route, redirect and direct_response."`
	Redirect       *redirectJSON            `key:"redirect" doc:"Respond with a redirect. HTTP only."`
	DirectResponse *directJSON              `key:"direct_response" doc:"Respond without an upstream. HTTP only."`
	Mirror         document.Node            `key:"request_mirror_policies" doc:"Copies requests to another cluster: settings of the stream filter mirror (cluster, percent and others) that replace those of the listener, except broadcast and amplification, which the listener sets unless one of them is here. The listener must have the filter." accept:"object" example:"{\"cluster\": \"shadow\", \"percent\": 10}"`
	PerFilter      map[string]document.Node `key:"per_filter_config" doc:"Settings of stream filters for this route, by filter name." variant:"stream_filter" accept:"object" example:"{\"fault\": {}}"`
	Metadata       map[string]any           `key:"metadata" doc:"Arbitrary data about the route, for filters and logs." example:"{\"team\": \"a\"}"`
}

type redirectJSON struct {
	// The router accepts the same codes: TestRedirectCodes.
	Code   int    `key:"response_code" doc:"Status of the redirect." oneof:"301|302|303|307|308" default:"301" example:"308"`
	Path   string `key:"path_redirect" doc:"New path, optionally with a query. Without a query, that of the request is kept. Empty: path and query of the request." example:"\"/new\""`
	Host   string `key:"host_redirect" doc:"New host. Empty: the host of the request." example:"\"new.example\""`
	Scheme string `key:"scheme_redirect" doc:"New scheme. Empty: the scheme of the request." enum:"|http|https" example:"\"https\""`
}

type directJSON struct {
	Status int    `key:"status" doc:"Status of the response." min:"200" max:"599" default:"200" example:"503"`
	Body   string `key:"body" doc:"Body of the response." example:"\"closed\""`
}

// table is a route table with the state for checks that run after the listeners are converted.
type table struct {
	model            *config.RouteTable
	routeNames       map[string]bool
	virtualHostNames map[string]bool
	domains          map[string]document.Node // node of each domain
	filters          []routeFilter
	node             document.Node
	routes           []document.Node // nodes of the routes of all virtual hosts, in order
	failed           bool            // an error was reported while the table was read

	// The following fields come from the listeners that use the table.
	usedFilters map[string]bool // names of the stream filters
	protocols   []config.Protocol
}

// routeReader reads the route tables. It runs after the reader of clusters.
type routeReader struct {
	*input
	clusters *clusterSet
	filters  *filterReader
	tables   map[string]*table    // by name
	out      []*config.RouteTable // in the order of the file
}

// read converts the route tables.
func (r *routeReader) read(list []routerJSON) {
	for i := range list {
		r.readTable(&list[i])
	}
}

// readTable converts a table and adds it to tables. It returns nil if the table has no name, and
// the earlier table if the name is a duplicate.
func (r *routeReader) readTable(j *routerJSON) *table {
	if j.Name == "" {
		return nil // already reported
	}
	errorsBefore := r.report.Errors()
	t := &table{
		node:       j.Node,
		model:      &config.RouteTable{Name: j.Name, VirtualHosts: make([]*config.VirtualHost, 0, len(j.VirtualHosts))},
		routeNames: map[string]bool{}, virtualHostNames: map[string]bool{}, domains: map[string]document.Node{}, usedFilters: map[string]bool{},
	}
	t.model.Request, t.model.Response = r.readMutations(j.Node, &j.mutationJSON)
	for i := range j.VirtualHosts {
		r.readVirtualHost(t, &j.VirtualHosts[i])
	}
	if j.Directory != "" {
		node := j.Node.Get("router_configs")
		if len(j.VirtualHosts) > 0 {
			r.report.Errorf(node, "router_configs and virtual_hosts are mutually exclusive")
		}
		for _, root := range r.parseDirectory(node, j.Directory) {
			var v virtualHostJSON
			r.decoder.Decode(root, &v)
			r.readVirtualHost(t, &v)
		}
	}
	t.failed = r.report.Errors() > errorsBefore
	if r.tables[j.Name] != nil {
		r.report.Errorf(j.Node.Get("router_config_name"), "duplicate route table name %q", j.Name)
		return r.tables[j.Name]
	}
	r.tables[j.Name] = t
	r.out = append(r.out, t.model)
	return t
}

// readConnectionManager converts the network filter connection_manager, which contains a route
// table in older files. Without virtual hosts it refers to a table that the file defines elsewhere.
func (r *routeReader) readConnectionManager(f *networkFilterJSON) *table {
	var j routerJSON
	if !r.decoder.Decode(f.Node.MemberOrEmpty("config"), &j) && j.Name == "" {
		return nil
	}
	if t := r.tables[j.Name]; t != nil && len(j.VirtualHosts) == 0 && j.Directory == "" {
		return t
	}
	return r.readTable(&j)
}

func (r *routeReader) readVirtualHost(t *table, j *virtualHostJSON) {
	v := &config.VirtualHost{Name: j.Name, Routes: make([]*config.Route, 0, j.Routes.Len())}
	if v.Name == "" {
		v.Name = "virtual_host_" + strconv.Itoa(len(t.model.VirtualHosts))
	}
	for base, n := v.Name, 2; t.virtualHostNames[v.Name]; n++ {
		v.Name = base + "#" + strconv.Itoa(n)
	}
	t.virtualHostNames[v.Name] = true
	v.Request, v.Response = r.readMutations(j.Node, &j.mutationJSON)
	list := j.Node.Get("domains")
	if list.Kind() == document.Array && len(j.Domains) == 0 {
		r.report.Errorf(list, "the list is empty: a virtual host requires a domain; \"*\" matches all")
	}
	nodes := slices.Collect(list.All())
	for i, text := range j.Domains {
		if nodes[i].Kind() != document.String {
			continue // already reported
		}
		domain := strings.ToLower(text)
		if problem := domainProblem(domain); problem != "" {
			r.report.Errorf(nodes[i], "found %q, %s", text, problem)
			continue
		}
		if t.domains[domain].Exists() {
			r.report.Errorf(nodes[i], "duplicate domain %q in the route table %q", domain, t.model.Name)
			continue
		}
		t.domains[domain] = nodes[i]
		v.Domains = append(v.Domains, domain)
	}
	for route := range j.Routes.All() {
		v.Routes = append(v.Routes, r.readRoute(t, v.Name, len(v.Routes), route))
	}
	t.model.VirtualHosts = append(t.model.VirtualHosts, v)
}

// domainProblem returns the problem of a domain, or "" if it is valid.
func domainProblem(domain string) string {
	const expected = "expected a host, *.suffix or *, optionally followed by :port or :*, or prefix.*"
	host, port := domain, ""
	if i := strings.LastIndexByte(domain, ':'); i >= 0 && !strings.HasSuffix(domain, "]") && strings.Count(domain[:i], ":") == 0 || strings.Contains(domain, "]:") {
		host, port = domain[:i], domain[i+1:]
		if _, err := strconv.ParseUint(port, 10, 16); err != nil && port != "*" {
			return "the port is not a number, and a domain contains no version; " + expected
		}
	}
	name := strings.TrimPrefix(host, "*.")
	if port == "" && !strings.HasPrefix(host, "*") && !strings.Contains(host, ":") {
		name = strings.TrimSuffix(name, "*")
	}
	switch {
	case host == "*" && port == "":
		return ""
	case name == "" || strings.ContainsAny(name, "* /\t\r\n"):
		return expected
	}
	return ""
}

// readRoute converts one route.
func (r *routeReader) readRoute(t *table, virtualHost string, index int, j *routeJSON) *config.Route {
	out := &config.Route{Name: j.Name, Metadata: j.Metadata}
	if out.Name == "" {
		out.Name = virtualHost + "/" + strconv.Itoa(index)
	}
	if t.routeNames[out.Name] {
		r.report.Errorf(j.Node.Get("name").Or(j.Node), "duplicate route name %q", out.Name)
	}
	t.routeNames[out.Name] = true
	t.routes = append(t.routes, j.Node)
	r.readMatch(&j.Match, &out.Match)
	actions := 0
	if j.Route != nil && (j.Redirect == nil && j.DirectResponse == nil || !j.Route.Node.IsDisabled()) { // MOSN writes an empty route next to the others
		actions++
		out.Forward = r.readForward(j.Route, &out.Match)
	}
	if j.Redirect != nil {
		actions++
		out.Redirect = &config.Redirect{Code: j.Redirect.Code, Path: j.Redirect.Path, Host: j.Redirect.Host, Scheme: j.Redirect.Scheme}
	}
	if j.DirectResponse != nil {
		actions++
		out.DirectResponse = &config.DirectResponse{Status: j.DirectResponse.Status, Body: j.DirectResponse.Body}
	}
	if actions != 1 && j.Node.Kind() == document.Object {
		r.report.Errorf(j.Node, "expected exactly one of \"route\", \"redirect\" and \"direct_response\", found %d", actions)
	}
	out.Filters = r.filters.readRouteFilters(j)
	for _, name := range slices.Sorted(maps.Keys(out.Filters)) {
		t.filters = append(t.filters, routeFilter{name, j.Node.Get("per_filter_config").Get(name)})
	}
	r.readMirror(t, j, out)
	return out
}

// readMirror converts a route's request_mirror_policies to its settings of the mirror filter.
func (r *routeReader) readMirror(t *table, j *routeJSON, out *config.Route) {
	node := j.Node.Get("request_mirror_policies")
	if node.IsDisabled() {
		return
	}
	f := r.filters.streamFilterFactory(node, mirrorFilter)
	if f == nil || f.Stage == filter.BeforeRoute {
		return
	}
	if _, exists := out.Filters[mirrorFilter]; exists {
		r.report.Errorf(node, "request_mirror_policies and the settings of %s in per_filter_config are mutually exclusive", mirrorFilter)
		return
	}
	settings := f.Config()
	r.filters.decode(node, settings)
	if s, ok := settings.(copiesInheritor); ok && !node.Get("broadcast", "amplification").Exists() {
		s.InheritCopies()
	}
	if out.Filters == nil {
		out.Filters = make(map[string]any, 1)
	}
	out.Filters[mirrorFilter] = settings
	t.filters = append(t.filters, routeFilter{mirrorFilter, node})
}
