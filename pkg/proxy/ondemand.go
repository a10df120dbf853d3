package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/weft-proxy/weft/internal/demand"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Route tables may be on demand (config.OnDemand), like hosts of clusters: a listener whose table
// is not subscribed accepts connections. Its first exchange requests the table and waits for the
// configuration that contains it. Exchanges of other listeners have no extra cost; with a
// subscribed on-demand table they cost one load.

// tablesOnDemand holds the on-demand route tables of a server.
type tablesOnDemand struct {
	desk *demand.Desk

	mu    sync.Mutex
	items map[string]*demand.Item // guarded by mu; by name
}

func newTablesOnDemand() *tablesOnDemand {
	return &tablesOnDemand{desk: demand.NewDesk(), items: make(map[string]*demand.Item)}
}

// item returns the item of that name and creates it if needed.
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

// notifyWaiters wakes exchanges that wait for a table that is now active. It also wakes those whose
// table was removed; they use the table that replaced it.
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

// OnDemandRoutes tells the owner of on-demand route tables which ones are needed. It is a view of
// its server. It is safe for concurrent use.
type OnDemandRoutes struct{ tables *tablesOnDemand }

// OnDemandRoutes returns the demand for the server's route tables.
func (s *Server) OnDemandRoutes() OnDemandRoutes { return OnDemandRoutes{s.onDemand} }

// Requested returns a channel that signals when TakeRequested may return names. It has one
// receiver.
func (d OnDemandRoutes) Requested() <-chan struct{} { return d.tables.desk.Asked() }

// TakeRequested returns the names requested since its last call, in order. Some tables may be
// present already or no longer in use.
func (d OnDemandRoutes) TakeRequested() []string { return d.tables.desk.Take() }

// Used reports whether an exchange has used the table since the last call.
func (d OnDemandRoutes) Used(name string) bool {
	d.tables.mu.Lock()
	i := d.tables.items[name]
	d.tables.mu.Unlock()
	return i != nil && i.Used()
}

// onDemandTable is an on-demand table for a pipeline. Immutable.
type onDemandTable struct {
	config.OnDemand
	name string
	item *demand.Item
	desk *demand.Desk
}

// demanded returns the on-demand state of a table, or nil if it is not on demand.
func (b *builder) demanded(table string) *onDemandTable {
	source := b.source[table]
	if source == nil || !source.OnDemand.Applies() {
		return nil
	}
	t := b.server.onDemand
	return &onDemandTable{source.OnDemand, table, t.item(table), t.desk}
}

// absent records that an exchange arrived and reports whether it must wait. d may be nil.
func (d *onDemandTable) absent() bool {
	if d == nil {
		return false
	}
	d.item.Use()
	return d.Asleep
}

// Serve implements protocol.Service. It fails exchanges of a table that did not arrive in time.
func (d *onDemandTable) Serve(context.Context, *protocol.Exchange) error {
	return protocol.Faultf(protocol.ReasonOnDemandTimeout, "route table %s was requested and did not arrive in time", d.name)
}

// waitForTable serves an exchange of a listener whose table is not subscribed yet.
type waitForTable struct {
	serving *livePipeline
	table   *onDemandTable
}

// Serve implements protocol.Service. It serves x with the active pipeline once the table has
// arrived or the wait has timed out.
func (e waitForTable) Serve(ctx context.Context, x *protocol.Exchange) error {
	x.Detach()
	e.await(ctx, x)
	return protocol.ServeSync(ctx, serveNow{e.serving}, x)
}

// await requests the table and waits for it while the client stays connected.
func (e waitForTable) await(ctx context.Context, x *protocol.Exchange) {
	come := e.table.item.Wait()
	if now := e.serving.now.Load().table; now == nil || !now.Asleep {
		return // it has just arrived
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

// serveNow serves with the active pipeline, even if its table has not arrived.
type serveNow struct{ *livePipeline }

// Start implements protocol.AsyncService.
func (p serveNow) Start(ctx context.Context, x *protocol.Exchange) error {
	return p.begin(ctx, x, p.take())
}
