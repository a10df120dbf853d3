// Package headermatch decides whether header fields meet a condition. Routes and
// filters share it, so that a repeated field means the same to all of them.
//
// A condition looks at each field line of the name separately, as Envoy 1.40 does. It
// holds if one of the values meets it. An inverted condition holds if none of them
// does. Values are never joined: a rule that denies "admin" must also see an "admin"
// that follows another value, and an application may read any of the values.
package headermatch

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Matcher is a compiled config.ValueMatch. It is immutable and allocates nothing.
type Matcher struct {
	config.ValueMatch
	expression *regexp.Regexp
}

// New returns a matcher for m. Of a ValueRegex, expression decides on each value; it
// must be anchored if it is to match whole values. Other kinds do not use it.
func New(m config.ValueMatch, expression *regexp.Regexp) Matcher {
	return Matcher{ValueMatch: m, expression: expression}
}

// Anchored returns an expression that matches what expression matches as a whole. A dot matches any
// character, newlines included: an attachment of an RPC call may have several lines.
func Anchored(expression string) string { return `(?s)\A(?:` + expression + `)\z` }

// MatchHeader reports whether the fields of h called name meet m.
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

// Match reports whether a value that cannot repeat, as a path, meets m. ok is false if
// the request has no such value: then only a condition on presence can hold, unless m
// says that a missing value is empty.
func (m *Matcher) Match(value string, ok bool) bool {
	switch {
	case m.Kind == config.ValuePresent:
		return (ok || m.TreatMissingAsEmpty) != m.Invert
	case !ok && !m.TreatMissingAsEmpty:
		return false
	}
	return m.MatchValue(value) != m.Invert
}

// MatchValue reports whether one value is what m describes, regardless of m.Invert.
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
