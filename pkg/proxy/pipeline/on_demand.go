package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/weft-proxy/weft/internal/demand"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/wait"
)

// Route tables may be on demand (config.OnDemand), like hosts of clusters: a listener whose table
// is not subscribed accepts connections. Its first exchange requests the table and waits for the
// configuration that contains it. A subscribed on-demand table costs each exchange one atomic load;
// other tables cost nothing.

// OnDemandTables holds the on-demand route tables of a server.
type OnDemandTables struct {
	queue *demand.RequestQueue

	mu    sync.Mutex
	items map[string]*demand.Item // guarded by mu; by name
}

// NewOnDemandTables returns a set without tables.
func NewOnDemandTables() *OnDemandTables {
	return &OnDemandTables{queue: demand.NewRequestQueue(), items: make(map[string]*demand.Item)}
}

// item returns the item of that name and creates it if needed.
func (t *OnDemandTables) item(name string) *demand.Item {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.items[name]
	if i == nil {
		i = new(demand.Item)
		t.items[name] = i
	}
	return i
}

// NotifyWaiters wakes exchanges that wait for a table that is now active. It also wakes those whose
// table was removed. All of them continue with the active pipeline.
func (t *OnDemandTables) NotifyWaiters(tables []*config.RouteTable) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.items) == 0 {
		return
	}
	states := make(map[string]config.OnDemand, len(tables))
	for _, table := range tables {
		states[table.Name] = table.OnDemand
	}
	for name, item := range t.items {
		if !states[name].Unsubscribed {
			item.Notify()
		}
		if !states[name].Enabled() {
			delete(t.items, name)
		}
	}
}

// OnDemandRoutes tells the owner of on-demand route tables which tables are needed. It is safe for
// concurrent use.
type OnDemandRoutes struct{ tables *OnDemandTables }

// Requests returns the OnDemandRoutes of t.
func (t *OnDemandTables) Requests() OnDemandRoutes { return OnDemandRoutes{t} }

// Requested returns a channel that signals when TakeRequested may return names. It has one
// receiver.
func (r OnDemandRoutes) Requested() <-chan struct{} { return r.tables.queue.Requested() }

// TakeRequested returns the names requested since its last call, sorted. Some tables may be present
// already or no longer in use.
func (r OnDemandRoutes) TakeRequested() []string { return r.tables.queue.Take() }

// InUse reports whether an exchange has used the table since the last call.
func (r OnDemandRoutes) InUse(name string) bool {
	r.tables.mu.Lock()
	item := r.tables.items[name]
	r.tables.mu.Unlock()
	return item != nil && item.ResetUsed()
}

// OnDemandTable is an on-demand table for a pipeline. Immutable.
type OnDemandTable struct {
	config.OnDemand
	name  string
	item  *demand.Item
	queue *demand.RequestQueue
}

// Table returns the on-demand state of a table.
func (t *OnDemandTables) Table(name string, state config.OnDemand) *OnDemandTable {
	return &OnDemandTable{state, name, t.item(name), t.queue}
}

// mustWait records that an exchange arrived and reports whether it must wait. t may be nil.
func (t *OnDemandTable) mustWait() bool {
	if t == nil {
		return false
	}
	t.item.MarkUsed()
	return t.Unsubscribed
}

// Start implements protocol.Service. It fails exchanges of a table that did not arrive in time.
func (t *OnDemandTable) Start(context.Context, *protocol.Exchange) error {
	return protocol.Faultf(protocol.ReasonOnDemandTimeout, "route table %s was requested and did not arrive in time", t.name)
}

// tableWaiter serves an exchange of a listener whose table is not subscribed yet.
type tableWaiter struct {
	live  *Live
	table *OnDemandTable
}

// Serve implements protocol.BlockingService. It serves x with the active pipeline once await has
// returned.
func (w tableWaiter) Serve(ctx context.Context, x *protocol.Exchange) error {
	x.Detach()
	w.await(ctx, x)
	return x.Serve(ctx, activePipeline{w.live})
}

// await requests the table and returns when the table has arrived, the wait has timed out, or the
// client has disconnected.
func (w tableWaiter) await(ctx context.Context, x *protocol.Exchange) {
	arrived := w.table.item.Wait()
	if table := w.live.active.Load().table; table == nil || !table.Unsubscribed {
		return // the table has arrived in the meantime
	}
	w.table.queue.Request(w.table.name)
	deadline := time.Now().Add(w.table.Wait)
	if !x.Deadline.IsZero() && x.Deadline.Before(deadline) {
		deadline = x.Deadline
	}
	wait.For(ctx, deadline, x.Downstream, arrived)
}

// activePipeline serves with the active pipeline, even if its table has not arrived.
type activePipeline struct{ *Live }

// Start implements protocol.Service.
func (p activePipeline) Start(ctx context.Context, x *protocol.Exchange) error {
	return p.startWith(ctx, x, p.acquire())
}
