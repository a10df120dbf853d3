package cases

import (
	"strings"
	"time"
)

// routeActions adds the groups about what routes do with requests that match.
func (s *set) routeActions() {
	s.weightedClusters()
	s.directReplies()
	s.redirectForms()
	s.internalRedirects()
	s.headerOptions()
	s.rewrites()
	s.streamTimeouts()
	s.routeUpgrades()
	s.routeRetries()
}

// routeMatchers adds the groups about matchers of virtual hosts, and about routes that match more than
// the request itself.
func (s *set) routeMatchers() {
	s.matcherTrees()
	s.connectionMatches()
}

// forward adds a group whose only route leads to o1, with more fields of the route action.
func (s *set) forward(feature, action string) *Group {
	return s.add(Group{Feature: feature, Routes: "- match: {prefix: /}\n  route:\n    cluster: o1\n" + indent("    ", action)})
}

func (s *set) weightedClusters() {
	const feature = "route.weighted"
	weighted := func(fields string) *Group {
		return s.add(Group{
			Feature: feature,
			Routes:  "- match: {prefix: /}\n  route:\n    weighted_clusters:\n" + indent("      ", fields),
		})
	}
	weighted("clusters: [{name: o1, weight: 20}, {name: o2, weight: 80}]").get("/", distribution(), label("20 and 80"))
	weighted("clusters: [{name: o1, weight: 1}, {name: o2, weight: 2}, {name: o3, weight: 0}]").get("/", distribution(), label("1, 2 and 0"))

	g := weighted("header_name: x-random\nclusters: [{name: o1, weight: 10}, {name: o2, weight: 90}]")
	for _, v := range []string{"0", "9", "10", "99", "100", "109", "110", "18446744073709551615"} {
		g.get("/", field("x-random", v))
	}

	g = weighted("clusters: [{name: o1, weight: 1, host_rewrite_literal: new.test}]")
	g.get("/")
	g = weighted("clusters: [{cluster_header: x-to, weight: 1}]")
	g.get("/", field("x-to", "o2"))
	g.get("/", field("x-to", "unknown"))
	g.get("/")

	g = s.add(Group{
		Feature: feature,
		Filters: `
- name: envoy.filters.http.header_mutation
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
    mutations: {request_mutations: [{append: {header: {key: x-from, value: listener}}}]}
`,
		Routes: `
- match: {prefix: /}
  route:
    weighted_clusters:
      header_name: x-random
      clusters:
      - name: o1
        weight: 1
        request_headers_to_add: [{header: {key: x-w, value: one}}]
        response_headers_to_add: [{header: {key: x-r, value: one}}]
        typed_per_filter_config:
          envoy.filters.http.header_mutation:
            "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute
            mutations: {request_mutations: [{append: {header: {key: x-from, value: cluster}}}]}
      - name: o2
        weight: 1
        request_headers_to_remove: [x-w]
        response_headers_to_remove: [content-type]
`,
	})
	g.get("/", field("x-random", "0"))
	g.get("/", field("x-random", "1"), field("x-w", "client"))
	g = s.add(Group{Feature: feature, Filters: `
- name: envoy.filters.http.cors
  typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}
`, Routes: `
- match: {prefix: /}
  route:
    weighted_clusters:
      header_name: x-random
      clusters:
      - name: o1
        weight: 1
        typed_per_filter_config:
          envoy.filters.http.cors:
            "@type": type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy
            allow_origin_string_match: [{exact: 'http://x.test'}]
      - {name: o2, weight: 1}
`})
	g.get("/", field("x-random", "0"), field("Origin", "http://x.test"))
	g.get("/", field("x-random", "1"), field("Origin", "http://x.test"))
	weighted("clusters: [{name: o1, weight: 0}]").get("/", label("no weight"))
}

