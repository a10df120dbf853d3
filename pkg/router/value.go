package router

import (
	"fmt"
	"math"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router/headermatch"
)

// value compiles m.
func (e expressions) value(m *config.ValueMatch) (headermatch.Matcher, error) {
	if m.Kind != config.ValueRegex {
		return headermatch.New(*m, nil), nil
	}
	// A dot is any character, as in filters: an attachment may have several lines.
	whole, err := e.compile(`(?s)\A(?:` + m.Text + `)\z`)
	return headermatch.New(*m, whole), err
}

// queryMatcher is a condition on a parameter of the query.
type queryMatcher struct {
	name string
	is   headermatch.Matcher
}

func (q *queryMatcher) holds(x *protocol.Exchange) bool {
	_, query, _ := strings.Cut(x.Request.Path, "?")
	return q.is.Match(parameter(query, q.name))
}

// argumentTest is a condition on an argument of a call.
type argumentTest struct {
	index int
	is    headermatch.Matcher
}

func (a *argumentTest) holds(x *protocol.Exchange) bool { return a.is.Match(argument(x, a.index)) }

// argument returns an argument of the call that x is.
func argument(x *protocol.Exchange, index int) (value string, ok bool) {
	if body, reads := x.Request.Body.(protocol.Arguments); reads {
		return body.Argument(index)
	}
	return "", false
}

// parameter returns the first parameter of a name, as it is written.
func parameter(query, name string) (value string, ok bool) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if key, value, _ := strings.Cut(pair, "="); key == name {
			return value, true
		}
	}
	return "", false
}

// fraction is a share of what happens.
type fraction struct {
	below uint64 // out of 2^64
}

// newFraction returns the chance of a percentage, nil if it is certain.
func newFraction(percent float64) (*fraction, error) {
	switch {
	case percent >= 100:
		return nil, nil //nolint:nilnil // as it says
	case percent >= 0:
		return &fraction{below: uint64(percent / 100 * math.MaxUint64)}, nil
	}
	return nil, fmt.Errorf("a chance of %v percent", percent)
}

// sample reports whether it happens now: never without random.
func (c *fraction) sample(random func() uint64) bool {
	return random != nil && random() < c.below
}

// pathMatcher is a condition on the path that the tree of paths does not answer.
type pathMatcher struct {
	is       headermatch.Matcher
	segments bool
}

func (p *pathMatcher) holds(path string) bool {
	if !p.is.MatchValue(path) {
		return false
	}
	at := len(p.is.Text)
	return !p.segments || len(path) == at || path[at] == '/' || strings.HasSuffix(p.is.Text, "/")
}

// newPathMatcher compiles the path of m if the tree does not know its kind; nil if it does.
func newPathMatcher(m *config.Match) *pathMatcher {
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
	is := headermatch.New(config.ValueMatch{Kind: kind, Text: m.Path, IgnoreCase: m.IgnoreCase}, nil)
	return &pathMatcher{is: is, segments: m.PathKind == config.PathSegments}
}
