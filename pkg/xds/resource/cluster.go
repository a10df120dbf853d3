package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"math"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// Cluster is the parsed form of a ClusterType resource.
type Cluster struct {
	// Config is the cluster without the endpoints and secrets that Resolve adds. Immutable.
	Config *config.Cluster
	// EDSServiceName names the EndpointType resource that lists the hosts. "" means that the
	// cluster does not use EDS.
	EDSServiceName string
	// InitialFetchTimeout is how long the cluster waits for the EndpointType resource before it
	// continues without hosts. 0 means no limit.
	InitialFetchTimeout    time.Duration
	TransportSocketMatches []TransportSocketMatch // in order; the first match applies to a host
	Ignored                []string               // fields that have no effect

	inlineAssignment *LoadAssignment // from load_assignment; nil if absent
	localityWeighted bool            // locality weights apply
}

// TransportSocketMatch selects the transport socket of the hosts whose labels contain all of Match.
type TransportSocketMatch struct {
	Match         map[string]string // empty matches every host
	TLS           *TLS              // nil means plaintext
	ProxyProtocol int               // config.Cluster.ProxyProtocol; the same in all matches of a cluster
}

// DefaultFetchTimeout is the initial_fetch_timeout of a config source that sets none
// (core.v3.ConfigSource).
const DefaultFetchTimeout = 15 * time.Second

// ReadCluster parses a serialized Cluster. The error is a RejectedError.
func ReadCluster(body []byte, caps Capabilities) (*Cluster, error) {
	m := &clusterv3.Cluster{}
	r := &report{capabilities: caps}
	p := fieldReader{report: r}
	if err := p.unmarshal(body, m); err != nil {
		return nil, err
	}
	c := &Cluster{Config: &config.Cluster{Name: m.GetName()}}
	p.checkFields(m, supportedClusterFields(), rejectedClusterFields())
	if m.GetName() == "" {
		p.field("name").reject("is missing")
	}
	c.Config.Mesh = meshOf(m.GetMetadata())
	p.readDiscoveryType(m, c)
	p.readPolicy(m, c)
	p.readConnections(m, c)
	p.readHealth(m, c.Config)
	p.readTransportSockets(m, c)
	p.checkALPN(m, c)
	err := r.rejection()
	c.Ignored = r.ignored
	return c, err
}

// Secrets returns the secrets that the TLS contexts of the cluster refer to.
func (c *Cluster) Secrets() (refs []SecretRef) {
	for _, s := range c.TransportSocketMatches {
		refs = append(refs, s.TLS.Secrets()...)
	}
	return refs
}

// Resolve returns the cluster with the endpoints of a and the secrets. a may be nil; Resolve
// ignores it if EDSServiceName is "". ok is false if a secret is missing or has the wrong type.
func (c *Cluster) Resolve(a *LoadAssignment, secrets map[SecretRef]*Secret) (out *config.Cluster, ok bool) {
	if c.EDSServiceName == "" {
		a = c.inlineAssignment
	}
	merged := *c.Config
	for _, s := range c.TransportSocketMatches {
		if s.TLS == nil {
			continue
		}
		t, ok := s.TLS.Resolve(secrets)
		switch {
		case !ok:
			return nil, false
		case merged.TLS == nil:
			merged.TLS = t
		default:
			merged.AlternateTLS = append(merged.AlternateTLS, t)
		}
	}
	if a == nil {
		return &merged, true
	}
	merged.Hosts = make([]config.Host, len(a.Endpoints))
	for i, h := range a.Endpoints {
		h.TLSIndex, h.NoTLS = c.tlsIndex(h.Labels)
		merged.Hosts[i] = h.Host
	}
	if c.localityWeighted {
		merged.LocalityWeights = a.Localities
	}
	if a.Overprovisioning > 0 {
		merged.Failover.Overprovisioning = a.Overprovisioning
	}
	merged.DropOverloads = a.DropOverloads
	return &merged, true
}

// tlsIndex returns config.Host.TLSIndex for a host with the given labels. plaintext is true if the
// host uses no TLS.
func (c *Cluster) tlsIndex(labels map[string]string) (index int, plaintext bool) {
	for _, s := range c.TransportSocketMatches {
		if s.matches(labels) {
			return index, s.TLS == nil
		}
		if s.TLS != nil {
			index++
		}
	}
	return 0, true
}

