package cases

import (
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/envoy/client"
)

// moreTCP adds the groups about connections whose bytes the proxy does not interpret.
func (s *set) moreTCP() {
	s.tcpRouting()
	s.terminalFilters()
	s.tunnels()
}

// tcp adds a group with a tcp_proxy. before are the network filters in front of it.
func (s *set) tcp(feature, before, fields string) *Group {
	return s.add(Group{Feature: feature, NetworkFilters: before + `
- name: envoy.filters.network.tcp_proxy
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
    stat_prefix: tcp
` + indent("    ", fields)})
}

// relayed adds a case that sends an HTTP request as bytes, so that an HTTP origin records it.
func (g *Group) relayed(options ...option) { g.raw(plainRequest, options...) }

func (s *set) tcpRouting() {
	const feature = "tcp.proxy"
	for _, fields := range []string{
		"cluster: o1", "cluster: none", "cluster: unknown", "cluster: dead", "weighted_clusters: {clusters: [{name: o1, weight: 1}]}",
		"weighted_clusters: {clusters: [{name: dead, weight: 0}, {name: o2, weight: 5}]}",
		"cluster: o1\nhash_policy: [{source_ip: {}}]", "cluster: o1\nmax_connect_attempts: 2", "cluster: o1\nmetadata_match: {filter_metadata: {envoy.lb: {a: b}}}",
	} {
		g := s.tcp(feature, "", fields)
		g.relayed(label(fields))
	}
	g := s.tcp(feature, "", "cluster: o1\nmax_downstream_connection_duration: 0.5s")
	g.parts([]client.Part{{Data: []byte("GET / HTTP/1.1\r\n")}, {Data: []byte("Host: a.test\r\n"), Pause: 1500 * time.Millisecond}}, label("duration"), anonymous(), responseOnly(), measured(500*time.Millisecond))
	g = s.tcp(feature, "", "cluster: o1\nidle_timeout: 0.5s")
	g.parts([]client.Part{{Data: []byte("GET / HTTP/1.1\r\n")}, {Data: []byte("Host: a.test\r\n"), Pause: 1500 * time.Millisecond}}, label("idle"), anonymous(), responseOnly(), measured(500*time.Millisecond))
}

func (s *set) terminalFilters() {
	const feature = "tcp.filters"
	for _, filter := range []string{
		"envoy.filters.network.connection_limit|connection_limit.v3.ConnectionLimit|stat_prefix: l, max_connections: 1000",
		"envoy.filters.network.local_ratelimit|local_ratelimit.v3.LocalRateLimit|stat_prefix: l, token_bucket: {max_tokens: 1, fill_interval: 1000s}",
		"envoy.filters.network.sni_cluster|sni_cluster.v3.SniCluster|",
	} {
		g := s.tcp(feature, packedFilter(filter), "cluster: o1")
		g.relayed(label(filter))
		g.relayed(label(filter + " again"))
	}
	for _, filter := range []string{
		"envoy.filters.network.echo|echo.v3.Echo|",
		"envoy.filters.network.direct_response|direct_response.v3.Config|response: {inline_string: \"HTTP/1.0 200 OK\\r\\n\\r\\nbye\"}",
	} {
		g := s.add(Group{Feature: feature, NetworkFilters: packedFilter(filter)})
		g.raw("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", label(filter))
	}
}

func (s *set) tunnels() {
	const feature = "tcp.tunneling"
	for _, fields := range []string{
		"cluster: o1\ntunneling_config: {hostname: 'x.test:443'}",
		"cluster: h1\ntunneling_config: {hostname: 'x.test:443'}",
		"cluster: o1\ntunneling_config: {hostname: 'x.test:443', headers_to_add: [{header: {key: x-a, value: b}}]}",
	} {
		g := s.tcp(feature, "", fields)
		g.raw(plainRequest, anonymous(), label(fields))
	}
}

// packedFilter returns a network filter as an element of a YAML list. text has the name of the
// filter, its type and its fields, separated by "|".
func packedFilter(text string) string {
	parts := strings.SplitN(text, "|", 3)
	fields := ""
	if parts[2] != "" {
		fields = ", " + parts[2]
	}
	return `
- name: ` + parts[0] + `
  typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.` + parts[1] + fields + "}\n"
}