func (s *set) directReplies() {
	const feature = "route.direct_response"
	for _, action := range []string{
		"status: 200, body: {inline_string: hi}", "status: 404", "status: 503, body: {inline_bytes: aGk=}", "status: 204",
		"status: 304, body: {inline_string: hi}", "status: 200, body: {inline_string: '" + strings.Repeat("x", 4096) + "'}",
		"status: 200, body: {inline_string: '" + strings.Repeat("x", 4097) + "'}", "status: 200, body: {filename: /etc/hostname}",
		"status: 200, body: {inline_string: ''}",
	} {
		g := s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, direct_response: {" + action + "}}\n"})
		g.get("/", labelf("%.60s", action))
		g.get("/", method("HEAD"), labelf("HEAD %.60s", action))
		g.get("/", method("POST"), body("text"), labelf("POST %.60s", action))
	}
	for _, size := range []string{"5000", "3"} {
		s.add(Group{
			Feature:     feature,
			RouteConfig: "max_direct_response_body_size_bytes: " + size,
			Routes:      "- {match: {prefix: /}, direct_response: {status: 200, body: {inline_string: '" + strings.Repeat("y", 4097) + "'}}}\n",
		}).get("/", label("at most "+size))
	}
	s.add(Group{Feature: feature, Routes: `
- match: {prefix: /}
  direct_response: {status: 200, body: {inline_string: hi}}
  response_headers_to_add:
  - {header: {key: x-a, value: '1'}}
  - {header: {key: content-type, value: text/html}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}
`}).get("/")
}

func (s *set) redirectForms() {
	const feature = "route.redirect"
	for _, action := range []string{
		"https_redirect: true", "scheme_redirect: ftp", "host_redirect: new.test", "port_redirect: 8443",
		"https_redirect: true, port_redirect: 443", "https_redirect: true, port_redirect: 8443", "path_redirect: /new",
		"path_redirect: '/new?x=1'", "path_redirect: '/new', strip_query: true", "prefix_rewrite: /p", "strip_query: true",
		"host_redirect: new.test, response_code: FOUND", "response_code: SEE_OTHER, path_redirect: /s",
		"response_code: TEMPORARY_REDIRECT, host_redirect: 'n.test:81'", "response_code: PERMANENT_REDIRECT, https_redirect: true",
		`regex_rewrite: {pattern: {regex: "^/a/(.*)$"}, substitution: "/x/\\1"}`, "host_redirect: new.test, path_redirect: '/n?y', port_redirect: 99",
		"prefix_rewrite: /p, strip_query: true",
	} {
		g := s.add(Group{Feature: feature, Routes: "- {match: {prefix: /a}, redirect: {" + action + "}}\n" + elseRoute})
		g.get("/a", labelf("%s", action))
		g.get("/a/b?q=1", labelf("%s with a query", action))
		g.get("/a", host("a.test:80"), labelf("%s with port 80", action))
		g.get("/a", host("a.test:443"), field("X-Forwarded-Proto", "https"), labelf("%s over https", action))
		g.get("/a", host("a.test:8080"), labelf("%s with port 8080", action))
	}
}

