package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strconv"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// RouteTable is the parsed form of a RouteType or DubboRouteType resource.
type RouteTable struct {
	Config      *config.RouteTable // immutable, except that package state sets OnDemand before the first use
	Ignored     []string           // fields that have no effect
	RuntimeKeys []string           // runtime keys that were used, sorted

	previous previousTable
}

func (p fieldReader) readTable(m *routev3.RouteConfiguration) *config.RouteTable {
	t, inherited := p.readTableHead(m)
	for i, v := range m.GetVirtualHosts() {
		t.VirtualHosts = append(t.VirtualHosts, p.field("virtual_hosts").index(i).readVirtualHost(v, inherited))
	}
	p.checkDomains(t)
	return t
}

// readTableHead reads a table without its virtual hosts, and the settings that they inherit.
func (p fieldReader) readTableHead(m *routev3.RouteConfiguration) (t *config.RouteTable, inherited inheritedSettings) {
	p.checkFields(m, []string{
		"name", "virtual_hosts", "request_headers_to_add", "request_headers_to_remove", "response_headers_to_add",
		"response_headers_to_remove", "ignore_port_in_host_matching", "typed_per_filter_config", "validate_clusters",
		"max_direct_response_body_size_bytes", "metadata", "request_mirror_policies", "vhost_header", "most_specific_header_mutations_wins",
		"ignore_path_parameters_in_path_matching",
	}, []string{"vhds", "internal_only_headers", "cluster_specifier_plugins"})
	t = &config.RouteTable{
		Name:       m.GetName(),
		IgnorePort: m.GetIgnorePortInHostMatching(),

		LiteralDomains:    true,
		VirtualHostHeader: m.GetVhostHeader(),

		Request:  p.readHeaderMutation("request_headers", m.GetRequestHeadersToAdd(), m.GetRequestHeadersToRemove()),
		Response: p.readHeaderMutation("response_headers", m.GetResponseHeadersToAdd(), m.GetResponseHeadersToRemove()),

		ConnectRoutesOnly:    true,
		IgnorePathParameters: m.GetIgnorePathParametersInPathMatching(),

		MostSpecificMutationsWin: m.GetMostSpecificHeaderMutationsWins(),
	}
	return t, inheritedSettings{
		filters: p.readPerFilter(m.GetTypedPerFilterConfig()), mirrors: m.GetRequestMirrorPolicies(),
		maxDirectBody: uint32Or(m.GetMaxDirectResponseBodySizeBytes(), defaultDirectResponseBody),
	}
}

// inheritedSettings are the settings of a table or a virtual host that routes inherit.
type inheritedSettings struct {
	filters  map[string]any
	retry    *routev3.RetryPolicy
	attempts config.AttemptHeaders
	hedge    *routev3.HedgePolicy
	mirrors  []*routev3.RouteAction_RequestMirrorPolicy

	maxDirectBody int // maximum size of the body of a direct response, in bytes
}

func (p fieldReader) readVirtualHost(m *routev3.VirtualHost, table inheritedSettings) *config.VirtualHost {
	v, inherited := p.readVirtualHostHead(m, table)
	if v.Matcher != nil {
		p.checkMatcherOnly(len(m.GetRoutes()))
		return v
	}
	for i, r := range m.GetRoutes() {
		v.Routes = append(v.Routes, p.field("routes").index(i).readRoute(r, inherited))
	}
	nameRoutes(v, nil, func(i int) string { return v.Routes[i].Name })
	return v
}

