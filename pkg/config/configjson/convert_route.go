package configjson

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/router"
)

// table is a route table with the state for checks that run after the listeners are converted.
type table struct {
	model            *config.RouteTable
	routeNames       map[string]bool          // of the routes
	virtualHostNames map[string]bool          // of the virtual hosts
	domains          map[string]document.Node // node of each domain
	filters          []routeFilter
	node             document.Node
	routes           []document.Node // of all virtual hosts in order
	failed           bool            // an error was reported

	// The following fields come from the listeners that use the table.
	usedFilters map[string]bool // stream filters
	protocols   []config.Protocol
}

func (r *reader) readTables(j *serverJSON) {
	for i := range j.Routers {
		r.readTable(&j.Routers[i])
	}
}

// readTable converts a table and registers it by name. It returns nil if the table has no name.
func (r *reader) readTable(j *routerJSON) *table {
	if j.Name == "" {
		return nil // reported
	}
	before := r.report.Errors()
	t := &table{
		node:       j.Node,
		model:      &config.RouteTable{Name: j.Name, VirtualHosts: make([]*config.VirtualHost, 0, len(j.VirtualHosts))},
		routeNames: map[string]bool{}, virtualHostNames: map[string]bool{}, domains: map[string]document.Node{}, usedFilters: map[string]bool{},
	}
	t.model.Request, t.model.Response = r.mutations(j.Node, &j.mutationJSON)
	for i := range j.VirtualHosts {
		r.readVirtualHost(t, &j.VirtualHosts[i])
	}
	if j.Directory != "" {
		at := j.Node.Get("router_configs")
		if len(j.VirtualHosts) > 0 {
			r.report.Errorf(at, "router_configs and virtual_hosts are mutually exclusive")
		}
		for _, root := range r.directory(at, j.Directory) {
			var v virtualHostJSON
			r.decoder.Decode(root, &v)
			r.readVirtualHost(t, &v)
		}
	}
	t.failed = r.report.Errors() > before
	if r.tables[j.Name] != nil {
		r.report.Errorf(j.Node.Get("router_config_name"), "duplicate route table name %q", j.Name)
		return r.tables[j.Name]
	}
	r.tables[j.Name] = t
	r.snapshot.Routes = append(r.snapshot.Routes, t.model)
	return t
}

// connectionManager converts the network filter that contains a route table in older files. One
// without virtual hosts refers to a table that is defined elsewhere.
func (r *reader) connectionManager(f *networkFilterJSON) *table {
	var j routerJSON
	if !r.decoder.Decode(f.Node.Member("config"), &j) && j.Name == "" {
		return nil
	}
	if t := r.tables[j.Name]; t != nil && len(j.VirtualHosts) == 0 && j.Directory == "" {
		return t
	}
	return r.readTable(&j)
}

