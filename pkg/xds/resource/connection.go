package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"math"
	"net/netip"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
)

// readConnections reads the settings of upstream connections.
func (p fieldReader) readConnections(m *clusterv3.Cluster, c *Cluster) {
	out := c.Config
	out.ConnectTimeout = p.field("connect_timeout").readDuration(m.GetConnectTimeout(), 5*time.Second)
	out.IdleTimeout = time.Hour
	out.Heartbeat = config.Heartbeat{Interval: 15 * time.Second, Timeout: 90 * time.Second}
	out.MaxRequestsPerConn = uint32Or(m.GetMaxRequestsPerConnection(), 0)
	p.readProtocol(m, out)
	out.Pool.MaxRequests, out.Pool.MaxRPCRequests = out.MaxRequestsPerConn, out.MaxRequestsPerConn
	if m.GetConnectionPoolPerDownstreamConnection() {
		out.Pool.Mode, out.Pool.BindAll = config.Bind, true
	}
	p.field("circuit_breakers").readCircuitBreakers(m.GetCircuitBreakers(), out)
	p.readBindConfig(m.GetUpstreamBindConfig(), out)
	p.readKeepAlive(m.GetUpstreamConnectionOptions(), out)
	for i, f := range m.GetFilters() {
		if name := f.GetName(); !isIgnorableNetworkFilter(name) {
			p.field("filters").index(i).reject("%s is not supported", name)
		} else {
			p.field("filters").index(i).ignore()
		}
	}
}

func (p fieldReader) readCommonHTTP(o *corev3.HttpProtocolOptions, out *config.Cluster) {
	if o == nil {
		return
	}
	p.checkFields(o, []string{"idle_timeout", "max_requests_per_connection", "max_connection_duration", "max_headers_count", "max_response_headers_kb"}, nil)
	out.HTTP.MaxConnectionDuration = p.field("max_connection_duration").readDuration(o.GetMaxConnectionDuration(), out.HTTP.MaxConnectionDuration)
	out.HTTP.MaxHeaderCount = uint32Or(o.GetMaxHeadersCount(), out.HTTP.MaxHeaderCount)
	if kb := o.GetMaxResponseHeadersKb(); kb != nil {
		out.HTTP.MaxHeaderSize = p.field("max_response_headers_kb").readHeadersKB(kb)
	}
	out.IdleTimeout = p.field("idle_timeout").readDuration(o.GetIdleTimeout(), out.IdleTimeout)
	out.MaxRequestsPerConn = uint32Or(o.GetMaxRequestsPerConnection(), out.MaxRequestsPerConn)
}

// readHeadersKB returns the maximum size of a response head in bytes.
func (p fieldReader) readHeadersKB(w *wrapperspb.UInt32Value) int {
	const limit = 8192
	if kb := uint32Or(w, 0); kb < 1 || kb > limit {
		p.reject("is %d, expected 1 to %d", kb, limit)
		return 0
	}
	return uint32Or(w, 0) << 10
}

// These are Envoy's limits for the heads of responses.
const (
	defaultMaxResponseHead    = 80 << 10
	defaultMaxResponseHeaders = 100
)

// readHTTP2 reads the options of HTTP/2 connections.
func (p fieldReader) readHTTP2(o *corev3.Http2ProtocolOptions, out *config.Cluster) {
	p.checkOptionalFields(o, nil, "max_concurrent_streams", "initial_stream_window_size", "connection_keepalive")
	const minWindow, maxWindow = 1<<16 - 1, 1<<31 - 1
	if n := uint32Or(o.GetInitialStreamWindowSize(), minWindow); n < minWindow || n > maxWindow {
		p.field("initial_stream_window_size").reject("is %d, expected %d to %d", n, minWindow, maxWindow)
	} else if o.GetInitialStreamWindowSize() != nil {
		out.HTTP.StreamWindow = n
	}
	if n := uint32Or(o.GetMaxConcurrentStreams(), 1); n < 1 || n > maxWindow {
		p.field("max_concurrent_streams").reject("is %d, expected 1 to %d", n, maxWindow)
	} else if o.GetMaxConcurrentStreams() != nil {
		out.HTTP.MaxStreams = n
	}
	k := o.GetConnectionKeepalive()
	if k == nil {
		return
	}
	at := p.field("connection_keepalive")
	at.checkFields(k, []string{"interval", "timeout"}, nil)
	const shortest = time.Millisecond
	interval, timeout := at.field("interval").readDuration(k.GetInterval(), 0), at.field("timeout").readDuration(k.GetTimeout(), 0)
	switch {
	case k.GetInterval() != nil && interval < shortest:
		at.field("interval").reject("is %v, expected at least %v", interval, shortest)
	case timeout < shortest:
		at.field("timeout").reject("is %v, expected at least %v", timeout, shortest)
	case k.GetInterval() != nil:
		out.Heartbeat = config.Heartbeat{Interval: interval, Timeout: timeout}
	}
}

