package proxy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
)

// RouteTableStatus describes an active route table for the admin API: conditions in evaluation
// order, and actions. Absent properties are omitted.
type RouteTableStatus struct {
	Name         string              `json:"name"`
	Listeners    []string            `json:"listeners"` // listeners that use the table
	VirtualHosts []VirtualHostStatus `json:"virtual_hosts"`
}

// VirtualHostStatus is a set of domains and their routes.
type VirtualHostStatus struct {
	Name    string        `json:"name"`
	Domains []string      `json:"domains"`
	Routes  []RouteStatus `json:"routes"`
}

// RouteStatus is a route.
type RouteStatus struct {
	Name   string      `json:"name"`
	Match  MatchStatus `json:"match"`
	Action string      `json:"action"` // ActionForward, ActionRedirect or ActionRespond

	// For ActionForward; exactly one of the first three is set.
	Cluster          string            `json:"cluster,omitempty"`
	ClusterVariable  string            `json:"cluster_variable,omitempty"`
	WeightedClusters map[string]uint32 `json:"weighted_clusters,omitempty"`
	PrefixRewrite    string            `json:"prefix_rewrite,omitempty"` // also for ActionRedirect
	RegexRewrite     string            `json:"regex_rewrite,omitempty"`  // "pattern -> substitution"; also for ActionRedirect
	HostRewrite      string            `json:"host_rewrite,omitempty"`   // a host, its source, or "pattern -> substitution" of the path
	Timeout          string            `json:"timeout,omitempty"`        // such as "1m0s", or "none"
	PerTryTimeout    string            `json:"try_timeout,omitempty"`    // timeout of each attempt
	Retry            *RetryStatus      `json:"retry,omitempty"`          // nil: no retries

	Status   int    `json:"status,omitempty"`   // status of ActionRedirect or ActionRespond
	Location string `json:"location,omitempty"` // target of ActionRedirect; "*" stands for a part that depends on the request

	Filters []string `json:"filters,omitempty"` // filters that have settings for this route
}

// Values of RouteStatus.Action.
const (
	ActionForward  = "forward"
	ActionRedirect = "redirect"
	ActionRespond  = "respond"
)

// MatchStatus is the condition of a route; all parts must match. At most one of the first four is
// set.
type MatchStatus struct {
	Prefix              string        `json:"prefix,omitempty"`
	Path                string        `json:"path,omitempty"`
	Regex               string        `json:"regex,omitempty"`
	PathSeparatedPrefix string        `json:"path_separated_prefix,omitempty"`
	Headers             []ValueStatus `json:"headers,omitempty"`
	Variables           []ValueStatus `json:"variables,omitempty"`
	Query               []ValueStatus `json:"query_parameters,omitempty"`
	Arguments           []ValueStatus `json:"arguments,omitempty"` // the name is the index of the argument

	IgnoreCase bool     `json:"ignore_case,omitempty"` // for the condition on the path
	Percent    *float64 `json:"percent,omitempty"`     // percentage of the requests that match, at random
}

// ValueStatus is a condition on a header, variable, query parameter or argument of an RPC call.
type ValueStatus struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	Regex string `json:"regex,omitempty"` // in place of Value
	Or    bool   `json:"or,omitempty"`    // the next condition is an alternative

	// Alternatives to Value.
	Prefix     string `json:"prefix,omitempty"`
	Suffix     string `json:"suffix,omitempty"`
	Contains   string `json:"contains,omitempty"`
	Present    bool   `json:"present,omitempty"`
	RangeStart *int64 `json:"range_start,omitempty"`
	RangeEnd   *int64 `json:"range_end,omitempty"`

	Not        bool `json:"not,omitempty"` // the condition is inverted
	IgnoreCase bool `json:"ignore_case,omitempty"`

	TreatMissingAsEmpty bool `json:"treat_missing_as_empty,omitempty"`
}

// RetryStatus is the retry policy of a route.
type RetryStatus struct {
	On          string `json:"retry_on"` // conditions of docs/routing.md, separated by commas
	NumRetries  int    `json:"num_retries"`
	StatusCodes []int  `json:"status_codes,omitempty"`     // of retriable-status-codes
	RPCCodes    []int  `json:"rpc_status_codes,omitempty"` // the same, as codes of the RPC protocol
}

// DescribeRoutes returns the status of the active route table with that name, or of all tables if
// name is "", in configuration order.
func (s *Server) DescribeRoutes(name string) []RouteTableStatus {
	tables := []RouteTableStatus{}
	c := s.running.Load()
	if c == nil {
		return tables
	}
	for _, t := range c.Routes {
		if name == "" || t.Name == name {
			tables = append(tables, describeTable(t, c.Listeners))
		}
	}
	return tables
}

func describeTable(t *config.RouteTable, listeners []*config.Listener) RouteTableStatus {
	d := RouteTableStatus{Name: t.Name, Listeners: []string{}, VirtualHosts: make([]VirtualHostStatus, len(t.VirtualHosts))}
	for _, l := range listeners {
		for fc := range l.Chains() {
			if fc.Proxy != nil && fc.Proxy.RouteTable == t.Name && !slices.Contains(d.Listeners, l.Name) {
				d.Listeners = append(d.Listeners, l.Name)
			}
		}
	}
	for i, vh := range t.VirtualHosts {
		routes := make([]RouteStatus, len(vh.Routes))
		for j, r := range vh.Routes {
			routes[j] = describeRoute(r)
		}
		d.VirtualHosts[i] = VirtualHostStatus{Name: vh.Name, Domains: vh.Domains, Routes: routes}
	}
	return d
}

