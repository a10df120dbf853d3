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

// Router finds the route of an exchange and passes the exchange to that route's service. A new
// configuration creates a new Router, unless only routes have changed, which the Router adopts. An
// exchange keeps its route to its end.
type Router struct {
	active   atomic.Pointer[routingTable] // nil before the first RouteUpdate
	unrouted protocol.Service             // immutable; serves exchanges that no route matches
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
// exchange starts. unrouted serves the exchanges that no route matches.
func NewRouter(unrouted protocol.Service) *Router { return &Router{unrouted: unrouted} }

// Start implements protocol.Service.
func (r *Router) Start(ctx context.Context, x *protocol.Exchange) error {
	now := r.active.Load()
	at := now.table.Find(x)
	if at < 0 {
		return r.unrouted.Start(ctx, x)
	}
	to := &now.routes[at]
	x.Record.Route = to.scope
	return to.service.Start(ctx, x)
}

// routeScope is the scope of a route.
type routeScope struct {
	route   *router.Route
	metrics metrics.Route
}

// Name implements protocol.Named.
func (p *routeScope) Name() string { return p.route.Config.Name }

// Add implements metrics.Recorder.
func (p *routeScope) Add(s metrics.Batch) {
	p.metrics.Add(p.route.VirtualHost, p.route.Config.Name, s)
}

// RouteUpdate is a change of a Router's routes.
type RouteUpdate struct {
	router   *Router
	previous *routingTable // nil: none
	next     *routingTable
	kept     []bool        // by index in previous: the route remains
	added    []*routeScope // routes of next that previous does not have
}

// Prepare prepares a change to the routes of table, which build composes. It reuses the services of
// routes that r already has, compared by address. The caller calls Activate or Rollback.
func (r *Router) Prepare(table *router.Table, numbers *metrics.Routes, build func(*router.Route) (protocol.Service, error)) (*RouteUpdate, error) {
	routes := table.Routes()
	c := &RouteUpdate{router: r, next: &routingTable{table: table, routes: make([]routeService, len(routes))}}
	var listed []*router.Route
	if c.previous = r.active.Load(); c.previous != nil {
		listed = c.previous.table.Routes()
	}
	places := align.Indexes(listed, routes)
	c.kept = make([]bool, len(listed))
	fresh := 0
	for i, at := range places {
		if at >= 0 {
			c.next.routes[i], c.kept[at] = c.previous.routes[at], true
		} else {
			fresh++
		}
	}
	made := make([]routeScope, fresh) // one allocation, for large tables
	for i, at := range places {
		if at >= 0 {
			continue
		}
		route := routes[i]
		s, err := build(route)
		if err != nil {
			c.Rollback()
			return nil, fmt.Errorf("route %q: %w", route.Config.Name, err)
		}
		scope := &made[len(c.added)]
		scope.route = route
		scope.metrics.Open(numbers, route.VirtualHost, route.Config.Name)
		c.added = append(c.added, scope)
		c.next.routes[i] = routeService{service: s, scope: scope}
	}
	return c, nil
}

// Rollback releases a change that was not applied.
func (c *RouteUpdate) Rollback() {
	for _, p := range c.added {
		p.metrics.Close()
	}
}

// Activate activates the change for new requests.
func (c *RouteUpdate) Activate() {
	c.router.active.Store(c.next)
	for at, kept := range c.kept {
		if !kept {
			c.previous.routes[at].scope.metrics.Close()
		}
	}
}