func (s *set) internalRedirects() {
	const feature = "route.internal_redirect"
	const moved = "x-o-seq"
	to := func(location string) option { return field("x-o-h", "Location: "+location) }
	for _, policy := range []string{
		"{}", "{redirect_response_codes: [301, 302, 307]}", "{max_internal_redirects: 2}",
		"{allow_cross_scheme_redirect: true}", "{response_headers_to_copy: [x-copy]}",
	} {
		g := s.add(Group{Feature: feature, Routes: `
- match: {prefix: /second}
  name: second
  route: {cluster: o2}
- match: {prefix: /}
  route:
    cluster: o1
    internal_redirect_policy: ` + policy + "\n"})
		g.get("/", to("http://b.test/second?x=1"), field(moved, "302,200"), labelf("%s 302", policy))
		g.get("/", to("/second"), field(moved, "302,200"), labelf("%s relative", policy))
		g.get("/", to("http://b.test/third"), field(moved, "302,302,200"), labelf("%s twice", policy))
		g.get("/", to("http://b.test/second"), field(moved, "301,200"), labelf("%s 301", policy))
		g.get("/", to("http://b.test/second"), field(moved, "303,200"), method("POST"), body("x"), labelf("%s 303 to POST", policy))
		g.get("/", to("http://b.test/second"), field(moved, "307,200"), method("POST"), body("text"), labelf("%s 307 to POST", policy))
		g.get("/", to("http://b.test/second"), field(moved, "302,200"), method("POST"), body("text"), labelf("%s 302 to POST", policy))
		g.get("/", to("https://b.test/second"), field(moved, "302,200"), labelf("%s other scheme", policy))
		g.get("/", field(moved, "302,200"), labelf("%s without a location", policy))
		g.get("/", to("http://b.test:99/second#f"), field(moved, "302,200"), labelf("%s fragment", policy))
	}
	g := s.add(Group{Feature: feature, VirtualHosts: `
- name: a
  domains: [a.test]
  routes:
  - match: {prefix: /}
    route: {cluster: o1, internal_redirect_policy: {}}
`})
	g.get("/", to("http://b.test/second"), field(moved, "302,200"), label("no route"))
	for _, predicate := range []string{
		"envoy.internal_redirect_predicates.previous_routes|previous_routes.v3.PreviousRoutesConfig|",
		"envoy.internal_redirect_predicates.allow_listed_routes|allow_listed_routes.v3.AllowListedRoutesConfig|, allowed_route_names: [second]",
		"envoy.internal_redirect_predicates.safe_cross_scheme|safe_cross_scheme.v3.SafeCrossSchemeConfig|",
	} {
		parts := strings.Split(predicate, "|")
		g := s.add(Group{Feature: feature, Routes: `
- match: {prefix: /second}
  name: second
  route: {cluster: o2}
- match: {prefix: /third}
  name: third
  route: {cluster: o3, internal_redirect_policy: {}}
- match: {prefix: /}
  name: first
  route:
    cluster: o1
    internal_redirect_policy:
      max_internal_redirects: 3
      predicates:
      - name: ` + parts[0] + `
        typed_config: {"@type": type.googleapis.com/envoy.extensions.internal_redirect.` + parts[1] + parts[2] + "}\n"})
		g.get("/", to("http://b.test/second"), field(moved, "302,200"), labelf("%s second", parts[0]))
		g.get("/", to("http://b.test/third"), field(moved, "302,200"), labelf("%s third", parts[0]))
		g.get("/", to("http://b.test/"), field(moved, "302,302,200"), labelf("%s itself", parts[0]))
	}
}

func (s *set) headerOptions() {
	const feature = "route.headers"
	for _, option := range []string{
		"", ", append_action: APPEND_IF_EXISTS_OR_ADD", ", append_action: ADD_IF_ABSENT", ", append_action: OVERWRITE_IF_EXISTS_OR_ADD",
		", append_action: OVERWRITE_IF_EXISTS", ", append: true", ", append: false", ", keep_empty_value: true",
	} {
		for _, value := range []string{"v", ""} {
			added := "[{header: {key: x-a, value: '" + value + "'}" + option + "}]"
			g := s.add(Group{Feature: feature, Routes: "- match: {prefix: /}\n  route: {cluster: o1}\n  request_headers_to_add: " + added +
				"\n  response_headers_to_add: " + added + "\n"})
			g.get("/", labelf("%s, absent", added))
			g.get("/", field("x-a", "c"), field("x-o-h", "X-A: u"), labelf("%s, present", added))
			g.get("/", field("x-a", "c"), field("x-a", "d"), labelf("%s, twice", added))
		}
	}
	g := s.add(Group{Feature: feature, Routes: `
- match: {prefix: /}
  route: {cluster: o1}
  request_headers_to_add:
  - {header: {key: x-host, value: '%REQ(:AUTHORITY)%'}}
  - {header: {key: x-path, value: '%REQ(:PATH)%'}}
  - {header: {key: x-missing, value: '%REQ(x-none)%'}}
  - {header: {key: x-empty, value: '%REQ(x-none)%'}, keep_empty_value: true}
  - {header: {key: x-protocol, value: '%PROTOCOL%'}}
  - {header: {key: x-percent, value: '100%%'}}
  - {header: {key: x-raw, raw_value: cmF3}}
  request_headers_to_remove: [x-gone, accept]
  response_headers_to_add: [{header: {key: x-code, value: '%RESPONSE_CODE%'}}]
  response_headers_to_remove: [x-secret]
`})
	g.get("/p?q=1", field("x-gone", "1"), field("accept", "*/*"), field("x-o-h", "X-Secret: 1"))
}

