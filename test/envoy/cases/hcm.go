package cases

import (
	"fmt"
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/envoy/client"
	"github.com/weft-proxy/weft/test/envoy/wire"
)

// hcm adds the groups about the HTTP connection manager and the listener.
func (s *set) hcm() {
	s.pathNormalization()
	s.underscores()
	s.forwardedFor()
	s.managerHeaders()
	s.limits()
	s.timeLimits()
	s.http1Syntax()
	s.http1Options()
	s.upgrades()
	s.localReplies()
	s.codecs()
	s.listeners()
	s.stripPort()
}

func (s *set) pathNormalization() {
	for _, v := range []variant{
		{"default", ""},
		{"normalize", "normalize_path: true"},
		{"merge", "merge_slashes: true"},
		{"both", "{normalize_path: true, merge_slashes: true}"},
		{"esc-KEEP_UNCHANGED", "path_with_escaped_slashes_action: KEEP_UNCHANGED"},
		{"esc-REJECT_REQUEST", "path_with_escaped_slashes_action: REJECT_REQUEST"},
		{"esc-UNESCAPE_AND_REDIRECT", "path_with_escaped_slashes_action: UNESCAPE_AND_REDIRECT"},
		{"esc-UNESCAPE_AND_FORWARD", "path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD"},
		{"esc+norm", "{path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD, normalize_path: true, merge_slashes: true}"},
	} {
		g := s.add(Group{Feature: "path_normalization", HCM: v.yaml})
		for _, p := range []string{
			"/a/../b", "/a/./b", "//a", "/a//b", "/a/..", "/../a", "/%2e%2e/a", "/a/%2E%2e/b", "/%41", "/a%2Fb",
			"/a%2fb/../c", "/a%5Cb", `/a\b`, "/a/b/", "/a/b//", "/%7Ea", "/a?x=/../y", "/a%00b", "/a%zz", "/a;x=1/b",
			"/./", "/a/b/../../../..", "/%c3%a9", "/a%20b", "///", "/a/../?q=1",
		} {
			g.get(p, labelf("%s %s", v.name, p))
		}
	}
}

func (s *set) underscores() {
	for _, action := range []string{"ALLOW", "REJECT_REQUEST", "DROP_HEADER"} {
		g := s.add(Group{Feature: "underscores", HCM: "common_http_protocol_options: {headers_with_underscores_action: " + action + "}"})
		g.get("/", field("x_a", "1"), field("x-b", "2"), label(action))
		g.h2(field("x_a", "1"), label("h2 "+action))
	}
}

func (s *set) forwardedFor() {
	const addressRoute = `
- match: {prefix: /}
  route: {cluster: o1}
  request_headers_to_add: [{header: {key: x-ip, value: '%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%'}}]`
	for _, v := range []variant{
		{"default", ""},
		{"ura", "use_remote_address: true"},
		{"ura-false-hops1", "{use_remote_address: false, xff_num_trusted_hops: 1}"},
		{"ura-hops1", "{use_remote_address: true, xff_num_trusted_hops: 1}"},
		{"ura-skip", "{use_remote_address: true, skip_xff_append: true}"},
		{"xfport", "{use_remote_address: true, append_x_forwarded_port: true}"},
		{"internal", `
use_remote_address: true
internal_address_config: {unix_sockets: false, cidr_ranges: [{address_prefix: 127.0.0.0, prefix_len: 8}]}`},
	} {
		g := s.add(Group{Feature: "xff", HCM: v.yaml, Routes: addressRoute})
		for _, f := range [][]wire.Field{
			nil,
			pairs("X-Forwarded-For", "1.2.3.4"),
			pairs("X-Forwarded-For", "1.2.3.4, 10.0.0.1"),
			pairs("X-Forwarded-For", "1.1.1.1", "X-Forwarded-For", "2.2.2.2"),
			pairs("X-Forwarded-For", "bad"),
			pairs("X-Forwarded-Proto", "https"),
			pairs("X-Forwarded-Proto", "HTTPS"),
			pairs("X-Forwarded-Proto", "gopher"),
			pairs("X-Forwarded-Host", "x.test"),
			pairs("x-envoy-internal", "true"),
			pairs("x-envoy-external-address", "9.9.9.9"),
			pairs("x-envoy-original-path", "/z"),
			pairs("x-envoy-upstream-rq-timeout-ms", "500"),
			pairs("x-envoy-force-trace", "1"),
			pairs("X-Forwarded-Port", "99"),
			pairs("X-Forwarded-For", "10.0.0.1"),
			pairs("x-request-id", "abc"),
			pairs("x-request-id", "6ba7b810-9dad-41d1-80b4-00c04fd430c8"),
			pairs("x-client-trace-id", "t"),
			pairs("X-Envoy-Downstream-Service-Cluster", "z"),
			pairs("x-envoy-expected-rq-timeout-ms", "7"),
			pairs("X-Forwarded-For", " 1.2.3.4 ,2.3.4.5:88"),
			pairs("X-Forwarded-For", "[2001:db8::1]:80"),
			pairs("X-Forwarded-For", "2001:db8::1"),
		} {
			g.get("/", fields(f), labelf("%s %s", v.name, describe(f)))
		}
	}
	g := s.add(Group{Feature: "xff", HCM: `
original_ip_detection_extensions:
- name: envoy.http.original_ip_detection.custom_header
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.http.original_ip_detection.custom_header.v3.CustomHeaderConfig
    header_name: x-real`})
	g.get("/", field("x-real", "4.4.4.4"))
	s.add(Group{Feature: "xff", HCM: "{use_remote_address: true, original_ip_detection_extensions: []}"}).get("/")
}

