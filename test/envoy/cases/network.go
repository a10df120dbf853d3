package cases

import (
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/envoy/client"
)

// network adds the groups about TCP.
func (s *set) network() {
	s.tcpProxies()
	s.networkFilters()
}

// tcp adds a case that sends pieces, each after a pause, and compares what arrives. Nothing else
// identifies such a connection, so the case is anonymous.
func (g *Group) tcp(name string, pieces []string, options ...option) {
	c := &Case{Label: name, Anonymous: true, Script: client.Script{Kind: client.TCP}}
	for i, piece := range pieces {
		part := client.Part{Data: []byte(piece)}
		if i > 0 {
			part.Pause = 80 * time.Millisecond
		}
		c.Parts = append(c.Parts, part)
	}
	g.append(c, options)
}

// halfClose closes the client's side after the last piece.
func halfClose() option { return func(c *Case) { c.HalfClose = true } }

// networkFilter returns an element of a list of network filters. message is the type of its
// configuration below envoy.extensions.filters.network; config has its fields.
func networkFilter(name, message, config string) string {
	return "- name: envoy.filters.network." + name + "\n  typed_config:\n    \"@type\": type.googleapis.com/envoy.extensions.filters.network." +
		message + "\n" + indent("    ", config)
}

func tcpProxy(config string) string {
	return networkFilter("tcp_proxy", "tcp_proxy.v3.TcpProxy", "stat_prefix: tcp\n"+config)
}

func (s *set) tcpProxies() {
	for _, v := range []variant{
		{"cluster", "cluster: t1"},
		{"idle", "cluster: t1\nidle_timeout: 0.4s"},
		{"duration", "cluster: t1\nmax_downstream_connection_duration: 0.4s"},
		{"dead", "cluster: dead"},
		{"dead with attempts", "cluster: dead\nmax_connect_attempts: 3"},
		{"no host", "cluster: none"},
		{"unknown cluster", "cluster: nowhere"},
		{"weighted", "weighted_clusters: {clusters: [{name: t1, weight: 1}]}"},
		{"weight 0", "weighted_clusters: {clusters: [{name: dead, weight: 0}, {name: t1, weight: 1}]}"},
		{"hash", "cluster: t1\nhash_policy: [{source_ip: {}}]"},
		{"tunnel", "cluster: o1\ntunneling_config: {hostname: 'target.test:443'}"},
		{"tunnel with POST", "cluster: o1\ntunneling_config: {hostname: 'target.test:443', use_post: true, post_path: /p}"},
		{"tunnel with headers", "cluster: o1\ntunneling_config: {hostname: 'target.test:443', headers_to_add: [{header: {key: x-t, value: '1'}}]}"},
		{"tunnel over HTTP/2", "cluster: h1\ntunneling_config: {hostname: 'target.test:443'}"},
	} {
		g := s.add(Group{Feature: "tcp.proxy", NetworkFilters: tcpProxy(v.yaml)})
		g.tcp(v.name, []string{"one"})
		g.tcp(v.name+" several pieces", []string{"one", "two", "three"})
		g.tcp(v.name+" half-close", []string{"one"}, halfClose())
		g.tcp(v.name+" nothing sent", nil, closeWait(700*time.Millisecond))
		g.tcp(v.name+" a large piece", []string{strings.Repeat("x", 60000)})
	}
	g := s.add(Group{Feature: "tcp.proxy", NetworkFilters: tcpProxy("cluster: t1"), Listener: `
listener_filters:
- name: envoy.filters.listener.proxy_protocol
  typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol}`})
	g.tcp("PROXY protocol", []string{"PROXY TCP4 1.2.3.4 5.6.7.8 1000 80\r\none"})
	g.tcp("without the PROXY protocol", []string{"GET / HTTP/1.1\r\n\r\n"})
	g.tcp("malformed PROXY protocol", []string{"PROXY TCP4 bad\r\none"})
	for _, version := range []string{"V1", "V2"} {
		name := "proxied-" + strings.ToLower(version)
		g = s.add(Group{Feature: "tcp.proxy_protocol", Routes: "- {match: {prefix: /}, route: {cluster: " + name + "}}", Clusters: cluster(name, `
  transport_socket:
    name: envoy.transport_sockets.upstream_proxy_protocol
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport
      config: {version: `+version+`}
      transport_socket:
        name: envoy.transport_sockets.raw_buffer
        typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer}
`, "p1")})
		g.get("/", label("PROXY protocol to a host "+version))
		g.get("/", method("POST"), body("abc"), label("PROXY protocol to a host POST "+version))
	}
}

func (s *set) networkFilters() {
	const feature = "tcp.filter"
	const toT1 = "cluster: t1"
	pass := tcpProxy(toT1)
	for _, v := range []variant{
		{"echo", networkFilter("echo", "echo.v3.Echo", "")},
		{"direct_response", networkFilter("direct_response", "direct_response.v3.Config", "response: {inline_string: hello}")},
		{"sni_cluster", networkFilter("sni_cluster", "sni_cluster.v3.SniCluster", "") + pass},
		{"connection_limit", networkFilter("connection_limit", "connection_limit.v3.ConnectionLimit", "stat_prefix: c\nmax_connections: 1") + pass},
		{"local_ratelimit", networkFilter("local_ratelimit", "local_ratelimit.v3.LocalRateLimit", "stat_prefix: l\ntoken_bucket: {max_tokens: 2, fill_interval: 60s}") + pass},
		{"rbac allows", networkFilter("rbac", "rbac.v3.RBAC", "stat_prefix: r\n"+policy("ALLOW", anyone, "{direct_remote_ip: "+isLoopback+"}")) + pass},
		{"rbac denies", networkFilter("rbac", "rbac.v3.RBAC", "stat_prefix: r\n"+policy("DENY", anyone, "{direct_remote_ip: "+isLoopback+"}")) + pass},
		{"rbac with an empty policy", networkFilter("rbac", "rbac.v3.RBAC", "stat_prefix: r\nrules: {action: ALLOW}") + pass},
		{"rbac shadow", networkFilter("rbac", "rbac.v3.RBAC", "stat_prefix: r\nshadow_"+policy("DENY", anyone, anyone)) + pass},
	} {
		g := s.add(Group{Feature: feature, NetworkFilters: v.yaml})
		g.tcp(v.name, []string{"one"})
		g.tcp(v.name+" two pieces", []string{"one", "two"})
		g.tcp(v.name+" half-close", []string{"one"}, halfClose())
	}
	g := s.add(Group{Feature: feature, Listener: tlsInspector, NetworkFilters: networkFilter("sni_cluster", "sni_cluster.v3.SniCluster", "") + pass,
		FilterChains: tlsChain("", serverA(), "")})
	for _, name := range []string{"t1", "nowhere", ""} {
		g.tcp("sni_cluster "+name, []string{"one"}, secure(name))
	}
}
