package cases

import (
	"strings"
	"time"
)

// replies adds cases of local replies: their status, text and fields, and what access logs have of
// them.
func (s *set) replies() {
	s.failedHosts()
	s.statedReplies()
	s.routeReplies()
	s.mappedReplies()
	s.invalidMessages()
}

// grpcFields are the fields of a gRPC request.
var grpcFields = pairs("content-type", "application/grpc", "te", "trailers") //nolint:gochecknoglobals // a constant list

// failedHosts adds cases in which no host responds.
func (s *set) failedHosts() {
	g := s.add(Group{Feature: "local_reply.upstream", Routes: `
- {match: {prefix: /tiny}, route: {cluster: tiny}}
- {match: {prefix: /pending}, route: {cluster: pending}}
- {match: {prefix: /dropped}, route: {cluster: dropped}}
- {match: {prefix: /dead}, route: {cluster: dead}, response_headers_to_add: [{header: {key: x-added, value: v}}]}
- match: {prefix: /retrydead}
  route: {cluster: dead, retry_policy: {retry_on: "connect-failure,reset", num_retries: 2}}
- match: {prefix: /retry}
  route: {cluster: o1, retry_policy: {retry_on: "5xx", num_retries: 1}}
- match: {prefix: /try}
  route: {cluster: o1, timeout: 3s, retry_policy: {retry_on: "5xx", num_retries: 0, per_try_timeout: 0.2s}}
- match: {prefix: /idletry}
  route: {cluster: o1, timeout: 3s, retry_policy: {retry_on: "5xx", num_retries: 0, per_try_idle_timeout: 0.2s}}
- {match: {prefix: /timeout}, route: {cluster: o1, timeout: 0.3s}}
- {match: {prefix: /h2timeout}, route: {cluster: h1, timeout: 0.3s}}
- {match: {prefix: /h2}, route: {cluster: h1}}
- {match: {prefix: /}, route: {cluster: o1}}`,
		Clusters: cluster("tiny", "  circuit_breakers: {thresholds: [{max_requests: 0}]}\n", "o1") +
			cluster("pending", "  circuit_breakers: {thresholds: [{max_connections: 0, max_pending_requests: 0}]}\n", "o1") +
			strings.Replace(cluster("dropped", "", "o1"), "cluster_name: dropped",
				"cluster_name: dropped\n    policy: {drop_overloads: [{category: all, drop_percentage: {numerator: 100}}]}", 1)})
	limit := timeout(3 * time.Second)
	for _, p := range []string{"/tiny", "/pending", "/dropped", "/dead", "/retrydead"} {
		g.get(p, limit)
		g.get(p, method("HEAD"), limit)
		g.h2(path(p), limit)
		g.h2(path(p), method("POST"), fields(grpcFields), body("\x00\x00\x00\x00\x00"), label("grpc "+p), limit)
	}
	for _, p := range []string{"/try", "/idletry", "/timeout", "/h2timeout"} {
		g.get(p, field("x-o-delay", "900"), limit)
		g.h2(path(p), field("x-o-delay", "900"), limit)
		g.h2(path(p), method("POST"), fields(grpcFields), field("x-o-delay", "900"), body("\x00\x00\x00\x00\x00"), label("grpc "+p), limit)
	}
	for _, seq := range []string{"reset", "reset0", "close"} {
		for _, p := range []string{"/", "/retry", "/h2"} {
			g.get(p, field("x-o-seq", seq), limit)
			g.get(p, field("x-o-seq", seq), method("POST"), body("abc"), limit)
		}
		g.h2(path("/"), field("x-o-seq", seq), limit)
		g.h2(path("/h2"), field("x-o-seq", seq), limit)
		g.h2(path("/h2"), field("x-o-seq", seq), field("x-o-refused", "1"), limit)
		g.h2(path("/"), method("POST"), fields(grpcFields), field("x-o-seq", seq), body("\x00\x00\x00\x00\x00"), label("grpc "+seq), limit)
	}
	g.get("/retry", field("x-o-seq", "503"), limit)
	g.get("/retry", field("x-o-seq", "503,reset"), limit)
	g.get("/", field("x-o-cut", "4"), limit)
	g.get("/h2", field("x-o-cut", "4"), limit)
	g.get("/timeout", field("x-o-bodydelay", "900"), limit)
	g.get("/", field("x-o-h", "A b: c"), limit, label("malformed response field"))
}

