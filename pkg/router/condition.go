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

// routeMatcher holds the conditions of a route in addition to an exact or prefix path.
type routeMatcher struct {
	fields      []headerMatcher // cheapest first
	path        *regexp.Regexp
	pathMatcher *pathMatcher          // nil: no path condition, or the tree evaluates it
	variables   [][]variableCondition // one group must match, if there are any
	query       []queryMatcher
	arguments   []argumentTest
	chance      *fraction // nil: all requests
}

// holds reports whether x matches c. path is x's path without its query. random supplies the
// sample for chance.
func (c *routeMatcher) holds(x *protocol.Exchange, path string, random func() uint64) bool {
	for i := range c.fields {
		if !c.fields[i].holds(x) {
			return false
		}
	}
	if c.path != nil && !c.path.MatchString(path) || c.pathMatcher != nil && !c.pathMatcher.holds(path) {
		return false
	}
	for i := range c.query {
		if !c.query[i].holds(x) {
			return false
		}
	}
	for i := range c.arguments {
		if !c.arguments[i].holds(x) {
			return false
		}
	}
	return c.holdsVariables(x) && (c.chance == nil || c.chance.sample(random))
}

func (c *routeMatcher) holdsVariables(x *protocol.Exchange) bool {
	return len(c.variables) == 0 || slices.ContainsFunc(c.variables, func(group []variableCondition) bool {
		for i := range group {
			if !group[i].holds(x) {
				return false
			}
		}
		return true
	})
}

// key returns an equality condition on a header by which the route can be indexed, nil if there
// is none.
func (c *routeMatcher) key() *headerMatcher {
	if c == nil {
		return nil
	}
	for i := range c.fields {
		f := &c.fields[i]
		if f.test == equal && (f.of == inHeader || f.of == inCall || f.of == inMethod) {
			return f
		}
	}
	return nil
}

// headerMatcher is a condition on a value of the request.
type headerMatcher struct {
	of   source
	test test
	name string // as configured
	is   headermatch.Matcher
}

// source says where the value of a condition is.
type source uint8

const (
	// Any header of the condition's name, each by itself.
	inHeader source = iota

	// For an RPC request the first header of that name: the call's own value, which precedes its
	// attachments. For HTTP like inHeader.
	inCall

	// The request's own value. An RPC request's headers of that name, if it has any, replace it:
	// for inMethod the first one.
	inMethod
	inHost
	inPath // without the query

	// The request's own value, whatever headers it has.
	pseudoMethod
	pseudoAuthority
	pseudoPath // with the query
	pseudoScheme
)

// test is the type of a condition, in the order of evaluation: cheapest first.
type test uint8

const (
	present test = iota // any value
	equal
	matches // the expression matches any part of the value
	valued
)

func (f *headerMatcher) holds(x *protocol.Exchange) bool {
	value, ok, repeats := f.single(x)
	switch {
	case repeats:
		return f.is.MatchHeader(&x.Request.Header, f.name)
	case f.test == equal && !f.is.IgnoreCase: // the most frequent condition
		return ok && value == f.is.Text
	default:
		return f.is.Match(value, ok)
	}
}

