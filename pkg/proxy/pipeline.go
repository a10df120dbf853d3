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
	active atomic.Pointer[pipeline]
}

// pipeline serves and records the exchanges of a filter chain. It counts its exchanges so that its
// dependencies can be retired after it is replaced and the last exchange has ended.
type pipeline struct {
	listener string // name of the listener
	service  protocol.Service
	recorder *recorder
	table    *onDemandTable // nil: the route table is not on demand

	refs  atomic.Int64 // exchanges, plus one while it is active
	ended chan struct{}
	once  sync.Once // closes ended
}

func newPipeline(listener string, s protocol.Service, r *recorder) *pipeline {
	c := &pipeline{listener: listener, service: s, recorder: r, ended: make(chan struct{})}
	c.refs.Store(1)
	return c
}

func (c *pipeline) release() { c.releaseN(1) }

// releaseN releases n references.
func (c *pipeline) releaseN(n int) {
	if c.refs.Add(-int64(n)) == 0 {
		c.once.Do(func() { close(c.ended) })
	}
}

// acquire returns the active pipeline with a reference.
func (s *livePipeline) acquire() *pipeline {
	for {
		c := s.active.Load()
		c.refs.Add(1)
		if s.active.Load() == c {
			return c
		}
		c.release() // it was replaced before Add: ended may be closed already
	}
}

// Start implements protocol.Service. Observe releases the pipeline.
func (s *livePipeline) Start(ctx context.Context, x *protocol.Exchange) error {
	c := s.acquire()
	if c.table.mustWait() {
		defer c.release()
		return x.RunBlocking(ctx, tableWaiter{s, c.table})
	}
	return s.startWith(ctx, x, c)
}

// startWith starts x with c, on which the caller has a reference.
func (s *livePipeline) startWith(ctx context.Context, x *protocol.Exchange, c *pipeline) error {
	c.recorder.listener.Active.Add(1)
	x.Record.Listener = c
	c.recorder.setMethod(x)
	return c.service.Start(ctx, x)
}

// Observe records x with the pipeline that served it. If x was not a request, it uses the active
// pipeline.
func (s *livePipeline) Observe(x *protocol.Exchange) {
	if c, ok := x.Record.Listener.(*pipeline); ok {
		c.Observe(x)
		return
	}
	c := s.acquire()
	defer c.release()
	c.recorder.observe(x)
}

// Name implements protocol.Named.
func (c *pipeline) Name() string { return c.listener }

// Observe records x and releases the reference of Start.
func (c *pipeline) Observe(x *protocol.Exchange) {
	defer c.release()
	c.recorder.listener.Active.Add(-1)
	c.recorder.observe(x)
}