// readVirtualHostHead reads a virtual host without its routes, and the settings that they inherit.
func (p fieldReader) readVirtualHostHead(m *routev3.VirtualHost, table inheritedSettings) (v *config.VirtualHost, inherited inheritedSettings) {
	p.checkFields(m, []string{
		"name", "domains", "routes", "request_headers_to_add", "request_headers_to_remove", "response_headers_to_add",
		"response_headers_to_remove", "typed_per_filter_config", "retry_policy", "hedge_policy", "request_mirror_policies", "require_tls", "metadata", "matcher",
		"include_request_attempt_count", "include_attempt_count_in_response", "include_is_timeout_retry_header",
	}, []string{"rate_limits", "cors", "retry_policy_typed_config"})
	v = &config.VirtualHost{
		Name:     m.GetName(),
		Request:  p.readHeaderMutation("request_headers", m.GetRequestHeadersToAdd(), m.GetRequestHeadersToRemove()),
		Response: p.readHeaderMutation("response_headers", m.GetResponseHeadersToAdd(), m.GetResponseHeadersToRemove()),
	}
	v.RequireTLS = p.field("require_tls").readRequireTLS(m.GetRequireTls())
	v.Domains = p.field("domains").readDomains(m.GetDomains())
	inherited = inheritedSettings{
		filters: inheritFilters(table.filters, p.readPerFilter(m.GetTypedPerFilterConfig())),
		attempts: config.AttemptHeaders{
			CountInRequest: m.GetIncludeRequestAttemptCount(), CountInResponse: m.GetIncludeAttemptCountInResponse(),
			TimeoutRetry: m.GetIncludeIsTimeoutRetryHeader(),
		},
		retry: m.GetRetryPolicy(), hedge: m.GetHedgePolicy(), mirrors: m.GetRequestMirrorPolicies(),
		maxDirectBody: table.maxDirectBody,
	}
	if len(inherited.mirrors) == 0 {
		inherited.mirrors = table.mirrors
	}
	p.field("matcher").readMatcher(m.GetMatcher(), v, inherited)
	return v, inherited
}

// nameRoutes gives the routes of v unique names. resourceName returns the name of a route in
// the resource. If previousIndexes is not nil, previousIndexes[i] >= 0 means that another table
// shares route i: nameRoutes copies the route before it changes the name.
func nameRoutes(v *config.VirtualHost, previousIndexes []int32, resourceName func(i int) string) {
	names := make(map[string]int, len(v.Routes)) // taken names, with the last number after "#"; at least 1
	for i, route := range v.Routes {
		name := resourceName(i)
		if name == "" {
			name = v.Name + "/" + strconv.Itoa(i)
		} else {
			name = v.Name + "/" + name
		}
		for base := name; names[name] > 0; {
			names[base]++
			name = fmt.Sprintf("%s#%d", base, names[base])
		}
		names[name] = 1
		if route.Name == name {
			continue
		}
		if previousIndexes != nil && previousIndexes[i] >= 0 {
			renamed := *route
			route = &renamed
			v.Routes[i] = route
		}
		route.Name = name
	}
}

// inheritFilters merges the settings of filters; inner takes precedence. A filter that inner
// enables has the settings of outer, even if outer disables it.
func inheritFilters(outer, inner map[string]any) map[string]any {
	if len(outer) == 0 {
		return inner
	}
	out := make(map[string]any, len(outer)+len(inner))
	maps.Copy(out, outer)
	for name, value := range inner {
		settings := outer[name]
		if disabled, ok := settings.(disabledFilter); ok {
			settings = disabled.settings
		}
		switch {
		case settings == nil, settings == config.FilterDisabled{}, settings == config.FilterEnabled{}:
		case value == config.FilterEnabled{}:
			value = settings
		case value == config.FilterDisabled{}:
			value = disabledFilter{settings}
		}
		out[name] = value
	}
	return out
}

// disabledFilter is config.FilterDisabled for a filter that inherits settings. routeFilters
// replaces it.
type disabledFilter struct{ settings any }

// routeFilters returns the settings of filters for a route whose own settings are inner.
func routeFilters(outer, inner map[string]any) map[string]any {
	out := inheritFilters(outer, inner)
	for name, value := range out {
		if _, ok := value.(disabledFilter); ok { // inheritFilters has created out, so no other route shares it
			out[name] = config.FilterDisabled{}
		}
	}
	return out
}

