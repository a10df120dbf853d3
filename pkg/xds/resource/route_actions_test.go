package resource

import (
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter/stream/rbac"
)

// readRouteText reads a table whose only route has these fields in addition to the match.
func readRouteText(t *testing.T, route string) (*config.Route, error) {
	t.Helper()
	table, err := readTableText(t, `virtual_hosts: {name: "v" domains: "*" routes: {match: {prefix: "/"} `+route+`}}`)
	if err != nil {
		return nil, err
	}
	return table.Config.VirtualHosts[0].Routes[0], nil
}

// checkReasons verifies which fields make a route invalid. reasons are by fields of the route; "" means
// that it is valid.
func checkReasons(t *testing.T, reasons map[string]string) {
	t.Helper()
	for route, want := range reasons {
		_, err := readRouteText(t, route)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", route, err, want)
		}
	}
}

func TestWeightedClusterFields(t *testing.T) {
	const settings = `typed_per_filter_config: {key: "envoy.filters.http.rbac" value: {[type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBACPerRoute]: {rbac: {rules: {action: ALLOW}}}}} `
	r, err := readRouteText(t, `route: {weighted_clusters: {header_name: "x-r"
		clusters: {name: "a" weight: {value: 1} host_rewrite_literal: "h" `+settings+`}
		clusters: {cluster_header: "x-to" weight: {value: 2}}}} `+strings.ReplaceAll(settings, "rbac.v3.RBACPerRoute]: {rbac: {rules: {action: ALLOW}}}", "rbac.v3.RBACPerRoute]: {}"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (config.WeightSource{Header: "x-r"}); r.Forward.Extra().WeightSource != want {
		t.Errorf("WeightSource = %+v, want %+v", r.Forward.Extra().WeightSource, want)
	}
	hashed, err := readRouteText(t, `route: {weighted_clusters: {use_hash_policy: {value: true} clusters: {name: "a" weight: {value: 1}}}}`)
	if want := (config.WeightSource{Hash: true}); err != nil || hashed.Forward.Extra().WeightSource != want {
		t.Errorf("use_hash_policy: %+v, error %v, want %+v", hashed, err, want)
	}
	a, b := r.Forward.WeightedClusters[0].Extra(), r.Forward.WeightedClusters[1].Extra()
	const name = "envoy.filters.http.rbac"
	if _, ok := a.Filters[name].(*rbac.Config); a.HostRewrite != "h" || !ok || a.Filters[name] == r.Filters[name] {
		t.Errorf("cluster a: host %q, filters %v, want h and its own settings of rbac", a.HostRewrite, a.Filters)
	}
	if r.Forward.WeightedClusters[1].Cluster != "" || b.ClusterVariable != "request_header_x-to" || b.Filters != nil {
		t.Errorf("the second cluster = %+v, want the cluster of x-to without settings of filters", b)
	}
	const at = `routes[0].route.weighted_clusters.clusters[0]`
	checkReasons(t, map[string]string{
		`route: {weighted_clusters: {clusters: {weight: {value: 1}}}}`:                               at + ": exactly one of name and cluster_header",
		`route: {weighted_clusters: {clusters: {name: "a" cluster_header: "x" weight: {value: 1}}}}`: at + ": exactly one of name and cluster_header",
	})
}

func TestDirectResponseBody(t *testing.T) {
	r, err := readRouteText(t, `direct_response: {status: 200 body: {filename: "/etc/body"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&config.DirectResponse{Status: 200, BodyFile: "/etc/body", MaxFileSize: 4096, ContentType: "text/plain", Location: true}, r.DirectResponse); diff != "" {
		t.Errorf("direct response - want + got:\n%s", diff)
	}
	body := func(n int) string { return `body: {inline_string: "` + strings.Repeat("x", n) + `"}` }
	checkReasons(t, map[string]string{
		`direct_response: {status: 200 ` + body(4096) + `}`:         "",
		`direct_response: {status: 200 ` + body(4097) + `}`:         "direct_response.body: has 4097 bytes, expected at most 4096",
		`direct_response: {status: 200 body_format: {}}`:            "direct_response.body_format: is not supported",
		`direct_response: {status: 304 body: {inline_string: "x"}}`: "",
	})
	const large = `virtual_hosts: {name: "v" domains: "*" routes: {match: {prefix: "/"} direct_response: {status: 200 `
	if _, err := readTableText(t, `max_direct_response_body_size_bytes: {value: 5000} `+large+body(4097)+`}}}`); err != nil {
		t.Errorf("a body of 4097 bytes, at most 5000: error %v, want none", err)
	}
}

func TestTemplateRewrite(t *testing.T) {
	read := func(template, rewrite string) (*config.Route, error) {
		t.Helper()
		table, err := readTableText(t, `virtual_hosts: {name: "v" domains: "*" routes: {
			match: {path_match_policy: {name: "t" typed_config: {[type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig]: {path_template: "`+template+`"}}}}
			route: {cluster: "c" path_rewrite_policy: {name: "r" typed_config: {[type.googleapis.com/envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig]: {path_template_rewrite: "`+rewrite+`"}}}}}}`)
		if err != nil {
			return nil, err
		}
		return table.Config.VirtualHosts[0].Routes[0], nil
	}
	for _, test := range []struct{ template, rewrite, want, err string }{
		{"/a/{x}/{y=**}", "/{y}/{x}", "/${2}/${1}", ""},
		{"/a/{x}", "/p-{x}0", "/p-${1}0", ""},
		{"/a/{x}", "/n", "/n", ""},
		{"/a/{x}", "/{z}", "", `path_template_rewrite: "/{z}": the path template has no variable "z"`},
		{"/a/{x}", "x", "", "expected a path with variables"},
		{"/a/{x}", "/{x", "", "malformed variable"},
		{"/a/{x}", "/x}", "", "malformed variable"},
		{"/a/{x}", "/$1", "", "expected a path with variables"},
		{"/a/{x}/{x}", "/{x}", "", "names a variable twice"},
	} {
		r, err := read(test.template, test.rewrite)
		switch {
		case test.err != "":
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s to %s: error %v, want %q", test.template, test.rewrite, err, test.err)
			}
		case err != nil:
			t.Errorf("%s to %s: error %v, want none", test.template, test.rewrite, err)
		case r.Forward.RegexRewrite.Substitution != test.want:
			t.Errorf("%s to %s: substitution %q, want %q", test.template, test.rewrite, r.Forward.RegexRewrite.Substitution, test.want)
		}
	}
	checkReasons(t, map[string]string{
		`route: {cluster: "c" path_rewrite_policy: {name: "r" typed_config: {[type.googleapis.com/envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig]: {path_template_rewrite: "/x"}}}}`: "path_rewrite_policy: requires a URI template",
		`route: {cluster: "c" path_rewrite_policy: {name: "r"}}`: "path_rewrite_policy",
	})
}

func TestInternalRedirectPolicy(t *testing.T) {
	predicates := func(names ...string) string {
		var text strings.Builder
		for _, name := range names {
			text.WriteString(`predicates: {name: "p" typed_config: {[type.googleapis.com/envoy.extensions.internal_redirect.` + name + `}} `)
		}
		return text.String()
	}
	for text, want := range map[string]*config.InternalRedirect{
		``: nil,
		`internal_redirect_action: PASS_THROUGH_INTERNAL_REDIRECT`:                              nil,
		`internal_redirect_action: HANDLE_INTERNAL_REDIRECT max_internal_redirects: {value: 3}`: {Max: 3, Codes: []int{302}},
		`internal_redirect_policy: {}`:                                                          {Max: 1, Codes: []int{302}},
		`internal_redirect_policy: {max_internal_redirects: {value: 2} redirect_response_codes: [301, 304, 308] allow_cross_scheme_redirect: true response_headers_to_copy: "x"}`: {
			Max: 2, Codes: []int{301, 308}, AllowOtherScheme: true, CopiedHeaders: []string{"x"},
		},
		`internal_redirect_policy: {` + predicates(`previous_routes.v3.PreviousRoutesConfig]: {}`, `allow_listed_routes.v3.AllowListedRoutesConfig]: {allowed_route_names: "r"}`, `safe_cross_scheme.v3.SafeCrossSchemeConfig]: {}`) + `}`: {
			Max: 1, Codes: []int{302}, UnvisitedOnly: true, AllowedRoutes: []string{"r"}, SafeSchemeOnly: true,
		},
	} {
		r, err := readRouteText(t, `name: "r" route: {cluster: "c" `+text+`}`)
		if err != nil {
			t.Errorf("%s: error %v, want none", text, err)
			continue
		}
		if diff := cmp.Diff(want, r.Forward.Extra().InternalRedirect); diff != "" {
			t.Errorf("%s: - want + got:\n%s", text, diff)
		}
	}
	checkReasons(t, map[string]string{`route: {cluster: "c" internal_redirect_policy: {predicates: {name: "other"}}}`: "internal_redirect_policy.predicates[0]: other () is not supported"})
}

func TestRetryFields(t *testing.T) {
	r, err := readRouteText(t, `route: {cluster: "c" retry_policy: {retry_on: "5xx" host_selection_retry_max_attempts: 3
		retriable_headers: {name: "x-again" string_match: {prefix: "y"}} retriable_request_headers: {name: "x-retry" present_match: true}
		rate_limited_retry_back_off: {reset_headers: {name: "retry-after"} reset_headers: {name: "x-reset" format: UNIX_TIMESTAMP}}}}`)
	if err != nil {
		t.Fatal(err)
	}
	p := r.Forward.Retry.Extras
	if !p.AnyMethod || p.MaxReset != 300*time.Second {
		t.Errorf("AnyMethod %v, MaxReset %v, want true, 300 s", p.AnyMethod, p.MaxReset)
	}
	if diff := cmp.Diff([]config.ResetHeader{{Name: "retry-after"}, {Name: "x-reset", UnixTimestamp: true}}, p.ResetHeaders); diff != "" {
		t.Errorf("reset headers - want + got:\n%s", diff)
	}
	if diff := cmp.Diff([]config.HeaderMatch{{Name: "x-again", Matcher: &config.ValueMatch{Kind: config.ValuePrefix, Text: "y"}}}, p.ResponseHeaders); diff != "" {
		t.Errorf("response headers - want + got:\n%s", diff)
	}
	if diff := cmp.Diff([]config.HeaderMatch{{Name: "x-retry", Matcher: &config.ValueMatch{Kind: config.ValuePresent}}}, p.RequestHeaders); diff != "" {
		t.Errorf("request headers - want + got:\n%s", diff)
	}
	const back = `route: {cluster: "c" retry_policy: {rate_limited_retry_back_off: {`
	checkReasons(t, map[string]string{
		back + `}}}`:                  "rate_limited_retry_back_off.reset_headers: is empty",
		back + `reset_headers: {}}}}`: "reset_headers[0].name: is required",
		back + `reset_headers: {name: "x" format: 9}}}}`: "reset_headers[0].format: 9 is not supported",
	})
}

func TestRouteUpgrades(t *testing.T) {
	r, err := readRouteText(t, `route: {cluster: "c" idle_timeout: {} upgrade_configs: {upgrade_type: "WebSocket" enabled: {value: false}} upgrade_configs: {upgrade_type: "CONNECT" connect_config: {}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]config.UpgradeRule{{Protocol: "websocket", Denied: true}, {Protocol: "connect"}}, r.Forward.Extras.Upgrades); diff != "" || !r.Forward.Extras.ConnectTunnel || r.Forward.Extras.IdleTimeout >= 0 {
		t.Errorf("ConnectTunnel %v, IdleTimeout %v, want true and none; upgrades - want + got:\n%s", r.Forward.Extras.ConnectTunnel, r.Forward.Extras.IdleTimeout, diff)
	}
	const at = "routes[0].route.upgrade_configs[0]."
	checkReasons(t, map[string]string{
		`route: {cluster: "c" upgrade_configs: {}}`:                                                           at + "upgrade_type: is required",
		`route: {cluster: "c" upgrade_configs: {upgrade_type: "connect-udp"}}`:                                at + "upgrade_type: connect-udp is not supported",
		`route: {cluster: "c" upgrade_configs: {upgrade_type: "x" connect_config: {}}}`:                       at + "connect_config: requires the upgrade_type CONNECT",
		`route: {cluster: "c" upgrade_configs: {upgrade_type: "CONNECT" connect_config: {allow_post: true}}}`: at + "connect_config.allow_post: is not supported",
	})
}

