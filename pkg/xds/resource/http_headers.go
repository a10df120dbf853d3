package resource

import (
	"cmp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// readForwarded reads how many X-Forwarded-For entries to trust, whether to append an entry, and
// how to set X-Forwarded-Proto. Without use_remote_address, Weft trusts one more proxy.
func (p fieldReader) readForwarded(m *hcmv3.HttpConnectionManager, h *config.HTTP1Options) {
	const maxHops = 100 // more than any chain of proxies has
	hops := m.GetXffNumTrustedHops()
	if hops > maxHops {
		p.field("xff_num_trusted_hops").reject("is %d, expected at most %d", hops, maxHops)
		return
	}
	h.XFFClientIndex = int(hops)
	h.XForwardedProto = config.ForwardedProtoAdd
	if !m.GetUseRemoteAddress().GetValue() {
		h.XFFClientIndex++
		return
	}
	if hops == 0 {
		h.XForwardedProto = config.ForwardedProtoSet
	}
	if !m.GetSkipXffAppend() {
		h.XForwarded = config.ForwardedAppend
	}
}

// defaultServerName is Envoy's default for server_name.
const defaultServerName = "envoy"

// readEnvoyHeaders reads which headers of clients to trust, and which headers to add to requests and
// responses.
func (p fieldReader) readEnvoyHeaders(m *hcmv3.HttpConnectionManager, h *config.HTTP1Options) *config.EnvoyHeaders {
	out := &config.EnvoyHeaders{
		UseRemoteAddress:   m.GetUseRemoteAddress().GetValue(),
		InternalRanges:     p.field("internal_address_config").field("cidr_ranges").readPrefixes(m.GetInternalAddressConfig().GetCidrRanges()),
		InternalUnixSocket: m.GetInternalAddressConfig().GetUnixSockets(),
		Detection:          p.field("original_ip_detection_extensions").readDetection(m),
		EarlyMutations:     p.field("early_header_mutation_extensions").readEarlyMutations(m.GetEarlyHeaderMutationExtensions()),
		RequestID:          p.readRequestID(m),
		Server:             p.field("server_header_transformation").readServerHeader(m.GetServerHeaderTransformation()),
		ForwardedPort:      m.GetAppendXForwardedPort(),
		Scheme:             p.field("scheme_header_transformation").readScheme(m.GetSchemeHeaderTransformation()),
	}
	if out.Server != config.ServerKeep {
		h.ServerName = p.field("server_name").readHeaderValue(cmp.Or(m.GetServerName(), defaultServerName))
	}
	if m.GetAddUserAgent().GetValue() {
		node := p.report.capabilities.Node
		out.UserAgent, out.NodeID = node.Cluster, node.ID
	}
	return out
}

// readRequestID reads how requests get IDs. The only extension is that for UUIDs, which is the
// default.
func (p fieldReader) readRequestID(m *hcmv3.HttpConnectionManager) config.RequestID {
	out := config.RequestID{
		Generate:         boolOr(m.GetGenerateRequestId(), true),
		Replace:          !m.GetPreserveExternalRequestId(),
		ResetTraceReason: true,
		InResponse:       m.GetAlwaysSetRequestIdInResponse(),
	}
	packed := m.GetRequestIdExtension().GetTypedConfig()
	if packed == nil {
		return out
	}
	at := p.field("request_id_extension").field("typed_config")
	uuid := &uuidv3.UuidRequestIdConfig{}
	if !isType(packed, uuid) {
		at.reject("%s is not supported, expected envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig", packed.GetTypeUrl())
		return out
	}
	if at.unpack(packed, uuid) {
		at.checkFields(uuid, []string{"pack_trace_reason"}, nil)
		out.ResetTraceReason = boolOr(uuid.GetPackTraceReason(), true)
	}
	return out
}

func (p fieldReader) readServerHeader(t hcmv3.HttpConnectionManager_ServerHeaderTransformation) config.ServerHeaderMode {
	switch t {
	case hcmv3.HttpConnectionManager_OVERWRITE:
		return config.ServerOverwrite
	case hcmv3.HttpConnectionManager_APPEND_IF_ABSENT:
		return config.ServerAdd
	case hcmv3.HttpConnectionManager_PASS_THROUGH:
		return config.ServerKeep
	}
	p.reject("%v is not supported", t)
	return config.ServerKeep
}

// readScheme returns the scheme that replaces that of requests, or "".
func (p fieldReader) readScheme(t *corev3.SchemeHeaderTransformation) string {
	if t == nil {
		return ""
	}
	p.checkFields(t, []string{"scheme_to_overwrite"}, []string{"match_upstream"})
	scheme := t.GetSchemeToOverwrite()
	if scheme != "" && scheme != "http" && scheme != "https" {
		p.field("scheme_to_overwrite").reject("is %q, expected http or https", scheme)
	}
	return scheme
}

// readHeaderValue returns value, or rejects it if it is not the value of a header.
func (p fieldReader) readHeaderValue(value string) string {
	if strings.ContainsAny(value, "\r\n\x00") {
		p.reject("contains a line break or NUL, which a header value cannot contain")
	}
	return value
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

func (p fieldReader) readUnderscoreAction(a corev3.HttpProtocolOptions_HeadersWithUnderscoresAction) config.UnderscoreAction {
	switch a {
	case corev3.HttpProtocolOptions_ALLOW:
		return config.AllowUnderscores
	case corev3.HttpProtocolOptions_REJECT_REQUEST:
		return config.RejectUnderscores
	case corev3.HttpProtocolOptions_DROP_HEADER:
		return config.DropUnderscores
	}
	p.reject("%v is not supported", a)
	return config.AllowUnderscores
}
