package resource

//lint:file-ignore SA1019 control planes still say what the API calls deprecated

import (
	"math"
	"net/netip"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
)

// Cluster is what a resource of ClusterType says.
type Cluster struct {
	// Config is the cluster, without what is found by the names below. Immutable.
	Config *config.Cluster
	// Endpoints is the name of the resource of EndpointType that has the hosts; "": the
	// cluster has them itself.
	Endpoints string
	// EndpointTimeout is how long the cluster waits for Endpoints before it goes without;
	// 0: for ever.
	EndpointTimeout time.Duration
	Sockets         []Socket // of the hosts; the first that fits a host is its own
	Ignored         []string // fields that have no effect, in order

	inline   *Assignment // of a cluster that has hosts itself
	weighted bool        // localities get their weights' shares
}

// Socket is how connections to the hosts are made whose labels have all of Match.
type Socket struct {
	Match map[string]string // empty: of every host
	TLS   *TLS              // nil: plaintext
}

// defaultFetchTimeout is how long a resource is waited for if nothing is said.
const defaultFetchTimeout = 15 * time.Second

// ReadCluster reads a serialized Cluster. The error is Refused.
func ReadCluster(body []byte) (*Cluster, error) {
	m := &clusterv3.Cluster{}
	if err := unmarshal(body, m); err != nil {
		return nil, err
	}
	r := &report{}
	p := place{report: r}
	c := &Cluster{Config: &config.Cluster{Name: m.GetName()}}
	p.only(m, clusterRead(), clusterCritical())
	if m.GetName() == "" {
		p.field("name").refuse("is missing")
	}
	p.readHosts(m, c)
	p.readPolicy(m, c.Config)
	p.readConnections(m, c)
	p.readHealth(m, c.Config)
	c.weighted = m.GetCommonLbConfig().GetLocalityWeightedLbConfig() != nil
	p.readSockets(m, c)
	c.Ignored = r.ignored
	return c, r.result()
}

// Secrets returns the secrets that connections to the hosts need.
func (c *Cluster) Secrets() (all []SecretRef) {
	for _, s := range c.Sockets {
		all = append(all, s.TLS.Secrets()...)
	}
	return all
}

// With returns the cluster with the hosts of a, which is nil if Endpoints is "" or
// nothing came for it, and what secrets say. ok is false if one of these is missing.
func (c *Cluster) With(a *Assignment, secrets map[SecretRef]*Secret) (out *config.Cluster, ok bool) {
	if c.Endpoints == "" {
		a = c.inline
	}
	whole := *c.Config
	for _, s := range c.Sockets {
		if s.TLS == nil {
			continue
		}
		if whole.TLS, ok = s.TLS.With(secrets); !ok { // there is only one that is not nil
			return nil, false
		}
	}
	if a == nil {
		return &whole, true
	}
	whole.Hosts = make([]config.Host, len(a.Hosts))
	for i, h := range a.Hosts {
		h.NoTLS = c.socket(h.Labels) == nil
		whole.Hosts[i] = h.Host
	}
	if c.weighted {
		whole.Localities = a.Localities
	}
	if a.Overprovisioning > 0 {
		whole.Failover.Overprovisioning = a.Overprovisioning
	}
	return &whole, true
}

// socket returns the TLS of a host with the given labels, nil for plaintext.
func (c *Cluster) socket(labels map[string]string) *TLS {
	for _, s := range c.Sockets {
		if s.fits(labels) {
			return s.TLS
		}
	}
	return nil
}

