package router

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router/headermatch"
)

// matchTree is a compiled config.MatchTree. It is immutable.
type matchTree struct {
	rules    []matchRule
	input    config.MatchInput
	exact    map[string]matchResult
	prefixes []matchPrefix // longest first
	noMatch  *matchResult
}

type matchRule struct {
	predicate matchPredicate
	result    matchResult
}

type matchPrefix struct {
	prefix string
	result matchResult
}

// matchResult is a tree or, if tree is nil, a range of routes of the virtual host.
type matchResult struct {
	tree         *matchTree
	first, count int
}

// matchPredicate is a compiled config.MatchPredicate.
type matchPredicate struct {
	input   config.MatchInput
	matcher *headermatch.Matcher // nil: one of the others is set
	all     []matchPredicate
	any     []matchPredicate
	not     *matchPredicate
}

// evaluate returns the routes that t selects for x.
func (t *matchTree) evaluate(x *protocol.Exchange) (routes matchResult, ok bool) {
	for i := range t.rules {
		if r := &t.rules[i]; r.predicate.matches(x) {
			if routes, ok = r.result.evaluate(x); ok {
				return routes, true
			}
		}
	}
	if t.exact != nil || t.prefixes != nil {
		if value, present := inputValue(x, t.input); present {
			if routes, ok = t.lookUp(x, value); ok {
				return routes, true
			}
		}
	}
	if t.noMatch == nil {
		return matchResult{}, false
	}
	return t.noMatch.evaluate(x)
}

// lookUp returns the routes for a value of the input.
func (t *matchTree) lookUp(x *protocol.Exchange, value string) (routes matchResult, ok bool) {
	if result, found := t.exact[value]; found {
		return result.evaluate(x)
	}
	for i := range t.prefixes {
		if p := &t.prefixes[i]; strings.HasPrefix(value, p.prefix) {
			if routes, ok = p.result.evaluate(x); ok {
				return routes, true
			}
		}
	}
	return matchResult{}, false
}

func (r *matchResult) evaluate(x *protocol.Exchange) (routes matchResult, ok bool) {
	if r.tree != nil {
		return r.tree.evaluate(x)
	}
	return *r, true
}

func (p *matchPredicate) matches(x *protocol.Exchange) bool {
	switch {
	case p.matcher != nil:
		value, ok := inputValue(x, p.input)
		return p.matcher.Match(value, ok)
	case p.not != nil:
		return !p.not.matches(x)
	case p.all != nil:
		for i := range p.all {
			if !p.all[i].matches(x) {
				return false
			}
		}
		return true
	}
	for i := range p.any {
		if p.any[i].matches(x) {
			return true
		}
	}
	return false
}

// inputValue returns the value of an input, and whether x has it.
func inputValue(x *protocol.Exchange, input config.MatchInput) (value string, ok bool) {
	conn := x.Meta.Conn
	switch input.Kind { //nolint:exhaustive // the second switch has the kinds of connections
	case config.InputHeader:
		return joinedHeader(x, input.Name)
	case config.InputQueryParameter:
		_, query, _ := strings.Cut(x.Request.Path, "?")
		value, ok = queryParameter(query, input.Name)
		if decoded, err := url.PathUnescape(value); err == nil {
			value = decoded
		}
		return value, ok
	case config.InputSourceIP:
		value = x.Meta.ClientIP()
		return value, value != ""
	}
	if conn == nil {
		return "", false
	}
	switch input.Kind {
	case config.InputDestinationIP:
		return addressText(conn.Local.Addr())
	case config.InputDestinationPort:
		return portText(conn.Local)
	case config.InputSourcePort:
		return portText(conn.Remote)
	case config.InputDirectSourceIP:
		return addressText(conn.DirectRemote().Addr())
	default:
		return tlsInput(conn.TLS, input.Kind)
	}
}

func addressText(a netip.Addr) (string, bool) { return a.Unmap().String(), a.IsValid() }

func portText(a netip.AddrPort) (string, bool) {
	return strconv.Itoa(int(a.Port())), a.IsValid()
}

// tlsInput returns an input of a TLS connection; t may be nil.
func tlsInput(t *protocol.TLS, kind config.MatchInputKind) (value string, ok bool) {
	switch {
	case t == nil:
		return "", false
	case kind == config.InputServerName:
		return t.ServerName, t.ServerName != ""
	case t.Peer == nil:
		return "", false
	}
	switch kind { //nolint:exhaustive // inputValue handles the other kinds
	case config.InputURISAN:
		value = strings.Join(t.Peer.URISANs, ",")
	case config.InputDNSSAN:
		value = strings.Join(t.Peer.DNSSANs, ",")
	case config.InputSubject:
		value = t.Peer.Subject
	}
	return value, value != ""
}

