package resource

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dubbov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/dubbo_proxy/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// readNetworkFilters reads the network filters of a chain. It adds the inline route tables and the
// names of route resources to l.
func (p fieldReader) readNetworkFilters(list []*listenerv3.Filter, out *config.FilterChain, l *Listener) {
	isTCP := slices.ContainsFunc(list, func(f *listenerv3.Filter) bool { return isType(f.GetTypedConfig(), &tcpv3.TcpProxy{}) })
	reasonCount := len(p.report.reasons)
	for i, f := range list {
		at := p.index(i)
		if out.Proxy != nil || out.TCPProxy != nil {
			at.reject("must precede the terminal filter of the chain")
			return
		}
		packed := f.GetTypedConfig()
		hcm, dubbo, tcp := &hcmv3.HttpConnectionManager{}, &dubbov3.DubboProxy{}, &tcpv3.TcpProxy{}
		switch {
		case isType(packed, &rbacv3.RBAC{}):
			at.field("typed_config").readConnectionFilter("rbac", packed, out)
		case isTCP && at.readIstioNetworkFilter(f, out, l):
		case isIgnorableNetworkFilter(f.GetName()):
			at.key(f.GetName()).ignore()
		case isType(packed, hcm):
			if at = at.field("typed_config"); at.unpack(packed, hcm) {
				out.Proxy = at.readHTTP(hcm, l)
			}
		case isType(packed, dubbo):
			if at = at.field("typed_config"); at.unpack(packed, dubbo) {
				out.Proxy = at.readDubbo(dubbo, l)
			}
		case isType(packed, tcp):
			if at = at.field("typed_config"); at.unpack(packed, tcp) {
				out.TCPProxy = at.readTCP(tcp, l)
			}
		default:
			at.reject("%s (%s) is not supported", f.GetName(), packed.GetTypeUrl())
		}
	}
	if out.Proxy == nil && out.TCPProxy == nil && len(p.report.reasons) == reasonCount { // a rejected filter may be the terminal filter
		p.reject("the chain has no terminal filter, such as http_connection_manager or tcp_proxy")
	}
}

// readConnectionFilter reads a network filter that allows or denies connections. name is its name
// in Weft.
func (p fieldReader) readConnectionFilter(name string, packed *anypb.Any, out *config.FilterChain) {
	factory := p.report.capabilities.connectionFilterFactory(name)
	if factory == nil {
		p.rejectUnsupported()
		return
	}
	m, ok := p.unpackAny(packed)
	if !ok {
		return
	}
	if settings := p.decodeFilter(factory.Config(), m, adaptRBAC); settings != nil {
		out.ConnectionFilters = append(out.ConnectionFilters, config.Filter{Name: name, Config: settings})
	}
}

func (p fieldReader) readTCP(m *tcpv3.TcpProxy, l *Listener) *config.TCPProxy {
	p.checkFields(m, []string{"cluster", "idle_timeout", "access_log", "max_connect_attempts"},
		[]string{"weighted_clusters", "on_demand", "metadata_match", "tunneling_config"})
	if len(m.GetAccessLog()) > 0 && len(l.Config.AccessLogs) == 0 {
		l.Config.AccessLogs = p.field("access_log").readAccessLogs(m.GetAccessLog())
	}
	out := &config.TCPProxy{
		Cluster:            m.GetCluster(),
		IdleTimeout:        p.field("idle_timeout").readDuration(m.GetIdleTimeout(), time.Hour),
		MaxConnectAttempts: max(1, uint32Or(m.GetMaxConnectAttempts(), 1)),
	}
	if out.Cluster == "" {
		p.field("cluster").reject("is missing")
	}
	return out
}

func (p fieldReader) readHTTP(m *hcmv3.HttpConnectionManager, l *Listener) *config.Proxy {
	p.checkFields(m, supportedHTTPFields(), rejectedHTTPFields())
	out := &config.Proxy{
		Upstream:      config.HTTP1, // unless the cluster selects another protocol
		HTTP1:         config.DefaultHTTP1Options(),
		HTTP2:         config.DefaultHTTP2Options(),
		RPC:           config.DefaultRPCOptions(),
		DetectTimeout: 10 * time.Second,
	}
	switch m.GetCodecType() {
	case hcmv3.HttpConnectionManager_AUTO:
		out.Downstream = []config.Protocol{config.HTTP1, config.HTTP2}
	case hcmv3.HttpConnectionManager_HTTP1:
		out.Downstream = []config.Protocol{config.HTTP1}
	case hcmv3.HttpConnectionManager_HTTP2:
		out.Downstream = []config.Protocol{config.HTTP2}
	default:
		p.field("codec_type").reject("%v is not supported", m.GetCodecType())
	}
	p.readRoutes(m, out, l)
	p.field("http_filters").readHTTPFilters(m.GetHttpFilters(), out, l)
	if len(m.GetAccessLog()) > 0 && len(l.Config.AccessLogs) == 0 {
		l.Config.AccessLogs = p.field("access_log").readAccessLogs(m.GetAccessLog())
	}
	p.readHTTPOptions(m, out, l)
	p.field("upgrade_configs").readUpgrades(m.GetUpgradeConfigs())
	p.readTargetNormalization(m, &out.Targets)
	return out
}

