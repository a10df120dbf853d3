package proxy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

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
	orders  *orders // of the overload manager; nil: there is none
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
	if next.Overload != nil {
		b.orders = &s.overseer.orders
	}
	for _, t := range next.Routes {
		b.source[t.Name] = t
	}
	return b
}

// service composes the way of an exchange of a filter chain, which place tells from all
// others, outermost first:
//
//	Respond · orders (of an overload manager) · targets · Forwarded (of HTTP) · filters before the router · Router · route
//
// and of a route that forwards:
//
//	route actions · filters of the route · Timeout · Retry (or Hedge) · cluster
func (b *builder) service(place string, p *config.Proxy) (protocol.Starter, error) {
	before, after, err := b.filters(place, p.StreamFilters)
	if err != nil {
		return nil, err
	}
	r, err := b.router(p, after)
	if err != nil {
		return nil, err
	}
	var s protocol.Service = r
	for _, f := range slices.Backward(before) {
		s = f(s)
	}
	s = Forwarded(s, p.HTTP1)
	if p.Targets != (config.TargetRules{}) {
		s = rewritesTargets(s, p.Targets)
	}
	if b.orders != nil {
		s = obeys(s, b.orders)
	}
	return Respond(s, b.server.o.Metrics.Counter(metrics.Panics), b.server.o.Log), nil
}

// routeFilter is a filter that runs inside routes, each of which may bring its
// own configuration for it.
type routeFilter struct {
	kind   *filter.Stream
	env    filter.Env
	config any           // the listener's
	shared filter.Filter // with that
}

// filters builds the listener's filters in order, by stage.
func (b *builder) filters(place string, list []config.Filter) (before []filter.Filter, after []routeFilter, err error) {
	for i, f := range list {
		kind := b.kind(f.Name)
		if kind == nil {
			return nil, nil, fmt.Errorf("stream filter %q is not built in", f.Name)
		}
		env := filter.Env{
			Log:     b.server.o.Log.With("filter", f.Name),
			Metrics: b.server.o.Metrics,
			Calls:   calls{b.server},
			Place:   fmt.Sprintf("%s %d", place, i),
		}
		made, err := kind.New(f.Config, env)
		if err != nil {
			return nil, nil, fmt.Errorf("stream filter %q: %w", f.Name, err)
		}
		if kind.Stage == filter.BeforeRoute {
			before = append(before, made)
		} else {
			after = append(after, routeFilter{kind, env, f.Config, made})
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
		r.routes[i] = routed{service: protocol.Halves(s), place: &places[i]}
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
	t.Random = rand.Uint64
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
		if c.Forward.Hedge.Hedges() {
			s = Hedge(s, route, retryBudget(c.Forward.Priority), calls{b.server}.Go)
		} else {
			s = Retry(s, route, retryBudget(c.Forward.Priority))
		}
		s = Timeout(s, route)
	}
	for _, f := range slices.Backward(filters) {
		made := f.shared
		own, ok := c.Filters[f.kind.Name]
		if _, off := own.(config.FilterOff); off {
			continue
		}
		if ok {
			env := f.env
			env.Place += fmt.Sprintf(" %q %q", p.RouteTable, c.Name)
			if f.kind.Inherit != nil {
				own = f.kind.Inherit(f.config, own)
			}
			var err error
			if made, err = f.kind.New(own, env); err != nil {
				return nil, fmt.Errorf("per_filter_config %q: %w", f.kind.Name, err)
			}
		}
		s = made(s)
	}
	if c.Forward != nil {
		s = &forward{route: route, next: protocol.Halves(s)}
	}
	return s, nil
}

// upstream is the way into the clusters that a route may send to.
func (b *builder) upstream(p *config.Proxy, route *router.Route) protocol.Service {
	f := route.Config.Forward
	var chosen func(*protocol.Exchange, *upstream.Host)
	if f.AutoHostRewrite {
		chosen = func(x *protocol.Exchange, h *upstream.Host) { route.RewriteHost(x, h.Config().Hostname) }
	}
	if f.Hedge.Hedges() {
		chosen = noting(chosen)
	}
	way := func(c *upstream.Cluster, labels map[string]string) *upstream.Via {
		return &upstream.Via{Cluster: c, Protocol: f.Upstream, Fallback: p.Upstream, Priority: f.Priority, Labels: upstream.NewLabels(labels), Chosen: chosen}
	}
	switch {
	case f.Cluster != "":
		return way(b.server.clusters.Get(f.Cluster), f.Metadata)
	case len(f.Weighted) > 0:
		ways := make(byChoice, len(f.Weighted))
		for i, w := range f.Weighted {
			labels := maps.Clone(f.Metadata)
			if labels == nil {
				labels = w.Metadata
			} else {
				maps.Copy(labels, w.Metadata)
			}
			ways[i] = way(b.server.clusters.Get(w.Cluster), labels)
		}
		return ways
	}
	var ways sync.Map // *upstream.Via by *upstream.Cluster: made once
	return byTarget(func(name string) *upstream.Via {
		c := b.server.clusters.Find(name)
		if c == nil {
			return nil
		}
		known, ok := ways.Load(c)
		if !ok {
			known, _ = ways.LoadOrStore(c, way(c, f.Metadata))
		}
		return known.(*upstream.Via) //nolint:forcetypeassert // nothing else is in it
	})
}
