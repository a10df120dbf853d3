package resource

import (
	"fmt"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func (p fieldReader) readHTTP(m *hcmv3.HttpConnectionManager, l *Listener) *config.Proxy {
	p.checkFields(m, supportedHTTPFields(), rejectedHTTPFields())
	out := &config.Proxy{
		Upstream:      config.HTTP1, // unless the cluster selects another protocol
		HTTP1:         config.DefaultHTTP1Options(),
		HTTP2:         config.DefaultHTTP2Options(),
		RPC:           config.DefaultRPCOptions(),
		Replies:       p.field("local_reply_config").readLocalReplies(m.GetLocalReplyConfig()),
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
	out.Upgrades = p.field("upgrade_configs").readUpgrades(m.GetUpgradeConfigs())
	out.HTTP1.AllowConnect = true // the upgrade rules decide
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
		"internal_address_config", "generate_request_id", "preserve_external_request_id", "always_set_request_id_in_response", "request_id_extension",
		"server_name", "server_header_transformation", "append_x_forwarded_port", "scheme_header_transformation", "add_user_agent",
		"original_ip_detection_extensions", "early_header_mutation_extensions",
		"via", "forward_client_cert_details", "set_current_client_cert_details", "upgrade_configs",
		"normalize_path", "merge_slashes", "path_with_escaped_slashes_action", "strip_matching_host_port", "strip_any_host_port", "strip_trailing_host_dot", "local_reply_config",
	}
}

func rejectedHTTPFields() []string {
	return []string{
		"scoped_routes", "path_normalization_options", "forward_client_cert_matcher", "forward_proto_config",
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
		h.Underscores = at.field("headers_with_underscores_action").readUnderscoreAction(o.GetHeadersWithUnderscoresAction())
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
	out.ClientHeaders.Envoy = p.readEnvoyHeaders(m, h)
	h.XFCC = p.readClientCert(m)
}

// setTokens sets out to v, limited to 1 through 1,000,000. It does nothing if v is nil.
func setTokens(v *wrapperspb.UInt64Value, out *int) {
	const maxTokens = 1_000_000
	if v != nil {
		*out = int(min(max(v.GetValue(), 1), maxTokens))
	}
}