func (s *set) managerHeaders() {
	for _, v := range []variant{
		{"gen false", "generate_request_id: false"},
		{"preserve", "{preserve_external_request_id: true, use_remote_address: true}"},
		{"always", "always_set_request_id_in_response: true"},
		{"uuid", `
request_id_extension:
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig
    pack_trace_reason: false`},
		{"server name", "server_name: mine"},
		{"server append", "server_header_transformation: APPEND_IF_ABSENT"},
		{"server pass", "server_header_transformation: PASS_THROUGH"},
		{"via", "via: me"},
		{"add ua", "add_user_agent: true"},
		{"proxy status", "proxy_status_config: {remove_details: false, remove_connection_termination_details: false}"},
		{"scheme", "scheme_header_transformation: {scheme_to_overwrite: https}"},
		{"xfcc", "forward_client_cert_details: SANITIZE"},
		{"xfcc always", "forward_client_cert_details: ALWAYS_FORWARD_ONLY"},
	} {
		g := s.add(Group{Feature: "hcm.headers", HCM: v.yaml})
		for _, f := range [][]wire.Field{
			nil,
			pairs("x-request-id", "abc"),
			pairs("x-o-h", "Server: up|Via: 1.1 up"),
			pairs("via", "1.1 prev"),
			pairs("x-forwarded-client-cert", "By=x"),
		} {
			g.get("/", fields(f), labelf("%s %s", v.name, describe(f)))
		}
		g.get("/nope", field("x-o-status", "404"), label(v.name+" 404"))
	}
}

// manyFields returns n fields of a request.
func manyFields(n int) []wire.Field {
	var list []wire.Field
	for i := range n {
		list = append(list, wire.Field{Name: fmt.Sprintf("x-%d", i), Value: "1"})
	}
	return list
}

func (s *set) limits() {
	const feature = "limits"
	for _, v := range []variant{
		{"default", ""},
		{"max 4 kb", "max_request_headers_kb: 4"},
		{"count 10", "common_http_protocol_options: {max_headers_count: 10}"},
		{"96", "max_request_headers_kb: 96"},
	} {
		g := s.add(Group{Feature: feature, HCM: v.yaml})
		for _, n := range []int{3000, 5000, 30000, 62000, 70000} {
			g.get("/", field("x-big", strings.Repeat("a", n)), labelf("%s header of %d", v.name, n), ignored("x-big"))
		}
		for _, n := range []int{5, 12, 95, 105} {
			g.get("/", fields(manyFields(n)), labelf("%s %d headers", v.name, n))
		}
		for _, n := range []int{3000, 9000, 30000} {
			g.get("/"+strings.Repeat("p", n), labelf("%s path of %d", v.name, n))
		}
		for _, n := range []int{5, 105} {
			g.h2(fields(manyFields(n)), labelf("%s h2 %d headers", v.name, n))
		}
		g.h2(field("x-big", strings.Repeat("a", 9000)), label(v.name+" h2 header of 9000"))
	}
	g := s.add(Group{Feature: feature, HCM: "common_http_protocol_options: {max_requests_per_connection: 2}"})
	g.get("/", repeat(1))
	g.get("/", repeat(2), label("two of max 2"))
	g.h2(repeat(3), label("h2 three of max 2"))
}

// incompletePost is a request whose body does not end.
const incompletePost = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nab"