func (s *set) rewrites() {
	const feature = "route.rewrite"
	for _, action := range []string{
		"prefix_rewrite: /b", "prefix_rewrite: /", `regex_rewrite: {pattern: {regex: "/a/(.*)"}, substitution: "/x/\\1"}`,
		"host_rewrite_literal: new.test", "host_rewrite_header: x-to", `host_rewrite_path_regex: {pattern: {regex: "^/a/(.+)$"}, substitution: "\\1.test"}`,
		"host_rewrite_literal: new.test, append_x_forwarded_host: true",
	} {
		g := s.add(Group{Feature: feature, Routes: "- {match: {prefix: /a}, route: {cluster: o1, " + action + "}}\n" + elseRoute})
		for _, p := range []string{"/a", "/a/", "/a/c?q=1", "/ab"} {
			g.get(p, field("x-to", "header.test"), labelf("%s %s", action, p))
		}
	}
	const template = `
  match:
    path_match_policy:
      name: envoy.path.match.uri_template.uri_template_matcher
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig
        path_template: "/a/{x}/{y=**}"
`
	for _, rewrite := range []string{"/{y}/{x}", "/n", "/p-{x}"} {
		g := s.add(Group{Feature: feature, Routes: "-" + strings.TrimPrefix(template, "\n ") + `
  route:
    cluster: o1
    path_rewrite_policy:
      name: envoy.path.rewrite.uri_template.uri_template_rewriter
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig
        path_template_rewrite: "` + rewrite + "\"\n" + elseRoute})
		for _, p := range []string{"/a/b/c", "/a/b/c/d?q=1", "/a/b/", "/x"} {
			g.get(p, labelf("template %s %s", rewrite, p))
		}
	}
}

func (s *set) streamTimeouts() {
	const feature = "route.timeouts"
	for _, action := range []string{
		"timeout: 0.3s", "timeout: 0s\nidle_timeout: 0.3s", "timeout: 0s\nmax_stream_duration: {max_stream_duration: 0.3s}", "timeout: 2s\nidle_timeout: 0.3s",
	} {
		g := s.forward(feature, action)
		g.get("/", field("x-o-delay", "900"), measured(300*time.Millisecond), responseOnly(), label(action+" before the head"))
		g.get("/", field("x-o-bodydelay", "900"), measured(300*time.Millisecond), responseOnly(), label(action+" in the body"))
		g.get("/", label(action+" in time"))
	}
}