func (p fieldReader) readRoute(m *routev3.Route, inherited inheritedSettings) *config.Route {
	p.checkFields(m, []string{
		"name", "match", "route", "redirect", "direct_response", "metadata", "decorator", "typed_per_filter_config",
		"request_headers_to_add", "request_headers_to_remove", "response_headers_to_add", "response_headers_to_remove",
	}, []string{"filter_action", "non_forwarding_action"})
	filters := p.readPerFilter(m.GetTypedPerFilterConfig())
	out := &config.Route{
		Name:    m.GetName(),
		Match:   p.field("match").readMatch(m.GetMatch()),
		Filters: routeFilters(inherited.filters, filters),
	}
	p.checkPrefixRewrite(m)
	request := p.readHeaderMutation("request_headers", m.GetRequestHeadersToAdd(), m.GetRequestHeadersToRemove())
	response := p.readHeaderMutation("response_headers", m.GetResponseHeadersToAdd(), m.GetResponseHeadersToRemove())
	switch a := m.GetAction().(type) {
	case *routev3.Route_Route:
		out.Forward = p.field("route").readForward(a.Route, inherited)
		p.field("route").field("path_rewrite_policy").readTemplateRewrite(m.GetMatch(), a.Route.GetPathRewritePolicy(), out.Forward)
		out.Forward.Request, out.Forward.Response = request, response
		p.field("route").readMirrors(a.Route, inherited, out)
		inheritWeighted(inherited.filters, filters, out)
	case *routev3.Route_Redirect:
		out.Redirect = p.field("redirect").readRedirect(a.Redirect)
		out.Response = response
		p.ignoreRequestMutation(request)
	case *routev3.Route_DirectResponse:
		out.DirectResponse = p.field("direct_response").readDirectResponse(a.DirectResponse, inherited.maxDirectBody)
		out.Response = response
		p.ignoreRequestMutation(request)
	default:
		p.rejectOneof(m, "action", "route", "redirect", "direct_response")
	}
	return out
}

func (p fieldReader) readMatch(m *routev3.RouteMatch) (out config.RouteMatch) {
	p.checkFields(m, []string{"prefix", "path", "safe_regex", "path_separated_prefix", "path_match_policy", "case_sensitive", "runtime_fraction", "headers", "query_parameters", "cookies", "grpc", "connect_matcher", "tls_context"},
		[]string{"dynamic_metadata", "filter_state"})
	out.IgnoreCase = !boolOr(m.GetCaseSensitive(), true)
	switch s := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		out.PathKind, out.Path = config.PathPrefix, s.Prefix
	case *routev3.RouteMatch_Path:
		out.PathKind, out.Path = config.PathExact, s.Path
	case *routev3.RouteMatch_PathSeparatedPrefix:
		out.PathKind, out.Path = config.PathSegments, s.PathSeparatedPrefix
	case *routev3.RouteMatch_SafeRegex:
		out.PathKind, out.Path = config.PathRegex, p.field("safe_regex").anchoredRegex(s.SafeRegex.GetRegex())
	case *routev3.RouteMatch_ConnectMatcher_:
		out.PathKind = config.PathConnect
	case *routev3.RouteMatch_PathMatchPolicy:
		out.PathKind, out.Path = config.PathRegex, p.field("path_match_policy").readURITemplate(s.PathMatchPolicy)
	default:
		p.rejectOneof(m, "path_specifier", "prefix", "path", "path_separated_prefix", "safe_regex", "path_match_policy", "connect_matcher")
	}
	if m.GetGrpc() != nil {
		out.Headers = append(out.Headers, config.HeaderMatch{Name: "content-type", Matcher: &config.ValueMatch{Kind: config.ValueRegex, Text: `application/grpc(\+.*)?`}})
	}
	for i, h := range m.GetHeaders() {
		out.Headers = append(out.Headers, p.field("headers").index(i).readHeader(h))
	}
	for i, q := range m.GetQueryParameters() {
		out.Query = append(out.Query, p.field("query_parameters").index(i).readQuery(q))
	}
	for i, c := range m.GetCookies() {
		out.Cookies = append(out.Cookies, p.field("cookies").index(i).readCookieMatch(c))
	}
	if t := m.GetTlsContext(); t != nil {
		p.field("tls_context").checkFields(t, []string{"presented", "validated"}, nil)
		out.TLS = &config.TLSMatch{Presented: optionalBool(t.GetPresented()), Validated: optionalBool(t.GetValidated())}
	}
	if f := m.GetRuntimeFraction(); f != nil {
		percent := p.field("runtime_fraction").runtimeFractionPercent(f)
		out.Percentage = &percent
	}
	return out
}

