package router

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// OriginalPathHeader is the header that tells the upstream the path before a rewrite, without its
// query, unless the route is from WithEnvoyOriginals or WithoutOriginals.
const OriginalPathHeader = "x-mosn-original-path"

// Headers that tell the upstream the path, with its query, and the authority before a rewrite, if
// the route is from WithEnvoyOriginals.
const (
	EnvoyOriginalPathHeader = "x-envoy-original-path"
	EnvoyOriginalHostHeader = "x-envoy-original-host"
)

// originals says which headers tell the upstream the target before a rewrite.
type originals uint8

const (
	originalsMOSN originals = iota // OriginalPathHeader
	originalsEnvoy
	originalsNone
)

// WithEnvoyOriginals returns a copy of r that tells upstreams the original path and authority with
// Envoy's headers.
func (r *Route) WithEnvoyOriginals() *Route {
	clone := *r
	clone.originals = originalsEnvoy
	return &clone
}

// WithoutOriginals returns a copy of r that does not tell upstreams the original path and authority.
func (r *Route) WithoutOriginals() *Route {
	clone := *r
	clone.originals = originalsNone
	return &clone
}

// setOriginalPath adds the header for a path that was rewritten.
func (o originals) setOriginalPath(x *protocol.Exchange, path string) {
	switch o {
	case originalsMOSN:
		path, _, _ = strings.Cut(path, "?")
		x.Request.Header.Set(OriginalPathHeader, path)
	case originalsEnvoy:
		x.Request.Header.Set(EnvoyOriginalPathHeader, path)
	case originalsNone:
	}
}

// setOriginalHost adds the header for an authority that was rewritten.
func (o originals) setOriginalHost(x *protocol.Exchange, authority string) {
	if o == originalsEnvoy {
		x.Request.Header.Set(EnvoyOriginalHostHeader, authority)
	}
}

// pathRewrite computes a new path in one of three ways.
type pathRewrite struct {
	// prefix_rewrite of a route with a path: replacement replaces prefix. If exact is set, the path
	// must equal prefix.
	prefix      string
	exact       bool
	ignoreCase  bool
	replacement string

	// prefix_rewrite of a route with an expression: replacement replaces its first match.
	pathRegex *regexp.Regexp

	// regex_rewrite: replacement replaces every match of pattern and refers to groups as
	// regexp.Expand does.
	pattern     *regexp.Regexp
	keepIfEmpty bool // see config.RegexRewrite
}

// apply rewrites x's path. For an RPC request, it also sets the service and method headers from the
// new path; otherwise o sets a header. If the new path does not have the form "/service/method", apply changes nothing.
func (w *pathRewrite) apply(x *protocol.Exchange, o originals) {
	old := x.Request.Path
	path := w.rewrite(old)
	if path == old {
		return
	}
	if isRPC(x) {
		if !setCall(&x.Request, path) {
			return
		}
	} else {
		o.setOriginalPath(x, old)
	}
	x.Request.Path = path
	x.Record.OriginalPath = old
}

// rewrite returns the new path for old, a path with its query. Targets without a path (those of
// CONNECT and OPTIONS *) do not change.
func (w *pathRewrite) rewrite(old string) string {
	if old == "" || old[0] != '/' {
		return old
	}
	path, query, hasQuery := strings.Cut(old, "?")
	switch {
	case w.pattern != nil:
		if !w.pattern.MatchString(path) {
			return old
		}
		newPath := w.pattern.ReplaceAllString(path, w.replacement)
		if newPath == "" && w.keepIfEmpty {
			return old
		}
		return joinTarget(newPath, query, hasQuery)
	case w.pathRegex != nil:
		loc := w.pathRegex.FindStringIndex(path)
		if loc == nil {
			return old
		}
		return joinTarget(path[:loc[0]]+w.replacement+path[loc[1]:], query, hasQuery)
	case !w.hasPrefix(path) || w.exact && len(path) != len(w.prefix):
		return old // a filter changed the path after the match
	case !w.ignoreCase && strings.HasSuffix(w.prefix, w.replacement):
		return old[len(w.prefix)-len(w.replacement):] // a substring: no allocation
	}
	return joinTarget(w.replacement+path[len(w.prefix):], query, hasQuery)
}

