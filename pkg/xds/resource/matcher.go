package resource

import (
	"maps"
	"slices"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	sslv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/ssl/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/pkg/config"
)

// matcherReader reads the matcher of a virtual host. It appends the routes of its actions to the
// virtual host. maxMessageDepth limits the recursion.
type matcherReader struct {
	virtualHost *config.VirtualHost
	inherited   inheritedSettings
}

// readMatcher reads the matcher of v, which has no other routes. m may be nil.
func (p fieldReader) readMatcher(m *xdsmatcherv3.Matcher, v *config.VirtualHost, inherited inheritedSettings) {
	if m == nil {
		return
	}
	r := &matcherReader{v, inherited}
	v.Matcher = r.readTree(p, m)
	nameRoutes(v, nil, func(i int) string { return v.Routes[i].Name })
}

// checkMatcherOnly rejects a virtual host that has routes in addition to a matcher.
func (p fieldReader) checkMatcherOnly(routeCount int) {
	if routeCount > 0 {
		p.field("routes").reject("only one of routes and matcher can be set")
	}
}

func (r *matcherReader) readTree(p fieldReader, m *xdsmatcherv3.Matcher) *config.MatchTree {
	out := &config.MatchTree{}
	switch t := m.GetMatcherType().(type) {
	case *xdsmatcherv3.Matcher_MatcherList_:
		list := p.field("matcher_list").field("matchers")
		for i, rule := range t.MatcherList.GetMatchers() {
			at := list.index(i)
			out.Rules = append(out.Rules, config.MatchRule{
				Predicate: at.field("predicate").readPredicate(rule.GetPredicate()),
				Result:    r.readResult(at.field("on_match"), rule.GetOnMatch()),
			})
		}
	case *xdsmatcherv3.Matcher_MatcherTree_:
		at := p.field("matcher_tree")
		out.Input = at.field("input").readMatchInput(t.MatcherTree.GetInput())
		switch tree := t.MatcherTree.GetTreeType().(type) {
		case *xdsmatcherv3.Matcher_MatcherTree_ExactMatchMap:
			out.Exact = r.readMap(at.field("exact_match_map").field("map"), tree.ExactMatchMap)
		case *xdsmatcherv3.Matcher_MatcherTree_PrefixMatchMap:
			out.Prefixes = r.readMap(at.field("prefix_match_map").field("map"), tree.PrefixMatchMap)
		default:
			at.rejectOneof(t.MatcherTree, "tree_type", "exact_match_map", "prefix_match_map")
		}
	case nil: // only on_no_match
	}
	if m.GetOnNoMatch() != nil {
		result := r.readResult(p.field("on_no_match"), m.GetOnNoMatch())
		out.NoMatch = &result
	}
	return out
}

func (r *matcherReader) readMap(p fieldReader, m *xdsmatcherv3.Matcher_MatcherTree_MatchMap) map[string]config.MatchResult {
	out := make(map[string]config.MatchResult, len(m.GetMap()))
	for _, key := range slices.Sorted(maps.Keys(m.GetMap())) { // the order of the routes must not change
		out[key] = r.readResult(p.key(key), m.GetMap()[key])
	}
	return out
}

// readResult reads a tree, or an action: a Route or a RouteList.
func (r *matcherReader) readResult(p fieldReader, m *xdsmatcherv3.Matcher_OnMatch) config.MatchResult {
	if m.GetKeepMatching() {
		p.field("keep_matching").rejectUnsupported()
	}
	if m.GetMatcher() != nil {
		return config.MatchResult{Tree: r.readTree(p.field("matcher"), m.GetMatcher())}
	}
	packed, at := m.GetAction().GetTypedConfig(), p.field("action").field("typed_config")
	first := len(r.virtualHost.Routes)
	route, list := &routev3.Route{}, &routev3.RouteList{}
	switch {
	case isType(packed, route):
		if at.unpack(packed, route) {
			r.virtualHost.Routes = append(r.virtualHost.Routes, at.readRoute(route, r.inherited))
		}
	case isType(packed, list):
		if at.unpack(packed, list) {
			for i, route := range list.GetRoutes() {
				r.virtualHost.Routes = append(r.virtualHost.Routes, at.field("routes").index(i).readRoute(route, r.inherited))
			}
		}
	case packed == nil:
		p.reject("is empty: one of matcher and action is required")
	default:
		at.reject("is a %s, expected a Route or a RouteList", packed.GetTypeUrl())
	}
	return config.MatchResult{First: first, Count: len(r.virtualHost.Routes) - first}
}