// protocolOptions is the key of HttpProtocolOptions in typed_extension_protocol_options.
const protocolOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// readProtocol reads the upstream protocol of HTTP requests. The default is HTTP/1.1 for every
// downstream protocol, gRPC included.
func (p fieldReader) readProtocol(m *clusterv3.Cluster, out *config.Cluster) {
	out.Protocol, out.GRPCOverHTTP1, out.ZeroLength = config.HTTP1, true, true
	out.HTTP = config.UpstreamHTTP{MaxHeaderSize: defaultMaxResponseHead, MaxHeaderCount: defaultMaxResponseHeaders, HTTP2WithoutALPN: true}
	p.field("common_http_protocol_options").readCommonHTTP(m.GetCommonHttpProtocolOptions(), out)
	p.readLegacyProtocol(m, out)
	if o := m.GetUpstreamHttpProtocolOptions(); o != nil {
		p.field("upstream_http_protocol_options").readAutoSNI(o, out)
	}
	for name, packed := range m.GetTypedExtensionProtocolOptions() {
		at := p.field("typed_extension_protocol_options").key(name)
		if name != protocolOptions {
			at.ignore()
			continue
		}
		o := &httpv3.HttpProtocolOptions{}
		if at.unpack(packed, o) {
			at.readUpstreamHTTP(o, out)
		}
	}
}

// readLegacyProtocol reads the fields that preceded HttpProtocolOptions.
func (p fieldReader) readLegacyProtocol(m *clusterv3.Cluster, out *config.Cluster) {
	http1, http2 := m.GetHttpProtocolOptions(), m.GetHttp2ProtocolOptions()
	if http1 != nil {
		p.field("http_protocol_options").checkFields(http1, nil, nil)
	}
	if http2 != nil {
		p.field("http2_protocol_options").readHTTP2(http2, out)
		out.Protocol = config.HTTP2
	}
	if m.GetProtocolSelection() == clusterv3.Cluster_USE_DOWNSTREAM_PROTOCOL {
		out.Protocol = config.Auto
	}
}

func (p fieldReader) readUpstreamHTTP(o *httpv3.HttpProtocolOptions, out *config.Cluster) {
	p.checkFields(o, []string{"common_http_protocol_options", "upstream_http_protocol_options", "explicit_http_config", "use_downstream_protocol_config", "auto_config"},
		[]string{"http_filters", "hash_policy", "header_validation_config"})
	p.field("common_http_protocol_options").readCommonHTTP(o.GetCommonHttpProtocolOptions(), out)
	if autoSNI := o.GetUpstreamHttpProtocolOptions(); autoSNI != nil {
		p.field("upstream_http_protocol_options").readAutoSNI(autoSNI, out)
	}
	switch u := o.GetUpstreamProtocolOptions().(type) {
	case *httpv3.HttpProtocolOptions_ExplicitHttpConfig_:
		at := p.field("explicit_http_config")
		switch c := u.ExplicitHttpConfig.GetProtocolConfig().(type) {
		case *httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions:
			out.Protocol = config.HTTP2
			at.field("http2_protocol_options").readHTTP2(c.Http2ProtocolOptions, out)
		case *httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions:
			at.field("http_protocol_options").checkFields(c.HttpProtocolOptions, nil, nil)
		default:
			at.reject("expected http_protocol_options or http2_protocol_options")
		}
	case *httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig:
		out.Protocol = config.Auto
		at, c := p.field("use_downstream_protocol_config"), u.UseDownstreamProtocolConfig
		at.checkFields(c, []string{"http_protocol_options", "http2_protocol_options"}, nil)
		at.readProtocolOptions(c.GetHttpProtocolOptions(), c.GetHttp2ProtocolOptions(), out)
	case *httpv3.HttpProtocolOptions_AutoConfig:
		out.Protocol = config.HTTPByALPN
		at, c := p.field("auto_config"), u.AutoConfig
		at.checkFields(c, []string{"http_protocol_options", "http2_protocol_options"}, nil)
		at.readProtocolOptions(c.GetHttpProtocolOptions(), c.GetHttp2ProtocolOptions(), out)
	default:
		p.reject("expected explicit_http_config, use_downstream_protocol_config or auto_config")
	}
}

