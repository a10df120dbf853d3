package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	dubbov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/dubbo_proxy/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// These are the names of the Dubbo request fields that routes can match.
const (
	dubboService = "service"
	dubboMethod  = "method"
	dubboGroup   = "group"
	dubboVersion = "version"
)

// readDubbo reads a Dubbo proxy. It adds the inline routes to l as a route table, or makes l wait
// for the table from DRDS.
func (p fieldReader) readDubbo(m *dubbov3.DubboProxy, l *Listener) *config.Proxy {
	p.checkFields(m, []string{"route_config", "multiple_route_config", "drds", "dubbo_filters"}, nil)
	out := &config.Proxy{
		Downstream:    []config.Protocol{config.Dubbo},
		Upstream:      config.Dubbo,
		HTTP1:         config.DefaultHTTP1Options(),
		HTTP2:         config.DefaultHTTP2Options(),
		RPC:           config.DefaultRPCOptions(),
		DetectTimeout: 10 * time.Second,
	}
	for i, f := range m.GetDubboFilters() {
		if f.GetName() != "envoy.filters.dubbo.router" {
			p.field("dubbo_filters").index(i).reject("%s is not supported", f.GetName())
		}
	}
	list, at := m.GetRouteConfig(), p.field("route_config")
	if len(list) > 0 && m.GetRouteSpecifier() != nil {
		at.reject("cannot be set together with drds or multiple_route_config")
	}
	// The name is unique for the same reasons as in readRoutes.
	out.RouteTable = fmt.Sprintf("%s\n%d %s", l.Config.Name, len(l.InlineTables), m.GetMultipleRouteConfig().GetName())
	switch r := m.GetRouteSpecifier().(type) {
	case nil:
		l.InlineTables = append(l.InlineTables, at.readDubboTable(out.RouteTable, list))
	case *dubbov3.DubboProxy_MultipleRouteConfig:
		at = p.field("multiple_route_config").field("route_config")
		l.InlineTables = append(l.InlineTables, at.readDubboTable(out.RouteTable, r.MultipleRouteConfig.GetRouteConfig()))
	case *dubbov3.DubboProxy_Drds:
		at = p.field("drds")
		out.RouteTable = DubboTableName(at.readTableName(r.Drds.GetRouteConfigName()))
		at.addRouteConfig(out.RouteTable, r.Drds.GetConfigSource(), l)
	default:
		p.rejectOneof(m, "route_specifier", "route_config", "multiple_route_config", "drds")
	}
	return out
}

// dubboTablePrefix begins the names of tables that come from DubboRouteType resources.
const dubboTablePrefix = "dubbo\n"

// DubboTableName returns the name of the table that comes from a DubboRouteType resource. No
// listener refers to a RouteType resource with that name: see readTableName.
func DubboTableName(resource string) string { return dubboTablePrefix + resource }

// DubboResourceName returns the name of the DubboRouteType resource of a table. ok is false if the
// table does not come from such a resource.
func DubboResourceName(table string) (resource string, ok bool) {
	return strings.CutPrefix(table, dubboTablePrefix)
}

// ReadDubboRoutes parses a serialized MultipleRouteConfiguration. DubboTableName returns the name
// of its table. The error is a RejectedError.
func ReadDubboRoutes(body []byte, caps Capabilities) (*RouteTable, error) {
	m := &dubbov3.MultipleRouteConfiguration{}
	r := &report{capabilities: caps}
	p := fieldReader{report: r}
	if err := p.unmarshal(body, m); err != nil {
		return nil, err
	}
	t := &RouteTable{Config: p.field("route_config").readDubboTable(DubboTableName(m.GetName()), m.GetRouteConfig())}
	err := r.rejection()
	t.Ignored, t.RuntimeKeys = r.ignored, r.runtimeKeys()
	return t, err
}

func (p fieldReader) readDubboTable(name string, list []*dubbov3.RouteConfiguration) *config.RouteTable {
	vh := &config.VirtualHost{Name: "dubbo", Domains: []string{"*"}}
	for i, c := range list {
		p.index(i).readDubboRoutes(c, vh)
	}
	return &config.RouteTable{Name: name, VirtualHosts: []*config.VirtualHost{vh}}
}

