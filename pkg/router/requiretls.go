package router

import (
	"fmt"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Headers that decide whether a virtual host redirects a request to https.
const (
	forwardedProtoHeader = "x-forwarded-proto"
	internalHeader       = "x-envoy-internal"
)

// redirectsToTLS reports whether a virtual host with the requirement r, which is not TLSOptional,
// redirects x to https.
func redirectsToTLS(r config.RequireTLS, x *protocol.Exchange) bool {
	return !forwardedOverTLS(x) && (r == config.TLSRequired || x.Request.Header.Get(internalHeader) != "true")
}

// forwardedOverTLS reports whether X-Forwarded-Proto is "https" or, without that header, whether the
// connection uses TLS. Envoy joins the values of a repeated header, so that none of them counts.
func forwardedOverTLS(x *protocol.Exchange) bool {
	proto, found := "", false
	h := &x.Request.Header
	for i := range h.Len() {
		switch f := h.At(i); {
		case !protocol.EqualFold(f.Name, forwardedProtoHeader):
		case found:
			return false
		default:
			proto, found = f.Value, true
		}
	}
	if !found {
		return x.Meta.Conn.Secure
	}
	return proto == "https"
}

// compileTLSRedirect sets the redirect of vh if its configuration requires TLS. It reuses that of
// old, the previous version of vh, which may be nil. As in Envoy, neither header mutations nor
// filter settings of the virtual host and the table apply to the redirect.
func (vh *virtualHost) compileTLSRedirect(old *virtualHost) {
	vh.requireTLS = vh.config.RequireTLS
	switch {
	case vh.requireTLS == config.TLSOptional:
	case old != nil && old.tlsRedirect != nil && old.config.Name == vh.config.Name:
		vh.tlsRedirect = old.tlsRedirect
	default:
		vh.tlsRedirect = &Route{VirtualHost: vh.config.Name, Config: &config.Route{
			Name:     vh.config.Name + "#require_tls", // routes have a slash after the name of the virtual host
			Redirect: &config.Redirect{Code: 301, Scheme: "https", KeepPort: true},
		}}
	}
}

// appendTLSRedirects appends the redirects of all virtual hosts to the routes of the table.
func (b *builder) appendTLSRedirects() {
	for n := range b.table.virtualHosts {
		if vh := &b.table.virtualHosts[n]; vh.tlsRedirect != nil {
			vh.tlsRedirectIndex = len(b.table.routes)
			b.table.routes = append(b.table.routes, vh.tlsRedirect)
		}
	}
}

// explainTLSRedirect evaluates the redirect of vh for x. It returns nil if vh does not require TLS.
func (vh *virtualHost) explainTLSRedirect(x *protocol.Exchange) *ExplainedRoute {
	if vh.tlsRedirect == nil {
		return nil
	}
	out := &ExplainedRoute{Route: vh.tlsRedirect, Outcome: Chosen}
	if redirectsToTLS(vh.requireTLS, x) {
		return out
	}
	out.Outcome = Rejected
	switch {
	case !forwardedOverTLS(x):
		out.Reasons = []string{fmt.Sprintf("%s is %q", internalHeader, "true")}
	case x.Request.Header.Get(forwardedProtoHeader) != "":
		out.Reasons = []string{fmt.Sprintf("%s is %q", forwardedProtoHeader, "https")}
	default:
		out.Reasons = []string{"the connection uses TLS"}
	}
	return out
}
