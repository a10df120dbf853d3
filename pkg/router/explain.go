package router

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Explanation describes why an exchange takes its route.
type Explanation struct {
	Authority string // as compared with domains
	// VirtualHost is the virtual host with the most specific matching domain; nil: none matches,
	// and Routes is empty.
	VirtualHost       *config.VirtualHost
	Domain            string             // the most specific matching domain of VirtualHost
	OtherVirtualHosts []OtherVirtualHost // the other virtual hosts, in configuration order
	Routes            []*ExplainedRoute  // of VirtualHost, in configuration order, after its TLS redirect
	// Route is the first route that matches regardless of the random sample; nil: none.
	Route *Route
}

// OtherVirtualHost is a virtual host that an exchange does not belong to.
type OtherVirtualHost struct {
	VirtualHost *config.VirtualHost
	Domain      string // a less specific domain that also matches; "": none
}

// ExplainedRoute is a route with its outcome for an exchange.
type ExplainedRoute struct {
	Route   *Route
	Outcome Outcome
	Reasons []string // for Rejected: a sentence for each condition that does not match
	Percent float64  // for Sampled
}

// Outcome is the result of evaluating a route.
type Outcome uint8

// The results of evaluating a route.
const (
	Rejected Outcome = iota // a condition does not match
	Chosen                  // all conditions match, and no earlier route is Chosen
	Sampled                 // all other conditions match, but the route takes only a fraction of the requests
	Shadowed                // all conditions match, but an earlier route is Chosen
)

// Explain returns the reasons for the result of Match(x). Its cost is proportional to the size of
// the table. It does not use Random: for fractions it reports all possible outcomes.
func (t *Table) Explain(x *protocol.Exchange) *Explanation {
	e := &Explanation{}
	var vhIndex int32
	vhIndex, e.Authority = t.findVirtualHost(x)
	for n := range t.virtualHosts {
		vh := t.virtualHosts[n].config
		domain := bestDomain(vh, t.config.LiteralDomains, e.Authority, x.Request.Scheme)
		if int32(n) == vhIndex { //nolint:gosec // far below 2^31
			e.VirtualHost, e.Domain = vh, domain
			continue
		}
		e.OtherVirtualHosts = append(e.OtherVirtualHosts, OtherVirtualHost{vh, domain})
	}
	if e.VirtualHost == nil {
		return e
	}
	if redirect := t.virtualHosts[vhIndex].explainTLSRedirect(x); redirect != nil {
		e.Routes = append(e.Routes, redirect)
		if redirect.Outcome == Chosen {
			e.Route = redirect.Route
		}
	}
	path, _, _ := strings.Cut(x.Request.Path, "?")
	if t.config.IgnorePathParameters {
		path = withoutParameters(path)
	}
	selects := func(int) bool { return true }
	if tree := t.virtualHosts[vhIndex].tree; tree != nil {
		selected, _ := tree.evaluate(x)
		selects = func(i int) bool { return i >= selected.first && i < selected.first+selected.count }
	}
	for i, r := range t.routesOf(&t.virtualHosts[vhIndex]) {
		reason := ""
		switch {
		case !selects(i):
			reason = "the matcher of the virtual host does not select it"
		case path == "" && t.config.ConnectRoutesOnly && r.Config.Match.PathKind != config.PathConnect:
			reason = "the method is CONNECT"
		}
		if reason != "" {
			e.Routes = append(e.Routes, &ExplainedRoute{Route: r, Outcome: Rejected, Reasons: []string{reason}})
			continue
		}
		e.Routes = append(e.Routes, e.explainRoute(r, x, path))
	}
	if e.Route == nil && path == "*" { // as in Find
		for i, r := range e.Routes {
			if r.Outcome == Rejected && r.Route != t.virtualHosts[vhIndex].tlsRedirect {
				e.Routes[i] = e.explainRoute(r.Route, x, "/")
			}
		}
	}
	return e
}

