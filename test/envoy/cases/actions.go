package cases

import (
	"strings"
	"time"
)

// actions adds the groups about what a route does with a request.
func (s *set) actions() {
	s.redirects()
	s.directResponses()
	s.pathRewrites()
	s.hostRewrites()
	s.headerActions()
	s.headerFormats()
	s.mirrors()
	s.weights()
	s.retries()
	s.retryLimits()
	s.routeTimeouts()
	s.hedges()
	s.rateLimitActions()
	s.clusterChoices()
}

// routeTo returns a route for all paths to o1 with further fields of its action.
func routeTo(action string) string {
	if action != "" {
		action = ", " + action
	}
	return "- {match: {prefix: /}, route: {cluster: o1" + action + "}}\n"
}

func (s *set) redirects() {
	const feature = "action.redirect"
	for _, v := range []struct{ match, action string }{
		{"prefix: /", "host_redirect: b.test"},
		{"prefix: /", "host_redirect: 'b.test:8080'"},
		{"prefix: /", "path_redirect: /new"},
		{"prefix: /", "path_redirect: '/new?y=2'"},
		{"prefix: /a", "prefix_rewrite: /z"},
		{"prefix: /a/", "prefix_rewrite: /"},
		{"prefix: /", "regex_rewrite: {pattern: {regex: '^/([a-z]+)'}, substitution: '/x-\\1'}"},
		{"prefix: /", "https_redirect: true"},
		{"prefix: /", "scheme_redirect: ftp"},
		{"prefix: /", "port_redirect: 8443"},
		{"prefix: /", "https_redirect: true, port_redirect: 8443"},
		{"prefix: /", "strip_query: true, host_redirect: b.test"},
		{"prefix: /", "https_redirect: true, strip_query: true"},
		{"prefix: /", "host_redirect: b.test, path_redirect: /new, strip_query: true"},
		{"path: /a", "path_redirect: /new"},
		{"safe_regex: {regex: '/a.*'}", "host_redirect: b.test"},
	} {
		g := s.add(Group{Feature: feature, Routes: "- {match: {" + v.match + "}, redirect: {" + v.action + "}}\n" + elseRoute})
		for _, p := range []string{"/a", "/a?x=1", "/a/b", "/a/b?x=1&y", "/", "/abc"} {
			g.get(p, labelf("%s %s", v.action, p))
		}
		for _, name := range []string{"a.test:80", "a.test:443", "a.test:8080"} {
			g.get("/a", host(name), labelf("%s host %s", v.action, name))
		}
		g.get("/a", field("X-Forwarded-Proto", "https"), labelf("%s https", v.action))
		g.get("/a", method("POST"), body("abc"), labelf("%s POST", v.action))
		g.h2(path("/a?x=1"), labelf("%s h2", v.action))
	}
	for _, code := range []string{"MOVED_PERMANENTLY", "FOUND", "SEE_OTHER", "TEMPORARY_REDIRECT", "PERMANENT_REDIRECT"} {
		g := s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, redirect: {host_redirect: b.test, response_code: " + code + "}}\n"})
		g.get("/a", label(code))
		g.get("/a", method("HEAD"), label(code+" HEAD"))
	}
	g := s.add(Group{Feature: feature, Routes: `
- match: {prefix: /}
  redirect: {host_redirect: b.test}
  response_headers_to_add: [{header: {key: x-r, value: '1'}}]
  request_headers_to_add: [{header: {key: x-q, value: '1'}}]`,
		HostFields: "response_headers_to_add: [{header: {key: strict-transport-security, value: max-age=1}}]"})
	g.get("/a")
	for _, require := range []string{"ALL", "EXTERNAL_ONLY", "NONE"} {
		g = s.add(Group{Feature: feature, HostFields: "require_tls: " + require})
		g.get("/x?q=1", label("require_tls "+require))
		g.get("/", field("X-Forwarded-Proto", "https"), label("require_tls with https "+require))
		g.get("/", host("a.test:8080"), label("require_tls with a port "+require))
		g.h2(label("require_tls h2 " + require))
	}
}

func (s *set) directResponses() {
	const feature = "action.direct_response"
	for _, v := range []string{
		"status: 200, body: {inline_string: hello}",
		"status: 200",
		"status: 204",
		"status: 404, body: {inline_string: gone}",
		"status: 503, body: {inline_bytes: aGVsbG8=}",
		"status: 301, body: {inline_string: moved}",
		"status: 418",
		`status: 200, body: {inline_string: '{"a": 1}'}`,
		"status: 599",
	} {
		g := s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, direct_response: {" + v + "}}\n"})
		g.get("/a", label(v))
		g.get("/a", method("HEAD"), label("HEAD "+v))
		g.get("/a", method("POST"), body("abc"), label("POST "+v))
		g.get("/a", repeat(2), label("twice "+v))
		g.h2(label("h2 " + v))
		g.h2(field("content-type", "application/grpc"), method("POST"), body(""), label("grpc "+v))
	}
	g := s.add(Group{Feature: feature, Routes: `
- match: {prefix: /typed}
  direct_response: {status: 200, body: {inline_string: '{}'}}
  response_headers_to_add:
  - {header: {key: content-type, value: application/json}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}
  - {header: {key: x-path, value: '%REQ(:path)%'}}
- match: {prefix: /}
  direct_response: {status: 200, body: {inline_string: '<html>'}}
  response_headers_to_remove: [content-type]
`})
	g.get("/typed/x?y")
	g.get("/removed")
	g.get("/slow", method("POST"), field("content-length", "5"), label("POST without its body"), timeout(time.Second))
}

