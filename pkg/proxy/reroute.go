package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/weft-proxy/weft/internal/align"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// liveTable is a route table that filter chains use. It belongs to the plan of a
// configuration, and once that is in force to the server.
type liveTable struct {
	table   *router.Table
	numbers *metrics.Routes // accounts of its routes
	routers []*Router       // that find their routes by it
}

// table compiles a route table once, however many listeners use it, and at the cost of
// what has changed if there is one of its name in force.
func (b *builder) table(name string) (*liveTable, error) {
	if t := b.tables[name]; t != nil {
		return t, nil
	}
	source := b.source[name]
	if source == nil {
		return nil, fmt.Errorf("router_config_name: there is no route table %q", name)
	}
	table, err := compileTable(b.server.routing[name], source)
	if err != nil {
		return nil, err
	}
	t := &liveTable{table: table, numbers: b.server.o.Metrics.Routes(name)}
	b.tables[name] = t
	return t, nil
}

// compileTable compiles source in the place of what is in force, nil if nothing is.
func compileTable(now *liveTable, source *config.RouteTable) (table *router.Table, err error) {
	switch {
	case now == nil:
		table, err = router.Compile(source)
	case now.table.Config() == source:
		return now.table, nil
	default:
		table, err = now.table.Recompile(source)
	}
	if err != nil {
		return nil, fmt.Errorf("route table %q: %w", source.Name, err)
	}
	if table.Random == nil {
		table.Random = rand.Uint64
	}
	return table, nil
}

func releaseAll(tables map[string]*liveTable) {
	for _, t := range tables {
		t.numbers.Release()
	}
}

// routing composes what serves the routes of a table for r: what r has of them already,
// and what is made for the others. Nothing is in force yet.
func (b *builder) routing(r *Router, table *router.Table, numbers *metrics.Routes) (*routeUpdate, error) {
	routes := table.Routes()
	c := &routeUpdate{router: r, next: &routing{table: table, routes: make([]routed, len(routes))}}
	var listed []*router.Route
	if c.before = r.now.Load(); c.before != nil {
		listed = c.before.table.Routes()
	}
	places := align.Places(listed, routes)
	c.kept = make([]bool, len(listed))
	fresh := 0
	for i, at := range places {
		if at >= 0 {
			c.next.routes[i], c.kept[at] = c.before.routes[at], true
		} else {
			fresh++
		}
	}
	made := make([]routeScope, fresh) // one object, for large tables
	for i, at := range places {
		if at >= 0 {
			continue
		}
		route := routes[i]
		s, err := b.route(r.proxy, route, r.filters)
		if err != nil {
			c.undo()
			return nil, fmt.Errorf("route %q: %w", route.Config.Name, err)
		}
		place := &made[len(c.made)]
		place.route = route
		place.account.Open(numbers, route.VirtualHost, route.Config.Name)
		c.made = append(c.made, place)
		c.next.routes[i] = routed{service: protocol.Async(s), place: place}
	}
	return c, nil
}

// routeUpdate is a change of what a Router routes by.
type routeUpdate struct {
	router *Router
	before *routing // nil: nothing yet
	next   *routing
	kept   []bool        // of the routes of before
	made   []*routeScope // of next, that before has not
}

// undo gives up a change that did not come into force.
func (c *routeUpdate) undo() {
	for _, p := range c.made {
		p.account.Close()
	}
}

// enforce puts the change in force: requests from now on go by it.
func (c *routeUpdate) enforce() {
	c.router.now.Store(c.next)
	for at, kept := range c.kept {
		if !kept {
			c.before.routes[at].place.account.Close()
		}
	}
}

// ApplyRoutes is Apply where nothing but some route tables has changed. Where it can be,
// its cost is that of their routes that have changed, by their addresses, and little for
// each of the others; else whole is asked for the configuration with all of them, and
// that is applied.
func (s *Server) ApplyRoutes(ctx context.Context, changed []*config.RouteTable, whole func() *config.Snapshot) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if s.draining.Load() {
		return errDraining
	}
	for _, t := range changed {
		if live := s.routing[t.Name]; live == nil || live.table.Config().OnDemand != t.OnDemand {
			return s.apply(ctx, whole())
		}
	}
	var all []*routeUpdate
	tables := make([]*router.Table, len(changed))
	b := &builder{server: s}
	for i, t := range changed {
		live := s.routing[t.Name]
		table, err := compileTable(live, t)
		for _, r := range live.routers {
			if err != nil {
				break
			}
			var c *routeUpdate
			if c, err = b.routing(r, table, live.numbers); err == nil {
				all = append(all, c)
			}
		}
		if err != nil {
			for _, c := range all {
				c.undo()
			}
			return err
		}
		tables[i] = table
	}
	for _, c := range all {
		c.enforce()
	}
	for i, t := range changed {
		s.routing[t.Name].table = tables[i]
	}
	s.running.Store(withTables(s.running.Load(), changed))
	return nil
}

// withTables returns a configuration with some route tables in the places of those of
// their names.
func withTables(c *config.Snapshot, changed []*config.RouteTable) *config.Snapshot {
	next := *c
	next.Routes = slices.Clone(c.Routes)
	for _, t := range changed {
		for i, old := range next.Routes {
			if old.Name == t.Name {
				next.Routes[i] = t
			}
		}
	}
	return &next
}