func TestVirtualHostMatcher(t *testing.T) {
	const (
		input = `input: {name: "i" typed_config: {[type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput]: {header_name: "x-h"}}} `
		to    = `action: {name: "a" typed_config: {[type.googleapis.com/envoy.config.route.v3.Route]: {name: "NAME" match: {prefix: "/"} route: {cluster: "c"}}}} `
		list  = `action: {name: "a" typed_config: {[type.googleapis.com/envoy.config.route.v3.RouteList]: {routes: {match: {path: "/"} route: {cluster: "c"}} routes: {match: {prefix: "/"} route: {cluster: "d"}}}}} `
	)
	route := func(name string) string { return strings.ReplaceAll(to, "NAME", name) }
	single := func(text string) string {
		return `single_predicate: {` + input + `value_match: {` + text + `}} `
	}
	table, err := readTableText(t, `virtual_hosts: {name: "v" domains: "*" matcher: {
		matcher_list: {matchers: {predicate: {and_matcher: {predicate: {`+single(`exact: "v"`)+`} predicate: {not_matcher: {`+single(`safe_regex: {regex: "w"}`)+`}}}} on_match: {`+list+`}}}
		on_no_match: {matcher: {matcher_tree: {`+input+`prefix_match_map: {map: {key: "b" value: {`+route("b")+`}} map: {key: "a" value: {`+route("a")+`}}}}}}}}`)
	if err != nil {
		t.Fatal(err)
	}
	v := table.Config.VirtualHosts[0]
	header := config.MatchInput{Name: "x-h"}
	want := &config.MatchTree{
		Rules: []config.MatchRule{{
			Predicate: config.MatchPredicate{All: []config.MatchPredicate{
				{Input: header, Value: &config.ValueMatch{Text: "v"}},
				{Not: &config.MatchPredicate{Input: header, Value: &config.ValueMatch{Kind: config.ValueRegex, Text: "w"}}},
			}},
			Result: config.MatchResult{Count: 2},
		}},
		NoMatch: &config.MatchResult{Tree: &config.MatchTree{Input: header, Prefixes: map[string]config.MatchResult{"a": {First: 2, Count: 1}, "b": {First: 3, Count: 1}}}},
	}
	if diff := cmp.Diff(want, v.Matcher); diff != "" {
		t.Errorf("matcher - want + got:\n%s", diff)
	}
	var names []string
	for _, r := range v.Routes {
		names = append(names, r.Name)
	}
	if diff := cmp.Diff([]string{"v/0", "v/1", "v/a", "v/b"}, names); diff != "" {
		t.Errorf("names of the routes - want + got:\n%s", diff)
	}
	const at = "virtual_hosts[0].matcher"
	for text, reason := range map[string]string{
		`matcher: {on_no_match: {` + to + `}} routes: {match: {prefix: "/"} route: {cluster: "c"}}`: "virtual_hosts[0].routes: only one of routes and matcher can be set",
		`matcher: {on_no_match: {keep_matching: true ` + to + `}}`:                                  at + ".on_no_match.keep_matching: is not supported",
		`matcher: {on_no_match: {}}`: at + ".on_no_match: is empty",
		`matcher: {on_no_match: {action: {name: "a" typed_config: {[type.googleapis.com/envoy.config.route.v3.FilterAction]: {}}}}}`:                                                                                        at + ".on_no_match.action.typed_config: is a type.googleapis.com/envoy.config.route.v3.FilterAction, expected a Route",
		`matcher: {matcher_list: {matchers: {predicate: {} on_match: {` + to + `}}}}`:                                                                                                                                       at + ".matcher_list.matchers[0].predicate: is empty",
		`matcher: {matcher_list: {matchers: {predicate: {or_matcher: {predicate: {` + single(`exact: "v"`) + `}}} on_match: {` + to + `}}}}`:                                                                                "or_matcher.predicate: has 1 elements, expected at least 2",
		`matcher: {matcher_tree: {input: {name: "i" typed_config: {[type.googleapis.com/envoy.type.matcher.v3.HttpResponseHeaderMatchInput]: {header_name: "x"}}} exact_match_map: {map: {key: "a" value: {` + to + `}}}}}`: at + ".matcher_tree.input: i (type.googleapis.com/envoy.type.matcher.v3.HttpResponseHeaderMatchInput) is not supported",
		`matcher: {matcher_tree: {` + input + `custom_match: {name: "x"}}}`:                                                                                                                                                 at + ".matcher_tree.custom_match",
		`matcher: {matcher_list: {matchers: {predicate: {` + single(`safe_regex: {regex: "("}`) + `} on_match: {` + to + `}}}}`:                                                                                             "value_match.safe_regex: error parsing regexp",
	} {
		if _, err := readTableText(t, `virtual_hosts: {name: "v" domains: "*" `+text+`}`); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: error %v, want %s", text, err, reason)
		}
	}
}