func (s *set) timeLimits() {
	const feature = "limits"
	const unit = 200 * time.Millisecond
	g := s.add(Group{Feature: feature, HCM: "common_http_protocol_options: {idle_timeout: 0.3s}"})
	g.get("/", closeWait(800*time.Millisecond), label("idle 0.3s"))
	g.raw("", timeout(time.Second), label("idle from the start"))

	g = s.add(Group{Feature: feature, HCM: "common_http_protocol_options: {max_connection_duration: 0.5s}"})
	g.parts([]client.Part{{Data: []byte(plainRequest)}, {Data: []byte(plainRequest), Pause: 700 * time.Millisecond}},
		responses(2), label("max_connection_duration"))
	g.get("/", closeWait(1200*time.Millisecond), label("max_connection_duration closes"))

	g = s.add(Group{Feature: feature, HCM: "request_timeout: 0.4s"})
	g.raw(incompletePost, timeout(2*time.Second), label("request_timeout"), measured(unit))

	g = s.add(Group{Feature: feature, HCM: "request_headers_timeout: 0.4s"})
	g.raw("GET / HTTP/1.1\r\nHost:", timeout(2*time.Second), label("request_headers_timeout"), measured(unit))

	g = s.add(Group{Feature: feature, HCM: "stream_idle_timeout: 0.4s"})
	g.raw(incompletePost, timeout(2*time.Second), label("stream_idle_timeout"), measured(unit))
	g.get("/", field("x-o-delay", "1000"), measured(unit), label("stream idle for answer"))

	g = s.add(Group{Feature: feature, HCM: "common_http_protocol_options: {max_stream_duration: 0.4s}"})
	g.get("/", field("x-o-delay", "1000"), measured(unit), label("hcm max_stream_duration"))

	g = s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: rh}}", Clusters: cluster("rh", `
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      explicit_http_config: {http_protocol_options: {}}
      common_http_protocol_options: {max_headers_count: 10}
`, "o1")})
	g.get("/", field("x-o-h", numbered("x-%d: 1", 20)), label("upstream headers count"))
}

func (s *set) http1Options() {
	for _, v := range []variant{
		{"http10", "accept_http_10: true"},
		{"http10 default host", "{accept_http_10: true, default_host_for_http_10: d.test}"},
		{"trailers", "enable_trailers: true"},
		{"proper", "header_key_format: {proper_case_words: {}}"},
		{"preserve", `
  header_key_format:
    stateful_formatter:
      name: p
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.http.header_formatters.preserve_case.v3.PreserveCaseFormatterConfig`},
		{"absolute off", "allow_absolute_url: false"},
		{"chunked length", "allow_chunked_length: true"},
		{"err", "override_stream_error_on_invalid_http_message: true"},
		{"custom methods", "allow_custom_methods: true"},
		{"fq", "send_fully_qualified_url: true"},
	} {
		g := s.add(Group{Feature: "http1.options", HCM: "http_protocol_options:\n  " + strings.TrimSpace(v.yaml)})
		for _, data := range []string{
			"GET / HTTP/1.0\r\n\r\n",
			"GET / HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
			"GET http://b.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
			"FOO / HTTP/1.1\r\nHost: a.test\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a.test\r\nx-o-trailers: x-t=1\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n" + caseLine + "\r\n" + plainRequest,
		} {
			g.raw(data, labelf("%s %q", v.name, data), timeout(2*time.Second))
		}
	}
}

func (s *set) upgrades() {
	request := func(extra string) string {
		return "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n" + extra + "\r\n"
	}
	const route = "- {match: {prefix: /}, route: {cluster: o1%s}}"
	for _, v := range []struct{ name, hcm, route string }{
		{"none", "", ""},
		{"hcm", "upgrade_configs: [{upgrade_type: websocket}]", ""},
		{"hcm disabled", "upgrade_configs: [{upgrade_type: websocket, enabled: false}]", ""},
		{"route enables", "upgrade_configs: [{upgrade_type: websocket, enabled: false}]", ", upgrade_configs: [{upgrade_type: websocket}]"},
		{"route disables", "upgrade_configs: [{upgrade_type: websocket}]", ", upgrade_configs: [{upgrade_type: websocket, enabled: false}]"},
	} {
		g := s.add(Group{Feature: "upgrade", HCM: v.hcm, Routes: fmt.Sprintf(route, v.route)})
		limit := timeout(2 * time.Second)
		g.raw(request(""), tunnel("hello"), label(v.name+" websocket"), limit)
		g.raw(request("x-o-noup: 1\r\n"), label(v.name+" refused by origin"), limit)
		g.raw(strings.Replace(request(""), "websocket", "foo", 1), tunnel("hi"), label(v.name+" other upgrade"), limit)
		g.raw(strings.Replace(request(""), "websocket", "WebSocket", 1), tunnel("hi"), label(v.name+" case"), limit)
		g.raw("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"+
			"HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n", label(v.name+" h2c"), timeout(time.Second))
	}
}

func (s *set) localReplies() {
	const feature = "local_reply"
	g := s.add(Group{Feature: feature, Routes: "- {match: {prefix: /d}, route: {cluster: dead}}", HCM: `
