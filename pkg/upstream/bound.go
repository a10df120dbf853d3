package upstream

import (
	"context"
	"sync"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// bound is a pool in which each downstream connection has a connection of its
// own, for hosts that take what comes over one connection to belong together. It
// ends with the downstream connection.
type bound struct {
	base // connections are counted in the pools of own

	mu       sync.Mutex
	own      map[any]*shared // guarded by mu; by the downstream connection
	isClosed bool            // guarded by mu
}

// Serve is pool's. For a caller without a connection, ctx is it.
func (p *bound) Serve(ctx context.Context, x *protocol.Exchange) error {
	return p.of(ctx, x.Meta.Conn).Serve(ctx, x)
}

// Start is pool's.
func (p *bound) Start(ctx context.Context, x *protocol.Exchange) error {
	return p.of(ctx, x.Meta.Conn).Start(ctx, x)
}

// of returns the pool of a downstream connection.
func (p *bound) of(ctx context.Context, meta *protocol.ConnMeta) *shared {
	var conn any = meta
	if meta != nil && meta.Link != nil {
		conn = meta.Link
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.own[conn]
	if s == nil {
		s = &shared{base: p.base, single: true, isClosed: p.isClosed}
		if p.own == nil {
			p.own = make(map[any]*shared)
		}
		p.own[conn] = s
		drop := func() { p.drop(conn) }
		if link, ok := conn.(protocol.Link); ok {
			link.AfterEnd(drop)
		} else {
			context.AfterFunc(ctx, drop)
		}
	}
	return s
}

// drop ends the connection of a downstream connection that has ended.
func (p *bound) drop(conn any) {
	p.mu.Lock()
	s := p.own[conn]
	delete(p.own, conn)
	p.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// all returns the pools of the downstream connections.
func (p *bound) all() []*shared {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*shared, 0, len(p.own))
	for _, s := range p.own {
		all = append(all, s)
	}
	return all
}

// giveWay is pool's.
func (p *bound) giveWay() ender {
	for _, s := range p.all() {
		if idle := s.giveWay(); idle != nil {
			return idle
		}
	}
	return nil
}

// counts is pool's.
func (p *bound) counts() (open int64, idle int) {
	for _, s := range p.all() {
		_, n := s.counts()
		idle += n
	}
	return p.open.Load(), idle
}

// close is pool's.
func (p *bound) close() {
	p.mu.Lock()
	p.isClosed = true
	p.mu.Unlock()
	for _, s := range p.all() {
		s.close()
	}
}
