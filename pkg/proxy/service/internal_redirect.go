package service

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// InternalRedirect follows the redirects of hosts that the policy of the route allows: it sends the
// request to the route of the new location. If a redirect cannot be followed, the client gets it.
func InternalRedirect(next protocol.Service, route *router.Route, r *Router) protocol.Service {
	return &internalRedirect{next: next, router: r, name: route.Config.Name, policy: route.Config.Forward.Extra().InternalRedirect}
}

// internalRedirect is immutable.
type internalRedirect struct {
	next   protocol.Service
	router *Router
	name   string // of the route
	policy *config.InternalRedirect
}

// These names keep the redirects of an exchange in its metadata. The spaces keep them apart from those
// of filters.
const (
	redirectNamespace = "internal redirect"
	redirectCountKey  = "count"
)

// Start implements protocol.Service.
func (s *internalRedirect) Start(ctx context.Context, x *protocol.Exchange) error {
	x.PushFinisher(&redirectFinisher{s, x.Deadline, x.IdleTimeout})
	return s.next.Start(ctx, x)
}

// redirectFinisher follows the redirect in the response of one exchange.
type redirectFinisher struct {
	*internalRedirect
	deadline    time.Time // of the exchange before the route changed it
	idleTimeout time.Duration
}

// Finish implements protocol.Finisher.
func (f *redirectFinisher) Finish(ctx context.Context, x *protocol.Exchange, err error) error {
	if err != nil || x.Response.Source != protocol.UpstreamResponse || !slices.Contains(f.policy.Codes, x.Response.Status) || !f.follow(x) {
		return err
	}
	x.Deadline, x.IdleTimeout = f.deadline, f.idleTimeout
	x.Record.OriginalPath, x.Record.OriginalAuthority = "", ""
	return x.RunBlocking(ctx, redirected{f.router})
}

// redirected serves an exchange again.
type redirected struct{ router *Router }

// Serve implements protocol.BlockingService.
func (r redirected) Serve(ctx context.Context, x *protocol.Exchange) error {
	return x.Serve(ctx, r.router)
}

// follow turns x into the request for the new location and removes the response. It returns false, and
// changes nothing, if the redirect is not to be followed.
func (s *internalRedirect) follow(x *protocol.Exchange) bool {
	r := &x.Request
	location, _ := x.Response.Header.Lookup("Location")
	target, ok := parseLocation(location)
	count := s.redirectCount(x)
	fromHTTPS := protocol.EqualFold(r.Scheme, "https")
	if !ok || r.Path == "" || count >= s.policy.Max || fromHTTPS != target.isHTTPS() && !s.policy.AllowOtherScheme {
		return false
	}
	seeOther := x.Response.Status == 303 && r.Method != "GET" && r.Method != "HEAD"
	if !protocol.RewindBody(r.Body) {
		return false
	}
	original := *r
	r.Scheme, r.Authority, r.Path = target.scheme, target.authority, target.path
	if !s.acceptsTarget(x, fromHTTPS, target.isHTTPS()) {
		r.Scheme, r.Authority, r.Path = original.Scheme, original.Authority, original.Path
		return false
	}
	if seeOther && r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body) // does not wait, because the body could be rewound
	}
	if seeOther {
		r.Method, r.Body, r.ContentLength = "GET", nil, -1
	}
	r.Header.Set("x-envoy-original-url", schemeOf(fromHTTPS)+"://"+original.Authority+original.Path)
	s.copyHeaders(x)
	x.Metadata.Set(redirectNamespace, redirectCountKey, strconv.Itoa(count+1))
	if h := x.Record.Host(); h != nil {
		h.ResponseDiscarded(x)
	}
	x.ResetResponse()
	return true
}

func schemeOf(isHTTPS bool) string {
	if isHTTPS {
		return "https"
	}
	return "http"
}

// redirectCount returns the number of redirects of x so far.
func (s *internalRedirect) redirectCount(x *protocol.Exchange) int {
	text, _ := x.Metadata.Lookup(redirectNamespace, redirectCountKey)
	n, _ := strconv.Atoi(text) // 0 without a count
	return n
}

// acceptsTarget reports whether there is a route for x, which has the new location, and whether it
// meets the conditions of the policy.
func (s *internalRedirect) acceptsTarget(x *protocol.Exchange, fromHTTPS, toHTTPS bool) bool {
	route := s.router.active.Load().table.Match(x)
	switch {
	case route == nil:
		return false
	case s.policy.SafeSchemeOnly && !fromHTTPS && toHTTPS:
		return false
	case s.policy.AllowedRoutes != nil && !slices.Contains(s.policy.AllowedRoutes, resourceName(route)):
		return false
	case !s.policy.UnvisitedOnly:
		return true
	}
	if _, visited := x.Metadata.Lookup(redirectNamespace+" "+s.name, route.Config.Name); visited {
		return false
	}
	x.Metadata.Set(redirectNamespace+" "+s.name, route.Config.Name, "")
	return true
}

// resourceName returns the name of r in the resource of a control plane, which the readers prefix with
// the name of the virtual host.
func resourceName(r *router.Route) string {
	return strings.TrimPrefix(r.Config.Name, r.VirtualHost+"/")
}

// copyHeaders copies headers of the response to the request. Their strings are copied, because the
// response is dropped.
func (s *internalRedirect) copyHeaders(x *protocol.Exchange) {
	for _, name := range s.policy.CopiedHeaders {
		x.Request.Header.Del(name)
		h := &x.Response.Header
		for i := range h.Len() {
			if f := h.At(i); protocol.EqualFold(f.Name, name) {
				x.Request.Header.Add(name, strings.Clone(f.Value))
			}
		}
	}
}

// location is an absolute URI with the scheme http or https.
type location struct{ scheme, authority, path string }

func (l *location) isHTTPS() bool { return l.scheme == "https" }

// parseLocation parses an absolute URI (RFC 3986 4.3) without its fragment. The result does not refer
// to text.
func parseLocation(text string) (l location, ok bool) {
	scheme, rest, found := strings.Cut(strings.Clone(text), "://")
	l.scheme = strings.ToLower(scheme)
	if !found || l.scheme != "http" && l.scheme != "https" {
		return location{}, false
	}
	rest, _, _ = strings.Cut(rest, "#")
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	l.authority, l.path = rest[:end], rest[end:]
	if !strings.HasPrefix(l.path, "/") {
		l.path = "/" + l.path
	}
	if strings.ContainsFunc(l.path, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return location{}, false
	}
	return l, protocol.IsAuthority(l.authority)
}