// single returns the value that x has at most once, and whether it is present. repeats reports
// that the value is in any number of headers.
func (f *headerMatcher) single(x *protocol.Exchange) (value string, ok, repeats bool) {
	r := &x.Request
	switch f.of {
	case inHeader:
		return "", false, true
	case inCall:
		if !isRPC(x) {
			return "", false, true
		}
		value, ok = r.Header.Lookup(f.name)
		return value, ok, false
	case inMethod:
		if isRPC(x) {
			if value, ok = r.Header.Lookup(f.name); ok {
				return value, true, false
			}
		}
		return r.Method, true, false
	case inHost, inPath:
		if isRPC(x) {
			if _, repeats = r.Header.Lookup(f.name); repeats {
				return "", false, true
			}
		}
		if f.of == inHost {
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
		if isRouting(name) {
			return inCall, nil
		}
		return inHeader, nil
	}
}

// fieldKey identifies a header by which routes are indexed.
type fieldKey struct {
	of   source
	name string // lower case
}

func (f *headerMatcher) key() fieldKey { return fieldKey{f.of, strings.ToLower(f.name)} }

// fieldIndex finds the routes that require one value of a header and have no path condition.
type fieldIndex struct {
	field  *headerMatcher   // the condition of any of these routes
	chains map[string]int32 // by value
	least  int32            // the first route in the index
}

// add prepends the route at index at of h to the chain of value.
func (f *fieldIndex) add(value string, at int32, h *hostIndex) {
	chain, ok := f.chains[value]
	if !ok {
		chain = endOfChain
	}
	h.link(&chain, at)
	f.chains[value] = chain
	f.least = at // add is called in descending order
}

// field returns the first matching route of f's chains, or best if that comes before it. For a
// repeated header it tries the chain of each value.
func (s *search) field(f *fieldIndex, best int32) int32 {
	if value, ok, repeats := f.field.single(s.x); !repeats {
		if !ok {
			return best
		}
		return s.value(f, value, best)
	}
	h := &s.x.Request.Header
	for i := range h.Len() {
		if at := h.At(i); protocol.EqualFold(at.Name, f.field.name) {
			best = s.value(f, at.Value, best)
		}
	}
	return best
}

func (s *search) value(f *fieldIndex, value string, best int32) int32 {
	if chain, ok := f.chains[value]; ok {
		return s.first(chain, best)
	}
	return best
}

// variableCondition is a condition on a variable. A variable without a value equals "".
type variableCondition struct {
	of variable.Variable
	is headermatch.Matcher
}

func (c *variableCondition) holds(x *protocol.Exchange) bool {
	if name, repeats := c.repeats(x); repeats {
		return c.is.MatchHeader(&x.Request.Header, name)
	}
	value, _ := c.of.Text(x)
	return c.is.Match(value, true)
}

// repeats returns the name of the request header that the variable reads, and whether that may
// have several values.
func (c *variableCondition) repeats(x *protocol.Exchange) (name string, ok bool) {
	name, ok = c.of.Field(x)
	return name, ok && !(isRouting(name) && isRPC(x))
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

// condition compiles m without its exact or prefix path. It returns nil if there is nothing else.
func (e expressions) condition(m *config.Match) (*routeMatcher, error) {
	special := newPathMatcher(m)
	if len(m.Headers)+len(m.Variables)+len(m.Query)+len(m.Arguments) == 0 && m.PathKind != config.PathRegex && special == nil && m.Chance == nil {
		return nil, nil
	}
	c := &routeMatcher{pathMatcher: special}
	for i := range m.Headers {
		f, err := e.field(&m.Headers[i])
		if err != nil {
			return nil, err
		}
		c.fields = append(c.fields, f)
	}
	slices.SortStableFunc(c.fields, func(a, b headerMatcher) int { return int(a.test) - int(b.test) })
	if m.PathKind == config.PathRegex {
		var err error
		if c.path, err = e.compile(m.Path); err != nil {
			return nil, fmt.Errorf("path: %w", err)
		}
	}
	if err := e.variables(c, m.Variables); err != nil {
		return nil, err
	}
	for i := range m.Query {
		is, err := e.value(&m.Query[i].Is)
		if err != nil {
			return nil, fmt.Errorf("condition on the query parameter %q: %w", m.Query[i].Name, err)
		}
		c.query = append(c.query, queryMatcher{m.Query[i].Name, is})
	}
	for i := range m.Arguments {
		is, err := e.value(&m.Arguments[i].Is)
		if err != nil {
			return nil, fmt.Errorf("condition on argument %d: %w", m.Arguments[i].Index, err)
		}
		c.arguments = append(c.arguments, argumentTest{m.Arguments[i].Index, is})
	}
	if m.Chance != nil {
		var err error
		if c.chance, err = newFraction(*m.Chance); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// field compiles a header condition. The expression ".*" matches any value, and so does the value
// ".*", which RPC routes use.
func (e expressions) field(m *config.HeaderMatch) (headerMatcher, error) {
	of, err := sourceOf(m.Name)
	if err != nil {
		return headerMatcher{}, err
	}
	f := headerMatcher{of: of, name: m.Name}
	switch {
	case m.Is != nil:
		f.test = valued
		if f.is, err = e.value(m.Is); err != nil {
			return headerMatcher{}, fmt.Errorf("header condition on %q: %w", m.Name, err)
		}
	case m.Value == ".*":
		f.test, f.is = present, headermatch.New(config.ValueMatch{Kind: config.ValuePresent}, nil)
	case m.Regex:
		expression, err := e.compile(m.Value)
		if err != nil {
			return headerMatcher{}, fmt.Errorf("header condition on %q: %w", m.Name, err)
		}
		f.test, f.is = matches, headermatch.New(config.ValueMatch{Kind: config.ValueRegex, Text: m.Value}, expression)
	default:
		isHost := of == inHost || of == pseudoAuthority // RFC 9110 4.2.3: hosts have no case
		f.test, f.is = equal, headermatch.New(config.ValueMatch{Text: m.Value, IgnoreCase: isHost}, nil)
	}
	return f, nil
}

// variables compiles the groups of variable conditions. Each group ends with a condition that has
// Or set, or with the last one.
func (e expressions) variables(c *routeMatcher, matches []config.VariableMatch) error {
	var group []variableCondition
	for i := range matches {
		m := &matches[i]
		of, ok := variable.Lookup(m.Name)
		if !ok {
			return fmt.Errorf("variable condition: %w", &variable.UnknownError{Name: m.Name})
		}
		v := config.ValueMatch{Kind: config.ValueExact, Text: m.Value, MissingIsEmpty: true}
		var expression *regexp.Regexp
		if m.Regex {
			v.Kind = config.ValueRegex
			var err error
			if expression, err = e.compile(m.Value); err != nil {
				return fmt.Errorf("variable condition on %q: %w", m.Name, err)
			}
		}
		group = append(group, variableCondition{of, headermatch.New(v, expression)})
		if m.Or || i == len(matches)-1 {
			c.variables = append(c.variables, group)
			group = nil
		}
	}
	return nil
}