func (s *set) pathRewrites() {
	const feature = "action.path_rewrite"
	for _, v := range []struct{ match, action string }{
		{"prefix: /a", "prefix_rewrite: /z"},
		{"prefix: /a", "prefix_rewrite: /"},
		{"prefix: /a/", "prefix_rewrite: /"},
		{"prefix: /a", "prefix_rewrite: /z/"},
		{"prefix: /a, case_sensitive: false", "prefix_rewrite: /z"},
		{"path: /a", "prefix_rewrite: /z"},
		{"path_separated_prefix: /a", "prefix_rewrite: /z"},
		{"path_separated_prefix: /a", "prefix_rewrite: /"},
		{"safe_regex: {regex: '/a.*'}", "prefix_rewrite: /z"},
		{"prefix: /a", "regex_rewrite: {pattern: {regex: '^/a/([^/?]+)(.*)$'}, substitution: '/\\1/x\\2'}"},
		{"prefix: /", "regex_rewrite: {pattern: {regex: '/'}, substitution: '//'}"},
		{"prefix: /a", "regex_rewrite: {pattern: {regex: 'b'}, substitution: 'c'}"},
		{"prefix: /a", "regex_rewrite: {pattern: {regex: '^/a$'}, substitution: ''}"},
		{"prefix: /a", "regex_rewrite: {pattern: {regex: '^/a'}, substitution: '/%7E'}"},
	} {
		g := s.add(Group{Feature: feature, Routes: "- {match: {" + v.match + "}, route: {cluster: o1, " + v.action + "}}\n" + elseRoute})
		for _, p := range []string{"/a", "/a/", "/a/b", "/a/b/b?b=1", "/a?x=/a", "/ab", "/A/b", "/a/%2F", "/a//b", "/a#f"} {
			g.get(p, labelf("%s %s %s", v.match, v.action, p))
		}
		g.get("/a/b", field("x-envoy-original-path", "/fake"), labelf("%s %s with an original path", v.match, v.action))
		g.h2(path("/a/b?x"), labelf("%s %s h2", v.match, v.action))
	}
	for _, v := range []struct{ match, template string }{
		{"/a/{x}/{y}", "/{y}/{x}"}, {"/a/{x=**}", "/z/{x}"},
	} {
		g := s.add(Group{Feature: feature, Routes: `
- match:
    path_match_policy:
      name: envoy.path.match.uri_template.uri_template_matcher
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig
        path_template: "` + v.match + `"
  route:
    cluster: o1
    path_rewrite_policy:
      name: envoy.path.rewrite.uri_template.uri_template_rewriter
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig
        path_template_rewrite: "` + v.template + `"
` + elseRoute})
		for _, p := range []string{"/a/1/2", "/a/1/2?x=1", "/a/1", "/b"} {
			g.get(p, labelf("%s to %s %s", v.match, v.template, p))
		}
	}
}

func (s *set) hostRewrites() {
	const feature = "action.host_rewrite"
	for _, action := range []string{
		"host_rewrite_literal: up.test",
		"host_rewrite_literal: 'up.test:8080'",
		"host_rewrite_literal: up.test, append_x_forwarded_host: true",
		"host_rewrite_header: x-host",
		"host_rewrite_header: x-host, append_x_forwarded_host: true",
		"host_rewrite_path_regex: {pattern: {regex: '^/([a-z]+)/.*$'}, substitution: '\\1.test'}",
		"auto_host_rewrite: true",
		"append_x_forwarded_host: true",
	} {
		g := s.add(Group{Feature: feature, Routes: routeTo(action)})
		g.get("/abc/d", label(action))
		g.get("/abc/d?e=1", field("x-host", "h.test"), label(action+" with x-host"))
		g.get("/123", field("x-host", ""), label(action+" with an empty x-host"))
		g.get("/", field("X-Forwarded-Host", "first.test"), label(action+" with X-Forwarded-Host"))
		g.get("/", host("a.test:99"), label(action+" with a port"))
		g.h2(path("/abc/d"), field("x-host", "h.test"), label(action+" h2"))
	}
	g := s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: dns, auto_host_rewrite: true, append_x_forwarded_host: true}}",
		Clusters: strings.Replace(strings.Replace(cluster("dns", "", "o1"), "STATIC", "STRICT_DNS", 1), "address: 127.0.0.1", "address: localhost", 1)})
	g.get("/", label("auto_host_rewrite of a name"))
}

