package cases

import (
	"fmt"
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// filters adds the groups about HTTP filters.
func (s *set) filters() {
	s.cors()
	s.csrf()
	s.fault()
	s.rbac()
	s.rateLimits()
	s.headerMutations()
	s.headerToMetadata()
	s.everyFilter()
	s.disabledFilters()
	s.filtersOfOneType()
	s.codings()
	s.smallFilters()
}

// filter returns a list with one HTTP filter. message is the type of its configuration below
// envoy.extensions.filters.http; config has its fields, indented by two spaces or more.
func filter(name, message, config string) string {
	return "- name: envoy.filters.http." + name + "\n  typed_config:\n    " + typeLine(message) + "\n" + indent("    ", config)
}

// perRoute returns the field of a route or virtual host that configures a filter.
func perRoute(name, message, config string) string {
	return "typed_per_filter_config:\n  envoy.filters.http." + name + ":\n    " + typeLine(message) + "\n" + indent("    ", config)
}

func typeLine(message string) string {
	return `"@type": type.googleapis.com/envoy.extensions.filters.http.` + message
}

// indent indents each line of a text that is not empty.
func indent(prefix, text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		if line != "" {
			b.WriteString(prefix + line + "\n")
		}
	}
	return b.String()
}

// always and never are fractions of all requests.
const (
	always = "{default_value: {numerator: 100}}"
	never  = "{default_value: {numerator: 0}}"
)

func (s *set) cors() {
	const policy = `
allow_origin_string_match: [{exact: 'http://ok.test'}, {safe_regex: {regex: 'http://.*\.wild\.test'}}]
allow_methods: GET,PUT
allow_headers: x-a,x-b
expose_headers: x-e
max_age: '60'
`
	const credentials = policy + "allow_credentials: true\n"
	for _, v := range []variant{
		{"full", credentials},
		{"no creds", policy + "allow_credentials: false"},
		{"star", "allow_origin_string_match: [{prefix: ''}]"},
		{"disabled", credentials + "filter_enabled: " + never},
		{"shadow", credentials + "filter_enabled: " + never + "\nshadow_enabled: " + always},
		{"private", credentials + "allow_private_network_access: true"},
		{"not forwarded", credentials + "forward_not_matching_preflights: false"},
	} {
		g := s.add(Group{
			Feature: "cors", Filters: filter("cors", "cors.v3.Cors", ""),
			HostFields: perRoute("cors", "cors.v3.CorsPolicy", v.yaml),
		})
		for _, origin := range []string{"http://ok.test", "http://bad.test", "http://x.wild.test", "", "null", "http://ok.test:80", "HTTP://OK.TEST"} {
			var f []wire.Field
			if origin != "" {
				f = pairs("Origin", origin)
			}
			g.get("/", fields(f), labelf("%s simple %s", v.name, origin))
			g.get("/", method("OPTIONS"), fields(f), field("Access-Control-Request-Method", "PUT"),
				field("Access-Control-Request-Headers", "x-a"), labelf("%s preflight %s", v.name, origin))
		}
		ok := field("Origin", "http://ok.test")
		g.get("/", method("OPTIONS"), ok, label(v.name+" OPTIONS without method"))
		g.get("/", method("OPTIONS"), ok, field("Access-Control-Request-Method", "PUT"),
			field("Access-Control-Request-Private-Network", "true"), label(v.name+" private network"))
		g.get("/", ok, field("x-o-h", "Access-Control-Allow-Origin: *"), label(v.name+" origin answers itself"))
	}
}

func (s *set) csrf() {
	for _, v := range []variant{
		{"on", "filter_enabled: " + always},
		{"off", "filter_enabled: " + never},
		{"additional", "filter_enabled: " + always + "\nadditional_origins: [{exact: add.test}]"},
		{"shadow", "filter_enabled: " + never + "\nshadow_enabled: " + always},
	} {
		g := s.add(Group{Feature: "csrf", Filters: filter("csrf", "csrf.v3.CsrfPolicy", v.yaml)})
		for _, name := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"} {
			options := []option{method(name), field("Origin", "http://evil.test"), labelf("%s %s evil", v.name, name)}
			if name == "POST" || name == "PUT" || name == "PATCH" {
				options = append(options, body(""))
			}
			g.get("/", options...)
		}
		for _, f := range [][]wire.Field{
			nil,
			pairs("Origin", "http://a.test"),
			pairs("Origin", "https://a.test"),
			pairs("Origin", "http://a.test:80"),
			pairs("Referer", "http://a.test/x"),
			pairs("Referer", "http://evil.test/"),
			pairs("Origin", "null"),
			pairs("Origin", "http://add.test"),
			pairs("Origin", "http://a.test", "Referer", "http://evil.test/"),
			pairs("Origin", "http://A.test"),
		} {
			g.get("/", method("POST"), body(""), fields(f), labelf("%s POST %s", v.name, describe(f)))
		}
	}
}