// explainRoute evaluates r, after the routes that are already explained.
func (e *Explanation) explainRoute(r *Route, x *protocol.Exchange, path string) *ExplainedRoute {
	out := &ExplainedRoute{Route: r, Reasons: r.mismatches(x, path)}
	switch {
	case len(out.Reasons) > 0:
	case e.Route != nil:
		out.Outcome = Shadowed
	case r.Config.Match.Percentage != nil && *r.Config.Match.Percentage < 100:
		out.Outcome, out.Percent = Sampled, *r.Config.Match.Percentage
	default:
		out.Outcome = Chosen
		e.Route = r
	}
	return out
}

// bestDomain returns the most specific matching domain of vh, "" if none matches.
func bestDomain(vh *config.VirtualHost, literal bool, authority, scheme string) string {
	d := newDomains(literal)
	for j, domain := range vh.Domains {
		_, _ = d.add(domain, int32(j)) //nolint:gosec // j is small; Compile has added these domains to the table without error
	}
	if i := d.find(authority, scheme); i != noVirtualHost {
		return vh.Domains[i]
	}
	return ""
}

// mismatches describes the conditions of r that do not match. A fraction is a mismatch only if it
// is 0 %.
func (r *Route) mismatches(x *protocol.Exchange, path string) (reasons []string) {
	if text, ok := r.pathMismatch(path); ok {
		reasons = append(reasons, text)
	}
	if r.matcher == nil {
		return reasons
	}
	if t := r.matcher.tls; t != nil && !matchesTLS(t, x.Meta.Conn) {
		reasons = append(reasons, "the client certificate")
	}
	for i := range r.matcher.headers {
		if h := &r.matcher.headers[i]; !h.matches(x) {
			reasons = append(reasons, h.mismatch(x))
		}
	}
	if m := &r.Config.Match; m.Percentage != nil && *m.Percentage <= 0 {
		reasons = append(reasons, "it matches 0 % of the requests")
	}
	for i := range r.matcher.query {
		q := &r.matcher.query[i]
		if !q.matches(x) {
			_, query, _ := strings.Cut(x.Request.Path, "?")
			value, present := queryParameter(query, q.name)
			reasons = append(reasons, "query parameter "+describeValue(q.name, value, present)+", expected "+describeExpected(&q.matcher.ValueMatch))
		}
	}
	for i := range r.matcher.cookies {
		if c := &r.matcher.cookies[i]; !c.matches(x) {
			reasons = append(reasons, c.mismatch(x))
		}
	}
	for i := range r.matcher.arguments {
		a := &r.matcher.arguments[i]
		if !a.matches(x) {
			value, present := callArgument(x, a.index)
			reasons = append(reasons, "argument "+describeValue(strconv.Itoa(a.index), value, present)+", expected "+describeExpected(&a.matcher.ValueMatch))
		}
	}
	if !r.matcher.matchesVariables(x) {
		reasons = append(reasons, r.matcher.variableMismatch(x))
	}
	return reasons
}

// pathMismatch reports whether the path does not match r, and why.
func (r *Route) pathMismatch(path string) (reason string, mismatch bool) {
	m := &r.Config.Match
	kind, matches := "", true
	switch m.PathKind {
	case config.PathAny:
		return "", false
	case config.PathExact:
		matches = path == m.Path
	case config.PathPrefix:
		kind, matches = "beginning with ", strings.HasPrefix(path, m.Path)
	case config.PathSegments:
		kind = "at or below "
	case config.PathConnect:
		return "the method is not CONNECT", path != ""
	case config.PathRegex:
		kind, matches = "that matches ", r.matcher.pathRegex.MatchString(path)
	}
	if r.matcher != nil && r.matcher.pathMatcher != nil {
		matches = r.matcher.pathMatcher.matches(path)
	}
	reason = fmt.Sprintf("path is %q, expected one %s%q", path, kind, m.Path)
	if kind == "" {
		reason = fmt.Sprintf("path is %q, expected %q", path, m.Path)
	}
	if m.IgnoreCase {
		reason += " (case-insensitive)"
	}
	return reason, !matches
}

