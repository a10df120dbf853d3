package proxy

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// livePipeline is the part of a filter chain that a new configuration replaces while connections
// stay open.
type livePipeline struct {
	now atomic.Pointer[pipeline]
}

// pipeline serves and records the exchanges of a filter chain. It counts its exchanges so that its
// dependencies can be retired after it is replaced and the last exchange has ended.
type pipeline struct {
	listener string // name of the listener
	service  protocol.AsyncService
	record   *recorder
	table    *onDemandTable // nil: the route table is not on demand

	held  atomic.Int64 // exchanges, plus one while it is active
	ended chan struct{}
	once  sync.Once // closes ended
}

func newComposition(listener string, s protocol.AsyncService, r *recorder) *pipeline {
	c := &pipeline{listener: listener, service: s, record: r, ended: make(chan struct{})}
	c.held.Store(1)
	return c
}

func (c *pipeline) release() { c.releaseAll(1) }

// releaseAll releases n references.
func (c *pipeline) releaseAll(n int) {
	if c.held.Add(-int64(n)) == 0 {
		c.once.Do(func() { close(c.ended) })
	}
}

// take returns the active pipeline with a reference.
func (s *livePipeline) take() *pipeline {
	for {
		c := s.now.Load()
		c.held.Add(1)
		if s.now.Load() == c {
			return c
		}
		c.release() // it was replaced before Add: ended may be closed already
	}
}

// Serve serves x with the active pipeline.
func (s *livePipeline) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, s, x)
}

// Start implements protocol.AsyncService. Observe releases the pipeline.
func (s *livePipeline) Start(ctx context.Context, x *protocol.Exchange) error {
	c := s.take()
	if c.table.absent() {
		defer c.release()
		return x.RunBlocking(ctx, waitForTable{s, c.table})
	}
	return s.begin(ctx, x, c)
}

// begin starts x with c, on which the caller has a reference.
func (s *livePipeline) begin(ctx context.Context, x *protocol.Exchange, c *pipeline) error {
	c.record.listener.Active.Add(1)
	x.Record.Listener = c
	c.record.name(x)
	return c.service.Start(ctx, x)
}

// Observe records x with the pipeline that served it. If x was not a request, it uses the active
// pipeline.
func (s *livePipeline) Observe(x *protocol.Exchange) {
	if c, ok := x.Record.Listener.(*pipeline); ok {
		c.Observe(x)
		return
	}
	c := s.take()
	defer c.release()
	c.record.observe(x)
}

// Name implements protocol.Named.
func (c *pipeline) Name() string { return c.listener }

// Observe records x and releases the reference of Start.
func (c *pipeline) Observe(x *protocol.Exchange) {
	defer c.release()
	c.record.listener.Active.Add(-1)
	c.record.observe(x)
}
