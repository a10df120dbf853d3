package resource

//lint:file-ignore SA1019 control planes still say what the API calls deprecated

import (
	"math"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// Cluster is what a resource of ClusterType says.
type Cluster struct {
	// Config is the cluster, without what is found by the names below. Immutable.
	Config *config.Cluster
	// EDSServiceName is the name of the resource of EndpointType that has the hosts; "": the
	// cluster has them itself.
	EDSServiceName string
	// InitialFetchTimeout is how long the cluster waits for Endpoints before it goes without;
	// 0: for ever.
	InitialFetchTimeout    time.Duration
	TransportSocketMatches []TransportSocketMatch // of the hosts; the first that fits a host is its own
	Ignored                []string               // fields that have no effect, in order

	inlineAssignment *LoadAssignment // of a cluster that has hosts itself
	localityWeighted bool            // localities get their weights' shares
}

// TransportSocketMatch is how connections to the hosts are made whose labels have all of Match.
type TransportSocketMatch struct {
	Match map[string]string // empty: of every host
	TLS   *TLS              // nil: plaintext
}

// defaultFetchTimeout is how long a resource is waited for if nothing is said.
const defaultFetchTimeout = 15 * time.Second

// ReadCluster reads a serialized Cluster. The error is Refused.
func ReadCluster(body []byte, k Capabilities) (*Cluster, error) {
	m := &clusterv3.Cluster{}
	r := &report{capabilities: k}
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
	err := r.rejection()
	c.Ignored = r.ignored
	return c, err
}

// Secrets returns the secrets that connections to the hosts need.
func (c *Cluster) Secrets() (all []SecretRef) {
	for _, s := range c.TransportSocketMatches {
		all = append(all, s.TLS.Secrets()...)
	}
	return all
}

// Resolve returns the cluster with the hosts of a, which is nil if Endpoints is "" or
// nothing came for it, and what secrets say. ok is false if one of these is missing.
func (c *Cluster) Resolve(a *LoadAssignment, secrets map[SecretRef]*Secret) (out *config.Cluster, ok bool) {
	if c.EDSServiceName == "" {
		a = c.inlineAssignment
	}
	whole := *c.Config
	for _, s := range c.TransportSocketMatches {
		if s.TLS == nil {
			continue
		}
		t, ok := s.TLS.Resolve(secrets)
		switch {
		case !ok:
			return nil, false
		case whole.TLS == nil:
			whole.TLS = t
		default:
			whole.AlternateTLS = append(whole.AlternateTLS, t)
		}
	}
	if a == nil {
		return &whole, true
	}
	whole.Hosts = make([]config.Host, len(a.Endpoints))
	for i, h := range a.Endpoints {
		h.TLSIndex, h.NoTLS = c.tlsIndex(h.Labels)
		whole.Hosts[i] = h.Host
	}
	if c.localityWeighted {
		whole.LocalityWeights = a.Localities
	}
	if a.Overprovisioning > 0 {
		whole.Failover.Overprovisioning = a.Overprovisioning
	}
	whole.DropOverloads = a.DropOverloads
	return &whole, true
}

// tlsIndex returns which of the TLS contexts a host with the given labels has, as
// config.Host says it, or that it has none.
func (c *Cluster) tlsIndex(labels map[string]string) (which int, none bool) {
	for _, s := range c.TransportSocketMatches {
		if s.matches(labels) {
			return which, s.TLS == nil
		}
		if s.TLS != nil {
			which++
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

// supportedClusterFields are the fields of a Cluster that are read.
func supportedClusterFields() []string {
	return []string{
		"name", "type", "eds_cluster_config", "load_assignment", "connect_timeout", "lb_policy", "load_balancing_policy",
		"ring_hash_lb_config", "maglev_lb_config", "least_request_lb_config", "round_robin_lb_config", "original_dst_lb_config",
		"common_lb_config", "lb_subset_config", "circuit_breakers", "max_requests_per_connection",
		"common_http_protocol_options", "http_protocol_options", "http2_protocol_options", "protocol_selection", "upstream_http_protocol_options",
		"typed_extension_protocol_options", "dns_refresh_rate", "dns_failure_refresh_rate", "dns_jitter", "respect_dns_ttl", "dns_lookup_family",
		"dns_resolvers", "dns_resolution_config", "typed_dns_resolver_config",
		"health_checks", "outlier_detection", "transport_socket", "transport_socket_matches", "filters",
		"cleanup_interval", "upstream_bind_config", "upstream_connection_options",
	}
}

// rejectedClusterFields are those that are not read and without which exchanges would go
// elsewhere.
func rejectedClusterFields() []string {
	return []string{
		"cluster_type", "transport_socket_matcher", "upstream_config", "connection_pool_per_downstream_connection",
	}
}

func (p fieldReader) readDiscoveryType(m *clusterv3.Cluster, c *Cluster) {
	out := c.Config
	switch m.GetType() {
	case clusterv3.Cluster_STATIC:
		out.Type = config.ClusterStatic
	case clusterv3.Cluster_STRICT_DNS:
		out.Type = config.ClusterStrictDNS
	case clusterv3.Cluster_LOGICAL_DNS:
		out.Type = config.ClusterLogicalDNS
	case clusterv3.Cluster_ORIGINAL_DST:
		out.Type = config.ClusterOriginalDst
		p.readOriginalDst(m, out)
	case clusterv3.Cluster_EDS:
		out.Type = config.ClusterStatic
		eds := m.GetEdsClusterConfig()
		c.EDSServiceName = eds.GetServiceName()
		if c.EDSServiceName == "" {
			c.EDSServiceName = m.GetName()
		}
		at := p.field("eds_cluster_config").field("eds_config")
		at.checkConfigSource(eds.GetEdsConfig())
		c.InitialFetchTimeout = at.field("initial_fetch_timeout").duration(eds.GetEdsConfig().GetInitialFetchTimeout(), defaultFetchTimeout)
		return
	default:
		p.field("type").reject("%v is not supported", m.GetType())
	}
	if a := m.GetLoadAssignment(); a != nil {
		c.inlineAssignment = p.field("load_assignment").readAssignment(a, out.Type.UsesDNS())
	}
	if out.Type == config.ClusterLogicalDNS && (c.inlineAssignment == nil || len(c.inlineAssignment.Endpoints) != 1) {
		p.field("load_assignment").reject("expected exactly one host, because the cluster has the type LOGICAL_DNS")
	}
	if out.Type.UsesDNS() {
		p.readDNS(m, &out.DNS)
	}
}

// checkConfigSource refuses a source of resources that is not the stream that all come by.
func (p fieldReader) checkConfigSource(s *corev3.ConfigSource) {
	p.checkConfigSourceFields(s)
	switch s.GetConfigSourceSpecifier().(type) {
	case *corev3.ConfigSource_Ads, *corev3.ConfigSource_Self, nil:
	default:
		p.rejectOneof(s, "config_source_specifier", "ads", "self")
	}
}

// checkConfigSourceFields refuses settings of a source other than its place and its fetch timeout.
func (p fieldReader) checkConfigSourceFields(s *corev3.ConfigSource) {
	p.checkOptionalFields(s, []string{"authorities"}, "ads", "self", "path", "path_config_source", "api_config_source", "initial_fetch_timeout", "resource_api_version")
}

func (p fieldReader) readOriginalDst(m *clusterv3.Cluster, out *config.Cluster) {
	out.LBPolicy = config.LBOriginalDst
	every := p.field("cleanup_interval")
	if out.OriginalDst.CleanupInterval = every.duration(m.GetCleanupInterval(), config.DefaultCleanupInterval); out.OriginalDst.CleanupInterval <= 0 {
		every.reject("expected a duration greater than 0")
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

// isIgnorableNetworkFilter reports whether a network filter has nothing to say about what passes.
func isIgnorableNetworkFilter(name string) bool {
	return slices.Contains([]string{
		"istio.metadata_exchange", "istio.stats", "envoy.filters.network.metadata_exchange", "envoy.filters.network.upstream.metadata_exchange",
	}, name)
}