// statedReplies adds cases of redirects and direct responses.
func (s *set) statedReplies() {
	g := s.add(Group{Feature: "local_reply.stated", Routes: `
- {match: {prefix: /redirect}, redirect: {path_redirect: /x}}
- {match: {prefix: /empty}, direct_response: {status: 200}}
- {match: {prefix: /text}, direct_response: {status: 200, body: {inline_string: hello}}}
- {match: {prefix: /none}, direct_response: {status: 204}}
- {match: {prefix: /error}, direct_response: {status: 503, body: {inline_string: down}}}
- match: {prefix: /html}
  direct_response: {status: 200, body: {inline_string: <p>}}
  response_headers_to_add: [{header: {key: content-type, value: text/html}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}]`})
	for _, p := range []string{"/redirect", "/empty", "/text", "/none", "/error", "/html", "/other"} {
		g.get(p)
		g.get(p, method("HEAD"))
		g.h2(path(p))
		g.h2(path(p), method("HEAD"))
		g.h2(path(p), method("POST"), fields(grpcFields), body("\x00\x00\x00\x00\x00"), label("grpc "+p))
		g.h2(path(p), method("POST"), fields(pairs("content-type", "application/grpc+proto", "te", "trailers")), body("\x00\x00\x00\x00\x00"), label("grpc+proto "+p))
	}
}

// routeReplies adds cases in which the route table rejects requests.
func (s *set) routeReplies() {
	g := s.add(Group{Feature: "local_reply.route", VirtualHosts: `
- name: tls
  domains: [tls.test]
  require_tls: ALL
  routes: [{match: {prefix: /}, route: {cluster: o1}}]
- name: v
  domains: [a.test]
  response_headers_to_add: [{header: {key: x-host, value: v}}]
  routes:
  - match: {prefix: /404}
    route: {cluster_header: x-c, cluster_not_found_response_code: NOT_FOUND}
    response_headers_to_add: [{header: {key: x-route, value: "%RESPONSE_CODE_DETAILS%"}}]
  - {match: {prefix: /500}, route: {cluster_header: x-c, cluster_not_found_response_code: INTERNAL_SERVER_ERROR}}
  - {match: {prefix: /503}, route: {cluster_header: x-c}}
  - {match: {prefix: /upgrade}, route: {cluster: o1}}`})
	for _, p := range []string{"/404", "/500", "/503", "/other"} {
		g.get(p)
		g.get(p, field("x-c", "nope"))
		g.h2(path(p), field("x-c", "nope"))
		g.h2(path(p), method("POST"), fields(grpcFields), body("\x00\x00\x00\x00\x00"), label("grpc "+p))
	}
	g.get("/", host("b.test"))
	g.get("/", host("tls.test"))
	g.h2(host("tls.test"))
}