func (s *set) fault() {
	const message = "fault.v3.HTTPFault"
	const abort = "abort: {http_status: 418, percentage: {numerator: 100}}"
	const delay = "delay: {fixed_delay: 0.3s, percentage: {numerator: 100}}"
	const unit = 150 * time.Millisecond
	for _, v := range []variant{
		{"abort", abort},
		{"abort 0", "abort: {http_status: 418, percentage: {numerator: 0}}"},
		{"delay", delay},
		{"both", delay + "\nabort: {http_status: 503, percentage: {numerator: 100}}"},
		{"headers", abort + "\nheaders: [{name: x-f, string_match: {exact: '1'}}]"},
		{"upstream", abort + "\nupstream_cluster: o2"},
		{"grpc", "abort: {grpc_status: 14, percentage: {numerator: 100}}"},
		{"header abort", "abort: {header_abort: {}, percentage: {numerator: 100}}"},
		{"rate", "response_rate_limit: {fixed_limit: {limit_kbps: 10}, percentage: {numerator: 100}}"},
		{"max active", abort + "\nmax_active_faults: 0"},
		{"nodes", abort + "\ndownstream_nodes: [x]"},
	} {
		g := s.add(Group{Feature: "fault", Filters: filter("fault", message, v.yaml)})
		g.get("/", label(v.name), measured(unit))
		g.get("/", field("x-f", "1"), label(v.name+" x-f"))
		g.h2(field("content-type", "application/grpc"), label(v.name+" grpc"), method("POST"), body(""))
		g.get("/", fields(pairs("x-envoy-fault-abort-request", "419", "x-envoy-fault-delay-request", "200")),
			label(v.name+" by header"), measured(unit))
	}
	g := s.add(Group{Feature: "fault", Filters: filter("fault", message, "abort: {http_status: 418, percentage: {numerator: 30}}")})
	g.get("/", distribution(), label("30%"))
	g = s.add(Group{Feature: "fault", Filters: filter("fault", message, ""), Routes: "- match: {prefix: /}\n  route: {cluster: o1}\n" +
		indent("  ", perRoute("fault", message, abort))})
	g.get("/", label("per route"))
}

func (s *set) rateLimits() {
	const feature, name, message = "local_ratelimit", "local_ratelimit", "local_ratelimit.v3.LocalRateLimit"
	bucket := func(n int) string {
		return fmt.Sprintf("stat_prefix: s\ntoken_bucket: {max_tokens: %d, tokens_per_fill: %[1]d, fill_interval: 60s}\n", n)
	}
	limit := func(n int) string {
		return bucket(n) + "filter_enabled: " + always + "\nfilter_enforced: " + always + "\n"
	}
	for _, v := range []variant{
		{"3", limit(3)},
		{"not enforced", bucket(1) + "filter_enabled: " + always + "\nfilter_enforced: " + never},
		{"not enabled", bucket(1) + "filter_enabled: " + never + "\nfilter_enforced: " + always},
		{"absent enabled", "stat_prefix: s\ntoken_bucket: {max_tokens: 1, fill_interval: 60s}"},
		{"status", limit(1) + "status: {code: SERVICE_UNAVAILABLE}"},
		{"headers", limit(1) + "response_headers_to_add: [{header: {key: x-rl, value: '1'}}]"},
		{"xratelimit", limit(2) + "enable_x_ratelimit_headers: DRAFT_VERSION_03"},
		{"grpc", limit(1) + "rate_limited_as_resource_exhausted: true"},
		{"per conn", limit(1) + "local_rate_limit_per_downstream_connection: true"},
	} {
		g := s.add(Group{Feature: feature, Filters: filter(name, message, v.yaml)})
		for i := range 4 {
			g.get("/", labelf("%s nr %d", v.name, i))
		}
		g.h2(field("content-type", "application/grpc"), method("POST"), body(""), label(v.name+" grpc"))
	}
	g := s.add(Group{Feature: feature, Filters: filter(name, message, "stat_prefix: s"), Routes: "- match: {prefix: /l}\n  route: {cluster: o1}\n" +
		indent("  ", perRoute(name, message, limit(1))) + "- {match: {prefix: /}, route: {cluster: o1}}"})
	for _, p := range []string{"/l", "/l", "/x", "/x"} {
		g.get(p, label("per route "+p))
	}
	g = s.add(Group{Feature: feature, Filters: filter(name, message, limit(5)+`
descriptors:
- entries: [{key: k, value: v}]
  token_bucket: {max_tokens: 1, tokens_per_fill: 1, fill_interval: 60s}`),
		Routes: `
- match: {prefix: /}
  route:
    cluster: o1
    rate_limits: [{actions: [{request_headers: {header_name: x-k, descriptor_key: k}}]}]`})
	for _, v := range []string{"v", "v", "w"} {
		g.get("/", field("x-k", v), label("descriptors "+v))
	}
}