// readDubboRoutes appends the routes of m to vh. The interface of m may be a wildcard. The first
// route in vh that matches a request applies.
func (p fieldReader) readDubboRoutes(m *dubbov3.RouteConfiguration, vh *config.VirtualHost) {
	var conditions []config.HeaderMatch
	if matcher, ok := p.field("interface").readWildcard(m.GetInterface()); ok {
		conditions = append(conditions, config.HeaderMatch{Name: dubboService, Matcher: matcher})
	}
	for _, c := range []struct{ name, value string }{{dubboGroup, m.GetGroup()}, {dubboVersion, m.GetVersion()}} {
		if c.value != "" {
			conditions = append(conditions, config.HeaderMatch{Name: c.name, Matcher: &config.ValueMatch{Kind: config.ValueExact, Text: c.value}})
		}
	}
	for i, r := range m.GetRoutes() {
		at := p.field("routes").index(i)
		route := &config.Route{Name: fmt.Sprintf("%s/%d", m.GetName(), len(vh.Routes))}
		route.Match.Headers = append(route.Match.Headers, conditions...)
		route.Match.Headers = append(route.Match.Headers, at.field("match").readDubboMatch(r.GetMatch())...)
		route.Match.Arguments = at.field("match").field("method").field("params_match").readArguments(r.GetMatch().GetMethod().GetParamsMatch())
		route.Forward = at.field("route").readDubboForward(r.GetRoute())
		vh.Routes = append(vh.Routes, route)
	}
}

// readWildcard reads a name that may begin or end with "*". ok is false if the name matches
// everything or is rejected.
func (p fieldReader) readWildcard(text string) (match *config.ValueMatch, ok bool) {
	prefix, isPrefix := strings.CutSuffix(text, "*")
	suffix, isSuffix := strings.CutPrefix(text, "*")
	switch {
	case text == "":
		p.reject("is missing")
		return nil, false
	case text == "*":
		return nil, false
	case strings.Contains(strings.Trim(text, "*"), "*"), isPrefix && isSuffix:
		p.reject("%q: only one wildcard is supported, at the start or at the end", text)
		return nil, false
	case isPrefix:
		return &config.ValueMatch{Kind: config.ValuePrefix, Text: prefix}, true
	case isSuffix:
		return &config.ValueMatch{Kind: config.ValueSuffix, Text: suffix}, true
	}
	return &config.ValueMatch{Kind: config.ValueExact, Text: text}, true
}

func (p fieldReader) readDubboMatch(m *dubbov3.RouteMatch) (out []config.HeaderMatch) {
	if name := m.GetMethod().GetName(); name != nil {
		matcher := &config.ValueMatch{}
		p.field("method").field("name").readStringMatcher(name, matcher)
		out = append(out, config.HeaderMatch{Name: dubboMethod, Matcher: matcher})
	}
	for i, h := range m.GetHeaders() {
		out = append(out, p.field("headers").index(i).readHeader(h))
	}
	return out
}

// readArguments reads the conditions on call arguments, sorted by index.
func (p fieldReader) readArguments(specs map[uint32]*dubbov3.MethodMatch_ParameterMatchSpecifier) (out []config.ArgumentMatch) {
	for _, i := range slices.Sorted(maps.Keys(specs)) {
		at := p.key(strconv.FormatUint(uint64(i), 10))
		if i >= maxArguments {
			at.reject("is not a valid argument index: a method has at most 255 arguments")
			continue
		}
		match := config.ArgumentMatch{Index: int(i)}
		switch s := specs[i].GetParameterMatchSpecifier().(type) {
		case *dubbov3.MethodMatch_ParameterMatchSpecifier_ExactMatch:
			match.Matcher.Kind, match.Matcher.Text = config.ValueExact, s.ExactMatch
		case *dubbov3.MethodMatch_ParameterMatchSpecifier_RangeMatch:
			match.Matcher.Kind, match.Matcher.From, match.Matcher.To = config.ValueRange, s.RangeMatch.GetStart(), s.RangeMatch.GetEnd()
		default:
			at.reject("expected exact_match or range_match")
		}
		out = append(out, match)
	}
	return out
}

// maxArguments is the maximum number of arguments of a Java method (JVM specification 4.3.3).
const maxArguments = 255

func (p fieldReader) readDubboForward(m *dubbov3.RouteAction) *config.Forward {
	// Clusters default to HTTP/1.1, so the route sets the upstream protocol.
	out := &config.Forward{Upstream: config.Dubbo, Metadata: labels(m.GetMetadataMatch().GetFilterMetadata()[lbNamespace])}
	switch c := m.GetClusterSpecifier().(type) {
	case *dubbov3.RouteAction_Cluster:
		out.Cluster = c.Cluster
	case *dubbov3.RouteAction_WeightedClusters:
		extra := &config.ForwardExtras{}
		p.field("weighted_clusters").readWeighted(c.WeightedClusters, out, extra)
		if !reflect.ValueOf(extra).Elem().IsZero() {
			out.Extras = extra
		}
	default:
		p.rejectOneof(m, "cluster_specifier", "cluster", "weighted_clusters")
	}
	return out
}