func (p fieldReader) readPredicate(m *xdsmatcherv3.Matcher_MatcherList_Predicate) (out config.MatchPredicate) {
	switch t := m.GetMatchType().(type) {
	case *xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_:
		at := p.field("single_predicate")
		out.Input = at.field("input").readMatchInput(t.SinglePredicate.GetInput())
		value, ok := t.SinglePredicate.GetMatcher().(*xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch)
		if !ok {
			at.rejectOneof(t.SinglePredicate, "matcher", "value_match")
			return out
		}
		out.Value = &config.ValueMatch{}
		at.field("value_match").readXDSString(value.ValueMatch, out.Value)
	case *xdsmatcherv3.Matcher_MatcherList_Predicate_AndMatcher:
		out.All = p.field("and_matcher").readPredicates(t.AndMatcher)
	case *xdsmatcherv3.Matcher_MatcherList_Predicate_OrMatcher:
		out.Any = p.field("or_matcher").readPredicates(t.OrMatcher)
	case *xdsmatcherv3.Matcher_MatcherList_Predicate_NotMatcher:
		not := p.field("not_matcher").readPredicate(t.NotMatcher)
		out.Not = &not
	default:
		p.reject("is empty")
	}
	return out
}

func (p fieldReader) readPredicates(m *xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList) []config.MatchPredicate {
	const minPredicates = 2 // as Envoy's API requires
	if len(m.GetPredicate()) < minPredicates {
		p.field("predicate").reject("has %d elements, expected at least %d", len(m.GetPredicate()), minPredicates)
	}
	out := make([]config.MatchPredicate, len(m.GetPredicate()))
	for i, predicate := range m.GetPredicate() {
		out[i] = p.field("predicate").index(i).readPredicate(predicate)
	}
	return out
}

// readXDSString reads a string matcher of the xDS API, which has a type of its own.
func (p fieldReader) readXDSString(m *xdsmatcherv3.StringMatcher, out *config.ValueMatch) {
	out.IgnoreCase = m.GetIgnoreCase()
	switch s := m.GetMatchPattern().(type) {
	case *xdsmatcherv3.StringMatcher_Exact:
		out.Kind, out.Text = config.ValueExact, s.Exact
	case *xdsmatcherv3.StringMatcher_Prefix:
		out.Kind, out.Text = config.ValuePrefix, s.Prefix
	case *xdsmatcherv3.StringMatcher_Suffix:
		out.Kind, out.Text = config.ValueSuffix, s.Suffix
	case *xdsmatcherv3.StringMatcher_Contains:
		out.Kind, out.Text = config.ValueContains, s.Contains
	case *xdsmatcherv3.StringMatcher_SafeRegex:
		out.Kind, out.Text = config.ValueRegex, p.field("safe_regex").checkRegex(s.SafeRegex.GetRegex())
	default:
		p.rejectOneof(m, "match_pattern", "exact", "prefix", "suffix", "contains", "safe_regex")
	}
}

// readMatchInput reads the input of a predicate or a tree.
func (p fieldReader) readMatchInput(m *xdscorev3.TypedExtensionConfig) (out config.MatchInput) {
	packed, at := m.GetTypedConfig(), p.field("typed_config")
	header, query := &matcherv3.HttpRequestHeaderMatchInput{}, &matcherv3.HttpRequestQueryParamMatchInput{}
	switch {
	case isType(packed, header):
		if at.unpack(packed, header) {
			out.Name = header.GetHeaderName()
		}
		if out.Name == "" {
			at.field("header_name").reject("is required")
		}
		return out
	case isType(packed, query):
		if at.unpack(packed, query) {
			out.Kind, out.Name = config.InputQueryParameter, query.GetQueryParam()
		}
		if out.Name == "" {
			at.field("query_param").reject("is required")
		}
		return out
	}
	for _, input := range [...]struct {
		message proto.Message
		kind    config.MatchInputKind
	}{
		{&networkv3.DestinationIPInput{}, config.InputDestinationIP},
		{&networkv3.DestinationPortInput{}, config.InputDestinationPort},
		{&networkv3.SourceIPInput{}, config.InputSourceIP},
		{&networkv3.SourcePortInput{}, config.InputSourcePort},
		{&networkv3.DirectSourceIPInput{}, config.InputDirectSourceIP},
		{&networkv3.ServerNameInput{}, config.InputServerName},
		{&sslv3.UriSanInput{}, config.InputURISAN},
		{&sslv3.DnsSanInput{}, config.InputDNSSAN},
		{&sslv3.SubjectInput{}, config.InputSubject},
	} {
		if isType(packed, input.message) {
			out.Kind = input.kind
			return out
		}
	}
	p.reject("%s (%s) is not supported", m.GetName(), packed.GetTypeUrl())
	return out
}
