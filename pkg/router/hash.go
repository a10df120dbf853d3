package router

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/internal/hash"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
)

// hashPolicy is one source of the hash that keeps exchanges on a host. One of its fields is set.
type hashPolicy struct {
	header     string
	rewrite    *regexRewrite     // of the values of header; nil: none
	queryParam variable.Variable // a query parameter
	cookie     *cookiePolicy
	sourceIP   bool // the client's address
}

// cookiePolicy is the cookie of a hash policy.
type cookiePolicy struct {
	value      variable.Variable
	attributes string // the part of Set-Cookie after the value
	name       string
	generate   bool // Weft sets the cookie if the client does not send it
}

// Hashes reports whether the route has hash policies.
func (r *Route) Hashes() bool { return len(r.hash) > 0 }

// Hash returns the hash of x by the first policy that finds a value, 0 if none does. If newCookie
// is true, the client sent no hash cookie. Hash then derives sum from random, and SetCookie sends
// sum as a new cookie. The caller calls Hash before RewriteRequest, because policies read the
// request without the changes of the route.
func (r *Route) Hash(x *protocol.Exchange, random uint64) (sum uint64, newCookie bool) {
	for i := range r.hash {
		p := &r.hash[i]
		switch {
		case p.cookie != nil && isRPC(x): // RPC calls have no cookies
		case p.cookie != nil:
			if value, ok := p.cookie.value.Text(x); ok && value != "" {
				return cookieHash(value), false
			}
			if p.cookie.generate {
				return max(random, 1), true
			}
		default:
			if sum, ok := p.hash(x); ok {
				return max(sum, 1), false
			}
		}
	}
	return 0, false
}

// hash returns the hash of the value that p reads, and whether the request has it.
func (p *hashPolicy) hash(x *protocol.Exchange) (sum uint64, ok bool) {
	var text string
	switch {
	case p.header != "":
		return hashHeader(x, p.header, p.rewrite)
	case p.sourceIP:
		text = x.Meta.ClientIP()
		ok = text != ""
	default:
		text, ok = p.queryParam.Text(x)
	}
	return hash.String(text), ok
}

// pseudoHeader returns the value of an HTTP/2 pseudo-header.
func pseudoHeader(x *protocol.Exchange, name string) (string, bool) {
	switch name {
	case ":path":
		return x.Request.Path, true
	case ":authority":
		return x.Request.Authority, true
	case ":method":
		return x.Request.Method, true
	case ":scheme":
		return x.Request.Scheme, true
	}
	return "", false
}

// hashHeader returns the hash of a request header. The hash of a repeated header covers all values.
// It does not depend on their order, because another proxy may reorder them. Envoy sorts them. w
// rewrites each value, unless it is nil.
func hashHeader(x *protocol.Exchange, name string, w *regexRewrite) (sum uint64, ok bool) {
	if name[0] == ':' {
		text, ok := pseudoHeader(x, name)
		return hash.String(w.apply(text)), ok
	}
	h := &x.Request.Header
	for i := range h.Len() {
		if f := h.At(i); protocol.EqualFold(f.Name, name) {
			sum, ok = sum+hash.String(w.apply(f.Value)), true
		}
	}
	return sum, ok
}

// cookieDigits is the length of the cookies that SetCookie creates: the hash in hexadecimal,
// because x.Record keeps the hash until the response anyway.
const cookieDigits = 16

func cookieHash(value string) uint64 {
	if len(value) == cookieDigits {
		if n, err := strconv.ParseUint(value, 16, 64); err == nil {
			return max(n, 1)
		}
	}
	return max(hash.String(value), 1)
}

// SetCookie adds the cookie that Hash created to the response.
func (r *Route) SetCookie(x *protocol.Exchange) {
	for i := range r.hash {
		if c := r.hash[i].cookie; c != nil && c.generate {
			x.Response.Header.Add("Set-Cookie", fmt.Sprintf("%s=%0*x%s", c.name, cookieDigits, x.Record.Hash, c.attributes))
			return // Hash generates only the first cookie
		}
	}
}

