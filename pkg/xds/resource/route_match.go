package resource

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// maxCookieName is Envoy's limit for the name in a CookieMatcher, in bytes.
const maxCookieName = 1024

func (p fieldReader) readCookieMatch(m *routev3.CookieMatcher) config.CookieMatch {
	p.checkFields(m, []string{"name", "string_match", "invert_match"}, nil)
	switch n := len(m.GetName()); {
	case n == 0:
		p.field("name").reject("is required")
	case n > maxCookieName:
		p.field("name").reject("has %d bytes, expected at most %d", n, maxCookieName)
	}
	out := config.CookieMatch{Name: m.GetName(), Invert: m.GetInvertMatch()}
	if m.GetStringMatch() == nil {
		p.field("string_match").reject("is required")
	} else {
		p.field("string_match").readStringMatcher(m.GetStringMatch(), &out.Matcher)
	}
	return out
}

// checkPrefixRewrite rejects prefix_rewrite with a URI template, as Envoy does.
func (p fieldReader) checkPrefixRewrite(m *routev3.Route) {
	if m.GetMatch().GetPathMatchPolicy() == nil {
		return
	}
	const reason = "cannot be used with path_match_policy"
	if m.GetRoute().GetPrefixRewrite() != "" {
		p.field("route").field("prefix_rewrite").reject(reason)
	}
	if _, ok := m.GetRedirect().GetPathRewriteSpecifier().(*routev3.RedirectAction_PrefixRewrite); ok {
		p.field("redirect").field("prefix_rewrite").reject(reason)
	}
}