// mappedReplies adds cases of local_reply_config.
func (s *set) mappedReplies() {
	const routes = `
- {match: {prefix: /dead}, route: {cluster: dead}}
- {match: {prefix: /none}, route: {cluster: none}}
- {match: {prefix: /direct}, direct_response: {status: 200, body: {inline_string: direct}}}
- {match: {prefix: /bad}, direct_response: {status: 400, body: {inline_string: "a \"quoted\" text"}}}
- {match: {prefix: /redirect}, redirect: {path_redirect: /x}}
- {match: {prefix: /o}, route: {cluster: o1}}`
	for _, v := range []variant{
		{"text", `body_format: {text_format_source: {inline_string: "[%RESPONSE_CODE%] %LOCAL_REPLY_BODY% %REQ(:PATH)%"}}`},
		{"html", `body_format: {text_format: "<p>%LOCAL_REPLY_BODY%</p>", content_type: "text/html; charset=UTF-8"}`},
		{"json", `body_format: {json_format: {code: "%RESPONSE_CODE%", text: "%LOCAL_REPLY_BODY%", path: "%REQ(:path)%", flags: "%RESPONSE_FLAGS%", nested: {a: [1, "%PROTOCOL%"]}}}`},
		{"status", `
mappers:
- filter: {status_code_filter: {comparison: {op: EQ, value: {default_value: 503, runtime_key: x}}}}
  status_code: 504
  headers_to_add:
  - {header: {key: x-mapped, value: "%RESPONSE_CODE%"}}
  - {header: {key: content-language, value: en}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}`},
		{"body", `
mappers:
- filter: {status_code_filter: {comparison: {op: GE, value: {default_value: 500, runtime_key: x}}}}
  body: {inline_string: sorry}
- filter: {status_code_filter: {comparison: {op: GE, value: {default_value: 400, runtime_key: x}}}}
  status_code: 499
  body: {inline_string: yours}
  body_format_override: {text_format_source: {inline_string: "override %LOCAL_REPLY_BODY%\n"}}
body_format: {text_format_source: {inline_string: "common %LOCAL_REPLY_BODY%\n"}}`},
		{"filters", `
mappers:
- filter: {and_filter: {filters: [{response_flag_filter: {flags: [UH]}}, {header_filter: {header: {name: x-a, string_match: {exact: b}}}}]}}
  status_code: 418
- filter: {or_filter: {filters: [{response_flag_filter: {flags: [NR]}}, {header_filter: {header: {name: x-a, present_match: true}}}]}}
  status_code: 420
  body: {inline_string: ""}`},
	} {
		g := s.add(Group{Feature: "local_reply.mappers", Routes: routes, HCM: "local_reply_config:\n  " +
			strings.ReplaceAll(strings.TrimSpace(v.yaml), "\n", "\n  ")})
		for _, p := range []string{"/dead", "/none", "/direct", "/bad", "/redirect", "/o", "/other"} {
			g.get(p, label(v.name+" "+p))
			g.get(p, method("HEAD"), label(v.name+" HEAD "+p))
			g.h2(path(p), field("x-a", "b"), label(v.name+" h2 "+p))
			g.h2(path(p), method("POST"), fields(grpcFields), body("\x00\x00\x00\x00\x00"), label(v.name+" grpc "+p))
		}
		g.raw("GET /none HTTP/1.0\r\nHost: a.test\r\n\r\n", label(v.name+" HTTP/1.0"))
		g.raw("GET /none HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: foo\r\n\r\n", label(v.name+" transfer coding"))
	}
}

// invalidMessages adds cases of stream_error_on_invalid_http_message.
func (s *set) invalidMessages() {
	for _, v := range []variant{
		{"default", ""},
		{"stream errors", "stream_error_on_invalid_http_message: true"},
		{"HTTP/1.1 override", "http_protocol_options: {override_stream_error_on_invalid_http_message: true}"},
		{"HTTP/1.1 off", "stream_error_on_invalid_http_message: true\nhttp_protocol_options: {override_stream_error_on_invalid_http_message: false}"},
		{"HTTP/2 override", "http2_protocol_options: {override_stream_error_on_invalid_http_message: true}"},
	} {
		g := s.add(Group{Feature: "local_reply.invalid", HCM: v.yaml})
		for _, data := range []string{
			"GET / HTTP/1.1\r\nX: y\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: x\r\n\r\n",
			"GET /\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: foo\r\n\r\n",
			"GET /%zz HTTP/1.1\r\nHost: a.test\r\n\r\n",
		} {
			g.raw(data, labelf("%s %q", v.name, data), timeout(time.Second))
		}
		g.raw("GET / HTTP/1.1\r\nX: y\r\n"+caseLine+"\r\n"+plainRequest, responses(2), label(v.name+" next request"), timeout(time.Second))
		g.h2(field("x-\x01", "a"), label(v.name+" h2 invalid field"), timeout(time.Second))
		g.h2(host(""), label(v.name+" h2 no authority"), timeout(time.Second))
	}
}