func (s *Socket) fits(labels map[string]string) bool {
	for k, v := range s.Match {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// clusterRead are the fields of a Cluster that are read.
func clusterRead() []string {
	return []string{
		"name", "type", "eds_cluster_config", "load_assignment", "connect_timeout", "lb_policy", "load_balancing_policy",
		"ring_hash_lb_config", "maglev_lb_config", "least_request_lb_config", "round_robin_lb_config", "original_dst_lb_config",
		"common_lb_config", "lb_subset_config", "circuit_breakers", "max_requests_per_connection",
		"common_http_protocol_options", "http2_protocol_options", "typed_extension_protocol_options",
		"dns_refresh_rate", "dns_failure_refresh_rate", "dns_jitter", "respect_dns_ttl", "dns_lookup_family",
		"health_checks", "outlier_detection", "transport_socket", "transport_socket_matches", "filters",
		"cleanup_interval", "upstream_bind_config", "upstream_connection_options", "metadata", "alt_stat_name",
	}
}

// clusterCritical are those that are not read and without which exchanges would go
// elsewhere.
func clusterCritical() []string {
	return []string{"cluster_type", "transport_socket_matcher", "lrs_server_self_only"}
}

func (p place) readHosts(m *clusterv3.Cluster, c *Cluster) {
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
		c.Endpoints = eds.GetServiceName()
		if c.Endpoints == "" {
			c.Endpoints = m.GetName()
		}
		at := p.field("eds_cluster_config").field("eds_config")
		at.readSource(eds.GetEdsConfig())
		c.EndpointTimeout = at.field("initial_fetch_timeout").duration(eds.GetEdsConfig().GetInitialFetchTimeout(), defaultFetchTimeout)
		return
	default:
		p.field("type").refuse("%v is not supported", m.GetType())
	}
	if a := m.GetLoadAssignment(); a != nil {
		e := p.field("load_assignment").readAssignment(a, out.Type.Resolves())
		c.inline = e
	}
	if out.Type.Resolves() {
		p.readDNS(m, &out.DNS)
	}
}

// readSource refuses a source of resources that is not the stream that all come by.
func (p place) readSource(s *corev3.ConfigSource) {
	switch s.GetConfigSourceSpecifier().(type) {
	case *corev3.ConfigSource_Ads, *corev3.ConfigSource_Self, nil:
	default:
		p.refuse("%T is not supported, expected ads or self", s.GetConfigSourceSpecifier())
	}
}

func (p place) readDNS(m *clusterv3.Cluster, d *config.DNS) {
	d.RefreshRate = p.field("dns_refresh_rate").duration(m.GetDnsRefreshRate(), 0)
	d.RespectTTL = m.GetRespectDnsTtl()
	d.Jitter = p.field("dns_jitter").duration(m.GetDnsJitter(), 0)
	if f := m.GetDnsFailureRefreshRate(); f != nil {
		at := p.field("dns_failure_refresh_rate")
		d.FailureBase = at.field("base_interval").duration(f.GetBaseInterval(), 0)
		d.FailureMax = at.field("max_interval").duration(f.GetMaxInterval(), 10*d.FailureBase)
	}
	switch m.GetDnsLookupFamily() {
	case clusterv3.Cluster_AUTO, clusterv3.Cluster_V4_ONLY, clusterv3.Cluster_V6_ONLY, clusterv3.Cluster_V4_PREFERRED, clusterv3.Cluster_ALL:
		d.Family = m.GetDnsLookupFamily().String()
	default:
		p.field("dns_lookup_family").refuse("%v is not supported", m.GetDnsLookupFamily())
	}
}

func (p place) readOriginalDst(m *clusterv3.Cluster, out *config.Cluster) {
	out.Policy = config.LBOriginalDst
	out.OriginalDst.CleanupInterval = p.field("cleanup_interval").duration(m.GetCleanupInterval(), config.DefaultCleanupInterval)
	o := m.GetOriginalDstLbConfig()
	if o == nil {
		return
	}
	at := p.field("original_dst_lb_config")
	at.only(o, []string{"use_http_header", "http_header_name", "upstream_port_override"}, []string{"metadata_key"})
	if o.GetUseHttpHeader() {
		out.OriginalDst.Header = "x-envoy-original-dst-host"
		if name := o.GetHttpHeaderName(); name != "" {
			out.OriginalDst.Header = lower(name)
		}
	}
	port := o.GetUpstreamPortOverride().GetValue()
	if port > math.MaxUint16 {
		at.field("upstream_port_override").refuse("is %d, expected a port", port)
	}
	out.OriginalDst.Port = uint16(port) //nolint:gosec // checked above
}

func (p place) readConnections(m *clusterv3.Cluster, c *Cluster) {
	out := c.Config
	out.ConnectTimeout = p.field("connect_timeout").duration(m.GetConnectTimeout(), 5*time.Second)
	out.IdleTimeout = time.Hour
	out.KeepAlive = config.KeepAlive{Interval: 15 * time.Second, Timeout: 90 * time.Second}
	out.MaxRequestsPerConn = count(m.GetMaxRequestsPerConnection(), 0)
	if m.GetHttp2ProtocolOptions() != nil {
		out.Protocol = config.HTTP2
	}
	p.field("common_http_protocol_options").readCommonHTTP(m.GetCommonHttpProtocolOptions(), out)
	p.readProtocol(m, out)
	p.field("circuit_breakers").readBreakers(m.GetCircuitBreakers(), &out.Breakers)
	p.readBind(m.GetUpstreamBindConfig(), out)
	p.readKeepAlive(m.GetUpstreamConnectionOptions(), out)
	for i, f := range m.GetFilters() {
		if name := f.GetName(); !harmlessFilter(name) {
			p.field("filters").index(i).refuse("%s is not supported", name)
		} else {
			p.field("filters").index(i).ignore()
		}
	}
}

func (p place) readCommonHTTP(o *corev3.HttpProtocolOptions, out *config.Cluster) {
	if o == nil {
		return
	}
	p.only(o, []string{"idle_timeout", "max_requests_per_connection"}, nil)
	out.IdleTimeout = p.field("idle_timeout").duration(o.GetIdleTimeout(), out.IdleTimeout)
	out.MaxRequestsPerConn = count(o.GetMaxRequestsPerConnection(), out.MaxRequestsPerConn)
}

// protocolOptions is the key of HttpProtocolOptions.
const protocolOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

func (p place) readProtocol(m *clusterv3.Cluster, out *config.Cluster) {
	for name, packed := range m.GetTypedExtensionProtocolOptions() {
		at := p.field("typed_extension_protocol_options").key(name)
		if name != protocolOptions {
			at.ignore()
			continue
		}
		o := &httpv3.HttpProtocolOptions{}
		if !at.open(packed, o) {
			continue
		}
		at.only(o, []string{"common_http_protocol_options", "explicit_http_config", "use_downstream_protocol_config", "auto_config"},
			[]string{"http_filters"})
		at.field("common_http_protocol_options").readCommonHTTP(o.GetCommonHttpProtocolOptions(), out)
		switch u := o.GetUpstreamProtocolOptions().(type) {
		case *httpv3.HttpProtocolOptions_ExplicitHttpConfig_:
			switch u.ExplicitHttpConfig.GetProtocolConfig().(type) {
			case *httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions:
				out.Protocol = config.HTTP2
			case *httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions:
				out.Protocol = config.HTTP1
			default:
				at.field("explicit_http_config").refuse("expected http_protocol_options or http2_protocol_options")
			}
		case *httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig:
			out.Protocol = config.Auto
		case *httpv3.HttpProtocolOptions_AutoConfig:
			at.field("auto_config").refuse("is not supported, expected explicit_http_config or use_downstream_protocol_config")
		}
	}
}

func (p place) readBreakers(b *clusterv3.CircuitBreakers, out *config.Breakers) {
	const usual, retries = 1024, 3 // Envoy's, where nothing is said
	*out = config.Breakers{MaxConnections: usual, MaxPendingRequests: usual, MaxRequests: usual, MaxRetries: retries}
	for i, t := range b.GetThresholds() {
		at := p.field("thresholds").index(i)
		at.only(t, []string{"priority", "max_connections", "max_pending_requests", "max_requests", "max_retries", "retry_budget", "track_remaining"}, nil)
		if t.GetPriority() != corev3.RoutingPriority_DEFAULT {
			at.field("priority").ignore()
			continue
		}
		at.refuseZero("max_connections", t.GetMaxConnections())
		at.refuseZero("max_requests", t.GetMaxRequests())
		out.MaxConnections = limit(t.GetMaxConnections(), usual)
		out.MaxPendingRequests = limit(t.GetMaxPendingRequests(), usual)
		out.MaxRequests = limit(t.GetMaxRequests(), usual)
		out.MaxRetries = limit(t.GetMaxRetries(), retries)
		if budget := t.GetRetryBudget(); budget != nil {
			out.RetryBudget = config.RetryBudget{Percent: 20, MinConcurrency: count(budget.GetMinRetryConcurrency(), 3)}
			if budget.GetBudgetPercent() != nil {
				out.RetryBudget.Percent = budget.GetBudgetPercent().GetValue()
			}
		}
	}
}

// refuseZero refuses a limit that lets nothing through.
func (p place) refuseZero(name string, w *wrapperspb.UInt32Value) {
	if w != nil && w.GetValue() == 0 {
		p.field(name).refuse("is 0, which lets nothing through: that is not supported")
	}
}

// readBind reads where connections to the hosts come from.
func (p place) readBind(b *corev3.BindConfig, out *config.Cluster) {
	if b == nil {
		return
	}
	at := p.field("upstream_bind_config")
	at.only(b, []string{"source_address"}, []string{"extra_source_addresses", "additional_source_addresses", "local_address_selector"})
	s := b.GetSourceAddress()
	if s == nil {
		return
	}
	address, err := netip.ParseAddr(s.GetAddress())
	if err != nil {
		at.field("source_address").field("address").refuse("%q is no IP address", s.GetAddress())
		return
	}
	if s.GetPortValue() != 0 {
		at.field("source_address").field("port_value").refuse("is %d: only any port is supported", s.GetPortValue())
	}
	if address.Is4() {
		out.Socket.Source4 = address.String()
	} else {
		out.Socket.Source6 = address.String()
	}
}

func (p place) readKeepAlive(o *clusterv3.UpstreamConnectionOptions, out *config.Cluster) {
	if o == nil {
		return
	}
	p.field("upstream_connection_options").only(o, []string{"tcp_keepalive"}, nil)
	k := o.GetTcpKeepalive()
	if k == nil {
		return
	}
	out.Socket.KeepAlive = config.TCPKeepAlive{
		Enabled:  true,
		Idle:     time.Duration(k.GetKeepaliveTime().GetValue()) * time.Second,
		Interval: time.Duration(k.GetKeepaliveInterval().GetValue()) * time.Second,
		Probes:   count(k.GetKeepaliveProbes(), 0),
	}
}

// harmlessFilter reports whether a network filter has nothing to say about what passes.
func harmlessFilter(name string) bool {
	return slices.Contains([]string{
		"istio.metadata_exchange", "istio.stats", "envoy.filters.network.metadata_exchange", "envoy.filters.network.upstream.metadata_exchange",
	}, name)
}