// TestMatcherUpdate verifies that an update of a virtual host with a matcher replaces its routes.
func TestMatcherUpdate(t *testing.T) {
	const host = `virtual_hosts: {name: "v" domains: "*" matcher: {on_no_match: {action: {name: "a" typed_config: {[type.googleapis.com/envoy.config.route.v3.Route]: {match: {prefix: "/"} route: {cluster: "CLUSTER"}}}}}}}`
	table, err := readTableText(t, strings.ReplaceAll(host, "CLUSTER", "a"))
	if err != nil {
		t.Fatal(err)
	}
	update := func(text string) *config.VirtualHost {
		t.Helper()
		if table, err = table.Update(tableBody(t, text), testCapabilities()); err != nil {
			t.Fatal(err)
		}
		return table.Config.VirtualHosts[0]
	}
	if v := update(strings.ReplaceAll(host, "CLUSTER", "b")); v.Matcher == nil || len(v.Routes) != 1 || v.Routes[0].Forward.Cluster != "b" {
		t.Errorf("updated matcher: %+v, want one route to b", v)
	}
	if v := update(`virtual_hosts: {name: "v" domains: "*" routes: {match: {prefix: "/"} route: {cluster: "c"}}}`); v.Matcher != nil || len(v.Routes) != 1 || v.Routes[0].Forward.Cluster != "c" {
		t.Errorf("without a matcher: %+v, want one route to c", v)
	}
}

