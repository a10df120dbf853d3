package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/weft-proxy/weft/internal/demand"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Route tables may be on demand (config.OnDemand), as hosts of clusters may: a listener
// whose table is asleep accepts connections, and its first exchange asks for the table and
// waits for the configuration that has it. Exchanges of other listeners pay nothing, and
// those of one whose table is awake a load.

// tablesOnDemand are the route tables on demand of a server, by newTablesOnDemand.
type tablesOnDemand struct {
	desk *demand.Desk

	mu    sync.Mutex
	items map[string]*demand.Item // guarded by mu; by name
}

func newTablesOnDemand() *tablesOnDemand {
	return &tablesOnDemand{desk: demand.NewDesk(), items: make(map[string]*demand.Item)}
}

// item returns the one of a name.
func (t *tablesOnDemand) item(name string) *demand.Item {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.items[name]
	if i == nil {
		i = new(demand.Item)
		t.items[name] = i
	}
	return i
}

// notifyWaiters has those go on who wait for a table that is there, now that all is in force. So
// do those whose table there is not any more: they look for the one in its place.
func (t *tablesOnDemand) notifyWaiters(all []*config.RouteTable) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.items) == 0 {
		return
	}
	there := make(map[string]config.OnDemand, len(all))
	for _, table := range all {
		there[table.Name] = table.OnDemand
	}
	for name, i := range t.items {
		if !there[name].Asleep {
			i.Come()
		}
		if !there[name].Applies() {
			delete(t.items, name)
		}
	}
}

// OnDemandRoutes is how whoever keeps route tables on demand learns of which are needed. It
// is a view of its server. Safe for concurrent use.
type OnDemandRoutes struct{ tables *tablesOnDemand }

// OnDemandRoutes returns the demand for the server's route tables.
func (s *Server) OnDemandRoutes() OnDemandRoutes { return OnDemandRoutes{s.onDemand} }

// Requested receives when Take may have something. It is one receiver's.
func (d OnDemandRoutes) Requested() <-chan struct{} { return d.tables.desk.Asked() }

// TakeRequested returns the names of the tables that were asked for since it was called last, in
// order. Some may be there by now, or not be referred to any more.
func (d OnDemandRoutes) TakeRequested() []string { return d.tables.desk.Take() }

// Used reports whether an exchange has come for a table since it was called last.
func (d OnDemandRoutes) Used(name string) bool {
	d.tables.mu.Lock()
	i := d.tables.items[name]
	d.tables.mu.Unlock()
	return i != nil && i.Used()
}

// onDemandTable is a table on demand as a composition knows it. Immutable.
type onDemandTable struct {
	config.OnDemand
	name string
	item *demand.Item
	desk *demand.Desk
}

// demanded returns what a composition is to know of a table; nil: it is not on demand.
func (b *builder) demanded(table string) *onDemandTable {
	source := b.source[table]
	if source == nil || !source.OnDemand.Applies() {
		return nil
	}
	t := b.server.onDemand
	return &onDemandTable{source.OnDemand, table, t.item(table), t.desk}
}

// absent notes that an exchange has come, and reports whether it has to wait. d may be nil.
func (d *onDemandTable) absent() bool {
	if d == nil {
		return false
	}
	d.item.Use()
	return d.Asleep
}

// Serve is protocol.Service's: what a listener answers whose table has not come in time.
func (d *onDemandTable) Serve(context.Context, *protocol.Exchange) error {
	return protocol.Faultf(protocol.ReasonOnDemandTimeout, "route table %s: it was asked for, and has not come", d.name)
}

// waitForTable is an exchange that has come to a listener whose table is asleep.
type waitForTable struct {
	serving *livePipeline
	table   *onDemandTable
}

// Serve is protocol.Service's. It serves x by whatever is in force once the table is
// there, or has been waited for long enough.
func (e waitForTable) Serve(ctx context.Context, x *protocol.Exchange) error {
	x.Detach()
	e.await(ctx, x)
	return protocol.ServeSync(ctx, serveNow{e.serving}, x)
}

// await asks for the table and waits for it, as long as the caller does.
func (e waitForTable) await(ctx context.Context, x *protocol.Exchange) {
	come := e.table.item.Wait()
	if now := e.serving.now.Load().table; now == nil || !now.Asleep {
		return // it has come just now
	}
	e.table.desk.Ask(e.table.name)
	limit := e.table.Wait
	if !x.Deadline.IsZero() {
		limit = min(limit, time.Until(x.Deadline))
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	gone := make(chan struct{})
	if x.Caller != nil {
		stop := x.Caller.OnDisconnect(func() { close(gone) })
		defer stop()
	}
	select {
	case <-come:
	case <-timer.C:
	case <-gone:
	case <-ctx.Done():
	}
}

// serveNow serves by what is in force, whether its table is asleep or not.
type serveNow struct{ *livePipeline }

// Start is protocol.AsyncService's.
func (p serveNow) Start(ctx context.Context, x *protocol.Exchange) error {
	return p.begin(ctx, x, p.take())
}
