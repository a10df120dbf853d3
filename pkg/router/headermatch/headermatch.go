// Package headermatch decides whether headers meet a condition. Routes and filters share the
// package, so that they treat repeated headers in the same way. Conditions on the names in
// certificates use MatchValue.
//
// A condition tests each value of a repeated header separately, as Envoy 1.40 does. It matches if
// one of the values matches. An inverted condition matches if none of the values does. Values are
// never joined: a rule that denies "admin" must also find an "admin" that follows another value,
// and an application may read any of the values.
package headermatch

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Matcher is a compiled config.ValueMatch. It is immutable, and matching does not allocate.
type Matcher struct {
	config.ValueMatch
	expression *regexp.Regexp
}

// New returns a matcher for m. ValueRegex tests each value with expression; Anchored returns
// expressions that match only complete values. Other kinds do not use expression.
func New(m config.ValueMatch, expression *regexp.Regexp) Matcher {
	return Matcher{ValueMatch: m, expression: expression}
}

// Anchored returns an expression that matches only complete values. A dot matches any character,
// newlines included: an attachment of an RPC call may have several lines.
func Anchored(expression string) string { return `(?s)\A(?:` + expression + `)\z` }

// MatchHeader reports whether the headers of h called name match m.
func (m *Matcher) MatchHeader(h *protocol.Header, name string) bool {
	found := false
	for i := range h.Len() {
		f := h.At(i)
		if !protocol.EqualFold(f.Name, name) {
			continue
		}
		if m.MatchValue(f.Value) {
			return !m.Invert
		}
		found = true
	}
	if found {
		return m.Invert
	}
	return m.Match("", false)
}

// Match reports whether a value that cannot repeat, such as a path, matches m. ok is false if the
// request has no such value: then only a condition on presence can match, unless m treats a missing
// value as empty.
func (m *Matcher) Match(value string, ok bool) bool {
	switch {
	case m.Kind == config.ValuePresent:
		return (ok || m.TreatMissingAsEmpty) != m.Invert
	case !ok && !m.TreatMissingAsEmpty:
		return false
	}
	return m.MatchValue(value) != m.Invert
}

// MatchValue reports whether a single value matches m. It ignores m.Invert.
func (m *Matcher) MatchValue(value string) bool {
	switch m.Kind {
	case config.ValueExact:
		return len(value) == len(m.Text) && m.equal(value, m.Text)
	case config.ValuePrefix:
		return len(value) >= len(m.Text) && m.equal(value[:len(m.Text)], m.Text)
	case config.ValueSuffix:
		return len(value) >= len(m.Text) && m.equal(value[len(value)-len(m.Text):], m.Text)
	case config.ValueContains:
		return m.contains(value)
	case config.ValueRegex:
		return m.expression.MatchString(value)
	case config.ValueRange:
		n, err := strconv.ParseInt(value, 10, 64)
		return err == nil && m.From <= n && n < m.To
	case config.ValuePresent:
	}
	return true
}

func (m *Matcher) equal(a, b string) bool {
	return a == b || m.IgnoreCase && protocol.EqualFold(a, b)
}

func (m *Matcher) contains(value string) bool {
	if !m.IgnoreCase {
		return strings.Contains(value, m.Text)
	}
	for i := 0; i+len(m.Text) <= len(value); i++ {
		if protocol.EqualFold(value[i:i+len(m.Text)], m.Text) {
			return true
		}
	}
	return false
}
