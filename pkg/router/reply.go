package router

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Reply sends the local reply of the route's redirect or direct_response; one of them must be set.
// The reply contains no part of the request except the parts of its target that a redirect keeps.
// The response mutations of the route, the virtual host and the table apply to it.
func (r *Route) Reply(x *protocol.Exchange) {
	x.Record.EnvoyReply = &directResponse
	if c := r.Config.Redirect; c != nil {
		target := location(&x.Request, c, r.path)
		x.LocalReply(redirectStatus(c), "", "")
		x.Response.Header.Add("Location", target)
	} else {
		r.replyDirectly(x, r.Config.DirectResponse)
	}
	r.MutateResponse(x)
}

// directResponse is how Envoy expresses a redirect or a direct response.
//
//nolint:gochecknoglobals // a constant
var directResponse = protocol.EnvoyReply{Details: "direct_response"}

func (r *Route) replyDirectly(x *protocol.Exchange, c *config.DirectResponse) {
	x.LocalReply(c.Status, cmp.Or(c.ContentType, protocol.TextPlain), c.Body)
	if c.Location && (c.Status == 201 || c.Status/100 == 3) {
		x.Response.Header.Add("Location", location(&x.Request, &config.Redirect{}, nil))
	}
}

// WithBody returns a copy of r, a route with a direct response, that responds with body.
func (r *Route) WithBody(body string) (*Route, error) {
	response := *r.Config.DirectResponse
	response.Body, response.BodyFile = body, ""
	c := *r.Config
	c.DirectResponse = &response
	clone := *r
	clone.Config = &c
	return &clone, checkDirectResponse(&response)
}

// location returns the target of redirect c for r: an absolute URI, or a path if neither c nor r
// has a valid host. w rewrites the path, unless it is nil.
func location(r *protocol.Request, c *config.Redirect, w *pathRewrite) string {
	scheme := strings.ToLower(cmp.Or(c.Scheme, r.Scheme, "http"))
	host := redirectHost(r, c, scheme)
	old := r.Path
	if w != nil {
		old = w.rewrite(old)
	}
	path, query, hasQuery := strings.Cut(old, "?")
	hasQuery = hasQuery && !c.StripQuery
	switch {
	case c.Path != "":
		path = "/" + strings.TrimPrefix(c.Path, "/")
		hasQuery = hasQuery && strings.IndexByte(path, '?') < 0
	case path == "" || path[0] != '/':
		path = "/" // "*", or the target of CONNECT
	}
	var b strings.Builder
	b.Grow(len(scheme) + len("://") + len(host) + len(path) + len("?") + len(query))
	if validAuthority(host) {
		b.WriteString(scheme)
		b.WriteString("://")
		b.WriteString(host)
	} else {
		path = "/" + strings.TrimLeft(path, "/") // "//x/" would name the host x (RFC 3986 4.2)
	}
	writeEscaped(&b, path)
	if hasQuery {
		b.WriteByte('?')
		writeEscaped(&b, query)
	}
	return b.String()
}

func redirectHost(r *protocol.Request, c *config.Redirect, scheme string) string {
	host := c.Host
	if host == "" {
		host = r.Authority
		if replaced := cmp.Or(r.Scheme, "http"); !c.KeepPort && !protocol.EqualFold(scheme, replaced) {
			host = withoutPort(host, replaced)
		}
	}
	if c.Port == 0 || host == "" {
		return host
	}
	name, _ := splitPort(host)
	if !c.WriteDefaultPort && (scheme == "http" && c.Port == 80 || scheme == "https" && c.Port == 443) {
		return name
	}
	return name + ":" + strconv.Itoa(int(c.Port))
}

// withoutPort removes the default port of scheme, which the redirect replaces.
func withoutPort(authority, scheme string) string {
	host, port := splitPort(authority)
	if protocol.EqualFold(scheme, "http") && port == "80" || protocol.EqualFold(scheme, "https") && port == "443" {
		return host
	}
	return authority
}

// writeEscaped writes s, which is already encoded, and percent-encodes the bytes that a URI must
// not contain (RFC 3986 2).
func writeEscaped(b *strings.Builder, s string) {
	const hexDigits = "0123456789ABCDEF"
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
			continue
		}
		b.WriteByte(c)
	}
}

func redirectStatus(c *config.Redirect) int {
	if c.Code == 0 {
		return 301
	}
	return c.Code
}

func checkRedirect(c *config.Redirect) error {
	switch redirectStatus(c) {
	case 301, 302, 303, 307, 308:
	default:
		return fmt.Errorf("redirect: response_code %d is not one of 301, 302, 303, 307 and 308", c.Code)
	}
	if c.Path != "" && (c.PrefixRewrite != "" || c.RegexRewrite != nil) {
		return errors.New("redirect: a path and a rewrite of the path are mutually exclusive")
	}
	if c.Host != "" && !validAuthority(c.Host) {
		return fmt.Errorf("redirect: host_redirect %q is not a host", c.Host)
	}
	for i := range len(c.Scheme) {
		isLetter := c.Scheme[i]|0x20 >= 'a' && c.Scheme[i]|0x20 <= 'z'
		if !isLetter && (i == 0 || strings.IndexByte("0123456789+-.", c.Scheme[i]) < 0) {
			return fmt.Errorf("redirect: scheme_redirect %q is not a scheme (RFC 3986 3.1)", c.Scheme)
		}
	}
	return nil
}

func checkDirectResponse(c *config.DirectResponse) error {
	if c.Status < 200 || c.Status > 599 {
		return fmt.Errorf("direct_response: status %d is not from 200 to 599", c.Status)
	}
	if c.Body != "" && (c.Status == 204 || c.Status == 304) {
		return fmt.Errorf("direct_response: a response with status %d has no body (RFC 9110 15)", c.Status)
	}
	return nil
}
