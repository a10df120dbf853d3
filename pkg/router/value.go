package router

import (
	"fmt"
	"math"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router/headermatch"
)

// compileValue compiles a value condition.
func (e expressions) compileValue(m *config.ValueMatch) (headermatch.Matcher, error) {
	if m.Kind != config.ValueRegex {
		return headermatch.New(*m, nil), nil
	}
	re, err := e.compile(headermatch.Anchored(m.Text))
	return headermatch.New(*m, re), err
}

// queryMatcher is a condition on a query parameter.
type queryMatcher struct {
	name    string
	matcher headermatch.Matcher
}

func (q *queryMatcher) matches(x *protocol.Exchange) bool {
	_, query, _ := strings.Cut(x.Request.Path, "?")
	return q.matcher.Match(queryParameter(query, q.name))
}

// argumentMatcher is a condition on an argument of an RPC call.
type argumentMatcher struct {
	index   int
	matcher headermatch.Matcher
}

func (a *argumentMatcher) matches(x *protocol.Exchange) bool {
	return a.matcher.Match(callArgument(x, a.index))
}

// callArgument returns an argument of the RPC call x, and whether it is present.
func callArgument(x *protocol.Exchange, index int) (value string, ok bool) {
	if body, hasArguments := x.Request.Body.(protocol.Arguments); hasArguments {
		return body.Argument(index)
	}
	return "", false
}

// queryParameter returns the value of the first query parameter called name, without decoding it.
func queryParameter(query, name string) (value string, ok bool) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if key, value, _ := strings.Cut(pair, "="); key == name {
			return value, true
		}
	}
	return "", false
}

// fraction is a random share of requests.
type fraction struct {
	threshold uint64 // out of 2^64
}

// newFraction converts a percentage. It returns nil for 100 or more: all requests.
func newFraction(percent float64) (*fraction, error) {
	switch {
	case percent >= 100:
		return nil, nil //nolint:nilnil // nil means all requests
	case percent >= 0:
		return &fraction{threshold: uint64(percent / 100 * math.MaxUint64)}, nil
	}
	return nil, fmt.Errorf("%v is not a valid percentage", percent)
}

// sample takes a random sample and reports whether it is inside the fraction. If random is nil, it
// returns false.
func (f *fraction) sample(random func() uint64) bool {
	return random != nil && random() < f.threshold
}

// pathMatcher is a path condition that the tree of paths cannot evaluate.
type pathMatcher struct {
	matcher       headermatch.Matcher
	wholeSegments bool // the match must end where a segment ends
}

func (p *pathMatcher) matches(path string) bool {
	if !p.matcher.MatchValue(path) {
		return false
	}
	n := len(p.matcher.Text)
	return !p.wholeSegments || len(path) == n || path[n] == '/' || strings.HasSuffix(p.matcher.Text, "/")
}

// newPathMatcher compiles the path of m. It returns nil if the tree can evaluate it, or if it is
// an expression.
func newPathMatcher(m *config.RouteMatch) *pathMatcher {
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
	matcher := headermatch.New(config.ValueMatch{Kind: kind, Text: m.Path, IgnoreCase: m.IgnoreCase}, nil)
	return &pathMatcher{matcher: matcher, wholeSegments: m.PathKind == config.PathSegments}
}