// readTargetNormalization reads how Weft normalizes request targets before it evaluates them.
func (p fieldReader) readTargetNormalization(m *hcmv3.HttpConnectionManager, out *config.TargetNormalization) {
	out.NormalizePath, out.MergeSlashes = m.GetNormalizePath().GetValue(), m.GetMergeSlashes()
	switch m.GetPathWithEscapedSlashesAction() {
	case hcmv3.HttpConnectionManager_IMPLEMENTATION_SPECIFIC_DEFAULT, hcmv3.HttpConnectionManager_KEEP_UNCHANGED:
	case hcmv3.HttpConnectionManager_REJECT_REQUEST:
		out.EscapedSlashes = config.RejectEscapedSlashes
	case hcmv3.HttpConnectionManager_UNESCAPE_AND_REDIRECT:
		out.EscapedSlashes = config.RedirectEscapedSlashes
	case hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD:
		out.EscapedSlashes = config.ForwardPlainSlashes
	default:
		p.field("path_with_escaped_slashes_action").reject("%v is not supported", m.GetPathWithEscapedSlashesAction())
	}
	out.StripTrailingDot = m.GetStripTrailingHostDot()
	switch {
	case m.GetStripAnyHostPort():
		out.StripPort = config.StripAnyPort
	case m.GetStripMatchingHostPort():
		out.StripPort = config.StripMatchingPort
	}
}

func supportedHTTPFields() []string {
	return []string{
		"codec_type", "rds", "route_config", "http_filters", "common_http_protocol_options", "http_protocol_options", "http2_protocol_options",
		"max_request_headers_kb", "stream_idle_timeout", "request_headers_timeout", "access_log", "use_remote_address", "skip_xff_append", "xff_num_trusted_hops",
		"internal_address_config", "generate_request_id", "preserve_external_request_id",
		"via", "forward_client_cert_details", "set_current_client_cert_details", "upgrade_configs",
		"normalize_path", "merge_slashes", "path_with_escaped_slashes_action", "strip_matching_host_port", "strip_any_host_port", "strip_trailing_host_dot",
	}
}

func rejectedHTTPFields() []string {
	return []string{
		"scoped_routes", "original_ip_detection_extensions", "early_header_mutation_extensions", "path_normalization_options",
		"forward_client_cert_matcher", "forward_proto_config", "scheme_header_transformation", "local_reply_config",
	}
}

// readRoutes reads the route table of a proxy, which is inline or a RouteType resource.
func (p fieldReader) readRoutes(m *hcmv3.HttpConnectionManager, out *config.Proxy, l *Listener) {
	switch r := m.GetRouteSpecifier().(type) {
	case *hcmv3.HttpConnectionManager_Rds:
		at := p.field("rds")
		out.RouteTable = at.readTableName(r.Rds.GetRouteConfigName())
		at.addRouteConfig(out.RouteTable, r.Rds.GetConfigSource(), l)
	case *hcmv3.HttpConnectionManager_RouteConfig:
		t := p.field("route_config").readTable(r.RouteConfig)
		// Inline tables may share a name, so the index makes the name unique. No resource has the
		// name, because it contains a line break: see readTableName.
		t.Name = fmt.Sprintf("%s\n%d %s", l.Config.Name, len(l.InlineTables), t.Name)
		out.RouteTable = t.Name
		l.InlineTables = append(l.InlineTables, t)
	default:
		p.rejectOneof(m, "route_specifier", "rds", "route_config")
	}
}

// readTableName returns the name of a route table that is a resource. It rejects a name with a line
// break, because the names of inline tables and of Dubbo tables contain a line break.
func (p fieldReader) readTableName(name string) string {
	switch at := p.field("route_config_name"); {
	case name == "":
		at.reject("is missing")
	case strings.Contains(name, "\n"):
		at.reject("%q contains a line break", name)
	}
	return name
}

