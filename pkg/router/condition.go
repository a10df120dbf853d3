package router

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
	"github.com/weft-proxy/weft/pkg/router/headermatch"
)

// routeMatcher holds the conditions of a route that the tree of paths does not evaluate.
type routeMatcher struct {
	connect     connectMode
	tls         *config.TLSMatch
	headers     []headerMatcher // cheapest first
	pathRegex   *regexp.Regexp
	pathMatcher *pathMatcher          // nil: the tree or pathRegex evaluates the path, if necessary
	variables   [][]variableCondition // one group must match, if there are any
	query       []queryMatcher
	cookies     []cookieMatcher
	arguments   []argumentMatcher
	fraction    *fraction // nil: all requests
}

// matches reports whether x matches m. path is x's path without its query. random supplies the
// sample for fraction.
func (m *routeMatcher) matches(x *protocol.Exchange, path string, random func() uint64) bool {
	if m.connect != anyRequest && (m.connect == connectRequest) != (path == "") || m.tls != nil && !matchesTLS(m.tls, x.Meta.Conn) {
		return false
	}
	for i := range m.headers {
		if !m.headers[i].matches(x) {
			return false
		}
	}
	if m.pathRegex != nil && !m.pathRegex.MatchString(path) || m.pathMatcher != nil && !m.pathMatcher.matches(path) {
		return false
	}
	for i := range m.query {
		if !m.query[i].matches(x) {
			return false
		}
	}
	for i := range m.cookies {
		if !m.cookies[i].matches(x) {
			return false
		}
	}
	for i := range m.arguments {
		if !m.arguments[i].matches(x) {
			return false
		}
	}
	return m.matchesVariables(x) && (m.fraction == nil || m.fraction.sample(random))
}

// connectMode says whether a route matches CONNECT requests.
type connectMode uint8

const (
	anyRequest connectMode = iota
	connectRequest
	otherRequest
)

// matchesTLS reports whether a connection meets the condition m.
func matchesTLS(m *config.TLSMatch, conn *protocol.ConnMeta) bool {
	presented := conn != nil && conn.TLS != nil && conn.TLS.Peer != nil
	return (m.Presented == nil || *m.Presented == presented) && (m.Validated == nil || *m.Validated == presented)
}

func (m *routeMatcher) matchesVariables(x *protocol.Exchange) bool {
	return len(m.variables) == 0 || slices.ContainsFunc(m.variables, func(group []variableCondition) bool {
		for i := range group {
			if !group[i].matches(x) {
				return false
			}
		}
		return true
	})
}

// indexHeader returns an equality condition on a header or the method by which the route can be
// indexed, or nil if there is none.
func (m *routeMatcher) indexHeader() *headerMatcher {
	if m == nil {
		return nil
	}
	for i := range m.headers {
		h := &m.headers[i]
		if h.kind == testEqual && (h.source == inHeader || h.source == inCall || h.source == inMethod) {
			return h
		}
	}
	return nil
}

// headerMatcher is a condition on a value of the request.
type headerMatcher struct {
	source  source
	kind    testKind
	name    string // as configured
	matcher headermatch.Matcher
}

// source says where the value of a condition is.
type source uint8

const (
	// All headers of the condition's name; each value is tested separately.
	inHeader source = iota

	// For an RPC request, the first header of the condition's name: it belongs to the call itself,
	// and headers of attachments follow it. For an HTTP request, like inHeader.
	inCall

	// The method, authority or path of the request. If an RPC request has headers of the
	// condition's name, their values are tested instead: for inMethod the first, otherwise all.
	inMethod
	inHost
	inPath // without the query

	// The method, authority, path or scheme of the request, regardless of its headers.
	pseudoMethod
	pseudoAuthority
	pseudoPath // with the query
	pseudoScheme
)

// testKind is the type of a condition, in the order of evaluation: cheapest first.
type testKind uint8

const (
	testPresent testKind = iota // any value
	testEqual
	testRegex // the expression matches any part of the value
	testValue // see config.ValueMatch
)

func (m *headerMatcher) matches(x *protocol.Exchange) bool {
	value, ok, repeats := m.singleValue(x)
	switch {
	case repeats:
		return m.matcher.MatchHeader(&x.Request.Header, m.name)
	case m.kind == testEqual && !m.matcher.IgnoreCase: // the most frequent condition
		return ok && value == m.matcher.Text
	default:
		return m.matcher.Match(value, ok)
	}
}