func (r *reader) readVirtualHost(t *table, j *virtualHostJSON) {
	v := &config.VirtualHost{Name: j.Name, Routes: make([]*config.Route, 0, j.Routes.Len())}
	if v.Name == "" {
		v.Name = "virtual_host_" + strconv.Itoa(len(t.model.VirtualHosts))
	}
	for base, n := v.Name, 2; t.virtualHostNames[v.Name]; n++ {
		v.Name = base + "#" + strconv.Itoa(n)
	}
	t.virtualHostNames[v.Name] = true
	v.Request, v.Response = r.mutations(j.Node, &j.mutationJSON)
	list := j.Node.Get("domains")
	if list.Kind() == document.Array && len(j.Domains) == 0 {
		r.report.Errorf(list, "the list is empty: a virtual host requires a domain; \"*\" matches all")
	}
	at := slices.Collect(list.All())
	for i, text := range j.Domains {
		if at[i].Kind() != document.String {
			continue // reported
		}
		domain := strings.ToLower(text)
		if problem := domainProblem(domain); problem != "" {
			r.report.Errorf(at[i], "found %q, %s", text, problem)
			continue
		}
		if t.domains[domain].Exists() {
			r.report.Errorf(at[i], "duplicate domain %q in the route table %q", domain, t.model.Name)
			continue
		}
		t.domains[domain] = at[i]
		v.Domains = append(v.Domains, domain)
	}
	for route := range j.Routes.All() {
		v.Routes = append(v.Routes, r.route(t, v.Name, len(v.Routes), route))
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
	rest := strings.TrimPrefix(host, "*.")
	if port == "" && !strings.HasPrefix(host, "*") && !strings.Contains(host, ":") {
		rest = strings.TrimSuffix(rest, "*")
	}
	switch {
	case host == "*" && port == "":
		return ""
	case rest == "" || strings.ContainsAny(rest, "* /\t\r\n"):
		return expected
	}
	return ""
}

// route converts one route.
func (r *reader) route(t *table, virtualHost string, index int, j *routeJSON) *config.Route {
	out := &config.Route{Name: j.Name, Metadata: j.Metadata}
	if out.Name == "" {
		out.Name = virtualHost + "/" + strconv.Itoa(index)
	}
	if t.routeNames[out.Name] {
		r.report.Errorf(j.Node.Get("name").Or(j.Node), "duplicate route name %q", out.Name)
	}
	t.routeNames[out.Name] = true
	t.routes = append(t.routes, j.Node)
	r.match(&j.Match, &out.Match)
	answers := 0
	if j.Route != nil && (j.Redirect == nil && j.DirectResponse == nil || !j.Route.Node.IsDisabled()) { // MOSN writes an empty route next to the others
		answers++
		out.Forward = r.forward(j.Route, &out.Match)
	}
	if j.Redirect != nil {
		answers++
		out.Redirect = &config.Redirect{Code: j.Redirect.Code, Path: j.Redirect.Path, Host: j.Redirect.Host, Scheme: j.Redirect.Scheme}
	}
	if j.DirectResponse != nil {
		answers++
		out.DirectResponse = &config.DirectResponse{Status: j.DirectResponse.Status, Body: j.DirectResponse.Body}
	}
	if answers != 1 && j.Node.Kind() == document.Object {
		r.report.Errorf(j.Node, "expected exactly one of \"route\", \"redirect\" and \"direct_response\", found %d", answers)
	}
	out.Filters = r.routeFilters(j)
	for _, name := range slices.Sorted(maps.Keys(out.Filters)) {
		t.filters = append(t.filters, routeFilter{name, j.Node.Get("per_filter_config").Get(name)})
	}
	r.readMirror(t, j, out)
	return out
}

// match converts the condition of a route.
func (r *reader) match(j *matchJSON, m *config.RouteMatch) {
	kinds := 0
	for _, k := range []struct {
		kind config.PathKind
		text *string
	}{{config.PathPrefix, j.Prefix}, {config.PathExact, j.Path}, {config.PathRegex, j.Regex}} {
		if k.text != nil {
			kinds++
			m.PathKind, m.Path = k.kind, *k.text
		}
	}
	if kinds > 1 {
		r.report.Errorf(j.Node, "prefix, path and regex are mutually exclusive")
	}
	if m.PathKind == config.PathRegex {
		r.checkRegex(j.Node, "regex", m.Path)
	}
	for i := range j.Headers {
		h := &j.Headers[i]
		regex := h.Regex || h.Value == ".*"
		if regex {
			r.checkRegex(h.Node, "value", h.Value)
		}
		m.Headers = append(m.Headers, config.HeaderMatch{Name: h.Name, Value: h.Value, Regex: regex})
	}
	for i := range j.Variables {
		v := &j.Variables[i]
		out := config.VariableMatch{Name: v.Name, Or: v.Model == "or"}
		switch {
		case v.Value != nil && v.Regex != nil, v.Value == nil && v.Regex == nil:
			r.report.Errorf(v.Node, "expected exactly one of \"value\" and \"regex\"")
		case v.Value != nil:
			out.Value = *v.Value
		default:
			out.Value, out.Regex = *v.Regex, true
			r.checkRegex(v.Node, "regex", out.Value)
		}
		r.checkVariable(v.Node, "name", v.Name)
		m.Variables = append(m.Variables, out)
	}
}

// forward converts the action "route".
func (r *reader) forward(j *actionJSON, m *config.RouteMatch) *config.Forward {
	f := &config.Forward{
		ClusterVariable:       j.ClusterVariable,
		Priority:              priority(j.Priority),
		Timeout:               j.Timeout,
		GRPCTimeout:           config.GRPCTimeout{Ignore: j.IgnoreGRPCTimeout},
		PrefixRewrite:         j.PrefixRewrite,
		HostRewrite:           j.HostRewrite,
		AutoHostRewrite:       j.AutoHostRewrite,
		AutoHostRewriteHeader: j.AutoHostRewriteHeader,
	}
	f.Request, f.Response = r.mutations(j.Node, &j.mutationJSON)
	r.target(j, f)
	if j.Upstream != "" && !strings.EqualFold(j.Upstream, string(config.Auto)) {
		f.Upstream, _ = choose(r.report, j.Node.Get("upstream_protocol"), "protocol", j.Upstream, r.capabilities.Protocols, knownProtocols())
	}
	if p := j.Retry; p != nil {
		f.Retry = r.retryPolicy(p)
	}
	if h := j.Hedge; h != nil {
		f.Hedge = r.hedgePolicy(h, f.Retry)
	}
	for i := range j.Hash {
		f.HashPolicies = append(f.HashPolicies, r.hash(&j.Hash[i]))
	}
	r.warnUnusedHashPolicy(j.Node, f)
	f.Metadata = r.labels(j.Node, &j.MetadataMatch, f.Cluster)
	r.rewrites(j, m, f)
	return f
}

// target sets the cluster picker of a route.
func (r *reader) target(j *actionJSON, f *config.Forward) {
	targets := 0
	if j.Cluster != "" {
		targets++
		f.Cluster = r.resolveCluster(j.Node, "cluster_name", j.Cluster)
	}
	if j.ClusterVariable != "" {
		targets++
		r.checkVariable(j.Node, "cluster_variable", j.ClusterVariable)
	}
	if len(j.Weighted) > 0 {
		targets++
	}
	if targets != 1 && j.Node.Kind() == document.Object {
		r.report.Errorf(j.Node, "expected exactly one of \"cluster_name\", \"cluster_variable\" and \"weighted_clusters\", found %d", targets)
	}
	var sum uint64
	for i := range j.Weighted {
		w := &j.Weighted[i].Cluster
		sum += uint64(w.Weight)
		f.WeightedClusters = append(f.WeightedClusters, config.WeightedCluster{
			Cluster: r.resolveCluster(w.Node, "name", w.Name), Weight: w.Weight, Metadata: r.labels(w.Node, &w.Metadata, w.Name),
		})
	}
	read := !slices.ContainsFunc(j.Weighted, func(w weightedJSON) bool { return !w.Cluster.Node.Exists() })
	if len(j.Weighted) > 0 && read && (sum == 0 || sum > 1<<32-1) {
		r.report.Errorf(j.Node.Get("weighted_clusters"), "the sum of the weights is %d, expected 1 to %d", sum, uint32(1<<32-1))
	}
}

// resolveCluster checks that a cluster exists. It returns the name as stored in the cluster, so that
// all references share one string.
func (r *reader) resolveCluster(n document.Node, key, name string) string {
	if name == "" {
		return "" // reported
	}
	if c := r.clusters[name]; c != nil {
		return c.Name
	}
	r.report.Unknown(n.Get(key).Or(n), "cluster", name, r.clusterNames())
	return name
}

// clusterNames returns the names of all clusters, for suggestions.
func (r *reader) clusterNames() []string {
	names := make([]string, len(r.snapshot.Clusters))
	for i, c := range r.snapshot.Clusters {
		names[i] = c.Name
	}
	return names
}

// rewrites converts path and host rewrites. If several conflict, MOSN uses the first; a warning
// names the others.
func (r *reader) rewrites(j *actionJSON, m *config.RouteMatch, f *config.Forward) {
	if j.PrefixRewrite != "" && m.PathKind != config.PathPrefix && m.PathKind != config.PathExact {
		r.report.Errorf(j.Node.Get("prefix_rewrite"), "prefix_rewrite requires \"prefix\" or \"path\" in match")
	}
	if w := j.RegexRewrite; w != nil {
		r.checkRegex(w.Node.Get("pattern"), "regex", w.Pattern.Regex)
		if j.PrefixRewrite != "" {
			r.report.Warnf(w.Node, "regex_rewrite has no effect together with prefix_rewrite")
		} else {
			f.RegexRewrite = &config.RegexRewrite{Pattern: w.Pattern.Regex, Substitution: w.Substitution}
		}
	}
	if w := j.HostRewritePath; w != nil {
		r.checkRegex(w.Node.Get("pattern"), "regex", w.Pattern.Regex)
		f.HostRewritePath = &config.RegexRewrite{Pattern: w.Pattern.Regex, Substitution: w.Substitution}
	}
	taken := ""
	for _, host := range []struct {
		key string
		set bool
	}{
		{"host_rewrite", j.HostRewrite != ""},
		{"auto_host_rewrite", j.AutoHostRewrite},
		{"auto_host_rewrite_header", j.AutoHostRewriteHeader != ""},
		{"host_rewrite_path_regex", j.HostRewritePath != nil},
	} {
		switch {
		case host.set && taken != "":
			r.report.Warnf(j.Node.Get(host.key), "%s has no effect together with %s", host.key, taken)
		case host.set:
			taken = host.key
		}
	}
}

func (r *reader) hash(j *hashJSON) config.HashPolicy {
	var out config.HashPolicy
	kinds := 0
	if j.Header != nil {
		kinds++
		out.Header = j.Header.Key
	}
	if j.Cookie != nil {
		kinds++
		out.Cookie, out.CookiePath, out.CookieTTL = j.Cookie.Name, j.Cookie.Path, j.Cookie.TTL
		for _, a := range j.Cookie.Attributes {
			out.CookieAttributes = append(out.CookieAttributes, config.CookieAttribute{Name: a.Name, Value: a.Value})
		}
	}
	if j.SourceIP != nil {
		kinds++
		out.SourceIP = true
	}
	if j.Query != nil {
		kinds++
		out.Query = j.Query.Name
	}
	if kinds != 1 {
		r.report.Errorf(j.Node, "expected exactly one of \"header\", \"http_cookie\", \"source_ip\" and \"query_parameter\"")
	}
	return out
}

// mutations converts the header mutations in the object n.
func (r *reader) mutations(n document.Node, j *mutationJSON) (request, response config.HeaderMutation) {
	if j.RequestAdd == nil && j.RequestRemove == nil && j.ResponseAdd == nil && j.ResponseRemove == nil {
		return request, response
	}
	request = r.mutation(n, "request_headers_to_remove", j.RequestAdd, j.RequestRemove, func(m config.HeaderMutation) error {
		_, err := router.Compile(&config.RouteTable{Request: m})
		return err
	})
	response = r.mutation(n, "response_headers_to_remove", j.ResponseAdd, j.ResponseRemove, func(m config.HeaderMutation) error {
		_, err := router.Compile(&config.RouteTable{Response: m})
		return err
	})
	return request, response
}

// mutation converts the mutations of one direction and checks each separately.
func (r *reader) mutation(n document.Node, removeKey string, add []headerAddJSON, remove []string, check func(config.HeaderMutation) error) config.HeaderMutation {
	var out config.HeaderMutation
	for i := range add {
		h := &add[i].Header
		if h.Key == "" {
			continue // reported
		}
		value := config.HeaderValue{Name: h.Key, Value: h.Value, Append: add[i].Append}
		if err := check(config.HeaderMutation{Add: []config.HeaderValue{value}}); err != nil {
			r.report.Errorf(h.Node, "%s", oneLine(err.Error()))
			continue
		}
		out.Add = append(out.Add, value)
	}
	at := slices.Collect(n.Get(removeKey).All())
	for i, name := range remove {
		if at[i].Kind() != document.String {
			continue // reported
		}
		if err := check(config.HeaderMutation{Remove: []string{name}}); err != nil {
			r.report.Errorf(at[i], "%s", oneLine(err.Error()))
			continue
		}
		out.Remove = append(out.Remove, name)
	}
	return out
}
