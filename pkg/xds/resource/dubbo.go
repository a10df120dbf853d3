package resource

//lint:file-ignore SA1019 control planes still say what the API calls deprecated

import (
	"fmt"
	"strings"
	"time"

	dubbov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/dubbo_proxy/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// The fields that calls of Dubbo show to routes.
const (
	dubboService = "service"
	dubboMethod  = "method"
	dubboGroup   = "group"
	dubboVersion = "version"
)

// readDubbo reads a proxy of Dubbo. Its routes, which are not those of HTTP, become a
// table of its own, which is told to l.
func (p place) readDubbo(m *dubbov3.DubboProxy, l *Listener) *config.Proxy {
	p.only(m, []string{"stat_prefix", "protocol_type", "serialization_type", "route_config", "multiple_route_config", "dubbo_filters"}, []string{"drds"})
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
			p.field("dubbo_filters").index(i).refuse("%s is not supported", f.GetName())
		}
	}
	list, at, name := m.GetRouteConfig(), p.field("route_config"), ""
	if multiple := m.GetMultipleRouteConfig(); multiple != nil {
		if len(list) > 0 {
			at.refuse("stands beside multiple_route_config")
		}
		list, at, name = multiple.GetRouteConfig(), p.field("multiple_route_config").field("route_config"), multiple.GetName()
	}
	all := &config.VirtualHost{Name: "dubbo", Domains: []string{"*"}}
	for i, c := range list {
		at.index(i).readDubboRoutes(c, all)
	}
	// As of HTTP: no resource has a name with a line break.
	out.RouteTable = fmt.Sprintf("%s\n%d %s", l.Config.Name, len(l.Tables), name)
	l.Tables = append(l.Tables, &config.RouteTable{Name: out.RouteTable, VirtualHosts: []*config.VirtualHost{all}})
	return out
}

// readDubboRoutes adds the routes of one interface, or of many by a wildcard, to all:
// the first route that a call meets is its own.
func (p place) readDubboRoutes(m *dubbov3.RouteConfiguration, all *config.VirtualHost) {
	var of []config.HeaderMatch
	if is, ok := p.field("interface").wildcard(m.GetInterface()); ok {
		of = append(of, config.HeaderMatch{Name: dubboService, Is: is})
	}
	for _, c := range []struct{ name, value string }{{dubboGroup, m.GetGroup()}, {dubboVersion, m.GetVersion()}} {
		if c.value != "" {
			of = append(of, config.HeaderMatch{Name: c.name, Is: &config.ValueMatch{Kind: config.ValueExact, Text: c.value}})
		}
	}
	for i, r := range m.GetRoutes() {
		at := p.field("routes").index(i)
		route := &config.Route{Name: fmt.Sprintf("%s/%d", m.GetName(), len(all.Routes))}
		route.Match.Headers = append(route.Match.Headers, of...)
		route.Match.Headers = append(route.Match.Headers, at.field("match").readDubboMatch(r.GetMatch())...)
		route.Forward = at.field("route").readDubboForward(r.GetRoute())
		all.Routes = append(all.Routes, route)
	}
}

// wildcard reads a name that may begin or end with a star; ok is false if it is any.
func (p place) wildcard(text string) (is *config.ValueMatch, ok bool) {
	prefix, isPrefix := strings.CutSuffix(text, "*")
	suffix, isSuffix := strings.CutPrefix(text, "*")
	switch {
	case text == "":
		p.refuse("is missing")
		return nil, false
	case text == "*":
		return nil, false
	case strings.Contains(strings.Trim(text, "*"), "*"), isPrefix && isSuffix:
		p.refuse("%q: one star is supported, at the beginning or at the end", text)
		return nil, false
	case isPrefix:
		return &config.ValueMatch{Kind: config.ValuePrefix, Text: prefix}, true
	case isSuffix:
		return &config.ValueMatch{Kind: config.ValueSuffix, Text: suffix}, true
	}
	return &config.ValueMatch{Kind: config.ValueExact, Text: text}, true
}

func (p place) readDubboMatch(m *dubbov3.RouteMatch) (out []config.HeaderMatch) {
	if name := m.GetMethod().GetName(); name != nil {
		is := &config.ValueMatch{}
		p.field("method").field("name").readText(name, is)
		out = append(out, config.HeaderMatch{Name: dubboMethod, Is: is})
	}
	if len(m.GetMethod().GetParamsMatch()) > 0 { // arguments are carried, not read
		p.field("method").field("params_match").unbuilt()
	}
	for i, h := range m.GetHeaders() {
		out = append(out, p.field("headers").index(i).readHeader(h))
	}
	return out
}

func (p place) readDubboForward(m *dubbov3.RouteAction) *config.Forward {
	// Clusters speak HTTP/1.1 if they say nothing, to callers of HTTP.
	out := &config.Forward{Upstream: config.Dubbo, Metadata: labels(m.GetMetadataMatch().GetFilterMetadata()[subsetLabels])}
	switch c := m.GetClusterSpecifier().(type) {
	case *dubbov3.RouteAction_Cluster:
		out.Cluster = c.Cluster
	case *dubbov3.RouteAction_WeightedClusters:
		p.field("weighted_clusters").readWeighted(c.WeightedClusters, out)
	default:
		p.refuse("%T is not supported, expected cluster or weighted_clusters", c)
	}
	return out
}