// anchoredRegex returns a regular expression that matches only the entire text. prefix_rewrite
// therefore replaces the entire path without its query, as in Envoy.
func (p fieldReader) anchoredRegex(expression string) string {
	return `\A(?:` + p.checkRegex(expression) + `)\z`
}

func (p fieldReader) readHeader(m *routev3.HeaderMatcher) config.HeaderMatch {
	matcher := &config.ValueMatch{Invert: m.GetInvertMatch(), TreatMissingAsEmpty: m.GetTreatMissingHeaderAsEmpty()}
	out := config.HeaderMatch{Name: m.GetName(), Matcher: matcher}
	switch s := m.GetHeaderMatchSpecifier().(type) {
	case nil:
		matcher.Kind = config.ValuePresent
	case *routev3.HeaderMatcher_PresentMatch:
		matcher.Kind = config.ValuePresent
		matcher.Invert = matcher.Invert == s.PresentMatch
	case *routev3.HeaderMatcher_StringMatch:
		p.field("string_match").readStringMatcher(s.StringMatch, matcher)
	case *routev3.HeaderMatcher_ExactMatch:
		matcher.Kind, matcher.Text = config.ValueExact, s.ExactMatch
	case *routev3.HeaderMatcher_PrefixMatch:
		matcher.Kind, matcher.Text = config.ValuePrefix, s.PrefixMatch
	case *routev3.HeaderMatcher_SuffixMatch:
		matcher.Kind, matcher.Text = config.ValueSuffix, s.SuffixMatch
	case *routev3.HeaderMatcher_ContainsMatch:
		matcher.Kind, matcher.Text = config.ValueContains, s.ContainsMatch
	case *routev3.HeaderMatcher_SafeRegexMatch:
		matcher.Kind, matcher.Text = config.ValueRegex, p.field("safe_regex_match").checkRegex(s.SafeRegexMatch.GetRegex())
	case *routev3.HeaderMatcher_RangeMatch:
		matcher.Kind, matcher.From, matcher.To = config.ValueRange, s.RangeMatch.GetStart(), s.RangeMatch.GetEnd()
	default:
		p.rejectOneof(m, "header_match_specifier", "string_match", "present_match", "range_match")
	}
	return out
}

// checkRegex returns text, or rejects it and returns "" if it is not a valid regular expression.
func (p fieldReader) checkRegex(text string) string {
	if _, err := regexp.Compile(text); err != nil {
		p.reject("%v", err)
		return ""
	}
	return text
}

func (p fieldReader) readQuery(m *routev3.QueryParameterMatcher) config.QueryMatch {
	out := config.QueryMatch{Name: m.GetName()}
	switch s := m.GetQueryParameterMatchSpecifier().(type) {
	case nil:
		out.Matcher.Kind = config.ValuePresent
	case *routev3.QueryParameterMatcher_PresentMatch:
		out.Matcher.Kind, out.Matcher.Invert = config.ValuePresent, !s.PresentMatch
	case *routev3.QueryParameterMatcher_StringMatch:
		p.field("string_match").readStringMatcher(s.StringMatch, &out.Matcher)
	}
	return out
}

