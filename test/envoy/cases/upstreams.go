package cases

import (
	"strings"
	"time"
)

// upstreams adds the groups about connections to hosts: protocols, TLS, the PROXY protocol, limits and
// aggregate clusters.
func (s *set) upstreams() {
	s.upstreamProtocols()
	s.upstreamSockets()
	s.upstreamPROXY()
	s.aggregates()
	s.upstreamLimits()
}

// httpOptions returns the field with the HTTP options of a cluster. options is indented by six spaces.
func httpOptions(options string) string {
	return `
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
` + strings.TrimPrefix(options, "\n") + "\n"
}

// tlsSocket returns the transport socket of a cluster with TLS. fields are further fields of its
// settings in flow style, each preceded by a comma.
func tlsSocket(fields string) string {
	return "  transport_socket: " + tlsSocketValue(fields) + "\n"
}

func tlsSocketValue(fields string) string {
	return `{name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext` + fields + "}}"
}

// toUpstream adds a group with one cluster. fields are those of cluster.
func (s *set) toUpstream(feature, name, fields string, origins ...string) *Group {
	name = feature + "." + name
	return s.add(Group{Feature: feature, Routes: toRoute(name), Clusters: cluster(name, fields, origins...)})
}

// toRoute returns a list of one route to a cluster.
func toRoute(cluster string) string {
	return "- {match: {prefix: /}, route: {cluster: " + cluster + "}}"
}

func (s *set) upstreamProtocols() {
	const downstream, byALPN, http1, http2 = "      use_downstream_protocol_config: {http2_protocol_options: {}}", "      auto_config: {http2_protocol_options: {}}",
		"      explicit_http_config: {http_protocol_options: {}}", "      explicit_http_config: {http2_protocol_options: {}}"
	for _, v := range []struct{ name, fields, origin string }{
		{"down-http", httpOptions(downstream), "o1"},
		{"down-h2", httpOptions(downstream), "h1"},
		{"down-tls", httpOptions(downstream) + tlsSocket(""), "s2"},
		{"alpn-h2", httpOptions(byALPN) + tlsSocket(""), "s2"},
		{"alpn-http1", httpOptions(byALPN) + tlsSocket(""), "s1"},
		{"alpn-explicit", httpOptions(byALPN) + tlsSocket(", common_tls_context: {alpn_protocols: [http/1.1]}"), "s2"},
		{"alpn-plain", httpOptions(byALPN), "o1"},
		{"tls-http1", httpOptions(http1) + tlsSocket(""), "s2"},
		{"tls-h2", httpOptions(http2) + tlsSocket(""), "s2"},
		{"h2-options", httpOptions("      explicit_http_config: {http2_protocol_options: {max_concurrent_streams: 1, initial_stream_window_size: 65536}}"), "h1"},
	} {
		g := s.toUpstream("cluster.protocol", v.name, v.fields, v.origin)
		g.get("/")
		g.get("/", method("POST"), body("abc"))
		g.h2()
		g.h2(method("POST"), body("abc"))
		g.h2(method("POST"), field("content-type", "application/grpc"), field("te", "trailers"), body("\x00\x00\x00\x00\x01a"), label("gRPC"))
		g.get("/", field("content-type", "application/grpc"), method("POST"), body("\x00\x00\x00\x00\x01a"), label("gRPC over HTTP/1.1"))
	}
}

func (s *set) upstreamSockets() {
	for _, v := range []variant{
		{"none", ""},
		{"sni", ", sni: a.test"},
		{"host-sni", ", auto_host_sni: true"},
		{"host-sni-fallback", ", auto_host_sni: true, sni: b.test"},
		{"no-sessions", ", max_session_keys: 0"},
		{"wrong-hash", ", common_tls_context: {validation_context: {verify_certificate_hash: [" + strings.Repeat("0a", 32) + "]}}"},
		{"wrong-spki", ", common_tls_context: {validation_context: {verify_certificate_spki: [YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=]}}"},
		{"versions", ", common_tls_context: {tls_params: {tls_maximum_protocol_version: TLSv1_2}}"},
	} {
		g := s.toUpstream("cluster.tls", v.name, tlsSocket(v.yaml), "s1")
		g.get("/")
		g.get("/", host("c.test"))
	}
	g := s.toUpstream("cluster.tls", "auto-sni", httpOptions("      explicit_http_config: {http_protocol_options: {}}\n      upstream_http_protocol_options: {auto_sni: true}")+
		tlsSocket(", auto_host_sni: true, sni: b.test"), "s1")
	g.get("/", host("c.test"))
	g.get("/", host("d.test:81"))
	// Hosts have names, which only auto_host_sni sends.
	for _, v := range []variant{{"named", ""}, {"named-host-sni", ", auto_host_sni: true, sni: b.test"}} {
		name := "cluster.tls." + v.name
		s.add(Group{Feature: "cluster.tls", Routes: toRoute(name), Clusters: `
- name: ` + name + `
  type: STATIC
  connect_timeout: 1s
  load_assignment:
    cluster_name: n
    endpoints: [{lb_endpoints: [{endpoint: {hostname: named.test, address: {socket_address: {address: 127.0.0.1, port_value: $s1}}}}]}]
` + tlsSocket(v.yaml)}).get("/")
	}
}