// singleValue returns the value of x that m tests, and whether it is present. If repeats is true,
// the value is in headers that may repeat, and the other results are zero.
func (m *headerMatcher) singleValue(x *protocol.Exchange) (value string, ok, repeats bool) {
	r := &x.Request
	switch m.source {
	case inHeader:
		return "", false, true
	case inCall:
		if !isRPC(x) {
			return "", false, true
		}
		value, ok = r.Header.Lookup(m.name)
		return value, ok, false
	case inMethod:
		if isRPC(x) {
			if value, ok = r.Header.Lookup(m.name); ok {
				return value, true, false
			}
		}
		return r.Method, true, false
	case inHost, inPath:
		if isRPC(x) {
			if _, repeats = r.Header.Lookup(m.name); repeats {
				return "", false, true
			}
		}
		if m.source == inHost {
			return r.Authority, true, false
		}
		value, _, _ = strings.Cut(r.Path, "?")
		return value, true, false
	case pseudoMethod:
		return r.Method, true, false
	case pseudoAuthority:
		return r.Authority, true, false
	case pseudoPath:
		return r.Path, true, false
	default:
		return r.Scheme, true, false
	}
}

// sourceOf returns the source for the name of a header condition.
func sourceOf(name string) (source, error) {
	switch lower := strings.ToLower(name); lower {
	case "":
		return inHeader, fmt.Errorf("a header condition has no name")
	case "method":
		return inMethod, nil
	case "host", "authority":
		return inHost, nil
	case "path":
		return inPath, nil
	case ":method":
		return pseudoMethod, nil
	case ":authority":
		return pseudoAuthority, nil
	case ":path":
		return pseudoPath, nil
	case ":scheme":
		return pseudoScheme, nil
	default:
		if lower[0] == ':' {
			return inHeader, fmt.Errorf("header condition on %q: the names with a colon are :method, :authority, :path and :scheme", name)
		}
		if isRoutingHeader(name) {
			return inCall, nil
		}
		return inHeader, nil
	}
}

// headerKey identifies a header by which routes are indexed.
type headerKey struct {
	source source
	name   string // lower case
}

func (m *headerMatcher) key() headerKey { return headerKey{m.source, strings.ToLower(m.name)} }

// headerIndex finds the routes that require one value of a header and have no path condition.
type headerIndex struct {
	matcher    *headerMatcher   // condition of one of these routes; all of them read the same header
	chains     map[string]int32 // by value
	firstRoute int32            // index of the first route
}

// add prepends the route of ri with that index to the chain of value.
func (hi *headerIndex) add(value string, index int32, ri *routeIndex) {
	chain, ok := hi.chains[value]
	if !ok {
		chain = endOfChain
	}
	ri.prepend(&chain, index)
	hi.chains[value] = chain
	hi.firstRoute = index // add is called in descending order
}

// findByHeader returns the smaller of best and the index of the first matching route in the chains
// of index. For a repeated header it tries the chain of each value.
func (s *search) findByHeader(index *headerIndex, best int32) int32 {
	if value, ok, repeats := index.matcher.singleValue(s.x); !repeats {
		if !ok {
			return best
		}
		return s.findByValue(index, value, best)
	}
	h := &s.x.Request.Header
	for i := range h.Len() {
		if field := h.At(i); protocol.EqualFold(field.Name, index.matcher.name) {
			best = s.findByValue(index, field.Value, best)
		}
	}
	return best
}

func (s *search) findByValue(index *headerIndex, value string, best int32) int32 {
	if chain, ok := index.chains[value]; ok {
		return s.firstInChain(chain, best)
	}
	return best
}

// variableCondition is a condition on a variable. A variable without a value equals "".
type variableCondition struct {
	variable variable.Variable
	matcher  headermatch.Matcher
}

func (c *variableCondition) matches(x *protocol.Exchange) bool {
	if name, repeats := c.repeatedHeader(x); repeats {
		return c.matcher.MatchHeader(&x.Request.Header, name)
	}
	value, _ := c.variable.Text(x)
	return c.matcher.Match(value, true)
}

// repeatedHeader returns the name of the request header that the variable reads, and whether the
// header may have several values.
func (c *variableCondition) repeatedHeader(x *protocol.Exchange) (name string, ok bool) {
	name, ok = c.variable.Field(x)
	return name, ok && !(isRoutingHeader(name) && isRPC(x))
}

// Bounds of an expression. Matching takes time proportional to the length of the text times, at
// worst, the size of the expression's program.
const (
	maxExpression = 4096 // bytes
	maxProgram    = 8192 // instructions
)

// expressions caches compiled expressions: routes share them.
type expressions map[string]*regexp.Regexp

func (e expressions) compile(expression string) (*regexp.Regexp, error) {
	if re, ok := e[expression]; ok {
		return re, nil
	}
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("an expression has %d bytes: at most %d are allowed", len(expression), maxExpression)
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if len(program.Inst) > maxProgram {
		return nil, fmt.Errorf("the expression %q is too large: %d instructions, at most %d are allowed", expression, len(program.Inst), maxProgram)
	}
	re, err := regexp.Compile(expression)
	if err == nil {
		e[expression] = re
	}
	return re, err
}

