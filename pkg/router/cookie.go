package router

import (
	"fmt"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router/headermatch"
)

// cookieMatcher is a condition on a cookie.
type cookieMatcher struct {
	name    string
	matcher headermatch.Matcher
	invert  bool
}

func (c *cookieMatcher) matches(x *protocol.Exchange) bool {
	return c.matcher.Match(cookieValue(&x.Request.Header, c.name)) != c.invert
}

// mismatch describes why c does not match x.
func (c *cookieMatcher) mismatch(x *protocol.Exchange) string {
	value, present := cookieValue(&x.Request.Header, c.name)
	expected := describeExpected(&c.matcher.ValueMatch)
	if c.invert {
		expected = "anything except " + expected
	}
	return "cookie " + describeValue(c.name, value, present) + ", expected " + expected
}

// cookieValue returns the value of the first cookie called name in the Cookie headers of h. Like
// Envoy, it skips the spaces before a name and the parts without "=", and removes one pair of double
// quotes around the value. All other bytes belong to the name or the value.
func cookieValue(h *protocol.Header, name string) (value string, ok bool) {
	for i := range h.Len() {
		f := h.At(i)
		if !protocol.EqualFold(f.Name, "cookie") {
			continue
		}
		for rest, more := f.Value, true; more; {
			var part string
			part, rest, more = strings.Cut(rest, ";")
			key, value, hasValue := strings.Cut(strings.TrimLeft(part, " "), "=")
			if !hasValue || key != name {
				continue
			}
			if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
				value = value[1 : n-1]
			}
			return value, true
		}
	}
	return "", false
}

// compileCookies compiles the conditions on cookies.
func (e expressions) compileCookies(out *routeMatcher, matches []config.CookieMatch) error {
	for i := range matches {
		m := &matches[i]
		matcher, err := e.compileValue(&m.Matcher)
		if err != nil {
			return fmt.Errorf("condition on the cookie %q: %w", m.Name, err)
		}
		out.cookies = append(out.cookies, cookieMatcher{m.Name, matcher, m.Invert})
	}
	return nil
}