// mismatch describes why m does not match x.
func (m *headerMatcher) mismatch(x *protocol.Exchange) string {
	expected := ""
	switch m.kind {
	case testPresent:
		expected = "any value"
	case testEqual:
		expected = fmt.Sprintf("%q", m.matcher.Text)
	case testRegex:
		expected = fmt.Sprintf("a value that matches %q", m.matcher.Text)
	case testValue:
		expected = describeExpected(&m.matcher.ValueMatch)
	}
	label := "header "
	if m.source != inHeader && m.source != inCall {
		label = "the request's "
	}
	return label + m.describeValue(x) + ", expected " + expected
}

// describeValue describes the values of x that m tests.
func (m *headerMatcher) describeValue(x *protocol.Exchange) string {
	if value, present, repeats := m.singleValue(x); !repeats {
		return describeValue(m.name, value, present)
	}
	if values := quotedValues(x, m.name); values != "" {
		return m.name + " is " + values
	}
	return describeValue(m.name, "", false)
}

// quotedValues returns the quoted values of the headers called name; "" if there are none.
func quotedValues(x *protocol.Exchange, name string) string {
	var values []string
	for field, value := range x.Request.Header.All() {
		if protocol.EqualFold(field, name) {
			values = append(values, strconv.Quote(value))
		}
	}
	return strings.Join(values, " and ")
}

// variableMismatch describes the variable conditions that do not match x, group by group.
func (m *routeMatcher) variableMismatch(x *protocol.Exchange) string {
	alternatives := make([]string, len(m.variables))
	for i, group := range m.variables {
		var mismatches []string
		for j := range group {
			v := &group[j]
			if v.matches(x) {
				continue
			}
			expected := fmt.Sprintf("%q", v.matcher.Text)
			if v.matcher.Kind == config.ValueRegex {
				expected = fmt.Sprintf("a value that matches %q", v.matcher.Text)
			}
			mismatches = append(mismatches, fmt.Sprintf("variable %s is %s, expected %s", v.variable.Name(), v.describeValue(x), expected))
		}
		alternatives[i] = strings.Join(mismatches, " and ")
	}
	return strings.Join(alternatives, "; or ")
}

// describeValue returns the quoted values of c's variable.
func (c *variableCondition) describeValue(x *protocol.Exchange) string {
	if name, repeats := c.repeatedHeader(x); repeats {
		if values := quotedValues(x, name); values != "" {
			return values
		}
	}
	value, _ := c.variable.Text(x)
	return strconv.Quote(value)
}

// describeValue describes the value of name.
func describeValue(name, value string, present bool) string {
	if !present {
		return name + " is missing"
	}
	return fmt.Sprintf("%s is %q", name, value)
}

// describeExpected describes the values that m matches.
func describeExpected(m *config.ValueMatch) string {
	text := ""
	switch m.Kind {
	case config.ValueExact:
		text = fmt.Sprintf("%q", m.Text)
	case config.ValuePrefix:
		text = fmt.Sprintf("a value that begins with %q", m.Text)
	case config.ValueSuffix:
		text = fmt.Sprintf("a value that ends with %q", m.Text)
	case config.ValueContains:
		text = fmt.Sprintf("a value that contains %q", m.Text)
	case config.ValueRegex:
		text = fmt.Sprintf("a value that completely matches %q", m.Text)
	case config.ValuePresent:
		text = "any value"
	case config.ValueRange:
		text = fmt.Sprintf("an integer from %d to below %d", m.From, m.To)
	}
	if m.IgnoreCase {
		text += " (case-insensitive)"
	}
	switch {
	case m.Invert && m.Kind == config.ValuePresent:
		return "no value"
	case m.Invert:
		return "anything except " + text
	}
	return text
}