// hasPrefix reports whether path begins with w.prefix.
func (w *pathRewrite) hasPrefix(path string) bool {
	if !w.ignoreCase {
		return strings.HasPrefix(path, w.prefix)
	}
	return protocol.HasPrefixFold(path, w.prefix)
}

// joinTarget joins a new path and the original query. A query in the new path goes first. A request
// target begins with a slash (RFC 9112 3.2.1), so joinTarget adds one if it is missing.
func joinTarget(path, query string, hasQuery bool) string {
	slash := ""
	if !strings.HasPrefix(path, "/") {
		slash = "/"
	}
	if !hasQuery {
		return slash + path
	}
	if strings.IndexByte(path, '?') >= 0 {
		return slash + path + "&" + query
	}
	return slash + path + "?" + query
}

// compilePathRewrite compiles the path rewrite of f. It returns nil if there is none.
// prefix_rewrite takes precedence over regex_rewrite.
func (e expressions) compilePathRewrite(m *config.RouteMatch, f *config.Forward) (*pathRewrite, error) {
	switch {
	case f.PrefixRewrite != "":
		if f.PrefixRewrite[0] != '/' {
			return nil, fmt.Errorf("prefix_rewrite %q does not begin with a slash", f.PrefixRewrite)
		}
		if err := checkTarget("prefix_rewrite", f.PrefixRewrite); err != nil {
			return nil, err
		}
		w := &pathRewrite{replacement: f.PrefixRewrite, ignoreCase: m.IgnoreCase}
		switch m.PathKind {
		case config.PathRegex:
			var err error
			w.pathRegex, err = e.compile(m.Path)
			return w, err
		case config.PathExact:
			w.prefix, w.exact = m.Path, true
		case config.PathPrefix, config.PathSegments:
			w.prefix = m.Path
		case config.PathAny, config.PathConnect: // the prefix "" matched
		}
		return w, nil
	case f.RegexRewrite != nil && f.RegexRewrite.Pattern != "":
		pattern, err := e.compile(f.RegexRewrite.Pattern)
		if err != nil {
			return nil, fmt.Errorf("regex_rewrite: %w", err)
		}
		replacement, err := expandTemplate(f.RegexRewrite.Substitution, pattern.NumSubexp())
		if err == nil {
			err = checkTarget("substitution", f.RegexRewrite.Substitution)
		}
		if err != nil {
			return nil, fmt.Errorf("regex_rewrite: %w", err)
		}
		return &pathRewrite{pattern: pattern, replacement: replacement, keepIfEmpty: f.RegexRewrite.KeepIfEmpty}, nil
	}
	return nil, nil
}

// checkTarget rejects bytes that a request target must not contain.
func checkTarget(field, s string) error {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return fmt.Errorf("%s %q: byte %d is %q, which a path cannot contain: write it percent-encoded", field, s, i+1, c)
		}
	}
	return nil
}