func (p fieldReader) readUpgrades(list []*hcmv3.HttpConnectionManager_UpgradeConfig) {
	for i, u := range list {
		at := p.index(i)
		at.checkFields(u, []string{"upgrade_type", "enabled"}, []string{"filters"})
		at.readUpgrade(u)
	}
}

// upgrade is the common part of the upgrade configs of connection managers and routes.
type upgrade interface {
	GetUpgradeType() string
	GetEnabled() *wrapperspb.BoolValue
}

// readUpgrade reads an upgrade type. WebSocket is always enabled and cannot be disabled; other
// types are ignored.
func (p fieldReader) readUpgrade(u upgrade) {
	switch {
	case !strings.EqualFold(u.GetUpgradeType(), "websocket"):
		p.key(u.GetUpgradeType()).ignore() // only WebSocket is supported
	case !boolOr(u.GetEnabled(), true):
		p.field("enabled").reject("false is not supported")
	}
}

// addRouteConfig makes l wait for a route table from a config source.
func (p fieldReader) addRouteConfig(table string, source *corev3.ConfigSource, l *Listener) {
	at := p.field("config_source")
	at.checkConfigSource(source)
	l.RouteConfigNames = append(l.RouteConfigNames, table)
	timeout := at.field("initial_fetch_timeout").readDuration(source.GetInitialFetchTimeout(), DefaultFetchTimeout)
	if l.RouteTimeouts == nil {
		l.RouteTimeouts = map[string]time.Duration{}
	}
	if other, exists := l.RouteTimeouts[table]; exists && (other == 0 || timeout != 0 && timeout < other) {
		timeout = other // the listener waits until both sources have timed out
	}
	l.RouteTimeouts[table] = timeout
}

func (p fieldReader) readHTTPOptions(m *hcmv3.HttpConnectionManager, out *config.Proxy, l *Listener) {
	h := &out.HTTP1
	h.MaxHeaderSize = uint32Or(m.GetMaxRequestHeadersKb(), 60) << 10
	h.MaxRequestLineSize = h.MaxHeaderSize
	h.MaxHeaderCount = uint32Or(m.GetCommonHttpProtocolOptions().GetMaxHeadersCount(), 100)
	h.HeadTimeout = p.field("request_headers_timeout").readDuration(m.GetRequestHeadersTimeout(), h.HeadTimeout)
	h.Via = m.GetVia()
	out.HTTP2.StreamIdleTimeout = p.field("stream_idle_timeout").readDuration(m.GetStreamIdleTimeout(), 5*time.Minute)
	h.StreamIdleTimeout = out.HTTP2.StreamIdleTimeout
	h.BodyTimeout = 0 // only the stream idle timeout applies; request_timeout is ignored
	if o := m.GetCommonHttpProtocolOptions(); o != nil {
		at := p.field("common_http_protocol_options")
		at.checkFields(o, []string{"idle_timeout", "max_headers_count", "max_requests_per_connection", "headers_with_underscores_action"}, nil)
		l.Config.IdleTimeout = at.field("idle_timeout").readDuration(o.GetIdleTimeout(), time.Hour)
		h.MaxRequestsPerConnection = uint32Or(o.GetMaxRequestsPerConnection(), 0)
		if o.GetHeadersWithUnderscoresAction() != corev3.HttpProtocolOptions_ALLOW {
			at.field("headers_with_underscores_action").rejectUnsupported()
		}
	} else {
		l.Config.IdleTimeout = time.Hour
	}
	http1 := m.GetHttpProtocolOptions()
	if http1 != nil {
		p.field("http_protocol_options").checkFields(http1, []string{"accept_http_10", "allow_absolute_url", "allow_custom_methods", "default_host_for_http_10"}, nil)
	}
	absoluteURL := http1.GetAllowAbsoluteUrl()
	h.Accept = config.HTTP1Accept{
		RejectHTTP10:       !http1.GetAcceptHttp_10(),
		RejectMissingHost:  true,
		DefaultHost:        http1.GetDefaultHostForHttp_10(),
		RejectAbsoluteForm: absoluteURL != nil && !absoluteURL.GetValue(),
		KnownMethodsOnly:   !http1.GetAllowCustomMethods(),
	}
	if host := h.Accept.DefaultHost; host != "" && !protocol.IsAuthority(host) {
		p.field("http_protocol_options").field("default_host_for_http_10").reject("is %q, expected a host with an optional port", host)
	}
	if o := m.GetHttp2ProtocolOptions(); o != nil {
		at := p.field("http2_protocol_options")
		at.checkFields(o, []string{"max_concurrent_streams", "initial_stream_window_size", "initial_connection_window_size", "stream_reset_burst", "stream_reset_rate"}, nil)
		out.HTTP2.MaxConcurrentStreams = uint32Or(o.GetMaxConcurrentStreams(), out.HTTP2.MaxConcurrentStreams)
		out.HTTP2.StreamWindow = uint32Or(o.GetInitialStreamWindowSize(), out.HTTP2.StreamWindow)
		out.HTTP2.ConnectionWindow = uint32Or(o.GetInitialConnectionWindowSize(), out.HTTP2.ConnectionWindow)
		setTokens(o.GetStreamResetBurst(), &out.HTTP2.ConnectionResets.Burst)
		setTokens(o.GetStreamResetRate(), &out.HTTP2.ConnectionResets.PerSecond)
	}
	p.readForwarded(m, h)
	h.XFFBareAddressOnly = true
	out.ForwardedScheme = true // readForwarded makes the engine replace an X-Forwarded-Proto that is not trusted
	out.ClientHeaders.Envoy = p.readEnvoyHeaders(m)
	h.XFCC = p.readClientCert(m)
}

