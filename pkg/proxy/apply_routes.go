package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/proxy/service"
	"github.com/weft-proxy/weft/pkg/router"
)

// liveTable is a route table in use. The plan of a configuration owns it, and the server after the
// plan is applied.
type liveTable struct {
	table   *router.Table
	metrics *metrics.Routes // metrics of its routes
	routers []*liveRouter   // routers that use it
}

// buildTable compiles a route table once for all its listeners. It recompiles only the changes if a
// table of that name is active.
func (b *builder) buildTable(name string) (*liveTable, error) {
	if t := b.tables[name]; t != nil {
		return t, nil
	}
	source := b.routeTables[name]
	if source == nil {
		return nil, fmt.Errorf("router_config_name: route table %q is not defined", name)
	}
	table, err := compileTable(b.server.tables[name], source)
	if err != nil {
		return nil, err
	}
	t := &liveTable{table: table, metrics: b.server.o.Metrics.Routes(name)}
	b.tables[name] = t
	return t, nil
}

// compileTable compiles source as the successor of now, which may be nil.
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

func releaseTables(tables map[string]*liveTable) {
	for _, t := range tables {
		t.metrics.Release()
	}
}

// liveRouter is a Router and the filters of its routes. Immutable.
type liveRouter struct {
	*service.Router
	proxy   *config.Proxy
	filters []routeFilter // they run inside the routes
}

// prepareRoutes prepares a change of r's routes to those of table.
func (b *builder) prepareRoutes(r *liveRouter, table *router.Table, numbers *metrics.Routes) (*service.RouteUpdate, error) {
	return r.Prepare(table, numbers, func(route *router.Route) (protocol.Service, error) {
		return b.buildRoute(r.proxy, route, r.filters)
	})
}

// ApplyRoutes is Apply for a change of some route tables. If possible, its cost depends on the
// routes that changed, compared by address, plus little for each other route of those tables.
// Otherwise it calls whole for the complete configuration and applies that.
func (s *Server) ApplyRoutes(ctx context.Context, changed []*config.RouteTable, whole func() *config.Snapshot) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if s.draining.Load() {
		return errDraining
	}
	for _, t := range changed {
		if live := s.tables[t.Name]; live == nil || live.table.Config().OnDemand != t.OnDemand {
			return s.apply(ctx, whole())
		}
	}
	var all []*service.RouteUpdate
	tables := make([]*router.Table, len(changed))
	b := &builder{server: s}
	for i, t := range changed {
		live := s.tables[t.Name]
		table, err := compileTable(live, t)
		for _, r := range live.routers {
			if err != nil {
				break
			}
			var c *service.RouteUpdate
			if c, err = b.prepareRoutes(r, table, live.metrics); err == nil {
				all = append(all, c)
			}
		}
		if err != nil {
			for _, c := range all {
				c.Rollback()
			}
			return err
		}
		tables[i] = table
	}
	for _, c := range all {
		c.Activate()
	}
	for i, t := range changed {
		s.tables[t.Name].table = tables[i]
	}
	s.running.Store(withTables(s.running.Load(), changed))
	return nil
}

// withTables returns c with the changed route tables in place of those with the same names.
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
