package router

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Explanation says in readable form why an exchange takes its route.
type Explanation struct {
	Authority string // as compared with domains
	// VirtualHost is the one with the most specific matching domain; nil: none matches, and
	// Routes is empty.
	VirtualHost *config.VirtualHost
	Domain      string             // the most specific matching domain of VirtualHost
	Others      []OtherVirtualHost // the other virtual hosts, in configuration order
	Routes      []*ExplainedRoute  // of VirtualHost, in configuration order
	// Route is the first route that matches whatever the random sample; nil: none.
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
	Why     []string // for Rejected: a sentence for each condition that does not match
	Percent float64  // for ByChance
}

// Outcome is the result of evaluating a route.
type Outcome uint8

// The results of evaluating a route.
const (
	Rejected Outcome = iota // a condition does not match
	Taken                   // all conditions match, and no earlier route is Taken
	ByChance                // the same, for a fraction of the requests
	Later                   // all conditions match, but an earlier route is Taken
)

// Explain says what Match does with x, and why. Its cost is proportional to the size of the
// table. It does not use Random: for fractions it reports all possible outcomes.
func (t *Table) Explain(x *protocol.Exchange) *Explanation {
	e := &Explanation{Authority: x.Request.Authority}
	if t.config.IgnorePort {
		e.Authority, _ = splitPort(e.Authority)
	}
	belongs := t.domains.find(e.Authority, x.Request.Scheme)
	for n := range t.hosts {
		vh := t.hosts[n].config
		fits := domainOf(vh, t.config.LiteralDomains, e.Authority, x.Request.Scheme)
		if int32(n) == belongs { //nolint:gosec // as many as there are
			e.VirtualHost, e.Domain = vh, fits
			continue
		}
		e.Others = append(e.Others, OtherVirtualHost{vh, fits})
	}
	if e.VirtualHost == nil {
		return e
	}
	path, _, _ := strings.Cut(x.Request.Path, "?")
	for _, r := range t.of(&t.hosts[belongs]) {
		e.Routes = append(e.Routes, e.explain(r, x, path))
	}
	return e
}

// explain evaluates r, after the routes that are already explained.
func (e *Explanation) explain(r *Route, x *protocol.Exchange, path string) *ExplainedRoute {
	one := &ExplainedRoute{Route: r, Why: r.failures(x, path)}
	switch {
	case len(one.Why) > 0:
	case e.Route != nil:
		one.Outcome = Later
	case r.Config.Match.Chance != nil && *r.Config.Match.Chance < 100:
		one.Outcome, one.Percent = ByChance, *r.Config.Match.Chance
	default:
		one.Outcome = Taken
		e.Route = r
	}
	return one
}

// domainOf returns the most specific matching domain of vh, "" if none matches.
func domainOf(vh *config.VirtualHost, literal bool, authority, scheme string) string {
	d := newDomains(literal)
	for i, domain := range vh.Domains {
		_, _ = d.add(domain, int32(i)) //nolint:gosec // they were added to the table's without error
	}
	if at := d.find(authority, scheme); at != noVirtualHost {
		return vh.Domains[at]
	}
	return ""
}

// failures describes the conditions of r that do not match. It counts a fraction as a failure
// only if it is 0 %.
func (r *Route) failures(x *protocol.Exchange, path string) (why []string) {
	if text, ok := r.pathFails(path); ok {
		why = append(why, text)
	}
	if r.when == nil {
		return why
	}
	for i := range r.when.fields {
		if f := &r.when.fields[i]; !f.holds(x) {
			why = append(why, f.failure(x))
		}
	}
	if m := &r.Config.Match; m.Chance != nil && *m.Chance <= 0 {
		why = append(why, "it matches 0 % of the requests")
	}
	for i := range r.when.query {
		q := &r.when.query[i]
		if !q.holds(x) {
			_, query, _ := strings.Cut(x.Request.Path, "?")
			value, there := parameter(query, q.name)
			why = append(why, "query parameter "+is(q.name, value, there)+", expected "+expects(&q.is.ValueMatch))
		}
	}
	for i := range r.when.arguments {
		a := &r.when.arguments[i]
		if !a.holds(x) {
			value, there := argument(x, a.index)
			why = append(why, "argument "+is(strconv.Itoa(a.index), value, there)+", expected "+expects(&a.is.ValueMatch))
		}
	}
	if !r.when.holdsVariables(x) {
		why = append(why, r.when.variableFailure(x))
	}
	return why
}