func (s *TransportSocketMatch) matches(labels map[string]string) bool {
	for k, v := range s.Match {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// supportedClusterFields returns the Cluster fields that Weft reads.
func supportedClusterFields() []string {
	return []string{
		"name", "type", "cluster_type", "eds_cluster_config", "load_assignment", "connect_timeout", "lb_policy", "load_balancing_policy",
		"ring_hash_lb_config", "maglev_lb_config", "least_request_lb_config", "round_robin_lb_config", "original_dst_lb_config",
		"common_lb_config", "lb_subset_config", "circuit_breakers", "max_requests_per_connection",
		"common_http_protocol_options", "http_protocol_options", "http2_protocol_options", "protocol_selection", "upstream_http_protocol_options",
		"typed_extension_protocol_options", "dns_refresh_rate", "dns_failure_refresh_rate", "dns_jitter", "respect_dns_ttl", "dns_lookup_family",
		"dns_resolvers", "dns_resolution_config", "typed_dns_resolver_config",
		"health_checks", "outlier_detection", "transport_socket", "transport_socket_matches", "filters",
		"cleanup_interval", "upstream_bind_config", "upstream_connection_options", "connection_pool_per_downstream_connection",
	}
}

// rejectedClusterFields returns the unsupported Cluster fields without which requests would go to
// other hosts or use other connections.
func rejectedClusterFields() []string {
	return []string{
		"transport_socket_matcher", "upstream_config",
	}
}

// checkConfigSource rejects config sources other than ads and self. It accepts an absent source.
func (p fieldReader) checkConfigSource(s *corev3.ConfigSource) {
	p.checkConfigSourceFields(s)
	switch s.GetConfigSourceSpecifier().(type) {
	case *corev3.ConfigSource_Ads, *corev3.ConfigSource_Self, nil:
	default:
		p.rejectOneof(s, "config_source_specifier", "ads", "self")
	}
}

// checkConfigSourceFields rejects authorities and reports the other unsupported fields as ignored.
func (p fieldReader) checkConfigSourceFields(s *corev3.ConfigSource) {
	p.checkOptionalFields(s, []string{"authorities"}, "ads", "self", "path", "path_config_source", "api_config_source", "initial_fetch_timeout", "resource_api_version")
}

func (p fieldReader) readOriginalDst(m *clusterv3.Cluster, out *config.Cluster) {
	if m.GetLoadAssignment() != nil {
		p.field("load_assignment").reject("is set, but a cluster of the type ORIGINAL_DST has no hosts of its own")
	}
	out.LBPolicy = config.LBOriginalDst
	interval := p.field("cleanup_interval")
	if out.OriginalDst.CleanupInterval = interval.readDuration(m.GetCleanupInterval(), config.DefaultCleanupInterval); out.OriginalDst.CleanupInterval <= 0 {
		interval.reject("expected a duration greater than 0")
	}
	o := m.GetOriginalDstLbConfig()
	if o == nil {
		return
	}
	at := p.field("original_dst_lb_config")
	at.checkFields(o, []string{"use_http_header", "http_header_name", "upstream_port_override"}, []string{"metadata_key"})
	if o.GetUseHttpHeader() {
		out.OriginalDst.Header = "x-envoy-original-dst-host"
		if name := o.GetHttpHeaderName(); name != "" {
			out.OriginalDst.Header = lower(name)
		}
	}
	port := o.GetUpstreamPortOverride().GetValue()
	if port > math.MaxUint16 {
		at.field("upstream_port_override").reject("is %d, expected a port", port)
	}
	out.OriginalDst.Port = uint16(port) //nolint:gosec // checked above
}

// isIgnorableNetworkFilter reports whether Weft ignores the network filter called name, which does
// not affect traffic.
func isIgnorableNetworkFilter(name string) bool {
	return slices.Contains([]string{
		"istio.metadata_exchange", "istio.stats", "envoy.filters.network.metadata_exchange", "envoy.filters.network.upstream.metadata_exchange",
	}, name)
}