func (s *set) routeUpgrades() {
	const feature = "route.upgrades"
	const handshake = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: {}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	for _, v := range []struct{ hcm, action string }{
		{"", ""},
		{"upgrade_configs: [{upgrade_type: websocket}]", ""},
		{"upgrade_configs: [{upgrade_type: websocket, enabled: false}]", ""},
		{"upgrade_configs: [{upgrade_type: websocket, enabled: false}]", "upgrade_configs: [{upgrade_type: websocket}]"},
		{"upgrade_configs: [{upgrade_type: websocket}]", "upgrade_configs: [{upgrade_type: websocket, enabled: false}]"},
		{"", "upgrade_configs: [{upgrade_type: websocket}]"},
		{"upgrade_configs: [{upgrade_type: foo}]", ""},
	} {
		g := s.forward(feature, v.action)
		g.HCM = v.hcm
		for _, protocol := range []string{"websocket", "foo"} {
			g.raw(strings.ReplaceAll(handshake, "{}", protocol), tunnel("hi"), labelf("%s to a listener with %q and a route with %q", protocol, v.hcm, v.action))
		}
		g.get("/", labelf("no upgrade, %s, %s", v.hcm, v.action))
	}
	const connect = "CONNECT t.test:80 HTTP/1.1\r\nHost: t.test:80\r\n\r\n"
	for _, v := range []struct{ hcm, routes string }{
		{"", "- match: {connect_matcher: {}}\n  route: {cluster: t1, upgrade_configs: [{upgrade_type: CONNECT, connect_config: {}}]}\n"},
		{"upgrade_configs: [{upgrade_type: CONNECT}]", "- match: {connect_matcher: {}}\n  route: {cluster: t1, upgrade_configs: [{upgrade_type: CONNECT, connect_config: {}}]}\n"},
		{"upgrade_configs: [{upgrade_type: CONNECT}]", "- match: {connect_matcher: {}}\n  route: {cluster: o1}\n"},
		{"upgrade_configs: [{upgrade_type: CONNECT}]", "- match: {connect_matcher: {}}\n  route: {cluster: none, upgrade_configs: [{upgrade_type: CONNECT, connect_config: {}}]}\n"},
		{"upgrade_configs: [{upgrade_type: CONNECT}]", "- match: {connect_matcher: {}}\n  route: {cluster: t1, upgrade_configs: [{upgrade_type: CONNECT, enabled: false, connect_config: {}}]}\n"},
		{"upgrade_configs: [{upgrade_type: CONNECT}]", "- match: {prefix: /}\n  route: {cluster: o1}\n"},
		{"upgrade_configs: [{upgrade_type: CONNECT}]", "- match: {connect_matcher: {}}\n  direct_response: {status: 200}\n"},
	} {
		g := s.add(Group{Feature: feature, HCM: v.hcm, Routes: v.routes + elseRoute})
		g.raw(connect, method("CONNECT"), tunnel("hi"), anonymous(), labelf("CONNECT %s %.90s", v.hcm, v.routes))
		g.get("/", labelf("GET %s %.90s", v.hcm, v.routes))
	}
}

func (s *set) routeRetries() {
	const feature = "route.retries"
	for _, v := range []struct{ policy, sequence string }{
		{"retry_on: 5xx, num_retries: 2", "503,503,200"},
		{"retry_on: 5xx", "503,503,200"},
		{"retry_on: gateway-error, num_retries: 2", "500,200"},
		{"retry_on: retriable-4xx", "409,200"},
		{"retry_on: retriable-status-codes, retriable_status_codes: [404]", "404,200"},
		{"retry_on: reset, num_retries: 3", "reset,reset,200"},
		{"retry_on: connect-failure", "reset,200"},
		{"retry_on: retriable-headers, retriable_headers: [{name: x-again, present_match: true}]", "200,200"},
		{"retry_on: retriable-headers, retriable_headers: [{name: x-again, string_match: {prefix: ye}}]", "200,200"},
		{"retry_on: retriable-headers, retriable_headers: [{name: x-again, string_match: {exact: yes}, invert_match: true}]", "200,200"},
		{"retry_on: 5xx, retriable_request_headers: [{name: x-retry, string_match: {exact: please}}]", "503,200"},
		{"retry_on: 5xx, host_selection_retry_max_attempts: 3, retry_host_predicate: [{name: envoy.retry_host_predicates.previous_hosts, typed_config: {'@type': type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate}}]", "503,200"},
		{"retry_on: 5xx, retry_back_off: {base_interval: 0.02s, max_interval: 0.1s}", "503,200"},
		{"retry_on: 5xx, rate_limited_retry_back_off: {reset_headers: [{name: retry-after, format: SECONDS}]}", "503,200"},
	} {
		g := s.forward(feature, "retry_policy: {"+v.policy+"}")
		g.get("/", field("x-o-seq", v.sequence), labelf("%.80s %s", v.policy, v.sequence))
		g.get("/", field("x-o-seq", v.sequence), field("x-o-h", "X-Again: yes"), field("x-retry", "please"), labelf("%.80s %s with headers", v.policy, v.sequence))
		g.get("/", field("x-o-seq", v.sequence), method("POST"), body("text"), labelf("%.80s %s POST", v.policy, v.sequence))
	}
}

