package proxy

import (
	"fmt"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// builder composes the services of one configuration. What it makes starts
// nothing, so that dropping it undoes it.
type builder struct {
	server  *Server
	source  map[string]*config.RouteTable
	tables  map[string]*router.Table   // compiled, by name
	numbers map[string]*metrics.Routes // of the routes, by table; the plan owns them
}

func newBuilder(s *Server, next *config.Snapshot) *builder {
	b := &builder{
		server:  s,
		source:  make(map[string]*config.RouteTable),
		tables:  make(map[string]*router.Table),
		numbers: make(map[string]*metrics.Routes),
	}
	for _, t := range next.Routes {
		b.source[t.Name] = t
	}
	return b
}

// service composes the way of an exchange, outermost first:
//
//	Respond · Forwarded · filters before the router · Router · route
//
// and of a route that forwards:
//
//	route actions · filters of the route · Timeout · Retry · cluster
func (b *builder) service(p *config.Proxy) (protocol.Service, error) {
	before, after, err := b.filters(p.StreamFilters)
	if err != nil {
		return nil, err
	}
	r, err := b.router(p, after)
	if err != nil {
		return nil, err
	}
	var s protocol.Service = r
	for i := len(before) - 1; i >= 0; i-- {
		s = before[i](s)
	}
	return Respond(Forwarded(s, p.HTTP1), b.server.o.Metrics.Counter(metrics.Panics), b.server.o.Log), nil
}

// routeFilter is a filter that runs inside routes, each of which may bring its
// own configuration for it.
type routeFilter struct {
	kind   *filter.Stream
	shared filter.Filter
}

// filters builds the listener's filters in order, by stage.
func (b *builder) filters(list []config.Filter) (before []filter.Filter, after []routeFilter, err error) {
	for _, f := range list {
		kind := b.kind(f.Name)
		if kind == nil {
			return nil, nil, fmt.Errorf("stream filter %q is not built in", f.Name)
		}
		made, err := kind.New(f.Config, b.env(f.Name))
		if err != nil {
			return nil, nil, fmt.Errorf("stream filter %q: %w", f.Name, err)
		}
		if kind.Stage == filter.BeforeRoute {
			before = append(before, made)
		} else {
			after = append(after, routeFilter{kind: kind, shared: made})
		}
	}
	return before, after, nil
}

func (b *builder) kind(name string) *filter.Stream {
	for i := range b.server.o.Filters {
		if k := &b.server.o.Filters[i]; k.Name == name {
			return k
		}
	}
	return nil
}

func (b *builder) env(name string) filter.Env {
	return filter.Env{Log: b.server.o.Log.With("filter", name), Metrics: b.server.o.Metrics}
}

func (b *builder) router(p *config.Proxy, filters []routeFilter) (*Router, error) {
	table, err := b.table(p.RouteTable)
	if err != nil {
		return nil, err
	}
	routes := table.Routes()
	r := &Router{table: table, routes: make([]routed, len(routes))}
	places := make([]routePlace, len(routes))
	numbers := b.numbers[table.Name()]
	for i, route := range routes {
		s, err := b.route(p, route, filters)
		if err != nil {
			return nil, fmt.Errorf("route %q: %w", route.Config.Name, err)
		}
		places[i] = routePlace{route: route, routes: numbers}
		r.routes[i] = routed{service: s, place: &places[i]}
	}
	return r, nil
}

// table compiles a route table once, however many listeners use it.
func (b *builder) table(name string) (*router.Table, error) {
	if t := b.tables[name]; t != nil {
		return t, nil
	}
	source := b.source[name]
	if source == nil {
		return nil, fmt.Errorf("router_config_name: there is no route table %q", name)
	}
	t, err := router.Compile(source)
	if err != nil {
		return nil, fmt.Errorf("route table %q: %w", name, err)
	}
	b.tables[name] = t
	routes := t.Routes()
	b.numbers[name] = b.server.o.Metrics.Routes(name, len(routes), func(i int) (string, string) {
		return routes[i].VirtualHost.Name, routes[i].Config.Name
	})
	return t, nil
}

// route composes what answers the exchanges of one route.
func (b *builder) route(p *config.Proxy, route *router.Route, filters []routeFilter) (protocol.Service, error) {
	c := route.Config
	var s protocol.Service
	if c.Forward == nil {
		s = reply{route}
	} else {
		s = b.upstream(p, route)
		s = Retry(s, route, retryBudget)
		s = Timeout(s, route)
	}
	for i := len(filters) - 1; i >= 0; i-- {
		f := filters[i].shared
		if own, ok := c.Filters[filters[i].kind.Name]; ok {
			var err error
			if f, err = filters[i].kind.New(own, b.env(filters[i].kind.Name)); err != nil {
				return nil, fmt.Errorf("per_filter_config %q: %w", filters[i].kind.Name, err)
			}
		}
		s = f(s)
	}
	if c.Forward != nil {
		s = &forward{route: route, next: s}
	}
	return s, nil
}

// upstream is the way into the clusters that a route may send to.
func (b *builder) upstream(p *config.Proxy, route *router.Route) protocol.Service {
	f := route.Config.Forward
	speak := f.Upstream
	if speak == "" {
		speak = p.Upstream
	}
	if speak == config.Auto {
		speak = ""
	}
	var chosen func(*protocol.Exchange, *upstream.Host)
	if f.AutoHostRewrite {
		chosen = func(x *protocol.Exchange, h *upstream.Host) { route.RewriteHost(x, h.Config().Hostname) }
	}
	way := func(name string) *upstream.Via {
		return &upstream.Via{Cluster: b.server.clusters.Get(name), Protocol: speak, Chosen: chosen}
	}
	switch {
	case f.Cluster != "":
		return way(f.Cluster)
	case len(f.Weighted) > 0:
		ways := make(map[string]*upstream.Via, len(f.Weighted))
		for _, w := range f.Weighted {
			ways[w.Cluster] = way(w.Cluster)
		}
		return byTarget(func(name string) *upstream.Via { return ways[name] })
	}
	return byTarget(func(name string) *upstream.Via {
		c := b.server.clusters.Find(name)
		if c == nil {
			return nil
		}
		return &upstream.Via{Cluster: c, Protocol: speak, Chosen: chosen}
	})
}