// expandTemplate converts \1 to ${1}, the syntax of regexp.Expand. It keeps ${1} and ${name} and
// converts \\ to a backslash.
func expandTemplate(substitution string, groups int) (string, error) {
	var out strings.Builder
	for rest := substitution; ; {
		before, after, ok := strings.Cut(rest, `\`)
		out.WriteString(before)
		if !ok {
			return out.String(), nil
		}
		digits := 0
		for digits < len(after) && '0' <= after[digits] && after[digits] <= '9' {
			digits++
		}
		switch {
		case digits > 0:
			n, err := strconv.Atoi(after[:digits])
			if err != nil || n > groups {
				return "", fmt.Errorf(`substitution %q: \%s: the pattern has %d groups`, substitution, after[:digits], groups)
			}
			fmt.Fprintf(&out, "${%d}", n)
		case strings.HasPrefix(after, `\`):
			digits = 1
			out.WriteByte('\\')
		default:
			return "", fmt.Errorf(`substitution %q: a backslash must be followed by the number of a group or by a backslash`, substitution)
		}
		rest = after[digits:]
	}
}

// hostRewrite sets Authority to host, to the value of a header, or to the result of a replacement
// in the path.
type hostRewrite struct {
	host   string
	header string

	pattern     *regexp.Regexp // matches the path; nil: host or header is set
	replacement string         // in the syntax of regexp.Expand

	appendForwarded bool // see config.Forward.AppendForwardedHost
}

// apply sets x's Authority. It makes no change if the header is missing, the pattern does not
// match or the result is not a valid authority. For an RPC request, whose Authority is its
// interface, it does nothing. It must run before the path rewrite, because pattern matches the
// original path.
func (w *hostRewrite) apply(x *protocol.Exchange, o originals) {
	if isRPC(x) {
		return
	}
	host, ok := w.newHost(x)
	if !ok {
		return
	}
	o.setOriginalHost(x, x.Request.Authority)
	rewriteAuthority(x, host, w.appendForwarded)
}

// newHost returns the new authority of x. ok is false if there is none.
func (w *hostRewrite) newHost(x *protocol.Exchange) (host string, ok bool) {
	switch {
	case w.host != "":
		return w.host, true
	case w.pattern != nil:
		path, _, _ := strings.Cut(x.Request.Path, "?")
		if !w.pattern.MatchString(path) {
			return "", false
		}
		host = w.pattern.ReplaceAllString(path, w.replacement)
	default:
		host = x.Request.Header.Get(w.header)
	}
	return host, validAuthority(host)
}

// forwardedHostHeader is the header with the authorities before host rewrites.
const forwardedHostHeader = "X-Forwarded-Host"

// rewriteAuthority sets x's Authority. If appendForwarded is set, it appends the original authority
// to X-Forwarded-Host, unless that ends with it.
func rewriteAuthority(x *protocol.Exchange, authority string, appendForwarded bool) {
	if appendForwarded {
		original := x.Request.Authority
		present, ok := x.Request.Header.Lookup(forwardedHostHeader)
		switch {
		case !ok || present == "":
			x.Request.Header.Set(forwardedHostHeader, original)
		case present != original && !strings.HasSuffix(present, ","+original):
			x.Request.Header.Set(forwardedHostHeader, present+","+original)
		}
	}
	x.RewriteAuthority(authority)
}

// compileHostRewrite compiles the host rewrite of f. It returns nil if there is none or if
// RewriteHost performs it.
func (e expressions) compileHostRewrite(f *config.Forward) (*hostRewrite, error) {
	switch {
	case f.HostRewrite != "":
		if !validAuthority(f.HostRewrite) {
			return nil, fmt.Errorf("host_rewrite %q is not a host", f.HostRewrite)
		}
		return &hostRewrite{host: f.HostRewrite, appendForwarded: f.AppendForwardedHost}, nil
	case f.AutoHostRewriteHeader != "":
		if isHost(f.AutoHostRewriteHeader) {
			return nil, errors.New("auto_host_rewrite_header names the host itself: expected another header")
		}
		return &hostRewrite{header: f.AutoHostRewriteHeader, appendForwarded: f.AppendForwardedHost}, nil
	case f.HostRewritePath != nil && f.HostRewritePath.Pattern != "" && !f.AutoHostRewrite:
		pattern, err := e.compile(f.HostRewritePath.Pattern)
		if err != nil {
			return nil, fmt.Errorf("host_rewrite_path_regex: %w", err)
		}
		replacement, err := expandTemplate(f.HostRewritePath.Substitution, pattern.NumSubexp())
		if err != nil {
			return nil, fmt.Errorf("host_rewrite_path_regex: %w", err)
		}
		return &hostRewrite{pattern: pattern, replacement: replacement, appendForwarded: f.AppendForwardedHost}, nil
	}
	return nil, nil
}

// RewriteHost sets the Authority of an HTTP request to hostname, the name of the picked host, if
// the route has auto_host_rewrite. host_rewrite and auto_host_rewrite_header take precedence. The
// caller calls RewriteHost once per attempt.
func (r *Route) RewriteHost(x *protocol.Exchange, hostname string) {
	if f := r.Config.Forward; f != nil && f.AutoHostRewrite && r.host == nil && !isRPC(x) && validAuthority(hostname) {
		r.originals.setOriginalHost(x, x.OriginalAuthority())
		rewriteAuthority(x, hostname, f.AppendForwardedHost)
	}
}