func describeRoute(r *config.Route) RouteStatus {
	d := RouteStatus{Name: r.Name, Match: describeMatch(&r.Match)}
	if len(r.Filters) > 0 {
		d.Filters = slices.Sorted(maps.Keys(r.Filters))
	}
	switch {
	case r.Redirect != nil:
		d.Action, d.Status, d.Location = ActionRedirect, r.Redirect.Code, location(r.Redirect)
		d.PrefixRewrite, d.RegexRewrite = r.Redirect.PrefixRewrite, describeRegexRewrite(r.Redirect.RegexRewrite)
	case r.DirectResponse != nil:
		d.Action, d.Status = ActionRespond, r.DirectResponse.Status
	default:
		d.Action = ActionForward
		d.describeForward(r.Forward)
	}
	return d
}

// describeForward describes the forwarding action f.
func (d *RouteStatus) describeForward(f *config.Forward) {
	d.Cluster, d.ClusterVariable = f.Cluster, f.ClusterVariable
	if len(f.WeightedClusters) > 0 {
		d.WeightedClusters = make(map[string]uint32, len(f.WeightedClusters))
		for _, w := range f.WeightedClusters {
			d.WeightedClusters[w.Cluster] += w.Weight
		}
	}
	d.PrefixRewrite, d.RegexRewrite = f.PrefixRewrite, describeRegexRewrite(f.RegexRewrite)
	switch {
	case f.HostRewrite != "":
		d.HostRewrite = f.HostRewrite
	case f.AutoHostRewriteHeader != "":
		d.HostRewrite = "%request_header_" + f.AutoHostRewriteHeader + "%"
	case f.AutoHostRewrite:
		d.HostRewrite = "the upstream host's name"
	default:
		d.HostRewrite = describeRegexRewrite(f.HostRewritePath)
	}
	d.Timeout = "none"
	if f.Timeout > 0 {
		d.Timeout = f.Timeout.String()
	}
	p := f.Retry
	if p == nil {
		return
	}
	if p.PerTryTimeout > 0 {
		d.PerTryTimeout = p.PerTryTimeout.String()
	}
	if p.On != 0 && p.NumRetries > 0 {
		d.Retry = &RetryStatus{On: p.On.String(), NumRetries: p.NumRetries, StatusCodes: p.StatusCodes, RPCCodes: p.RPCCodes}
	}
}

// describeRegexRewrite returns w as "pattern -> substitution"; "" if w is nil.
func describeRegexRewrite(w *config.RegexRewrite) string {
	if w == nil {
		return ""
	}
	return w.Pattern + " -> " + w.Substitution
}

// location returns a redirect's target with stars for the parts that depend on the request.
func location(r *config.Redirect) string {
	star := func(s string) string {
		if s == "" {
			return "*"
		}
		return s
	}
	path := "/" + strings.TrimPrefix(star(r.Path), "/")
	host := star(r.Host)
	if r.Port != 0 {
		host += ":" + strconv.Itoa(int(r.Port))
	}
	return star(r.Scheme) + "://" + host + path
}

func describeMatch(m *config.RouteMatch) MatchStatus {
	var d MatchStatus
	switch m.PathKind {
	case config.PathPrefix:
		d.Prefix = m.Path
	case config.PathExact:
		d.Path = m.Path
	case config.PathRegex:
		d.Regex = m.Path
	case config.PathSegments:
		d.PathSeparatedPrefix = m.Path
	case config.PathConnect:
		d.Headers = append(d.Headers, describeValue(":method", "CONNECT", false, false))
	case config.PathAny:
	}
	d.IgnoreCase = m.IgnoreCase
	for _, h := range m.Headers {
		if h.Matcher != nil {
			d.Headers = append(d.Headers, describeValueMatch(h.Name, h.Matcher))
			continue
		}
		d.Headers = append(d.Headers, describeValue(h.Name, h.Value, h.Regex, false))
	}
	for i := range m.Query {
		d.Query = append(d.Query, describeValueMatch(m.Query[i].Name, &m.Query[i].Matcher))
	}
	for i := range m.Arguments {
		d.Arguments = append(d.Arguments, describeValueMatch(strconv.Itoa(m.Arguments[i].Index), &m.Arguments[i].Matcher))
	}
	d.Percent = m.Percentage
	for _, v := range m.Variables {
		d.Variables = append(d.Variables, describeValue(v.Name, v.Value, v.Regex, v.Or))
	}
	return d
}

func describeValueMatch(name string, m *config.ValueMatch) ValueStatus {
	d := ValueStatus{Name: name, Not: m.Invert, IgnoreCase: m.IgnoreCase, TreatMissingAsEmpty: m.TreatMissingAsEmpty}
	switch m.Kind {
	case config.ValueExact:
		d.Value = m.Text
	case config.ValuePrefix:
		d.Prefix = m.Text
	case config.ValueSuffix:
		d.Suffix = m.Text
	case config.ValueContains:
		d.Contains = m.Text
	case config.ValueRegex:
		d.Regex = m.Text
	case config.ValuePresent:
		d.Present = true
	case config.ValueRange:
		d.RangeStart, d.RangeEnd = &m.From, &m.To
	}
	return d
}

func describeValue(name, value string, regex, or bool) ValueStatus {
	if regex {
		return ValueStatus{Name: name, Regex: value, Or: or}
	}
	return ValueStatus{Name: name, Value: value, Or: or}
}
