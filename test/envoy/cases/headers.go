package cases

import (
	"fmt"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// headers adds the groups about the headers that the connection manager and the router add, read and
// remove.
func (s *set) headers() {
	s.clientDetection()
	s.earlyMutations()
	s.routerHeaders()
	s.controlHeaders()
	s.referers()
}

const showClient = `
- match: {prefix: /}
  route: {cluster: o1}
  request_headers_to_add: [{header: {key: x-ip, value: '%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%'}}]`

const internalRange = "\ninternal_address_config: {cidr_ranges: [{address_prefix: 10.0.0.0, prefix_len: 8}]}\n"

func (s *set) clientDetection() {
	const header = `{name: h, typed_config: {"@type": type.googleapis.com/envoy.extensions.http.original_ip_detection.custom_header.v3.CustomHeaderConfig, header_name: x-real%s}}`
	const xff = `{name: x, typed_config: {"@type": type.googleapis.com/envoy.extensions.http.original_ip_detection.xff.v3.XffConfig%s}}`
	for _, v := range []variant{
		{"header", fmt.Sprintf(header, "")},
		{"trusted header", fmt.Sprintf(header, ", allow_extension_to_set_address_as_trusted: true, reject_with_status: {code: 401}")},
		{"invalid status", fmt.Sprintf(header, ", reject_with_status: {code: 200}")},
		{"header, then xff", fmt.Sprintf(header, "") + ", " + fmt.Sprintf(xff, ", xff_num_trusted_hops: 1")},
		{"xff", fmt.Sprintf(xff, "")},
		{"ranges", fmt.Sprintf(xff, ", xff_trusted_cidrs: {cidrs: [{address_prefix: 127.0.0.0, prefix_len: 8}, {address_prefix: 9.0.0.0, prefix_len: 8}]}")},
		{"other ranges", fmt.Sprintf(xff, ", skip_xff_append: true, xff_trusted_cidrs: {cidrs: [{address_prefix: 9.0.0.0, prefix_len: 8}]}")},
	} {
		g := s.add(Group{Feature: "hcm.client_address", HCM: internalRange + "original_ip_detection_extensions: [" + v.yaml + "]", Routes: showClient})
		for _, f := range [][]wire.Field{
			nil,
			pairs("x-real", "10.1.1.1", "x-forwarded-for", "1.1.1.1"),
			pairs("x-real", "bad", "x-forwarded-for", "10.1.1.1, 10.2.2.2"),
			pairs("x-real", "8.8.8.8:80"),
			pairs("x-forwarded-for", "10.1.1.1"),
			pairs("x-forwarded-for", "8.8.8.8,10.1.1.1,9.1.1.1"),
			pairs("x-forwarded-for", "9.1.1.2,9.1.1.1"),
			pairs("x-forwarded-for", "10.1.1.1,bad"),
		} {
			g.get("/", fields(f), labelf("%s %s", v.name, describe(f)))
		}
	}
}

func (s *set) earlyMutations() {
	g := s.add(Group{Feature: "hcm.early_mutation", Routes: showClient, HCM: internalRange + `
early_header_mutation_extensions:
- name: e
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation
    mutations:
    - append: {header: {key: x-forwarded-for, value: 10.2.2.2}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}
    - append: {header: {key: x-request-id, value: early}, append_action: ADD_IF_ABSENT}
    - append: {header: {key: x-m, value: "%REQ(x-k)%"}}
    - remove: x-k
    - append: {header: {key: x-k, value: "again"}}`})
	g.get("/")
	g.get("/", field("x-k", "v"), field("x-request-id", "abc"), field("x-forwarded-for", "1.1.1.1"))
	g.h2(field("x-k", "v"))
}

func (s *set) routerHeaders() {
	const routes = `
- {match: {prefix: /rewrite}, route: {cluster: o1, prefix_rewrite: /new, host_rewrite_literal: h.test, timeout: 3s}}
- {match: {prefix: /auto}, route: {cluster: o1, auto_host_rewrite: true}}
- {match: {prefix: /regex}, route: {cluster: o1, regex_rewrite: {pattern: {regex: "^/regex"}, substitution: /r}}}
- {match: {prefix: /retry}, route: {cluster: %s, timeout: 3s, retry_policy: {retry_on: 5xx, num_retries: 2, per_try_timeout: 1s, retry_back_off: {base_interval: 0.001s}}}}
- {match: {prefix: /none}, route: {cluster: o1, timeout: 0s}}
- {match: {prefix: /duration}, route: {cluster: o1, max_stream_duration: {max_stream_duration: 5s}}}
- match: {prefix: /removed}
  route: {cluster: o1}
  request_headers_to_remove: [x-envoy-expected-rq-timeout-ms, x-envoy-attempt-count]
  response_headers_to_remove: [x-envoy-upstream-service-time, x-envoy-attempt-count]
- {match: {prefix: /direct}, direct_response: {status: 200, body: {inline_string: d}}}
- {match: {prefix: /dead}, route: {cluster: dead}}
- {match: {prefix: /}, route: {cluster: o1}}`
	for i, v := range []struct{ name, router, host string }{
		{"default", "", ""},
		{"attempts", "", "{include_request_attempt_count: true, include_attempt_count_in_response: true}"},
		{"suppressed", "suppress_envoy_headers: true", "{include_request_attempt_count: true, include_attempt_count_in_response: true}"},
	} {
		retried := fmt.Sprintf("retried%d", i) // the retries of other groups do not count
		g := s.add(Group{Feature: "router.headers", HCM: routerYAML(v.router), Routes: fmt.Sprintf(routes, retried), HostFields: v.host, Clusters: cluster(retried, "", "o1")})
		for _, path := range []string{"/rewrite/a?q=1", "/auto", "/regex/a", "/retry", "/none", "/duration", "/removed", "/direct", "/dead", "/"} {
			g.get(path, labelf("%s %s", v.name, path))
		}
		g.get("/retry", field("x-o-status", "503"), label(v.name+" 503"))
		g.get("/rewrite", field("x-envoy-original-path", "/z"), label(v.name+" original path of the client"))
		g.get("/", field("x-o-h", "x-envoy-upstream-service-time: 7"), label(v.name+" service time of the origin"))
		g.h2(path("/rewrite/a"), label(v.name+" h2"))
		for _, method := range []string{"POST", "OPTIONS", "DELETE", "PROPFIND"} {
			g.get("/", func(c *Case) { c.Method = method }, labelf("%s %s without a body", v.name, method))
		}
	}
}

// routerYAML returns a field of the connection manager with a router filter that has fields.
func routerYAML(fields string) string {
	if fields == "" {
		return internalRange
	}
	return internalRange + `
http_filters:
- name: envoy.filters.http.router
  typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router, ` + fields + `}`
}

func (s *set) controlHeaders() {
	for i, v := range []variant{
		{"default", ""},
		{"strict", "strict_check_headers: [x-envoy-upstream-rq-timeout-ms, x-envoy-upstream-rq-per-try-timeout-ms, x-envoy-max-retries, x-envoy-retry-on, x-envoy-retry-grpc-on]"},
		{"respect", "respect_expected_rq_timeout: true"},
	} {
		controlled := fmt.Sprintf("controlled%d", i) // the retries of other groups do not count
		g := s.add(Group{
			Feature: "router.control", HCM: routerYAML(v.yaml), HostFields: "{include_request_attempt_count: true}",
			Routes: "- {match: {prefix: /}, route: {cluster: " + controlled + "}}", Clusters: cluster(controlled, "", "o1"),
		})
		for _, client := range []string{"10.1.1.1", "8.8.8.8"} {
			for _, f := range [][]wire.Field{
				pairs("x-envoy-upstream-rq-timeout-ms", "700"),
				pairs("x-envoy-upstream-rq-timeout-ms", "abc"),
				pairs("x-envoy-upstream-rq-timeout-ms", "0", "x-envoy-upstream-rq-per-try-timeout-ms", "300", "x-envoy-expected-rq-timeout-ms", "77"),
				pairs("x-envoy-expected-rq-timeout-ms", "77", "x-envoy-upstream-rq-timeout-ms", "99"),
				pairs("x-envoy-retry-on", "5xx", "x-o-status", "500"),
				pairs("x-envoy-retry-on", "5xx", "x-envoy-max-retries", "3", "x-o-status", "500"),
				pairs("x-envoy-max-retries", "3", "x-o-status", "500"),
				pairs("x-envoy-retry-on", "foo"),
				pairs("x-envoy-retry-on", "retriable-status-codes", "x-envoy-retriable-status-codes", "403, 404", "x-o-status", "404"),
				pairs("x-envoy-upstream-alt-stat-name", "a", "x-envoy-hedge-on-per-try-timeout", "false", "x-envoy-foo", "1"),
				pairs("x-envoy-upstream-stream-duration-ms", "5000"),
			} {
				g.get("/", fields(f), field("x-forwarded-for", client), labelf("%s %s %s", v.name, client, describe(f)), ignored(retriedTimeout(f)))
			}
		}
	}
}

// retriedTimeout returns the name of the field that depends on the time, if a request is retried.
func retriedTimeout(list []wire.Field) string {
	for _, f := range list {
		if f.Name == "x-envoy-retry-on" {
			return "x-envoy-expected-rq-timeout-ms"
		}
	}
	return ""
}

func (s *set) referers() {
	g := s.add(Group{Feature: "hcm.referer"})
	for _, text := range []string{"http://a.b/c", "https://a.b:80/c?d", "/x", "about:blank", "ftp://a.b/c", "http://", "http://a_b/c", "//a.b/c", "http://user@a.b/", "http://[::1]/", "android-app://com.x/", "http://a.b/c#f"} {
		g.get("/", field("referer", text))
	}
	g.get("/", field("referer", "http://a.b/c"), field("referer", "http://a.b/c"), label("two referers"))
}