// pathFails describes why the path does not match r, and reports whether it does not.
func (r *Route) pathFails(path string) (why string, fails bool) {
	m := &r.Config.Match
	kind, holds := "", true
	switch m.PathKind {
	case config.PathAny:
		return "", false
	case config.PathExact:
		holds = path == m.Path
	case config.PathPrefix:
		kind, holds = "beginning with ", strings.HasPrefix(path, m.Path)
	case config.PathSegments:
		kind = "at or below "
	case config.PathRegex:
		kind, holds = "that matches ", r.when.path.MatchString(path)
	}
	if r.when != nil && r.when.pathMatcher != nil {
		holds = r.when.pathMatcher.holds(path)
	}
	why = fmt.Sprintf("path is %q, expected one %s%q", path, kind, m.Path)
	if kind == "" {
		why = fmt.Sprintf("path is %q, expected %q", path, m.Path)
	}
	if m.IgnoreCase {
		why += " (case-insensitive)"
	}
	return why, !holds
}

// failure describes why f does not match x.
func (f *headerMatcher) failure(x *protocol.Exchange) string {
	expected := ""
	switch f.test {
	case present:
		expected = "any value"
	case equal:
		expected = fmt.Sprintf("%q", f.is.Text)
	case matches:
		expected = fmt.Sprintf("a value that matches %q", f.is.Text)
	case valued:
		expected = expects(&f.is.ValueMatch)
	}
	kind := "header "
	if f.of != inHeader && f.of != inCall {
		kind = "the request's "
	}
	return kind + f.found(x) + ", expected " + expected
}

// found describes the values of f in x.
func (f *headerMatcher) found(x *protocol.Exchange) string {
	if value, there, repeats := f.single(x); !repeats {
		return is(f.name, value, there)
	}
	if values := values(x, f.name); values != "" {
		return f.name + " is " + values
	}
	return is(f.name, "", false)
}

// values returns the quoted values of the headers called name; "" if there are none.
func values(x *protocol.Exchange, name string) string {
	var values []string
	for field, value := range x.Request.Header.All() {
		if protocol.EqualFold(field, name) {
			values = append(values, strconv.Quote(value))
		}
	}
	return strings.Join(values, " and ")
}

// variableFailure describes the variable conditions that do not match x, group by group.
func (c *routeMatcher) variableFailure(x *protocol.Exchange) string {
	alternatives := make([]string, len(c.variables))
	for i, group := range c.variables {
		var failed []string
		for j := range group {
			v := &group[j]
			if v.holds(x) {
				continue
			}
			expected := fmt.Sprintf("%q", v.is.Text)
			if v.is.Kind == config.ValueRegex {
				expected = fmt.Sprintf("a value that matches %q", v.is.Text)
			}
			failed = append(failed, fmt.Sprintf("variable %s is %s, expected %s", v.of.Name(), v.found(x), expected))
		}
		alternatives[i] = strings.Join(failed, " and ")
	}
	return strings.Join(alternatives, "; or ")
}

// found returns the quoted values of c's variable.
func (c *variableCondition) found(x *protocol.Exchange) string {
	if name, repeats := c.repeats(x); repeats {
		if values := values(x, name); values != "" {
			return values
		}
	}
	value, _ := c.of.Text(x)
	return strconv.Quote(value)
}

// is describes the value of name.
func is(name, value string, there bool) string {
	if !there {
		return name + " is missing"
	}
	return fmt.Sprintf("%s is %q", name, value)
}

// expects describes the values that m matches.
func expects(m *config.ValueMatch) string {
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