// readAutoSNI reads the settings with which the authority of a request determines the SNI and the
// name that the host's certificate must match.
func (p fieldReader) readAutoSNI(o *corev3.UpstreamHttpProtocolOptions, out *config.Cluster) {
	p.checkFields(o, []string{"auto_sni", "auto_san_validation", "override_auto_sni_header"}, nil)
	out.AutoSNI = config.AutoSNI{SendSNI: o.GetAutoSni(), ValidateSAN: o.GetAutoSanValidation(), OverrideHeader: lower(o.GetOverrideAutoSniHeader())}
	switch {
	case !out.AutoSNI.Enabled():
		out.AutoSNI = config.AutoSNI{}
	case out.AutoSNI.OverrideHeader == ":authority" || out.AutoSNI.OverrideHeader == "host":
		out.AutoSNI.OverrideHeader = ""
	}
}

// readProtocolOptions reads the options of protocols of which a connection uses one. Both may be nil.
func (p fieldReader) readProtocolOptions(http1 *corev3.Http1ProtocolOptions, http2 *corev3.Http2ProtocolOptions, out *config.Cluster) {
	p.field("http_protocol_options").checkOptionalFields(http1, nil)
	p.field("http2_protocol_options").readHTTP2(http2, out)
}

func (p fieldReader) readCircuitBreakers(b *clusterv3.CircuitBreakers, out *config.Cluster) {
	out.CircuitBreakers, out.HighCircuitBreakers = config.DefaultCircuitBreakers(), config.DefaultCircuitBreakers()
	if b != nil {
		p.checkFields(b, []string{"thresholds"}, []string{"per_host_thresholds"})
	}
	seen := map[config.Priority]bool{}
	for i, t := range b.GetThresholds() {
		at := p.field("thresholds").index(i)
		at.checkFields(t, []string{"priority", "max_connections", "max_pending_requests", "max_requests", "max_retries", "retry_budget", "track_remaining"}, nil)
		priority := at.field("priority").readPriority(t.GetPriority())
		if seen[priority] { // the first threshold of a priority applies
			at.ignore()
			continue
		}
		seen[priority] = true
		limits := out.Limits(priority)
		limits.MaxConnections = limitOr(t.GetMaxConnections(), config.DefaultMaxConnections)
		limits.MaxPendingRequests = limitOr(t.GetMaxPendingRequests(), config.DefaultMaxPendingRequests)
		limits.MaxRequests = limitOr(t.GetMaxRequests(), config.DefaultMaxRequests)
		limits.MaxRetries = limitOr(t.GetMaxRetries(), config.DefaultMaxRetries)
		if budget := t.GetRetryBudget(); budget != nil {
			at.field("retry_budget").checkFields(budget, []string{"budget_percent", "min_retry_concurrency"}, nil)
			limits.MaxRetries = 0 // the retry budget replaces max_retries
			limits.RetryBudget = config.RetryBudget{Percent: 20, MinConcurrency: uint32Or(budget.GetMinRetryConcurrency(), 3)}
			if budget.GetBudgetPercent() != nil {
				limits.RetryBudget.Percent = at.field("retry_budget").field("budget_percent").checkPercent(budget.GetBudgetPercent().GetValue())
			}
		}
	}
}