func (s *set) matcherTrees() {
	const feature = "route.matcher"
	const routeTo = `{name: route, typed_config: {"@type": type.googleapis.com/envoy.config.route.v3.Route, match: {prefix: /}, route: {cluster: CLUSTER}}}`
	action := func(cluster string) string {
		return "{action: " + strings.ReplaceAll(routeTo, "CLUSTER", cluster) + "}"
	}
	input := func(name string) string {
		return `{name: request-headers, typed_config: {"@type": type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput, header_name: "` + name + `"}}`
	}
	predicate := func(name, matcher string) string {
		return "{single_predicate: {input: " + input(name) + ", value_match: {" + matcher + "}}}"
	}
	for _, matcher := range []string{
		"matcher_tree: {input: " + input("x-h") + ", exact_match_map: {map: {v: " + action("o1") + ", w: " + action("o2") + "}}}",
		"matcher_tree: {input: " + input("x-h") + ", exact_match_map: {map: {v: " + action("o1") + "}}}\non_no_match: " + action("o2"),
		"matcher_tree: {input: " + input(":path") + ", prefix_match_map: {map: {/a: " + action("o1") + ", /a/b: " + action("o2") + "}}}",
		"matcher_list: {matchers: [{predicate: " + predicate("x-h", "exact: v") + ", on_match: " + action("o1") + "}, {predicate: " + predicate("x-h", "safe_regex: {regex: 'w+'}") + ", on_match: " + action("o2") + "}]}",
		"matcher_list: {matchers: [{predicate: {and_matcher: {predicate: [" + predicate("x-h", "prefix: v") + ", {not_matcher: " + predicate("x-i", "exact: n") + "}]}}, on_match: " + action("o1") + "}]}\non_no_match: " + action("o3"),
		"matcher_list: {matchers: [{predicate: {or_matcher: {predicate: [" + predicate("x-h", "exact: v") + ", " + predicate("x-i", "suffix: n") + "]}}, on_match: {matcher: {matcher_tree: {input: " + input("x-i") + ", exact_match_map: {map: {n: " + action("o2") + "}}}}}}]}\non_no_match: " + action("o3"),
	} {
		g := s.add(Group{Feature: feature, VirtualHosts: "- name: v\n  domains: ['*']\n  matcher:\n" + indent("    ", matcher) + "\n"})
		for _, list := range [][]string{nil, {"x-h", "v"}, {"x-h", "ww"}, {"x-h", "va"}, {"x-h", "v", "x-i", "n"}, {"x-i", "n"}, {"x-h", "w", "x-i", "an"}} {
			for _, p := range []string{"/", "/a/b/c", "/ab"} {
				g.get(p, fields(pairs(list...)), labelf("%.60s %v %s", matcher, list, p))
			}
		}
	}
}

// connectionMatches adds routes that match properties of the connection or of the request's
// metadata.
func (s *set) connectionMatches() {
	const feature = "match.connection"
	for _, match := range []string{"tls_context: {presented: false}", "tls_context: {validated: true}", "tls_context: {presented: true, validated: false}"} {
		s.match(feature, "prefix: /, "+match).get("/", label(match))
	}
	for _, value := range []string{"{string_match: {exact: v}}", "{present_match: true}", "{string_match: {prefix: v}}"} {
		g := s.match(feature, "prefix: /, dynamic_metadata: [{filter: f, path: [{key: k}], value: "+value+"}]")
		g.Filters = `
- name: envoy.filters.http.header_to_metadata
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
    request_rules: [{header: x-h, on_header_present: {metadata_namespace: f, key: k, type: STRING}}]
`
		g.get("/", label(value))
		g.get("/", field("x-h", "v"), label(value+" v"))
		g.get("/", field("x-h", "vw"), label(value+" vw"))
	}
	g := s.add(Group{Feature: feature, RouteConfig: "ignore_path_parameters_in_path_matching: true", Routes: "- {match: {path: /a}, route: {cluster: o1}}\n" + elseRoute})
	for _, p := range []string{"/a;x", "/a;x/b", "/a;x?q", "/a"} {
		g.get(p)
	}
}