func (s *set) headerMutations() {
	add := func(config string) *Group {
		return s.add(Group{Feature: "header_mutation", Filters: filter("header_mutation", "header_mutation.v3.HeaderMutation", config)})
	}
	add(`
mutations:
  request_mutations:
  - append: {header: {key: x-a, value: '1'}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}
  - remove: x-b
  response_mutations:
  - append: {header: {key: x-c, value: '%RESPONSE_CODE%'}}
  - remove: x-d`).get("/", fields(pairs("x-a", "0", "x-b", "1", "x-o-h", "x-d: 1")))
	add("mutations: {request_mutations: [{remove: x-b}, {append: {header: {key: x-b, value: new}}}]}").get("/", field("x-b", "old"))
	add("mutations: {request_mutations: [{append: {header: {key: x-b, value: new}}}, {remove: x-b}]}").get("/", field("x-b", "old"))
	add("mutations: {query_parameter_mutations: [{append: {record: {key: q, value: '1'}}}]}").get("/?a")
}

func (s *set) headerToMetadata() {
	g := s.add(Group{
		Feature: "header_to_metadata",
		Filters: filter("header_to_metadata", "header_to_metadata.v3.Config", `
request_rules:
- header: x-v
  on_header_present: {metadata_namespace: envoy.lb, key: v, type: STRING}
  on_header_missing: {metadata_namespace: envoy.lb, key: v, value: '1', type: STRING}
  remove: true`),
		Routes: "- {match: {prefix: /}, route: {cluster: h2m}}",
		Clusters: `
- name: h2m
  type: STATIC
  connect_timeout: 1s
  load_assignment:
    cluster_name: h2m
    endpoints:
    - lb_endpoints:
      - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $o1}}}
        metadata: {filter_metadata: {envoy.lb: {v: '1'}}}
      - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $o2}}}
        metadata: {filter_metadata: {envoy.lb: {v: '2'}}}
  lb_subset_config: {fallback_policy: NO_FALLBACK, subset_selectors: [{keys: [v]}]}`,
	})
	for _, v := range []string{"1", "2", "3", ""} {
		g.get("/", field("x-v", v))
	}
	g.get("/")
}

func (s *set) disabledFilters() {
	const abort = "abort: {http_status: 418, percentage: {numerator: 100}}"
	fault := filter("fault", "fault.v3.HTTPFault", abort)
	s.add(Group{Feature: "filter.disabled", Filters: fault + "  disabled: true\n"}).get("/")
	s.add(Group{Feature: "filter.disabled", Filters: fault, Routes: `
- match: {prefix: /}
  route: {cluster: o1}
  typed_per_filter_config:
    envoy.filters.http.fault: {"@type": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true}`}).get("/")
}

// filtersOfOneType adds a chain with two filters of one type, whose settings in routes have the
// filters' names.
func (s *set) filtersOfOneType() {
	const message = "fault.v3.HTTPFault"
	named := func(name string) string {
		return "- name: " + name + "\n  typed_config: {" + typeLine(message) + "}\n"
	}
	route := func(path, key, config string) string {
		return "- match: {path: " + path + "}\n  route: {cluster: o1}\n  typed_per_filter_config:\n    " + key + ":\n" + indent("      ", config)
	}
	abort := func(status int) string {
		return typeLine(message) + fmt.Sprintf("\nabort: {http_status: %d, percentage: {numerator: 100}}", status)
	}
	g := s.add(Group{
		Feature: "filter.of_one_type", Filters: named("a") + named("b"),
		Routes: route("/a", "a", abort(401)) + route("/b", "b", abort(402)) + route("/canonical", "envoy.filters.http.fault", abort(403)) +
			route("/type", "a", typeLine("csrf.v3.CsrfPolicy")+"\nfilter_enabled: "+always) +
			route("/disabled", "c", `"@type": type.googleapis.com/envoy.config.route.v3.FilterConfig`+"\ndisabled: true"),
	})
	for _, p := range []string{"/a", "/b", "/canonical", "/type", "/disabled", "/none"} {
		g.get(p, label(p))
	}
}