// compileMatch compiles the conditions of m that the tree of paths does not evaluate. It returns
// nil if there are none. connectRoutesOnly is that of the table.
func (e expressions) compileMatch(m *config.RouteMatch, connectRoutesOnly bool) (*routeMatcher, error) {
	pathMatch := newPathMatcher(m)
	if len(m.Headers)+len(m.Variables)+len(m.Query)+len(m.Cookies)+len(m.Arguments) == 0 && m.PathKind != config.PathRegex && m.PathKind != config.PathConnect && pathMatch == nil && m.Percentage == nil && m.TLS == nil {
		return nil, nil
	}
	out := &routeMatcher{pathMatcher: pathMatch, tls: m.TLS}
	switch {
	case m.PathKind == config.PathConnect:
		out.connect = connectRequest
	case connectRoutesOnly:
		out.connect = otherRequest
	}
	for i := range m.Headers {
		header, err := e.compileHeader(&m.Headers[i])
		if err != nil {
			return nil, err
		}
		out.headers = append(out.headers, header)
	}
	slices.SortStableFunc(out.headers, func(a, b headerMatcher) int { return int(a.kind) - int(b.kind) })
	if m.PathKind == config.PathRegex {
		var err error
		if out.pathRegex, err = e.compile(m.Path); err != nil {
			return nil, fmt.Errorf("path: %w", err)
		}
	}
	if err := e.compileVariables(out, m.Variables); err != nil {
		return nil, err
	}
	for i := range m.Query {
		matcher, err := e.compileValue(&m.Query[i].Matcher)
		if err != nil {
			return nil, fmt.Errorf("condition on the query parameter %q: %w", m.Query[i].Name, err)
		}
		out.query = append(out.query, queryMatcher{m.Query[i].Name, matcher})
	}
	if err := e.compileCookies(out, m.Cookies); err != nil {
		return nil, err
	}
	for i := range m.Arguments {
		matcher, err := e.compileValue(&m.Arguments[i].Matcher)
		if err != nil {
			return nil, fmt.Errorf("condition on argument %d: %w", m.Arguments[i].Index, err)
		}
		out.arguments = append(out.arguments, argumentMatcher{m.Arguments[i].Index, matcher})
	}
	if m.Percentage != nil {
		var err error
		if out.fraction, err = newFraction(*m.Percentage); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// compileHeader compiles a header condition. The expression ".*" matches any value, and so does the
// value ".*", which RPC routes use.
func (e expressions) compileHeader(m *config.HeaderMatch) (headerMatcher, error) {
	src, err := sourceOf(m.Name)
	if err != nil {
		return headerMatcher{}, err
	}
	out := headerMatcher{source: src, name: m.Name}
	switch {
	case m.Matcher != nil:
		out.kind = testValue
		if out.matcher, err = e.compileValue(m.Matcher); err != nil {
			return headerMatcher{}, fmt.Errorf("header condition on %q: %w", m.Name, err)
		}
	case m.Value == ".*":
		out.kind, out.matcher = testPresent, headermatch.New(config.ValueMatch{Kind: config.ValuePresent}, nil)
	case m.Regex:
		expression, err := e.compile(m.Value)
		if err != nil {
			return headerMatcher{}, fmt.Errorf("header condition on %q: %w", m.Name, err)
		}
		out.kind, out.matcher = testRegex, headermatch.New(config.ValueMatch{Kind: config.ValueRegex, Text: m.Value}, expression)
	default:
		isHost := src == inHost || src == pseudoAuthority // hosts are case-insensitive (RFC 9110 4.2.3)
		out.kind, out.matcher = testEqual, headermatch.New(config.ValueMatch{Text: m.Value, IgnoreCase: isHost}, nil)
	}
	return out, nil
}

// compileVariables compiles the groups of variable conditions. A group ends with a condition that
// has Or set, or with the last condition.
func (e expressions) compileVariables(out *routeMatcher, matches []config.VariableMatch) error {
	var group []variableCondition
	for i := range matches {
		m := &matches[i]
		v, ok := variable.Lookup(m.Name)
		if !ok {
			return fmt.Errorf("variable condition: %w", &variable.UnknownError{Name: m.Name})
		}
		match := config.ValueMatch{Kind: config.ValueExact, Text: m.Value, TreatMissingAsEmpty: true}
		var expression *regexp.Regexp
		if m.Regex {
			match.Kind = config.ValueRegex
			var err error
			if expression, err = e.compile(m.Value); err != nil {
				return fmt.Errorf("variable condition on %q: %w", m.Name, err)
			}
		}
		group = append(group, variableCondition{v, headermatch.New(match, expression)})
		if m.Or || i == len(matches)-1 {
			out.variables = append(out.variables, group)
			group = nil
		}
	}
	return nil
}
