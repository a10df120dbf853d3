package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	allowlistv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/internal_redirect/allow_listed_routes/v3"
	previousv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/internal_redirect/previous_routes/v3"
	safeschemev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/internal_redirect/safe_cross_scheme/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
)

// readInternalRedirect reads which redirects of hosts are followed; nil: none.
func (p fieldReader) readInternalRedirect(m *routev3.RouteAction) *config.InternalRedirect {
	policy := m.GetInternalRedirectPolicy()
	if policy == nil {
		if m.GetInternalRedirectAction() != routev3.RouteAction_HANDLE_INTERNAL_REDIRECT {
			return nil
		}
		return &config.InternalRedirect{Max: uint32Or(m.GetMaxInternalRedirects(), 1), Codes: []int{302}}
	}
	p = p.field("internal_redirect_policy")
	p.checkFields(policy, []string{"max_internal_redirects", "redirect_response_codes", "predicates", "allow_cross_scheme_redirect", "response_headers_to_copy"}, nil)
	out := &config.InternalRedirect{
		Max:              uint32Or(policy.GetMaxInternalRedirects(), 1),
		AllowOtherScheme: policy.GetAllowCrossSchemeRedirect(),
		CopiedHeaders:    policy.GetResponseHeadersToCopy(),
	}
	for _, code := range policy.GetRedirectResponseCodes() { // Envoy ignores other codes
		if slices.Contains([]uint32{301, 302, 303, 307, 308}, code) {
			out.Codes = append(out.Codes, int(code))
		}
	}
	if len(policy.GetRedirectResponseCodes()) == 0 {
		out.Codes = []int{302}
	}
	for i, predicate := range policy.GetPredicates() {
		p.field("predicates").index(i).readRedirectPredicate(predicate, out)
	}
	return out
}

func (p fieldReader) readRedirectPredicate(m *corev3.TypedExtensionConfig, out *config.InternalRedirect) {
	packed, at := m.GetTypedConfig(), p.field("typed_config")
	previous, allowed, safe := &previousv3.PreviousRoutesConfig{}, &allowlistv3.AllowListedRoutesConfig{}, &safeschemev3.SafeCrossSchemeConfig{}
	switch {
	case isType(packed, previous):
		out.UnvisitedOnly = at.unpack(packed, previous)
	case isType(packed, allowed):
		if at.unpack(packed, allowed) {
			at.checkFields(allowed, []string{"allowed_route_names"}, nil)
			out.AllowedRoutes = append([]string{}, allowed.GetAllowedRouteNames()...)
		}
	case isType(packed, safe):
		out.SafeSchemeOnly = at.unpack(packed, safe)
	default:
		p.reject("%s (%s) is not supported", m.GetName(), packed.GetTypeUrl())
	}
}

// optionalBool returns the value of w, or nil if w is nil.
func optionalBool(w *wrapperspb.BoolValue) *bool {
	if w == nil {
		return nil
	}
	value := w.GetValue()
	return &value
}
