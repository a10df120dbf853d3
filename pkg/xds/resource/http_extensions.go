package resource

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	customheaderv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/original_ip_detection/custom_header/v3"
	xffv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/original_ip_detection/xff/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// readDetection reads the extensions that find the client address. p reads
// original_ip_detection_extensions.
func (p fieldReader) readDetection(m *hcmv3.HttpConnectionManager) (out []config.ClientDetection) {
	list := m.GetOriginalIpDetectionExtensions()
	switch {
	case len(list) == 0:
		return nil
	case m.GetUseRemoteAddress().GetValue():
		p.reject("is not allowed with use_remote_address")
		return nil
	case m.GetXffNumTrustedHops() > 0:
		p.reject("is not allowed with xff_num_trusted_hops")
		return nil
	}
	for i, e := range list {
		at := p.index(i).field("typed_config")
		header, xff, packed := &customheaderv3.CustomHeaderConfig{}, &xffv3.XffConfig{}, e.GetTypedConfig()
		switch {
		case isType(packed, header):
			if at.unpack(packed, header) {
				out = append(out, at.readCustomHeader(header))
			}
		case isType(packed, xff):
			if at.unpack(packed, xff) {
				out = append(out, at.readXFF(xff))
			}
		default:
			at.reject("%s is not supported", packed.GetTypeUrl())
		}
	}
	return out
}

func (p fieldReader) readCustomHeader(m *customheaderv3.CustomHeaderConfig) config.ClientDetection {
	p.checkFields(m, []string{"header_name", "allow_extension_to_set_address_as_trusted", "reject_with_status"}, nil)
	out := config.ClientDetection{Header: lower(m.GetHeaderName()), Internal: m.GetAllowExtensionToSetAddressAsTrusted()}
	if out.Header == "" {
		p.field("header_name").reject("is missing")
	}
	if m.GetRejectWithStatus() != nil {
		out.RejectStatus = int(m.GetRejectWithStatus().GetCode())
		if out.RejectStatus < 400 || out.RejectStatus > 599 {
			out.RejectStatus = int(typev3.StatusCode_Forbidden) // as in Envoy
		}
	}
	return out
}

func (p fieldReader) readXFF(m *xffv3.XffConfig) config.ClientDetection {
	p.checkFields(m, []string{"xff_num_trusted_hops", "xff_trusted_cidrs", "skip_xff_append"}, nil)
	const maxHops = 100 // more than any chain of proxies has
	hops := m.GetXffNumTrustedHops()
	if hops > maxHops {
		p.field("xff_num_trusted_hops").reject("is %d, expected at most %d", hops, maxHops)
	}
	out := config.ClientDetection{
		TrustedHops:   int(min(hops, maxHops)),
		TrustedRanges: p.field("xff_trusted_cidrs").field("cidrs").readPrefixes(m.GetXffTrustedCidrs().GetCidrs()),
		Append:        !boolOr(m.GetSkipXffAppend(), true),
	}
	switch {
	case m.GetXffTrustedCidrs() != nil && hops > 0:
		p.reject("xff_num_trusted_hops and xff_trusted_cidrs are not allowed together")
	case m.GetXffTrustedCidrs() != nil && len(m.GetXffTrustedCidrs().GetCidrs()) == 0:
		p.field("xff_trusted_cidrs").field("cidrs").reject("is empty")
	}
	return out
}

// readEarlyMutations reads the extensions that change requests before all other rules. p reads
// early_header_mutation_extensions.
func (p fieldReader) readEarlyMutations(list []*corev3.TypedExtensionConfig) (out []config.HeaderMutation) {
	for i, e := range list {
		at := p.index(i).field("typed_config")
		m := &earlyv3.HeaderMutation{}
		if !isType(e.GetTypedConfig(), m) {
			at.reject("%s is not supported", e.GetTypedConfig().GetTypeUrl())
			continue
		}
		if !at.unpack(e.GetTypedConfig(), m) {
			continue
		}
		at.checkFields(m, []string{"mutations"}, nil)
		for j, mutation := range m.GetMutations() {
			at := at.field("mutations").index(j)
			at.checkFields(mutation, []string{"append", "remove"}, []string{"remove_on_match"})
			switch option := mutation.GetAppend(); {
			case option != nil:
				at := at.field("append")
				at.field("header").field("key").checkMutable(option.GetHeader().GetKey())
				if v, ok := at.readHeaderOption(option); ok {
					out = append(out, config.HeaderMutation{Add: []config.HeaderValue{v}})
				}
			case mutation.GetRemove() != "":
				at.field("remove").checkMutable(mutation.GetRemove())
				out = append(out, config.HeaderMutation{Remove: []string{mutation.GetRemove()}})
			}
		}
	}
	return out
}

// checkMutable rejects the name of a header that Envoy does not let extensions change.
func (p fieldReader) checkMutable(name string) {
	if strings.HasPrefix(name, ":") || lower(name) == "host" {
		p.reject("is %q: headers whose names begin with a colon, and host, cannot be changed", name)
	}
}
