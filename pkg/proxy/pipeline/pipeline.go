// Package pipeline serves and records the exchanges of a filter chain. A new configuration replaces
// the pipeline of a chain while connections stay open:
//
//	Live             pipeline.go         the active Pipeline of a chain, across configurations
//	Pipeline                             a composed service, its Recorder, and its exchanges
//	Recorder         recorder.go         metrics, access logs and observers of filters
//	BatchObserver    batch_observer.go   records exchanges that end together
//	OnDemandTables   on_demand.go        route tables that the first exchange requests
package pipeline

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Live holds the active Pipeline of a filter chain, which a new configuration replaces while
// connections stay open. Live is the Service of the chain's engines. The caller activates a
// Pipeline before the first exchange.
type Live struct {
	active atomic.Pointer[Pipeline]
}

// Active returns the active pipeline; nil before the first.
func (l *Live) Active() *Pipeline { return l.active.Load() }

// Activate makes next the active pipeline and returns the previous one, or nil. The caller releases
// the previous one.
func (l *Live) Activate(next *Pipeline) (previous *Pipeline) { return l.active.Swap(next) }

// Pipeline serves and records the exchanges of a filter chain. It counts its exchanges, so that its
// dependencies can be released after it was replaced and its last exchange has ended.
type Pipeline struct {
	listener string // name of the listener
	service  protocol.Service
	recorder *Recorder
	table    *OnDemandTable // nil: the route table is not on demand

	refs  atomic.Int64 // number of exchanges, plus one until Release
	ended chan struct{}
	once  sync.Once // closes ended
}

// New returns a pipeline of a listener, with the reference that Release releases. The pipeline owns
// r. table is the on-demand route table of s; nil: none.
func New(listener string, s protocol.Service, r *Recorder, table *OnDemandTable) *Pipeline {
	p := &Pipeline{listener: listener, service: s, recorder: r, table: table, ended: make(chan struct{})}
	p.refs.Store(1)
	return p
}

// Release releases the reference of New when p is no longer active.
func (p *Pipeline) Release() { p.releaseN(1) }

// Ended returns a channel that is closed when p is not active and has no exchanges.
func (p *Pipeline) Ended() <-chan struct{} { return p.ended }

// Close closes the recorder. The caller waits for Ended first, unless p was never active.
func (p *Pipeline) Close() { p.recorder.Close() }

// releaseN releases n references.
func (p *Pipeline) releaseN(n int) {
	if p.refs.Add(-int64(n)) == 0 {
		p.once.Do(func() { close(p.ended) })
	}
}

// acquire returns the active pipeline with a reference.
func (l *Live) acquire() *Pipeline {
	for {
		p := l.active.Load()
		p.refs.Add(1)
		if l.active.Load() == p {
			return p
		}
		p.releaseN(1) // p was replaced, maybe before Add: p.ended may be closed already
	}
}

// Start implements protocol.Service. Observe releases the reference to the pipeline.
func (l *Live) Start(ctx context.Context, x *protocol.Exchange) error {
	p := l.acquire()
	if p.table.mustWait() {
		defer p.releaseN(1)
		return x.RunBlocking(ctx, tableWaiter{l, p.table})
	}
	return l.startWith(ctx, x, p)
}

// startWith starts x with p. x takes over the caller's reference to p.
func (l *Live) startWith(ctx context.Context, x *protocol.Exchange, p *Pipeline) error {
	p.recorder.listener.Active.Add(1)
	x.Record.Listener = p
	p.recorder.setMethod(x)
	return p.service.Start(ctx, x)
}

// Observe records x with the pipeline that served it. If no pipeline did, for example because the
// head of the request was malformed, it uses the active pipeline.
func (l *Live) Observe(x *protocol.Exchange) {
	if p, ok := x.Record.Listener.(*Pipeline); ok {
		p.Observe(x)
		return
	}
	p := l.acquire()
	defer p.releaseN(1)
	p.recorder.observe(x)
}

// Name implements protocol.Named.
func (p *Pipeline) Name() string { return p.listener }

// Observe records x and releases the reference of Start.
func (p *Pipeline) Observe(x *protocol.Exchange) {
	defer p.releaseN(1)
	p.recorder.listener.Active.Add(-1)
	p.recorder.observe(x)
}