// readStringMatcher sets the kind, text and case of out. It returns false if it rejects m.
func (p fieldReader) readStringMatcher(m *matcherv3.StringMatcher, out *config.ValueMatch) bool {
	out.IgnoreCase = m.GetIgnoreCase()
	switch s := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		out.Kind, out.Text = config.ValueExact, s.Exact
	case *matcherv3.StringMatcher_Prefix:
		out.Kind, out.Text = config.ValuePrefix, s.Prefix
	case *matcherv3.StringMatcher_Suffix:
		out.Kind, out.Text = config.ValueSuffix, s.Suffix
	case *matcherv3.StringMatcher_Contains:
		out.Kind, out.Text = config.ValueContains, s.Contains
	case *matcherv3.StringMatcher_SafeRegex:
		out.Kind, out.Text = config.ValueRegex, p.field("safe_regex").checkRegex(s.SafeRegex.GetRegex())
		return out.Text == s.SafeRegex.GetRegex()
	default:
		p.rejectOneof(m, "match_pattern", "exact", "prefix", "suffix", "contains", "safe_regex")
		return false
	}
	return true
}

// defaultRouteTimeout is Envoy's default for RouteAction.timeout.
const defaultRouteTimeout = 15 * time.Second

func (p fieldReader) readForward(m *routev3.RouteAction, inherited inheritedSettings) *config.Forward {
	p.checkFields(m, supportedForwardFields(), rejectedForwardFields())
	extra := &config.ForwardExtras{}
	out := &config.Forward{Timeout: p.field("timeout").readDuration(m.GetTimeout(), defaultRouteTimeout)}
	switch c := m.GetClusterSpecifier().(type) {
	case *routev3.RouteAction_Cluster:
		out.Cluster = c.Cluster
	case *routev3.RouteAction_ClusterHeader:
		out.ClusterVariable = clusterVariable(c.ClusterHeader)
	case *routev3.RouteAction_WeightedClusters:
		p.field("weighted_clusters").readWeighted(c.WeightedClusters, out, extra)
	default:
		p.rejectOneof(m, "cluster_specifier", "cluster", "cluster_header", "weighted_clusters")
	}
	out.Attempts, out.HideTimeout = inherited.attempts, m.GetMaxStreamDuration().GetMaxStreamDuration() != nil
	out.ClusterNotFoundStatus = p.field("cluster_not_found_response_code").readClusterNotFoundCode(m.GetClusterNotFoundResponseCode())
	out.Metadata = labels(m.GetMetadataMatch().GetFilterMetadata()[lbNamespace])
	p.readRewrites(m, out)
	if d := m.GetIdleTimeout(); d != nil {
		if extra.IdleTimeout = p.field("idle_timeout").readDuration(d, 0); extra.IdleTimeout == 0 {
			extra.IdleTimeout = -1
		}
	}
	retry, at := m.GetRetryPolicy(), p.field("retry_policy")
	if retry == nil {
		retry = inherited.retry
	}
	if retry != nil {
		out.Retry = at.readRetry(retry)
	}
	for i, h := range m.GetHashPolicy() {
		out.HashPolicies = append(out.HashPolicies, p.field("hash_policy").index(i).readHashPolicy(h))
	}
	hedge := m.GetHedgePolicy()
	if hedge == nil {
		hedge = inherited.hedge
	}
	p.field("hedge_policy").readHedge(hedge, out)
	p.field("upgrade_configs").readRouteUpgrades(m.GetUpgradeConfigs(), extra)
	extra.InternalRedirect = p.readInternalRedirect(m)
	if !reflect.ValueOf(extra).Elem().IsZero() {
		out.Extras = extra
	}
	out.Priority = p.field("priority").readPriority(m.GetPriority())
	p.field("max_stream_duration").checkOptionalFields(m.GetMaxStreamDuration(), nil, "max_stream_duration", "grpc_timeout_header_max")
	if d := m.GetMaxStreamDuration(); d.GetMaxStreamDuration() != nil {
		if limit := p.field("max_stream_duration").readDuration(d.GetMaxStreamDuration(), 0); limit > 0 && (out.Timeout == 0 || limit < out.Timeout) {
			out.Timeout = limit
		}
	}
	p.readGRPCTimeout(m, &out.GRPCTimeout)
	return out
}

