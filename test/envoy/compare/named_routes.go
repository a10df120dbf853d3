package compare

import (
	"slices"
	"strings"
)

// inRoutes returns the differences that stay, and that concern the actions of routes.
func inRoutes() []Named {
	return []Named{
		{
			Name:   "access log of internal redirects",
			Text:   "Weft writes one line for a request, whose redirects it follows as `internal_redirect_policy` requires. Envoy also writes a line for each redirect. If Envoy does not follow a redirect, `%UPSTREAM_CLUSTER%` is the cluster of the redirect's location; in Weft, it is the cluster that responded.",
			Reason: "The client sent one request.",
			matches: func(r *Result, d Difference) bool {
				if r.Feature != "route.internal_redirect" || !strings.HasPrefix(d.Aspect, logPrefix) || len(d.Weft) != 1 {
					return false
				}
				last := len(d.Envoy) - 1
				return last > 0 && d.Envoy[last] == d.Weft[0] ||
					d.Aspect == logPrefix+"cluster" && slices.Equal(r.weft["resp.status"], []string{"302"}) && slices.Equal(d.Weft, []string{"o1"})
			},
		},
		{
			Name:   "bodies of 304",
			Text:   "A `direct_response` with status 304 has no body. Envoy sends the body, which clients take for the next response.",
			Reason: "RFC 9110, section 15.4.5, allows no content.",
			matches: func(r *Result, d Difference) bool {
				isBody := d.Aspect == "extra" || strings.HasSuffix(d.Aspect, ".headers.content-length") || strings.HasSuffix(d.Aspect, ".headers.content-type")
				return r.Feature == "route.direct_response" && isBody && d.Weft == nil && slices.Equal(r.weft["resp.status"], []string{"304"})
			},
		},
		{
			Name:   "host_rewrite_path_regex",
			Text:   "If the pattern does not match the path, Weft keeps the host. Envoy sends the path as the host.",
			Reason: "A path is not a host (RFC 9110, section 7.2), and hosts reject it.",
			matches: func(_ *Result, d Difference) bool {
				return strings.HasPrefix(d.Aspect, "o") && strings.HasSuffix(d.Aspect, ".headers.host") && len(d.Envoy) == 1 && strings.HasPrefix(d.Envoy[0], "/") && len(d.Weft) == 1
			},
		},
	}
}