func (s *set) mirrors() {
	const feature = "action.mirror"
	for _, v := range []string{
		"request_mirror_policies: [{cluster: o2}]",
		"request_mirror_policies: [{cluster: o2}, {cluster: o3}]",
		"request_mirror_policies: [{cluster: o2, runtime_fraction: {default_value: {numerator: 0}}}]",
		"request_mirror_policies: [{cluster: o2, runtime_fraction: {default_value: {numerator: 100}}}]",
		"request_mirror_policies: [{cluster: o2, disable_shadow_host_suffix_append: true}]",
		"request_mirror_policies: [{cluster_header: x-mirror}]",
		"request_mirror_policies: [{cluster: o2}], prefix_rewrite: /z, host_rewrite_literal: up.test",
		"request_mirror_policies: [{cluster: o2, request_headers_mutations: [{append: {header: {key: x-m, value: '1'}}}]}]",
		"request_mirror_policies: [{cluster: none}]",
		"request_mirror_policies: [{cluster: dead}]",
	} {
		g := s.add(Group{Feature: feature, Routes: routeTo(v)})
		slow := field("x-o-at", "o1=delay150:200") // so that the copies have arrived
		g.get("/a?x", slow, sorted(), label(v))
		g.get("/a", slow, sorted(), method("POST"), body("abc"), label(v+" POST"))
		g.get("/a", slow, sorted(), host("a.test:8080"), label(v+" with a port"))
		g.get("/a", slow, sorted(), field("x-mirror", "o3"), label(v+" with x-mirror"))
		g.h2(slow, sorted(), method("POST"), body("abc"), label(v+" h2"))
		g.get("/a", field("x-o-at", "o1=delay150:200,o2=503"), sorted(), label(v+" whose copy fails"))
	}
}

func (s *set) weights() {
	const feature = "action.weighted_clusters"
	for _, v := range []string{
		"clusters: [{name: o1, weight: 50}, {name: o2, weight: 50}]",
		"clusters: [{name: o1, weight: 90}, {name: o2, weight: 10}]",
		"clusters: [{name: o1, weight: 1}, {name: o2, weight: 3}]",
		"clusters: [{name: o1, weight: 0}, {name: o2, weight: 1}]",
		"clusters: [{name: o1, weight: 1}, {name: o2, weight: 1}], runtime_key_prefix: r",
	} {
		s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {weighted_clusters: {" + v + "}}}"}).get("/", distribution(), label(v))
	}
	g := s.add(Group{Feature: feature, Routes: `
- match: {prefix: /}
  route:
    weighted_clusters:
      header_name: x-random
      clusters: [{name: o1, weight: 10}, {name: o2, weight: 90}]`})
	for _, value := range []string{"0", "9", "10", "99", "100", "110", "x", ""} {
		if value == "x" || value == "" {
			g.get("/", field("x-random", value), distribution(), labelf("x-random %q", value))
		} else {
			g.get("/", field("x-random", value))
		}
	}
	g = s.add(Group{Feature: feature, Routes: `
- match: {prefix: /}
  request_headers_to_add: [{header: {key: x-route, value: '1'}}]
  route:
    prefix_rewrite: /z
    weighted_clusters:
      clusters:
      - name: o1
        weight: 1
        host_rewrite_literal: w.test
        request_headers_to_add: [{header: {key: x-w, value: '1'}}]
        request_headers_to_remove: [x-remove]
        response_headers_to_add: [{header: {key: x-rw, value: '%UPSTREAM_CLUSTER%'}}]
        response_headers_to_remove: [x-gone]`})
	g.get("/a", field("x-remove", "1"), field("x-o-h", "x-gone: 1"))
	g = s.add(Group{Feature: feature, Routes: `
- match: {prefix: /}
  route: {weighted_clusters: {clusters: [{cluster_header: x-c, weight: 1}]}}`})
	g.get("/", field("x-c", "o2"))
	g.get("/")
}

// clusterChoices adds routes whose cluster depends on the request, or does not exist.
func (s *set) clusterChoices() {
	const feature = "action.cluster"
	g := s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster_header: x-c}}"})
	for _, name := range []string{"o1", "o2", "nope", "none", "dead", ""} {
		g.get("/", field("x-c", name), labelf("cluster_header %q", name))
	}
	g.get("/", label("without the cluster header"))
	for _, code := range []string{"SERVICE_UNAVAILABLE", "NOT_FOUND", "INTERNAL_SERVER_ERROR"} {
		g = s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster_header: x-c, cluster_not_found_response_code: " + code + "}}"})
		g.get("/", field("x-c", "nope"), label(code))
		g.h2(field("x-c", "nope"), field("content-type", "application/grpc"), method("POST"), body(""), label("grpc "+code))
	}
	g = s.add(Group{Feature: feature, RouteConfig: "validate_clusters: false", Routes: "- {match: {prefix: /}, route: {cluster: nowhere}}"})
	g.get("/")
	g = s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, non_forwarding_action: {}}"})
	g.get("/")
}
