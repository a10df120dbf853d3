package service

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/align"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// Router finds the route of an exchange and passes the exchange to that route's service. If only
// clusters and routes change, a RouteUpdate changes the Router; any other change of the
// configuration creates a new one. An exchange keeps its route to its end.
type Router struct {
	active   atomic.Pointer[routingTable] // nil before the first RouteUpdate
	fallback protocol.Service             // immutable; serves exchanges that no route matches
}

// routingTable is a table and the services of its routes. Immutable.
type routingTable struct {
	table  *router.Table
	routes []routeService // by index in the table
}

// routeService serves the exchanges of one route.
type routeService struct {
	service protocol.Service
	scope   *routeScope
}

// NewRouter returns a Router without routes: its first RouteUpdate must be active before an
// exchange starts. fallback serves the exchanges that no route matches.
func NewRouter(fallback protocol.Service) *Router { return &Router{fallback: fallback} }

// Start implements protocol.Service.
func (r *Router) Start(ctx context.Context, x *protocol.Exchange) error {
	active := r.active.Load()
	i := active.table.Find(x)
	if i < 0 {
		return r.fallback.Start(ctx, x)
	}
	route := &active.routes[i]
	x.Record.Route = route.scope
	return route.service.Start(ctx, x)
}

// routeScope is the scope of a route.
type routeScope struct {
	route   *router.Route
	metrics metrics.Route
}

// Name implements protocol.Named.
func (s *routeScope) Name() string { return s.route.Config.Name }

// Add implements metrics.Recorder.
func (s *routeScope) Add(b metrics.Batch) {
	s.metrics.Add(s.route.VirtualHost, s.route.Config.Name, b)
}

// RouteUpdate is a change of a Router's routes.
type RouteUpdate struct {
	router      *Router
	previous    *routingTable // nil: none
	next        *routingTable
	kept        []bool        // by index in previous: the route remains
	addedScopes []*routeScope // scopes of the routes of next that previous does not have
}

// Prepare prepares the replacement of r's routes with those of table. build composes the service of
// a route. Prepare reuses the services of routes that r already has, compared by address. The
// caller calls Activate or Rollback.
func (r *Router) Prepare(table *router.Table, routeMetrics *metrics.Routes, build func(*router.Route) (protocol.Service, error)) (*RouteUpdate, error) {
	routes := table.Routes()
	u := &RouteUpdate{router: r, next: &routingTable{table: table, routes: make([]routeService, len(routes))}}
	var previousRoutes []*router.Route
	if u.previous = r.active.Load(); u.previous != nil {
		previousRoutes = u.previous.table.Routes()
	}
	previousIndexes := align.Indexes(previousRoutes, routes)
	u.kept = make([]bool, len(previousRoutes))
	added := 0
	for i, j := range previousIndexes {
		if j >= 0 {
			u.next.routes[i], u.kept[j] = u.previous.routes[j], true
		} else {
			added++
		}
	}
	scopes := make([]routeScope, added) // one allocation, for large tables
	for i, j := range previousIndexes {
		if j >= 0 {
			continue
		}
		route := routes[i]
		s, err := build(route)
		if err != nil {
			u.Rollback()
			return nil, fmt.Errorf("route %q: %w", route.Config.Name, err)
		}
		scope := &scopes[len(u.addedScopes)]
		scope.route = route
		scope.metrics.Open(routeMetrics, route.VirtualHost, route.Config.Name)
		u.addedScopes = append(u.addedScopes, scope)
		u.next.routes[i] = routeService{service: s, scope: scope}
	}
	return u, nil
}

// Rollback releases a change that was not applied.
func (u *RouteUpdate) Rollback() {
	for _, scope := range u.addedScopes {
		scope.metrics.Close()
	}
}

// Activate activates the change for new requests.
func (u *RouteUpdate) Activate() {
	u.router.active.Store(u.next)
	for i, kept := range u.kept {
		if !kept {
			u.previous.routes[i].scope.metrics.Close()
		}
	}
}