func TestTCPProxyFields(t *testing.T) {
	read := func(text string) (*config.TCPProxy, error) {
		m := &tcpv3.TcpProxy{}
		if err := prototext.Unmarshal([]byte(text), m); err != nil {
			t.Fatal(err)
		}
		l, err := ReadListener(marshaled(t, &listenerv3.Listener{
			Name: "l", Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/l"}}},
			FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{Name: "f", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, m)}}}}},
		}), testCapabilities())
		if err != nil {
			return nil, err
		}
		return l.Config.FilterChains[0].TCPProxy, nil
	}
	const labels = `metadata_match: {filter_metadata: {key: "envoy.lb" value: {fields: {key: "k" value: {string_value: "v"}}}}} `
	got, err := read(`weighted_clusters: {clusters: {name: "a" weight: 1 ` + labels + `} clusters: {name: "b" weight: 2}} ` + labels + `hash_policy: {source_ip: {}} max_downstream_connection_duration: {seconds: 9}`)
	if err != nil {
		t.Fatal(err)
	}
	want := &config.TCPProxy{
		WeightedClusters: []config.WeightedTCPCluster{{Cluster: "a", Weight: 1, Metadata: map[string]string{"k": "v"}}, {Cluster: "b", Weight: 2}},
		Metadata:         map[string]string{"k": "v"}, HashSourceIP: true, MaxDuration: 9 * time.Second, IdleTimeout: time.Hour, MaxConnectAttempts: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tcp_proxy - want + got:\n%s", diff)
	}
	for text, reason := range map[string]string{
		``:                      "cluster: is missing",
		`weighted_clusters: {}`: "weighted_clusters.clusters: is empty",
		`weighted_clusters: {clusters: {weight: 1}}`:           "clusters[0].name: is required",
		`weighted_clusters: {clusters: {name: "a"}}`:           "clusters[0].weight: is 0, expected at least 1",
		`cluster: "a" hash_policy: {filter_state: {key: "k"}}`: "hash_policy[0]",
		`cluster: "a" tunneling_config: {hostname: "h"}`:       "tunneling_config: is not supported",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: error %v, want %s", text, err, reason)
		}
	}
}
