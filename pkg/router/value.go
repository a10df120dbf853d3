package router

import (
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// valueTest is a compiled config.ValueMatch.
type valueTest struct {
	config.ValueMatch
	expression *regexp.Regexp // of ValueRegex
}

// holds reports whether a value, which is there if ok, is what is asked for.
func (v *valueTest) holds(value string, ok bool) bool {
	switch {
	case v.Kind == config.ValuePresent:
		return ok != v.Invert
	case !ok && !v.MissingIsEmpty:
		return false
	}
	return v.fits(value) != v.Invert
}

func (v *valueTest) fits(value string) bool {
	switch v.Kind {
	case config.ValueExact:
		return len(value) == len(v.Text) && v.equal(value, v.Text)
	case config.ValuePrefix:
		return len(value) >= len(v.Text) && v.equal(value[:len(v.Text)], v.Text)
	case config.ValueSuffix:
		return len(value) >= len(v.Text) && v.equal(value[len(value)-len(v.Text):], v.Text)
	case config.ValueContains:
		return v.within(value)
	case config.ValueRegex:
		return v.expression.MatchString(value)
	case config.ValueRange:
		n, err := strconv.ParseInt(value, 10, 64)
		return err == nil && v.From <= n && n < v.To
	case config.ValuePresent:
	}
	return true
}

func (v *valueTest) equal(a, b string) bool {
	return a == b || v.IgnoreCase && protocol.EqualFold(a, b)
}

func (v *valueTest) within(value string) bool {
	if !v.IgnoreCase {
		return strings.Contains(value, v.Text)
	}
	for i := 0; i+len(v.Text) <= len(value); i++ {
		if protocol.EqualFold(value[i:i+len(v.Text)], v.Text) {
			return true
		}
	}
	return false
}

func (e expressions) value(m *config.ValueMatch) (*valueTest, error) {
	v := &valueTest{ValueMatch: *m}
	var err error
	if m.Kind == config.ValueRegex {
		v.expression, err = e.compile(`\A(?:` + m.Text + `)\z`)
	}
	return v, err
}

// joined returns the fields of a name as one value (RFC 9110 5.3).
func joined(h *protocol.Header, name string) (value string, ok bool) {
	for i := range h.Len() {
		f := h.At(i)
		switch {
		case !protocol.EqualFold(f.Name, name):
		case !ok:
			value, ok = f.Value, true
		default:
			value += "," + f.Value
		}
	}
	return value, ok
}

// queryTest is a condition on a parameter of the query.
type queryTest struct {
	name string
	is   *valueTest
}

func (q *queryTest) holds(x *protocol.Exchange) bool {
	_, query, _ := strings.Cut(x.Request.Path, "?")
	return q.is.holds(parameter(query, q.name))
}

// argumentTest is a condition on an argument of a call.
type argumentTest struct {
	index int
	is    *valueTest
}

func (a *argumentTest) holds(x *protocol.Exchange) bool { return a.is.holds(argument(x, a.index)) }

// argument returns an argument of the call that x is.
func argument(x *protocol.Exchange, index int) (value string, ok bool) {
	if body, reads := x.Request.Body.(protocol.Arguments); reads {
		return body.Argument(index)
	}
	return "", false
}

// parameter returns the first parameter of a name, decoded as far as it can be.
func parameter(query, name string) (value string, ok bool) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(pair, "=")
		if unescaped(key) == name {
			return unescaped(value), true
		}
	}
	return "", false
}

func unescaped(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	if text, err := url.PathUnescape(s); err == nil {
		return text
	}
	return s
}

// chance is a share of what happens.
type chance struct {
	below uint64 // out of 2^64
}

// newChance returns the chance of a percentage, nil if it is certain.
func newChance(percent float64) (*chance, error) {
	switch {
	case percent >= 100:
		return nil, nil //nolint:nilnil // as it says
	case percent >= 0:
		return &chance{below: uint64(percent / 100 * math.MaxUint64)}, nil
	}
	return nil, fmt.Errorf("a chance of %v percent", percent)
}

// comes reports whether it happens now: never without random.
func (c *chance) comes(random func() uint64) bool {
	return random != nil && random() < c.below
}

// pathTest is a condition on the path that the tree of paths does not answer.
type pathTest struct {
	is       *valueTest
	segments bool
}

func (p *pathTest) holds(path string) bool {
	if !p.is.fits(path) {
		return false
	}
	at := len(p.is.Text)
	return !p.segments || len(path) == at || path[at] == '/' || strings.HasSuffix(p.is.Text, "/")
}

// pathTest compiles the path of m if the tree does not know its kind; nil if it does.
func newPathTest(m *config.Match) *pathTest {
	kind := config.ValueExact
	switch {
	case m.PathKind == config.PathSegments:
		kind = config.ValuePrefix
	case !m.IgnoreCase:
		return nil
	case m.PathKind == config.PathPrefix:
		kind = config.ValuePrefix
	case m.PathKind != config.PathExact:
		return nil
	}
	is := &valueTest{ValueMatch: config.ValueMatch{Kind: kind, Text: m.Path, IgnoreCase: m.IgnoreCase}}
	return &pathTest{is: is, segments: m.PathKind == config.PathSegments}
}
