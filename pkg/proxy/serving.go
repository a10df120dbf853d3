package proxy

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// livePipeline is the part of a listener that a new configuration replaces under the
// connections that are open, whatever engine options they were accepted with.
type livePipeline struct {
	now atomic.Pointer[pipeline]
}

// pipeline is what serves and records the exchanges of a listener. It knows
// how many it serves, so that what it refers to can be retired when it is no
// longer in force and the last of them has ended.
type pipeline struct {
	listener string // its name
	service  protocol.AsyncService
	record   *recorder
	table    *onDemandTable // nil: its route table is not on demand

	held  atomic.Int64 // exchanges, and one while it is in force
	ended chan struct{}
	once  sync.Once // closes ended
}

func newComposition(listener string, s protocol.AsyncService, r *recorder) *pipeline {
	c := &pipeline{listener: listener, service: s, record: r, ended: make(chan struct{})}
	c.held.Store(1)
	return c
}

func (c *pipeline) release() { c.releaseAll(1) }

// releaseAll is release for n exchanges.
func (c *pipeline) releaseAll(n int) {
	if c.held.Add(-int64(n)) == 0 {
		c.once.Do(func() { close(c.ended) })
	}
}

// take returns the composition in force, held.
func (s *livePipeline) take() *pipeline {
	for {
		c := s.now.Load()
		c.held.Add(1)
		if s.now.Load() == c {
			return c
		}
		c.release() // it was replaced before we held it: its end may have been seen
	}
}

// Serve lets the composition in force answer x.
func (s *livePipeline) Serve(ctx context.Context, x *protocol.Exchange) error {
	return protocol.ServeSync(ctx, s, x)
}

// Start is protocol.AsyncService's. The composition is held until Observe.
func (s *livePipeline) Start(ctx context.Context, x *protocol.Exchange) error {
	c := s.take()
	if c.table.absent() {
		defer c.release()
		return x.RunBlocking(ctx, waitForTable{s, c.table})
	}
	return s.begin(ctx, x, c)
}

// begin starts x by c, which is held.
func (s *livePipeline) begin(ctx context.Context, x *protocol.Exchange, c *pipeline) error {
	c.record.listener.Active.Add(1)
	x.Record.Listener = c
	c.record.name(x)
	return c.service.Start(ctx, x)
}

// Observe lets the composition that served x record it, or the one in force if none
// did: x was no request.
func (s *livePipeline) Observe(x *protocol.Exchange) {
	if c, ok := x.Record.Listener.(*pipeline); ok {
		c.Observe(x)
		return
	}
	c := s.take()
	defer c.release()
	c.record.observe(x)
}

// Name is protocol.Named's.
func (c *pipeline) Name() string { return c.listener }

// Observe ends what Start began.
func (c *pipeline) Observe(x *protocol.Exchange) {
	defer c.release()
	c.record.listener.Active.Add(-1)
	c.record.observe(x)
}