// setTokens sets out to v, limited to 1 through 1,000,000. It does nothing if v is nil.
func setTokens(v *wrapperspb.UInt64Value, out *int) {
	const maxTokens = 1_000_000
	if v != nil {
		*out = int(min(max(v.GetValue(), 1), maxTokens))
	}
}

// readForwarded reads how many X-Forwarded-For entries to trust, whether to append an entry, and
// whether to set X-Forwarded-Proto. Without use_remote_address, Weft trusts one more proxy.
func (p fieldReader) readForwarded(m *hcmv3.HttpConnectionManager, h *config.HTTP1Options) {
	const maxHops = 100 // more than any chain of proxies has
	hops := m.GetXffNumTrustedHops()
	if hops > maxHops {
		p.field("xff_num_trusted_hops").reject("is %d, expected at most %d", hops, maxHops)
		return
	}
	h.XFFClientIndex = int(hops)
	if !m.GetUseRemoteAddress().GetValue() {
		h.XFFClientIndex++
		return
	}
	h.XForwardedProto = config.ForwardedProtoSet
	if hops > 0 {
		h.XForwardedProto = config.ForwardedProtoAdd
	}
	if !m.GetSkipXffAppend() {
		h.XForwarded = config.ForwardedAppend
	}
}

// readEnvoyHeaders reads which x-envoy-* headers and x-request-id values to trust.
func (p fieldReader) readEnvoyHeaders(m *hcmv3.HttpConnectionManager) *config.EnvoyHeaders {
	return &config.EnvoyHeaders{
		UseRemoteAddress:   m.GetUseRemoteAddress().GetValue(),
		InternalRanges:     p.field("internal_address_config").field("cidr_ranges").readPrefixes(m.GetInternalAddressConfig().GetCidrRanges()),
		InternalUnixSocket: m.GetInternalAddressConfig().GetUnixSockets(),
		ReplaceRequestID:   boolOr(m.GetGenerateRequestId(), true) && !m.GetPreserveExternalRequestId(),
	}
}

func (p fieldReader) readClientCert(m *hcmv3.HttpConnectionManager) (out config.XFCC) {
	p.field("set_current_client_cert_details").checkOptionalFields(m.GetSetCurrentClientCertDetails(), []string{"format"}, "subject", "cert", "chain", "dns", "uri")
	switch m.GetForwardClientCertDetails() {
	case hcmv3.HttpConnectionManager_SANITIZE:
		return out
	case hcmv3.HttpConnectionManager_FORWARD_ONLY:
		out.Mode = config.XFCCForward
	case hcmv3.HttpConnectionManager_APPEND_FORWARD:
		out.Mode = config.XFCCAppend
	case hcmv3.HttpConnectionManager_SANITIZE_SET:
		out.Mode = config.XFCCSet
	case hcmv3.HttpConnectionManager_ALWAYS_FORWARD_ONLY:
		out.Mode = config.XFCCAlwaysForward
	default:
		p.field("forward_client_cert_details").reject("%v is not supported", m.GetForwardClientCertDetails())
	}
	details := m.GetSetCurrentClientCertDetails()
	out.Subject, out.Cert, out.Chain, out.DNS, out.URI = details.GetSubject().GetValue(), details.GetCert(), details.GetChain(), details.GetDns(), details.GetUri()
	return out
}
