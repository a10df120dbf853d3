package proxy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/proxy/pipeline"
	"github.com/weft-proxy/weft/pkg/proxy/service"
	"github.com/weft-proxy/weft/pkg/router"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/subset"
)

// builder composes the services of one configuration. The services start nothing, so the caller can
// drop them without cleanup.
type builder struct {
	server      *Server
	overload    *service.OverloadPolicy // policy of the overload manager; nil: no overload manager is configured
	routeTables map[string]*config.RouteTable
	tables      map[string]*liveTable // tables that a listener uses, by name; the plan owns them
}

func newBuilder(s *Server, next *config.Snapshot) *builder {
	b := &builder{
		server:      s,
		routeTables: make(map[string]*config.RouteTable),
		tables:      make(map[string]*liveTable),
	}
	if next.Overload != nil {
		b.overload = s.overload.Policy()
	}
	for _, t := range next.Routes {
		b.routeTables[t.Name] = t
	}
	return b
}

// buildService composes the services of a filter chain, outermost first. key distinguishes the
// chain from all others:
//
//	response headers · Respond · overload policy · targets · Forwarded (HTTP) · filters before the router · Router · route
//
// and for a route that forwards:
//
//	route actions · filters of the route · router headers · Timeout · Retry (or Hedge) · attempt headers · cluster
//
// The services about headers exist only if the configuration has Envoy's rules for them.
//
// observers are called for each exchange that has ended.
func (b *builder) buildService(key string, p *config.Proxy) (outermost protocol.Service, observers []pipeline.Observer, err error) {
	beforeRoute, inRoute, observers, err := b.buildFilters(key, p)
	if err != nil {
		return nil, nil, err
	}
	r, err := b.buildRouter(p, inRoute)
	if err != nil {
		return nil, nil, err
	}
	var s protocol.Service = r
	for _, f := range slices.Backward(beforeRoute) {
		s = f(s)
	}
	s = service.Forwarded(s, p)
	if e := p.ClientHeaders.Envoy; e != nil {
		if s, err = service.EarlyMutations(s, e.EarlyMutations); err != nil {
			return nil, nil, err
		}
	}
	if p.Targets != (config.TargetNormalization{}) {
		s = service.NormalizeTargets(s, p.Targets)
	}
	if b.overload != nil {
		s = service.Shed(s, b.overload)
	}
	s = service.Respond(s, b.server.o.Metrics.Counter(metrics.Panics), b.server.o.Log)
	return service.ResponseHeaders(s, p), observers, nil
}

// routeFilter is a filter that runs inside routes. Each route may have its own configuration for
// it.
type routeFilter struct {
	name          string
	routeKey      string                      // key of the filter's settings in config.Route.Filters
	factory       *filter.StreamFilterFactory // nil: the filter's settings are missing
	env           filter.Env
	config        any           // the listener's configuration
	defaultFilter filter.Filter // built with config
	disabled      bool          // the filter runs only in routes that enable it
}

// buildFilters builds the listener's filters in order and splits them by stage.
func (b *builder) buildFilters(key string, p *config.Proxy) (beforeRoute []filter.Filter, inRoute []routeFilter, observers []pipeline.Observer, err error) {
	for i, f := range p.StreamFilters {
		if f.Config == (config.FilterConfigMissing{}) {
			beforeRoute, inRoute = addMissingConfig(f, beforeRoute, inRoute)
			continue
		}
		factory := b.findStreamFilter(f.Name)
		if factory == nil {
			return nil, nil, nil, fmt.Errorf("stream filter %q is not supported by this build", f.Name)
		}
		env := filter.Env{
			Log:           b.server.o.Log.With("filter", f.Name),
			Metrics:       b.server.o.Metrics,
			ClusterClient: clusterClient{b.server, p.ClientHeaders.Envoy != nil},
			Cluster:       b.server.clusterConfig,
			HealthFailed:  b.server.healthFailed.Load,
			Observe:       func(f func(*protocol.Exchange)) { observers = append(observers, f) },
			Key:           fmt.Sprintf("%s %d", key, i),
		}
		streamFilter, err := factory.New(f.Config, env)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("stream filter %q: %w", f.Name, err)
		}
		if factory.Stage == filter.BeforeRoute {
			beforeRoute = append(beforeRoute, streamFilter)
		} else {
			inRoute = append(inRoute, routeFilter{name: f.Name, routeKey: cmp.Or(f.RouteKey, f.Name), factory: factory, env: env, config: f.Config, defaultFilter: streamFilter, disabled: f.Disabled})
		}
	}
	return beforeRoute, inRoute, observers, nil
}

// clusterConfig implements filter.Env.Cluster.
func (s *Server) clusterConfig(name string) *config.Cluster {
	c := s.clusters.Find(name)
	if c == nil {
		return nil
	}
	return c.Config()
}

func (b *builder) findStreamFilter(name string) *filter.StreamFilterFactory {
	for i := range b.server.o.StreamFilters {
		if f := &b.server.o.StreamFilters[i]; f.Name == name {
			return f
		}
	}
	return nil
}

