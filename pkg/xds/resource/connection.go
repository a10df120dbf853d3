package resource

//lint:file-ignore SA1019 control planes still say what the API calls deprecated

import (
	"math"
	"net/netip"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
)

// readConnections reads how hosts are connected to, what is spoken to them, and how much
// of it there may be.
func (p place) readConnections(m *clusterv3.Cluster, c *Cluster) {
	out := c.Config
	out.ConnectTimeout = p.field("connect_timeout").duration(m.GetConnectTimeout(), 5*time.Second)
	out.IdleTimeout = time.Hour
	out.KeepAlive = config.KeepAlive{Interval: 15 * time.Second, Timeout: 90 * time.Second}
	out.MaxRequestsPerConn = count(m.GetMaxRequestsPerConnection(), 0)
	p.readProtocol(m, out)
	out.Pool.MaxRequests, out.Pool.MaxCalls = out.MaxRequestsPerConn, out.MaxRequestsPerConn
	p.field("circuit_breakers").readBreakers(m.GetCircuitBreakers(), out)
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

// readProtocol reads what requests of HTTP are sent in: HTTP/1.1 if nothing is said,
// whatever their callers speak, gRPC included.
func (p place) readProtocol(m *clusterv3.Cluster, out *config.Cluster) {
	out.Protocol, out.GRPCInHTTP1 = config.HTTP1, true
	p.field("common_http_protocol_options").readCommonHTTP(m.GetCommonHttpProtocolOptions(), out)
	p.readOldProtocol(m, out)
	if o := m.GetUpstreamHttpProtocolOptions(); o != nil {
		p.field("upstream_http_protocol_options").readNames(o, out)
	}
	for name, packed := range m.GetTypedExtensionProtocolOptions() {
		at := p.field("typed_extension_protocol_options").key(name)
		if name != protocolOptions {
			at.ignore()
			continue
		}
		o := &httpv3.HttpProtocolOptions{}
		if at.open(packed, o) {
			at.readUpstreamHTTP(o, out)
		}
	}
}

// readOldProtocol reads the fields that were before HttpProtocolOptions.
func (p place) readOldProtocol(m *clusterv3.Cluster, out *config.Cluster) {
	http1, http2 := m.GetHttpProtocolOptions(), m.GetHttp2ProtocolOptions()
	if http1 != nil {
		p.field("http_protocol_options").only(http1, nil, nil)
	}
	if http2 != nil {
		p.field("http2_protocol_options").only(http2, nil, nil)
		out.Protocol = config.HTTP2
	}
	if m.GetProtocolSelection() == clusterv3.Cluster_USE_DOWNSTREAM_PROTOCOL {
		out.Protocol = config.Auto
	}
}

func (p place) readUpstreamHTTP(o *httpv3.HttpProtocolOptions, out *config.Cluster) {
	p.only(o, []string{"common_http_protocol_options", "upstream_http_protocol_options", "explicit_http_config", "use_downstream_protocol_config", "auto_config"},
		[]string{"http_filters", "hash_policy", "header_validation_config"})
	p.field("common_http_protocol_options").readCommonHTTP(o.GetCommonHttpProtocolOptions(), out)
	if names := o.GetUpstreamHttpProtocolOptions(); names != nil {
		p.field("upstream_http_protocol_options").readNames(names, out)
	}
	switch u := o.GetUpstreamProtocolOptions().(type) {
	case *httpv3.HttpProtocolOptions_ExplicitHttpConfig_:
		at := p.field("explicit_http_config")
		switch c := u.ExplicitHttpConfig.GetProtocolConfig().(type) {
		case *httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions:
			out.Protocol = config.HTTP2
			at.field("http2_protocol_options").only(c.Http2ProtocolOptions, nil, nil)
		case *httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions:
			at.field("http_protocol_options").only(c.HttpProtocolOptions, nil, nil)
		default:
			at.refuse("expected http_protocol_options or http2_protocol_options")
		}
	case *httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig:
		out.Protocol = config.Auto
		p.readEach("use_downstream_protocol_config", u.UseDownstreamProtocolConfig.GetHttpProtocolOptions(), u.UseDownstreamProtocolConfig.GetHttp2ProtocolOptions())
	case *httpv3.HttpProtocolOptions_AutoConfig:
		p.field("auto_config").refuse("is not supported, expected explicit_http_config or use_downstream_protocol_config")
	default:
		p.refuse("expected explicit_http_config or use_downstream_protocol_config")
	}
}

// readNames reads what the names that requests are for have to do with connections.
func (p place) readNames(o *corev3.UpstreamHttpProtocolOptions, out *config.Cluster) {
	p.only(o, []string{"auto_sni", "auto_san_validation", "override_auto_sni_header"}, nil)
	out.RequestName = config.RequestName{SNI: o.GetAutoSni(), Verify: o.GetAutoSanValidation(), Field: lower(o.GetOverrideAutoSniHeader())}
	switch {
	case !out.RequestName.Counts():
		out.RequestName = config.RequestName{}
	case out.RequestName.Field == ":authority" || out.RequestName.Field == "host":
		out.RequestName.Field = ""
	}
}

// readEach notes what options of HTTP/1.1 and HTTP/2 have no effect.
func (p place) readEach(name string, http1 *corev3.Http1ProtocolOptions, http2 *corev3.Http2ProtocolOptions) {
	for field, m := range map[string]proto.Message{"http_protocol_options": http1, "http2_protocol_options": http2} {
		if m.ProtoReflect().IsValid() {
			p.field(name).field(field).only(m, nil, nil)
		}
	}
}

func (p place) readBreakers(b *clusterv3.CircuitBreakers, out *config.Cluster) {
	out.Breakers, out.HighBreakers = config.DefaultBreakers(), config.DefaultBreakers()
	if b != nil {
		p.only(b, []string{"thresholds"}, []string{"per_host_thresholds"})
	}
	seen := map[config.Priority]bool{}
	for i, t := range b.GetThresholds() {
		at := p.field("thresholds").index(i)
		at.only(t, []string{"priority", "max_connections", "max_pending_requests", "max_requests", "max_retries", "retry_budget", "track_remaining"}, nil)
		priority := at.field("priority").priority(t.GetPriority())
		if seen[priority] { // the first of a priority counts
			at.ignore()
			continue
		}
		seen[priority] = true
		limits := out.Limits(priority)
		limits.MaxConnections = limit(t.GetMaxConnections(), config.DefaultMaxConnections)
		limits.MaxPendingRequests = limit(t.GetMaxPendingRequests(), config.DefaultMaxPendingRequests)
		limits.MaxRequests = limit(t.GetMaxRequests(), config.DefaultMaxRequests)
		limits.MaxRetries = limit(t.GetMaxRetries(), config.DefaultMaxRetries)
		if budget := t.GetRetryBudget(); budget != nil {
			at.field("retry_budget").only(budget, []string{"budget_percent", "min_retry_concurrency"}, nil)
			limits.MaxRetries = 0 // the budget stands in its place
			limits.RetryBudget = config.RetryBudget{Percent: 20, MinConcurrency: count(budget.GetMinRetryConcurrency(), 3)}
			if budget.GetBudgetPercent() != nil {
				limits.RetryBudget.Percent = at.field("retry_budget").field("budget_percent").percent(budget.GetBudgetPercent().GetValue())
			}
		}
	}
}

// percent is a share of 0 to 100.
func (p place) percent(f float64) float64 {
	if !(f >= 0 && f <= 100) { // a NaN is neither
		p.refuse("is %v, expected 0 to 100", f)
		return 0
	}
	return f
}

// readBind reads where connections to the hosts come from: one address of each family.
func (p place) readBind(b *corev3.BindConfig, out *config.Cluster) {
	if b == nil {
		return
	}
	p = p.field("upstream_bind_config")
	p.only(b, []string{"source_address", "extra_source_addresses"}, []string{"additional_source_addresses", "local_address_selector", "socket_options"})
	if b.GetSourceAddress() != nil {
		p.field("source_address").readSource4or6(b.GetSourceAddress(), &out.Socket)
	}
	for i, extra := range b.GetExtraSourceAddresses() {
		at := p.field("extra_source_addresses").index(i)
		at.only(extra, []string{"address"}, []string{"socket_options"})
		at.field("address").readSource4or6(extra.GetAddress(), &out.Socket)
	}
}

func (p place) readSource4or6(s *corev3.SocketAddress, out *config.Socket) {
	address, err := netip.ParseAddr(s.GetAddress())
	if err != nil || address.Is4In6() || address.IsMulticast() {
		p.field("address").refuse("%q is not a valid source address: expected a unicast IP address", s.GetAddress())
		return
	}
	p.only(s, []string{"address", "port_value"}, []string{"protocol", "named_port", "resolver_name", "ipv4_compat", "network_namespace_filepath"})
	port := s.GetPortValue()
	if port > math.MaxUint16 {
		p.field("port_value").refuse("is %d, expected a port", port)
	}
	family, from := &out.Source4, &out.Port4
	if address.Is6() {
		family, from = &out.Source6, &out.Port6
	}
	switch {
	case *family != "" || *from != 0:
		p.refuse("is a second address of the same family: only one is supported")
	case !address.IsUnspecified(): // else the system chooses
		*family = address.String()
		fallthrough
	default:
		*from = uint16(port) //nolint:gosec // refused above if it is more
	}
}

// The largest settings of keep-alive that the kernel takes (tcp(7)).
const (
	mostKeepAliveSeconds = math.MaxInt16
	mostKeepAliveProbes  = math.MaxInt8
)

func (p place) readKeepAlive(o *clusterv3.UpstreamConnectionOptions, out *config.Cluster) {
	if o == nil {
		return
	}
	p = p.field("upstream_connection_options")
	p.only(o, []string{"tcp_keepalive"}, nil)
	k := o.GetTcpKeepalive()
	if k == nil {
		return
	}
	p = p.field("tcp_keepalive")
	out.Socket.KeepAlive = config.TCPKeepAlive{
		Enabled:  true,
		Idle:     time.Duration(p.field("keepalive_time").most(k.GetKeepaliveTime(), mostKeepAliveSeconds)) * time.Second,
		Interval: time.Duration(p.field("keepalive_interval").most(k.GetKeepaliveInterval(), mostKeepAliveSeconds)) * time.Second,
		Probes:   p.field("keepalive_probes").most(k.GetKeepaliveProbes(), mostKeepAliveProbes),
	}
}

// most is count of what the kernel takes; 0: what it has if nothing is said.
func (p place) most(w *wrapperspb.UInt32Value, most int) int {
	n := count(w, 0)
	if n > most {
		p.refuse("is %d, expected at most %d", n, most)
		return 0
	}
	return n
}