// joinedHeader returns the values of a header or pseudo-header, joined with commas.
func joinedHeader(x *protocol.Exchange, name string) (value string, ok bool) {
	switch {
	case isHost(name):
		return x.Request.Authority, true
	case name != "" && name[0] == ':':
		return pseudoHeader(x, name)
	}
	h := &x.Request.Header
	for i := range h.Len() {
		switch f := h.At(i); {
		case !protocol.EqualFold(f.Name, name):
		case ok:
			value += "," + f.Value
		default:
			value, ok = f.Value, true
		}
	}
	return value, ok
}

// compileMatchTree compiles the tree of a virtual host with that number of routes; nil: there is none.
func (e expressions) compileMatchTree(c *config.MatchTree, routeCount int) (*matchTree, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // nil means no tree
	}
	t := &matchTree{input: c.Input}
	for i := range c.Rules {
		predicate, err := e.compilePredicate(&c.Rules[i].Predicate)
		if err != nil {
			return nil, fmt.Errorf("matcher: %w", err)
		}
		result, err := e.compileResult(&c.Rules[i].Result, routeCount)
		if err != nil {
			return nil, err
		}
		t.rules = append(t.rules, matchRule{predicate, result})
	}
	for value, r := range c.Exact {
		result, err := e.compileResult(&r, routeCount)
		if err != nil {
			return nil, err
		}
		if t.exact == nil {
			t.exact = make(map[string]matchResult, len(c.Exact))
		}
		t.exact[value] = result
	}
	for prefix, r := range c.Prefixes {
		result, err := e.compileResult(&r, routeCount)
		if err != nil {
			return nil, err
		}
		t.prefixes = append(t.prefixes, matchPrefix{prefix, result})
	}
	slices.SortFunc(t.prefixes, func(a, b matchPrefix) int { return len(b.prefix) - len(a.prefix) })
	if c.NoMatch != nil {
		result, err := e.compileResult(c.NoMatch, routeCount)
		if err != nil {
			return nil, err
		}
		t.noMatch = &result
	}
	return t, nil
}

func (e expressions) compileResult(c *config.MatchResult, routeCount int) (matchResult, error) {
	if c.Tree == nil && (c.First < 0 || c.Count < 0 || c.First+c.Count > routeCount) {
		return matchResult{}, fmt.Errorf("matcher: it selects routes %d to %d, but the virtual host has %d routes", c.First, c.First+c.Count, routeCount)
	}
	tree, err := e.compileMatchTree(c.Tree, routeCount)
	return matchResult{tree, c.First, c.Count}, err
}

func (e expressions) compilePredicate(c *config.MatchPredicate) (p matchPredicate, err error) {
	p.input = c.Input
	switch {
	case c.Value != nil:
		matcher, err := e.compileValue(c.Value)
		p.matcher = &matcher
		return p, err
	case c.Not != nil:
		not, err := e.compilePredicate(c.Not)
		p.not = &not
		return p, err
	case c.All != nil:
		p.all, err = e.compilePredicates(c.All)
	default:
		p.any, err = e.compilePredicates(c.Any)
	}
	return p, err
}

func (e expressions) compilePredicates(list []config.MatchPredicate) ([]matchPredicate, error) {
	out := make([]matchPredicate, len(list))
	for i := range list {
		var err error
		if out[i], err = e.compilePredicate(&list[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// findByTree returns the index in the virtual host of the first route that the tree selects and whose
// own conditions match; endOfChain if there is none. routes are those of the virtual host.
func (s *search) findByTree(t *matchTree, routes []*Route) int32 {
	selected, ok := t.evaluate(s.x)
	if !ok {
		return endOfChain
	}
	for i := selected.first; i < selected.first+selected.count; i++ {
		if routes[i].matches(s.x, s.path, s.random) {
			return int32(i) //nolint:gosec // far below 2^31
		}
	}
	return endOfChain
}

// matches reports whether x meets all conditions of r. path is that of x, as Find compares it.
func (r *Route) matches(x *protocol.Exchange, path string, random func() uint64) bool {
	m := &r.Config.Match
	if r.matcher != nil && !r.matcher.matches(x, path, random) {
		return false
	}
	switch {
	case r.matcher != nil && r.matcher.pathMatcher != nil:
		return true
	case m.PathKind == config.PathExact:
		return path == m.Path
	case m.PathKind == config.PathPrefix:
		return strings.HasPrefix(path, m.Path)
	}
	return true
}
