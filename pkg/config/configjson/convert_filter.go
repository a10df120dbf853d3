package configjson

import (
	"maps"
	"slices"
	"strconv"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
)

// streamFilters converts a chain of stream filters.
func (r *reader) streamFilters(list []streamFilterJSON) []config.Filter {
	var out []config.Filter
	for i := range list {
		j := &list[i]
		if j.Type == "" {
			continue // reported
		}
		if cfg, ok := r.filterConfig(j.Node.Get("type"), j.Type, j.Node.Member("config")); ok {
			out = append(out, config.Filter{Name: j.Type, Config: cfg})
		}
	}
	return out
}

// filterConfig decodes the settings of a stream filter; at is the node with its name.
func (r *reader) filterConfig(at document.Node, name string, settings document.Node) (any, bool) {
	f := r.streamFilterFactory(at, name)
	if f == nil {
		return nil, false
	}
	cfg := f.Config()
	return cfg, r.decodeFilter(settings, cfg)
}

// streamFilterFactory returns the factory of a stream filter; nil after it has reported an error.
func (r *reader) streamFilterFactory(at document.Node, name string) *filter.StreamFilterFactory {
	if f := r.filters[name]; f != nil {
		return f
	}
	built := slices.Sorted(maps.Keys(r.filters))
	known, ok := choose(r.report, at, "stream filter", name, built, knownStreamFilters())
	if !ok {
		return nil
	}
	r.report.Unknown(at, "stream filter", name, []string{known}) // it differs in case
	return nil
}

// routeFilters converts per_filter_config. A filter that runs before route selection cannot have
// settings per route. null keeps the settings of the listener.
func (r *reader) routeFilters(j *routeJSON) map[string]any {
	if len(j.PerFilter) == 0 {
		return nil
	}
	out := make(map[string]any, len(j.PerFilter))
	for member := range j.Node.Get("per_filter_config").All() {
		name := member.Key()
		f := r.streamFilterFactory(member, name)
		switch {
		case f == nil, member.Kind() == document.Null:
		case f.Stage == filter.BeforeRoute:
			r.report.Errorf(member, "the stream filter %q runs before a route is selected: it does not support settings for a route", name)
		default:
			cfg := f.Config()
			r.decodeFilter(member, cfg)
			out[name] = cfg
		}
	}
	return out
}

// routeFilter is one per_filter_config entry in a table.
type routeFilter struct {
	name string
	at   document.Node
}

// proxyNode is a proxy with its node.
type proxyNode struct {
	node  document.Node
	proxy *config.Proxy
}

// checkTables runs after all tables are converted. It checks that the tables of the proxies exist
// and fit their protocols, and warns of per-route settings for filters that no listener of the
// table has.
func (r *reader) checkTables() {
	r.addDubboTable()
	names := slices.Sorted(maps.Keys(r.tables))
	for _, use := range r.proxies {
		t := r.tables[use.proxy.RouteTable]
		if t == nil {
			if use.proxy.RouteTable != "" {
				r.report.Unknown(use.node.Get("router_config_name").Or(use.node), "route table", use.proxy.RouteTable, names)
			}
			continue
		}
		for _, f := range use.proxy.StreamFilters {
			t.usedFilters[f.Name] = true
		}
		t.protocols = append(t.protocols, use.proxy.Downstream...)
		if !t.failed {
			r.checkTranslation(use.proxy, t)
		}
	}
	for _, name := range names {
		t := r.tables[name]
		for _, f := range t.filters {
			if !t.usedFilters[f.name] {
				r.report.Warnf(f.at, "the settings have no effect: no listener that uses the route table %q has the stream filter %q", name, f.name)
			}
		}
		if !t.failed {
			r.checkRPCTable(t)
			r.checkProxyProtocol(t)
			r.compile(t)
		}
	}
}

// checkTranslation reports routes of a table whose clusters cannot carry any downstream protocol of
// the proxy.
func (r *reader) checkTranslation(p *config.Proxy, t *table) {
	at := 0
	for _, v := range t.model.VirtualHosts {
		for _, route := range v.Routes {
			node := t.routes[at]
			at++
			if route.Forward == nil {
				continue
			}
			where := node.Get("route").Get("upstream_protocol").Or(node)
			if up := route.Forward.Upstream; up != "" {
				r.checkTranslatable(where, p.Downstream, up, "")
				continue
			}
			for _, name := range routeClusters(route.Forward) {
				if c := r.clusters[name]; c != nil {
					r.checkTranslatable(where, p.Downstream, c.Protocol, " for the cluster "+strconv.Quote(name))
				}
			}
		}
	}
}

// checkTranslatable reports an error if requests of none of the protocols can be sent in up.
func (r *reader) checkTranslatable(at document.Node, down []config.Protocol, up config.Protocol, who string) {
	if slices.ContainsFunc(down, func(d config.Protocol) bool { return d == config.Auto || d.CanSendAs(up) }) {
		return
	}
	for _, d := range down {
		r.report.Unsupported(at, "translation from "+string(d)+" to "+string(up)+who)
	}
}
