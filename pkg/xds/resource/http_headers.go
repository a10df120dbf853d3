package resource

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

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