// buildRouter composes the Router of p. The filters run inside its routes.
func (b *builder) buildRouter(p *config.Proxy, filters []routeFilter) (*service.Router, error) {
	t, err := b.buildTable(p.RouteTable)
	if err != nil {
		return nil, err
	}
	r := &liveRouter{service.NewRouter(unroutedService(p.RouteTable, filters)), p, filters}
	first, err := b.prepareRoutes(r, t.table, t.metrics)
	if err != nil {
		return nil, err
	}
	first.Activate()
	t.routers = append(t.routers, r)
	return r.Router, nil
}

// unroutedService composes the service for exchanges that no route matches. The filters run with
// the listener's settings, as in Envoy, so they reject, delay and count requests even if the path
// does not exist.
func unroutedService(table string, filters []routeFilter) protocol.Service {
	s := service.NoRoute(table)
	for _, f := range slices.Backward(filters) {
		if !f.disabled {
			s = f.defaultFilter(s)
		}
	}
	return s
}

// buildRoute composes the service of one route of r.
func (b *builder) buildRoute(r *liveRouter, route *router.Route) (protocol.Service, error) {
	p, c := r.proxy, route.Config
	if p.ClientHeaders.OverrideTimeouts {
		route = route.WithTimeoutHeaders()
	}
	var s protocol.Service
	switch r := p.RouterHeaders; {
	case c.Forward == nil:
		var err error
		if route, err = readDirectResponse(route); err != nil {
			return nil, err
		}
		s = service.Reply(route)
	case r == nil:
		s = b.server.buildAttempts(route, b.buildUpstream(p, route))
	default:
		if r.Suppress {
			route = route.WithoutOriginals()
		} else {
			route = route.WithEnvoyOriginals()
		}
		cluster, server := b.buildUpstream(p, route), b.server
		s = service.RouterHeaders(route, r, func(route *router.Route) protocol.Service {
			return server.buildAttempts(route, service.AttemptHeaders(cluster, route, r))
		})
	}
	s, err := addRouteFilters(s, p, c, r.filters)
	if err != nil {
		return nil, err
	}
	var upgrades []config.UpgradeRule
	if c.Forward != nil {
		s = service.Forward(s, route)
		extra := c.Forward.Extra()
		if extra.InternalRedirect != nil {
			s = service.InternalRedirect(s, route, r.Router)
		}
		upgrades = extra.Upgrades
	}
	if p.Upgrades != nil {
		s = service.Upgrades(s, p.Upgrades, upgrades)
	}
	return s, nil
}

// buildAttempts composes the services that limit and repeat the attempts of next.
func (s *Server) buildAttempts(route *router.Route, next protocol.Service) protocol.Service {
	f := route.Config.Forward
	if f.Hedge.Enabled() {
		next = service.Hedge(next, route, service.BreakerBudget(f.Priority), clusterClient{server: s}.Go)
	} else {
		next = service.Retry(next, route, service.BreakerBudget(f.Priority))
	}
	return service.Timeout(next, route)
}

// buildUpstream composes the service that sends to the clusters of a route.
func (b *builder) buildUpstream(p *config.Proxy, route *router.Route) protocol.Service {
	f := route.Config.Forward
	var onHostSelected func(*protocol.Exchange, *upstream.Host)
	if f.AutoHostRewrite {
		onHostSelected = func(x *protocol.Exchange, h *upstream.Host) { route.RewriteHost(x, h.Config().Hostname) }
	}
	if f.Hedge.Enabled() || p.RouterHeaders != nil { // a header can enable hedging
		onHostSelected = service.RecordHedgedHost(onHostSelected)
	}
	picker := func(c *upstream.Cluster, labels map[string]string) *upstream.ClusterPicker {
		return &upstream.ClusterPicker{Cluster: c, Protocol: f.Upstream, FallbackProtocol: p.Upstream, Priority: f.Priority, Labels: subset.NewLabels(labels), OnHostSelected: onHostSelected}
	}
	if f.Extra().ConnectTunnel {
		return &connectTunnel{b.server, func(x *protocol.Exchange) *upstream.Cluster { return b.server.clusters.Find(x.Record.TargetCluster) }}
	}
	switch {
	case f.Cluster != "":
		return picker(b.server.clusters.Get(f.Cluster), f.Metadata)
	case len(f.WeightedClusters) > 0:
		services := make(service.WeightedClusters, len(f.WeightedClusters))
		for i, w := range f.WeightedClusters {
			labels := maps.Clone(f.Metadata)
			if labels == nil {
				labels = w.Metadata
			} else {
				maps.Copy(labels, w.Metadata)
			}
			if w.Cluster == "" {
				services[i] = service.DynamicCluster(b.server.clusters.Find, func(c *upstream.Cluster) *upstream.ClusterPicker { return picker(c, labels) })
			} else {
				services[i] = picker(b.server.clusters.Get(w.Cluster), labels)
			}
		}
		return service.NoWeight(services)
	}
	return service.DynamicCluster(b.server.clusters.Find, func(c *upstream.Cluster) *upstream.ClusterPicker {
		return picker(c, f.Metadata)
	})
}

// onDemandTable returns the on-demand state of a table, or nil if it is not on demand.
func (b *builder) onDemandTable(table string) *pipeline.OnDemandTable {
	c := b.routeTables[table]
	if c == nil || !c.OnDemand.Enabled() {
		return nil
	}
	return b.server.onDemand.Table(table, c.OnDemand)
}