func (s *set) upstreamPROXY() {
	socket := func(config, inner string) string {
		return `  transport_socket: {name: p, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport, ` +
			config + "transport_socket: " + inner + "}}\n"
	}
	const raw = `{name: r, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer}}`
	for _, v := range []variant{{"default", ""}, {"v1", "config: {version: V1}, "}, {"v2", "config: {version: V2}, "}} {
		g := s.toUpstream("cluster.proxy", v.name, socket(v.yaml, raw), "p1")
		g.get("/")
		g.get("/", repeat(2))
		g.h2()
	}
	s.toUpstream("cluster.proxy", "no-socket", `  transport_socket: {name: p, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport}}
`, "p1").get("/")
	s.toUpstream("cluster.proxy", "per-downstream", "  connection_pool_per_downstream_connection: true\n", "o1").get("/", repeat(3))
}

func (s *set) aggregates() {
	aggregate := func(name, clusters, fields string) string {
		return `
- name: ` + name + `
  connect_timeout: 1s
` + fields + `  cluster_type: {name: envoy.clusters.aggregate, typed_config: {"@type": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig, clusters: [` + clusters + `]}}
`
	}
	const provided = "  lb_policy: CLUSTER_PROVIDED\n"
	for _, v := range []struct{ name, clusters, fields string }{
		{"first", "o1, o2", provided},
		{"empty-first", "none, o2", provided},
		{"unknown-first", "missing, o2", provided},
		{"only-unknown", "missing", provided},
		{"self", "a-self, o1", provided},
		{"no-clusters", "", provided},
		{"policy", "o1", ""},
		{"http2", "h1, o1", provided},
	} {
		name := "a-" + v.name
		g := s.add(Group{Feature: "cluster.aggregate", Routes: toRoute(name), Clusters: aggregate(name, v.clusters, v.fields)})
		g.get("/")
		g.get("/", method("POST"), body("abc"))
		g.h2()
	}
	g := s.add(Group{Feature: "cluster.aggregate", Routes: toRoute("a-levels"), Clusters: aggregate("a-levels", "l-first, many", provided) + `
- name: l-first
  type: STATIC
  connect_timeout: 1s
  load_assignment:
    cluster_name: l-first
    endpoints:
    - lb_endpoints:
      - {endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $o4}}}}
      - {health_status: UNHEALTHY, endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $o5}}}}
`})
	g.get("/", distribution())
}

func (s *set) upstreamLimits() {
	limits := func(name, options string) *Group {
		return s.toUpstream("cluster.limits", name, httpOptions("      explicit_http_config: {http_protocol_options: {}}\n      common_http_protocol_options: "+options), "o1")
	}
	g := limits("headers", "{max_headers_count: 10}")
	g.get("/", field("x-o-h", numbered("x-h%d: 1", 5)), label("5 headers"))
	g.get("/", field("x-o-h", numbered("x-h%d: 1", 20)), label("20 headers"))
	g = limits("default", "{}")
	g.get("/", field("x-o-h", numbered("x-h%d: 1", 90)), label("90 headers"))
	g.get("/", field("x-o-h", numbered("x-h%d: 1", 130)), label("130 headers"))
	g.get("/", field("x-o-h", "x: "+strings.Repeat("a", 40_000)), label("40,000 bytes"))
	g = limits("size", "{max_response_headers_kb: 20}")
	g.get("/", field("x-o-h", "x: "+strings.Repeat("a", 10_000)), label("10,000 bytes"))
	g.get("/", field("x-o-h", "x: "+strings.Repeat("a", 30_000)), label("30,000 bytes"))
	g = limits("duration", "{max_connection_duration: 0.1s}")
	g.get("/", repeat(2))
	g = limits("requests", "{max_requests_per_connection: 1}")
	g.get("/", repeat(2), timeout(2*time.Second))
}