local_reply_config:
  mappers:
  - filter: {status_code_filter: {comparison: {op: EQ, value: {default_value: 404, runtime_key: x}}}}
    status_code: 410
    body: {inline_string: gone}
  body_format: {text_format: "%LOCAL_REPLY_BODY% %RESPONSE_CODE%\n"}`})
	g.get("/")
	g.get("/d")

	g = s.add(Group{Feature: feature, Routes: `
- {match: {prefix: /dead}, route: {cluster: dead}}
- {match: {prefix: /none}, route: {cluster: none}}
- {match: {prefix: /t}, route: {cluster: o1, timeout: 0.2s}}
- {match: {prefix: /c}, route: {cluster_header: x-c}}
- {match: {prefix: /o}, route: {cluster: o1}}`})
	g.get("/dead")
	g.get("/none")
	g.get("/t", field("x-o-delay", "600"))
	g.get("/c", field("x-c", "nope"))
	g.get("/x")
	g.get("/o", field("x-o-seq", "reset"))
	g.get("/o", field("x-o-seq", "close"))
	for _, p := range []string{"/dead", "/none", "/t", "/x"} {
		g.h2(fields(pairs("content-type", "application/grpc", "te", "trailers", "x-o-delay", "600")),
			path(p), method("POST"), body("\x00\x00\x00\x00\x00"), label("grpc local reply "+p))
	}
	for _, p := range []string{"/dead", "/none", "/t", "/x"} {
		g.get(p, fields(pairs("content-type", "application/grpc", "x-o-delay", "600")),
			method("POST"), body("\x00\x00\x00\x00\x00"), label("grpc in HTTP/1 local reply "+p))
	}
}

func (s *set) codecs() {
	for _, codec := range []string{"AUTO", "HTTP1", "HTTP2"} {
		g := s.add(Group{Feature: "codec", HCM: "codec_type: " + codec})
		g.get("/", label(codec), timeout(time.Second))
		g.h2(label(codec+" h2"), timeout(time.Second))
	}
}

func (s *set) listeners() {
	const feature = "listener"
	g := s.add(Group{Feature: feature, HCM: "use_remote_address: true", Listener: `
listener_filters:
- name: envoy.filters.listener.proxy_protocol
  typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol}`})
	for _, header := range []string{
		"PROXY TCP4 1.2.3.4 5.6.7.8 1000 80\r\n",
		"PROXY UNKNOWN\r\n",
		"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x01\x02\x03\x04\x05\x06\x07\x08\x03\xe8\x00\x50",
		"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00",
		"",
		"PROXY TCP4 bad\r\n",
		"PROXY TCP6 ::1 ::2 1000 80\r\n",
	} {
		g.get("/", preface(header), labelf("proxy protocol %q", header), timeout(1500*time.Millisecond))
	}
	g = s.add(Group{Feature: feature, Listener: `
listener_filters:
- name: envoy.filters.listener.http_inspector
  typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.http_inspector.v3.HttpInspector}`})
	g.get("/")
	g.h2()
	g = s.add(Group{Feature: feature, Listener: "per_connection_buffer_limit_bytes: 1024"})
	g.get("/", method("POST"), body(strings.Repeat("x", 5000)))
	g.get("/", field("x-o-len", "50000"), bodyLength())
}

func (s *set) stripPort() {
	for _, hcm := range []string{"strip_any_host_port: true", "strip_matching_host_port: true", ""} {
		g := s.add(Group{Feature: "strip_port", HCM: hcm})
		for _, name := range []string{"a.test:80", "a.test:8080", "a.test", "[::1]:80", "a.test:"} {
			g.get("/", host(name), labelf("%s host %s", hcm, name))
		}
		g.h2(host("a.test:8080"), label(hcm+" h2"))
	}
}
