package proxy

import (
	"fmt"
	"math/rand/v2"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/proxy/service"
	"github.com/weft-proxy/weft/pkg/router"
)

// liveTable is a route table in use. The plan of a configuration owns it until the plan is applied;
// then the server owns it.
type liveTable struct {
	table   *router.Table
	metrics *metrics.Routes
	routers []*liveRouter // routers that use the table
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

// compileTable compiles source as the successor of current, which may be nil.
func compileTable(current *liveTable, source *config.RouteTable) (table *router.Table, err error) {
	switch {
	case current == nil:
		table, err = router.Compile(source)
	case current.table.Config() == source:
		return current.table, nil
	default:
		table, err = current.table.Recompile(source)
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

// liveRouter is a Router and the filters of its routes.
type liveRouter struct {
	*service.Router
	proxy   *config.Proxy
	filters []routeFilter // filters that run inside the routes
}
