package cases

import (
	"fmt"
	"strings"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// routing adds the groups about virtual hosts and routes. In most of them, one route with the
// condition under test leads to o1, and all other requests go to o2.
func (s *set) routing() {
	s.matchPaths()
	s.matchConnect()
	s.matchTemplates()
	s.matchHeaders()
	s.matchPseudoHeaders()
	s.matchParameters()
	s.matchOthers()
	s.virtualHosts()
	s.matchOrder()
	s.matchHTTP2()
}

// elseRoute sends all requests to o2.
const elseRoute = "- {match: {prefix: /}, route: {cluster: o2}}\n"

// match adds a group whose first route has a match and leads to o1.
func (s *set) match(feature, match string) *Group {
	return s.add(Group{Feature: feature, Routes: "- {match: {" + match + "}, route: {cluster: o1}}\n" + elseRoute})
}

// paths returns spellings of paths around /a.
func paths() []string {
	return []string{
		"/", "/a", "/a/", "/a/b", "/ab", "/A", "/A/b", "/a?x=1", "/a/?x", "/a;x=1", "/a%2Fb", "/a//b", "/a/../b",
		"/%61", "/a#f", "/a?", "//a", "/a/./b", "/a?/b", "/a%3Fx", "/a%23", "/a+b", "/a%20b", "/\xe9", `/a\b`,
	}
}

func (s *set) matchPaths() {
	for _, v := range []struct {
		feature, match string
		paths          []string
	}{
		{"match.prefix", "prefix: /a", paths()},
		{"match.prefix", "prefix: /a/", paths()[:12]},
		{"match.prefix", "prefix: /a, case_sensitive: false", paths()[:8]},
		{"match.path", "path: /a", paths()},
		{"match.path", "path: /a, case_sensitive: false", paths()[:8]},
		{"match.regex", "safe_regex: {regex: /a.*}", paths()},
		{"match.regex", "safe_regex: {regex: /a}", paths()[:9]},
		{"match.regex", "safe_regex: {regex: '/(a|b)/[0-9]+'}", []string{"/a/1", "/b/22", "/a/x", "/a/1/", "/a/1?q", "/A/1", "/c/1", "/a/\u0661"}},
		{"match.regex", "safe_regex: {regex: '(?i)/foo'}", []string{"/foo", "/FOO", "/foo/"}},
		{"match.regex", `safe_regex: {google_re2: {}, regex: '/x/\d+'}`, []string{"/x/1", "/x/"}},
		{"match.psp", "path_separated_prefix: /a", paths()},
		{"match.psp", "path_separated_prefix: /a/b", []string{"/a/b", "/a/bc", "/a/b/c", "/a/b?x", "/a/b;x", "/A/b"}},
		{"match.psp", "path_separated_prefix: /a, case_sensitive: false", []string{"/A", "/A/b", "/Ab"}},
	} {
		g := s.match(v.feature, v.match)
		for _, p := range v.paths {
			g.get(p)
		}
	}
}

func (s *set) matchConnect() {
	const connect = "CONNECT t.test:80 HTTP/1.1\r\nHost: t.test:80\r\n\r\n"
	g := s.add(Group{
		Feature: "match.connect",
		HCM: `
upgrade_configs: [{upgrade_type: CONNECT}]
http2_protocol_options: {allow_connect: true}`,
		Routes: `
- match: {connect_matcher: {}}
  route:
    cluster: t1
    upgrade_configs: [{upgrade_type: CONNECT, connect_config: {}}]
` + elseRoute,
	})
	g.raw(connect, method("CONNECT"), tunnel("hi"), anonymous())
	g.get("/")
	g = s.add(Group{Feature: "match.connect", Routes: elseRoute})
	g.raw(connect, method("CONNECT"), tunnel("hi"))
}

func (s *set) matchTemplates() {
	for _, v := range []struct {
		template string
		paths    []string
	}{
		{"/a/{x}/c", []string{"/a/b/c", "/a/b/c/d", "/a//c", "/a/b/c?q", "/x"}},
		{"/a/**", []string{"/a/b/c", "/a", "/a/", "/ab"}},
	} {
		g := s.add(Group{Feature: "match.uri_template", Routes: `
- match:
    path_match_policy:
      name: envoy.path.match.uri_template.uri_template_matcher
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig
        path_template: "` + v.template + `"
  route: {cluster: o1}
` + elseRoute})
		for _, p := range v.paths {
			g.get(p)
		}
	}
}

func (s *set) matchHeaders() {
	for _, matcher := range []string{
		"name: x-h, string_match: {exact: v}",
		"name: x-h, string_match: {exact: v, ignore_case: true}",
		"name: x-h, string_match: {prefix: v}",
		"name: x-h, string_match: {suffix: v}",
		"name: x-h, string_match: {contains: v}",
		"name: x-h, string_match: {safe_regex: {regex: v}}",
		"name: x-h, string_match: {safe_regex: {regex: v.*}}",
		"name: x-h, exact_match: v",
		"name: x-h, safe_regex_match: {regex: v|w}",
		"name: x-h, present_match: true",
		"name: x-h, present_match: false",
		"name: x-h, prefix_match: v",
		"name: x-h, suffix_match: v",
		"name: x-h, contains_match: v",
		"name: x-h, string_match: {exact: v}, invert_match: true",
		"name: x-h, string_match: {exact: v}, invert_match: true, treat_missing_header_as_empty: true",
		"name: x-h, present_match: true, invert_match: true",
		"name: x-h, string_match: {exact: ''}, treat_missing_header_as_empty: true",
		"name: x-h",
		"name: X-H, string_match: {exact: v}",
		"name: x-h, present_match: false, treat_missing_header_as_empty: true",
	} {
		g := s.match("match.headers", "prefix: /, headers: [{"+matcher+"}]")
		for _, f := range [][]wire.Field{
			nil, pairs("x-h", "v"), pairs("x-h", "V"), pairs("x-h", ""), pairs("x-h", "va"), pairs("x-h", "av"),
			pairs("x-h", "v", "x-h", "w"), pairs("x-h", "w", "x-h", "v"), pairs("x-h", "v,w"), pairs("x-h", " v "),
		} {
			g.get("/", fields(f))
		}
	}
	g := s.match("match.headers", "prefix: /, headers: [{name: x-n, range_match: {start: -5, end: 10}}]")
	for _, v := range []string{"-5", "-6", "0", "9", "10", "5.0", "x", "", "+5", "05", "0x5", "5 ", "99999999999999999999"} {
		g.get("/", field("x-n", v))
	}
	g.get("/")
	g = s.match("match.headers", "prefix: /, headers: [{name: x-n, range_match: {start: 1, end: 3}, invert_match: true}]")
	for _, v := range []string{"1", "3", "x"} {
		g.get("/", field("x-n", v))
	}
	g.get("/")
}

func (s *set) matchPseudoHeaders() {
	const feature = "match.headers.pseudo"
	g := s.match(feature, "prefix: /, headers: [{name: ':method', string_match: {exact: POST}}]")
	g.get("/", method("POST"), body("x"))
	g.get("/")
	g.get("/", method("post"), body(""))

	g = s.match(feature, "prefix: /, headers: [{name: ':authority', string_match: {prefix: a.}}]")
	for _, name := range []string{"a.test", "b.test", "a.test:80", "A.test"} {
		g.get("/", host(name))
	}

	g = s.match(feature, "prefix: /, headers: [{name: ':path', string_match: {contains: '?q'}}]")
	for _, p := range []string{"/?q", "/q", "/a?q=1", "/a?x&?q"} {
		g.get(p)
	}

	g = s.match(feature, "prefix: /, headers: [{name: ':scheme', string_match: {exact: http}}]")
	g.get("/")
	g.get("/", field("X-Forwarded-Proto", "https"))

	g = s.match(feature, "prefix: /, headers: [{name: host, string_match: {exact: a.test}}]")
	g.get("/")
	g.get("/", host("b.test"))

	g = s.match("match.headers.multi", "prefix: /, headers: [{name: x-h, string_match: {exact: v}}, {name: x-i, present_match: true}]")
	g.get("/")
	g.get("/", field("x-h", "v"))
	g.get("/", field("x-h", "v"), field("x-i", ""))
	g.get("/", field("x-i", "1"))

	g = s.match("match.headers.proto", "prefix: /, headers: [{name: x-forwarded-proto, string_match: {exact: http}}]")
	g.get("/")
	g.get("/", field("X-Forwarded-Proto", "https"))
	g.get("/", field("X-Forwarded-Proto", "http"))
	g = s.match("match.headers.proto", "prefix: /, headers: [{name: x-request-id, present_match: true}]")
	g.get("/")
}

func (s *set) matchParameters() {
	for _, matcher := range []string{
		"name: q, string_match: {exact: v}",
		"name: q, present_match: true",
		"name: q, string_match: {safe_regex: {regex: v+}}",
		"name: q, string_match: {prefix: v}",
		"name: q, string_match: {exact: v, ignore_case: true}",
		"name: q, string_match: {contains: ' '}",
		"name: q",
		"name: q, present_match: false",
	} {
		g := s.match("match.query", "prefix: /, query_parameters: [{"+matcher+"}]")
		for _, p := range []string{
			"/", "/?q", "/?q=", "/?q=v", "/?q=V", "/?q=vv", "/?x=1&q=v", "/?q=x&q=v", "/?q=v&q=x", "/?Q=v", "/?q=%76",
			"/?q=v#f", "/?q=a+b", "/?q=a%20b", "/?qq=v", "/?q=v;x", "/?q==v", "/?&q=v", "/?%71=v",
		} {
			g.get(p)
		}
	}
}

func (s *set) matchOthers() {
	g := s.match("match.grpc", "prefix: /, grpc: {}")
	for _, contentType := range []string{
		"application/grpc", "application/grpc+proto", "application/grpc-web", "text/plain", "application/grpc;x",
		"APPLICATION/GRPC", "application/grpcx", "application/grpc+",
	} {
		g.get("/", field("content-type", contentType))
	}
	g.get("/")

	for _, fraction := range []string{
		"numerator: 0, denominator: HUNDRED", "numerator: 100, denominator: HUNDRED", "numerator: 50, denominator: HUNDRED",
		"numerator: 5000, denominator: TEN_THOUSAND", "numerator: 200000, denominator: MILLION",
	} {
		g = s.match("match.runtime_fraction", "prefix: /, runtime_fraction: {default_value: {"+fraction+"}, runtime_key: k.x}")
		g.get("/", distribution(), label(fraction))
	}

	g = s.match("match.cookies", "prefix: /, cookies: [{name: c, string_match: {exact: v}}]")
	g.get("/")
	for _, cookie := range []string{"c=v", "c=w", "a=b; c=v"} {
		g.get("/", field("cookie", cookie))
	}
	s.match("match.tls_context", "prefix: /, tls_context: {presented: true}").get("/")
}

// namedHosts are virtual hosts with all kinds of domains. The last one is for all other hosts.
const namedHosts = `
- {name: exact, domains: [a.test, 'p.test:8080', UP.test], routes: [{match: {prefix: /}, route: {cluster: o1}}]}
- {name: suf, domains: ['*.a.test', '*-x.test'], routes: [{match: {prefix: /}, route: {cluster: o2}}]}
- {name: suf2, domains: ['*.b.a.test'], routes: [{match: {prefix: /}, route: {cluster: o3}}]}
- {name: pre, domains: [a.*, ab.*], routes: [{match: {prefix: /}, route: {cluster: o4}}]}
- {name: any, domains: ['*'], routes: [{match: {prefix: /}, route: {cluster: o5}}]}
`

func (s *set) virtualHosts() {
	const feature = "vhost"
	for _, v := range []struct{ routeConfig, hcm string }{
		{"", ""},
		{"ignore_port_in_host_matching: true", ""},
		{"", "strip_any_host_port: true"},
		{"", "strip_matching_host_port: true"},
	} {
		g := s.add(Group{Feature: feature, VirtualHosts: namedHosts, RouteConfig: v.routeConfig, HCM: v.hcm})
		for _, name := range []string{
			"a.test", "A.TEST", "x.a.test", "x.b.a.test", "b.a.test", ".a.test", "a.other", "ab.other", "foo-x.test",
			"-x.test", "other", "a.test:80", "a.test:8080", "x.a.test:99", "p.test", "p.test:8080", "up.test", "a.",
			"a.test.", "127.0.0.1", "[::1]", "[::1]:80", "x.a.test.", "",
		} {
			g.get("/", host(name), labelf("%s%s host %q", v.routeConfig, v.hcm, name))
		}
	}
	lines := strings.SplitAfter(strings.TrimSpace(namedHosts), "\n")
	g := s.add(Group{Feature: feature, VirtualHosts: strings.Join(lines[:4], "")})
	for _, name := range []string{"other", "a.test", "a.test:80"} {
		g.get("/", host(name), labelf("without a default, host %q", name))
	}
	g = s.add(Group{Feature: feature, VirtualHosts: namedHosts, HCM: "strip_trailing_host_dot: true"})
	for _, name := range []string{"a.test.", "a.test.:80", "a.test"} {
		g.get("/", host(name))
	}
	g = s.add(Group{Feature: feature, VirtualHosts: `
- {name: x, domains: ['*'], require_tls: ALL, routes: [{match: {prefix: /}, route: {cluster: o1}}]}`})
	g.get("/x?q=1")
	g.get("/", field("X-Forwarded-Proto", "https"))
	g = s.add(Group{Feature: feature, VirtualHosts: namedHosts, RouteConfig: "vhost_header: x-vh"})
	g.get("/", field("x-vh", "a.test"), host("other"))
}

func (s *set) matchOrder() {
	g := s.add(Group{Feature: "match.order", Routes: `
- {match: {prefix: /a}, route: {cluster: o1}}
- {match: {path: /a/b}, route: {cluster: o2}}
- {match: {prefix: /}, route: {cluster: o3}}`})
	for _, p := range []string{"/a", "/a/b", "/b"} {
		g.get(p)
	}
	g = s.add(Group{Feature: "match.empty", Routes: "- {match: {path: /x}, route: {cluster: o1}}"})
	g.get("/y")
	g.get("/x")
	g.get("*", method("OPTIONS"))
	g.get("http://a.test/x")
	g.get("http://b.test/x", host("a.test"))
}

func (s *set) matchHTTP2() {
	for _, matcher := range []string{
		"name: x-h, string_match: {exact: v}",
		"name: ':scheme', string_match: {exact: https}",
		"name: ':authority', string_match: {suffix: test}",
		"name: te, string_match: {exact: trailers}",
		"name: cookie, string_match: {exact: a=b; c=d}",
	} {
		g := s.match("h2.match", "prefix: /, headers: [{"+matcher+"}]")
		g.h2()
		g.h2(field("x-h", "v"))
		g.h2(scheme("https"))
		g.h2(field("te", "trailers"))
		g.h2(field("cookie", "a=b"), field("cookie", "c=d"))
		g.h2(host("a.example"))
	}
	g := s.add(Group{Feature: "route_config.headers", RouteConfig: `
internal_only_headers: [x-int]
response_headers_to_add: [{header: {key: x-r, value: '1'}}]`})
	g.get("/", field("x-int", "1"))
	g = s.add(Group{Feature: "route_config.headers", RouteConfig: "ignore_path_parameters_in_path_matching: true"})
	g.get("/a;x")
}

// numbered returns n copies of a format with the numbers from 0, joined by vertical bars.
func numbered(format string, n int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(parts, "|")
}