// checkPercent returns f, or rejects it and returns 0 if it is not in the range 0 to 100.
func (p fieldReader) checkPercent(f float64) float64 {
	if !(f >= 0 && f <= 100) { // rejects NaN, too
		p.reject("is %v, expected 0 to 100", f)
		return 0
	}
	return f
}

// readBindConfig reads the source addresses of upstream connections, at most one per address
// family.
func (p fieldReader) readBindConfig(b *corev3.BindConfig, out *config.Cluster) {
	if b == nil {
		return
	}
	p = p.field("upstream_bind_config")
	p.checkFields(b, []string{"source_address", "extra_source_addresses"}, []string{"additional_source_addresses", "local_address_selector", "socket_options"})
	if b.GetSourceAddress() != nil {
		p.field("source_address").readSourceAddress(b.GetSourceAddress(), &out.Socket)
	}
	for i, extra := range b.GetExtraSourceAddresses() {
		at := p.field("extra_source_addresses").index(i)
		at.checkFields(extra, []string{"address"}, []string{"socket_options"})
		at.field("address").readSourceAddress(extra.GetAddress(), &out.Socket)
	}
}

func (p fieldReader) readSourceAddress(s *corev3.SocketAddress, out *config.Socket) {
	ip, err := netip.ParseAddr(s.GetAddress())
	if err != nil || ip.Is4In6() || ip.IsMulticast() {
		p.field("address").reject("%q is not a valid source address: expected a unicast IP address", s.GetAddress())
		return
	}
	p.checkFields(s, []string{"address", "port_value"}, []string{"protocol", "named_port", "resolver_name", "ipv4_compat", "network_namespace_filepath"})
	port := s.GetPortValue()
	if port > math.MaxUint16 {
		p.field("port_value").reject("is %d, expected a port", port)
	}
	sourceIP, sourcePort := &out.SourceIPv4, &out.SourcePortIPv4
	if ip.Is6() {
		sourceIP, sourcePort = &out.SourceIPv6, &out.SourcePortIPv6
	}
	switch {
	case *sourceIP != "" || *sourcePort != 0:
		p.reject("is a second address of the same family: only one is supported")
	case !ip.IsUnspecified(): // the kernel chooses if the address is unspecified
		*sourceIP = ip.String()
		fallthrough
	default:
		*sourcePort = uint16(port) //nolint:gosec // checked above
	}
}

// These are the largest keepalive settings that the kernel accepts (MAX_TCP_KEEPIDLE,
// MAX_TCP_KEEPINTVL and MAX_TCP_KEEPCNT in Linux).
const (
	maxKeepAliveSeconds = math.MaxInt16
	maxKeepAliveProbes  = math.MaxInt8
)

func (p fieldReader) readKeepAlive(o *clusterv3.UpstreamConnectionOptions, out *config.Cluster) {
	if o == nil {
		return
	}
	p = p.field("upstream_connection_options")
	p.checkFields(o, []string{"tcp_keepalive"}, nil)
	k := o.GetTcpKeepalive()
	if k == nil {
		return
	}
	p = p.field("tcp_keepalive")
	out.Socket.KeepAlive = config.TCPKeepAlive{
		Enabled:  true,
		Idle:     time.Duration(p.field("keepalive_time").readBoundedCount(k.GetKeepaliveTime(), maxKeepAliveSeconds)) * time.Second,
		Interval: time.Duration(p.field("keepalive_interval").readBoundedCount(k.GetKeepaliveInterval(), maxKeepAliveSeconds)) * time.Second,
		Probes:   p.field("keepalive_probes").readBoundedCount(k.GetKeepaliveProbes(), maxKeepAliveProbes),
	}
}

// readBoundedCount returns the value of w and rejects a value greater than limit. If w is nil or
// rejected, it returns 0, which selects the kernel default.
func (p fieldReader) readBoundedCount(w *wrapperspb.UInt32Value, limit int) int {
	n := uint32Or(w, 0)
	if n > limit {
		p.reject("is %d, expected at most %d", n, limit)
		return 0
	}
	return n
}