func supportedForwardFields() []string {
	return []string{
		"cluster", "cluster_header", "weighted_clusters", "metadata_match", "prefix_rewrite", "regex_rewrite",
		"host_rewrite_literal", "auto_host_rewrite", "host_rewrite_header", "host_rewrite_path_regex", "timeout", "retry_policy", "request_mirror_policies",
		"internal_redirect_policy", "internal_redirect_action", "max_internal_redirects", "append_x_forwarded_host", "path_rewrite_policy", "idle_timeout", "priority", "hash_policy", "max_stream_duration", "max_grpc_timeout", "hedge_policy", "cluster_not_found_response_code", "upgrade_configs",
	}
}

func rejectedForwardFields() []string {
	return []string{
		"cluster_specifier_plugin", "inline_cluster_specifier_plugin", "path_rewrite", "host_rewrite", "rate_limits", "cors", "retry_policy_typed_config",
	}
}

func (p fieldReader) readRewrites(m *routev3.RouteAction, out *config.Forward) {
	switch h := m.GetHostRewriteSpecifier().(type) {
	case nil:
	case *routev3.RouteAction_HostRewriteLiteral:
		out.HostRewrite = h.HostRewriteLiteral
	case *routev3.RouteAction_AutoHostRewrite:
		out.AutoHostRewrite = h.AutoHostRewrite.GetValue()
	case *routev3.RouteAction_HostRewriteHeader:
		out.AutoHostRewriteHeader = h.HostRewriteHeader
	case *routev3.RouteAction_HostRewritePathRegex:
		out.HostRewritePath = p.field("host_rewrite_path_regex").readRegexRewrite(h.HostRewritePathRegex)
	default: // checkFields rejects it
	}
	out.AppendForwardedHost = m.GetAppendXForwardedHost()
	out.PrefixRewrite = m.GetPrefixRewrite()
	if out.RegexRewrite = p.field("regex_rewrite").readRegexRewrite(m.GetRegexRewrite()); out.RegexRewrite != nil {
		out.RegexRewrite.KeepIfEmpty = true
	}
}

func (p fieldReader) readRegexRewrite(m *matcherv3.RegexMatchAndSubstitute) *config.RegexRewrite {
	if m == nil {
		return nil
	}
	return &config.RegexRewrite{Pattern: p.field("pattern").checkRegex(m.GetPattern().GetRegex()), Substitution: m.GetSubstitution()}
}

func (p fieldReader) readHashPolicy(m *routev3.RouteAction_HashPolicy) (out config.HashPolicy) {
	switch s := m.GetPolicySpecifier().(type) {
	case *routev3.RouteAction_HashPolicy_Header_:
		out.Header = s.Header.GetHeaderName()
		p.field("header").checkFields(s.Header, []string{"header_name", "regex_rewrite"}, nil)
		out.HeaderRewrite = p.field("header").field("regex_rewrite").readHashRewrite(s.Header.GetRegexRewrite())
	case *routev3.RouteAction_HashPolicy_Cookie_:
		p.field("cookie").checkFields(s.Cookie, []string{"name", "path", "ttl", "attributes"}, nil)
		out.Cookie, out.CookiePath = s.Cookie.GetName(), s.Cookie.GetPath()
		out.ExistingCookie = s.Cookie.GetTtl() == nil // as in Envoy; a ttl of 0 generates a session cookie
		out.CookieTTL = p.field("cookie").field("ttl").readDuration(s.Cookie.GetTtl(), 0)
		for i, a := range s.Cookie.GetAttributes() {
			p.field("cookie").field("attributes").index(i).checkFields(a, []string{"name", "value"}, nil)
			out.CookieAttributes = append(out.CookieAttributes, config.CookieAttribute{Name: a.GetName(), Value: a.GetValue()})
		}
	case *routev3.RouteAction_HashPolicy_ConnectionProperties_:
		out.SourceIP = s.ConnectionProperties.GetSourceIp()
	case *routev3.RouteAction_HashPolicy_QueryParameter_:
		out.Query = s.QueryParameter.GetName()
	default:
		p.rejectOneof(m, "policy_specifier", "header", "cookie", "connection_properties", "query_parameter")
	}
	return out
}