// regexRewrite replaces every match of pattern.
type regexRewrite struct {
	pattern     *regexp.Regexp
	replacement string // in the syntax of regexp.Expand
}

// apply returns the rewritten text. A nil regexRewrite changes nothing.
func (w *regexRewrite) apply(text string) string {
	if w == nil {
		return text
	}
	return w.pattern.ReplaceAllString(text, w.replacement)
}

// compileHashRewrite compiles the rewrite of a hash policy; nil: none.
func (e expressions) compileHashRewrite(c *config.RegexRewrite) (*regexRewrite, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // nil means no rewrite
	}
	pattern, err := e.compile(c.Pattern)
	if err != nil {
		return nil, err
	}
	replacement, err := expandTemplate(c.Substitution, pattern.NumSubexp())
	return &regexRewrite{pattern, replacement}, err
}

// compileHash checks and compiles the hash policies of a route.
func (e expressions) compileHash(policies []config.HashPolicy) ([]hashPolicy, error) {
	out := make([]hashPolicy, 0, len(policies))
	for i := range policies {
		c := &policies[i]
		var p hashPolicy
		switch {
		case c.Header != "":
			p.header = c.Header
			var err error
			if p.rewrite, err = e.compileHashRewrite(c.HeaderRewrite); err != nil {
				return nil, fmt.Errorf("hash_policy: regex_rewrite: %w", err)
			}
		case c.Query != "":
			p.queryParam, _ = variable.Lookup("request_arg_" + c.Query)
		case c.Cookie != "":
			var err error
			if p.cookie, err = compileCookie(c); err != nil {
				return nil, fmt.Errorf("hash_policy: %w", err)
			}
		case c.SourceIP:
			p.sourceIP = true
		default:
			return nil, errors.New("hash_policy: nothing to hash")
		}
		out = append(out, p)
	}
	return out, nil
}

// compileCookie compiles a cookie policy. It returns an error if Set-Cookie cannot represent the
// cookie (RFC 6265 4.1.1).
func compileCookie(c *config.HashPolicy) (*cookiePolicy, error) {
	if strings.ContainsFunc(c.Cookie, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r) }) {
		return nil, fmt.Errorf("%q is not a valid cookie name", c.Cookie)
	}
	if strings.ContainsFunc(c.CookiePath, func(r rune) bool { return r < ' ' || r >= 0x7f || r == ';' }) {
		return nil, fmt.Errorf("%q is not a valid cookie path", c.CookiePath)
	}
	p := &cookiePolicy{name: c.Cookie, generate: !c.ExistingCookie}
	p.value, _ = variable.Lookup("cookie_" + c.Cookie)
	if c.CookiePath != "" {
		p.attributes += "; Path=" + c.CookiePath
	}
	if c.CookieTTL > 0 {
		p.attributes += "; Max-Age=" + strconv.FormatInt(int64((c.CookieTTL+time.Second-1)/time.Second), 10)
	}
	for _, a := range c.CookieAttributes {
		if err := checkAttribute(a); err != nil {
			return nil, err
		}
		p.attributes += "; " + a.Name
		if a.Value != "" {
			p.attributes += "=" + a.Value
		}
	}
	p.attributes += "; HttpOnly"
	return p, nil
}

// checkAttribute rejects an attribute that Set-Cookie cannot represent.
func checkAttribute(a config.CookieAttribute) error {
	if a.Name == "" || strings.ContainsFunc(a.Name, func(r rune) bool { return r >= 0x7f || !isToken(byte(r)) }) {
		return fmt.Errorf("%q is not a valid name of a cookie attribute", a.Name)
	}
	if strings.ContainsFunc(a.Value, func(r rune) bool { return r < ' ' || r >= 0x7f || r == ';' }) {
		return fmt.Errorf("%q is not a valid value of the cookie attribute %s", a.Value, a.Name)
	}
	return nil
}
