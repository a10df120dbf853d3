package upstream

import (
	"context"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// bindPool is a pool in which each downstream connection has a connection of its
// own, for hosts that take what comes over one connection to belong together. It
// ends with the downstream connection.
type bindPool struct {
	base                      // connections are counted in the pools of own
	subpools[any, *bindEntry] // by the downstream connection
}

// bindEntry is what a downstream connection has.
type bindEntry struct {
	pool pool
	stop func() // forgets the downstream connection; nil until it is known. Guarded by the bound's mu
}

func (t *bindEntry) whole() pool { return t.pool }

// Serve is pool's. For a caller without a connection, ctx is it.
func (p *bindPool) Serve(ctx context.Context, x *protocol.Exchange) error {
	return p.of(ctx, x.Meta.Conn).Serve(ctx, x)
}

// Start is pool's.
func (p *bindPool) Start(ctx context.Context, x *protocol.Exchange) error {
	return p.of(ctx, x.Meta.Conn).Start(ctx, x)
}

// of returns the pool of a downstream connection.
func (p *bindPool) of(ctx context.Context, meta *protocol.ConnMeta) pool {
	var conn any = meta
	if meta != nil && meta.DownstreamConn != nil {
		conn = meta.DownstreamConn
	}
	p.mu.Lock()
	t := p.own[conn]
	if t != nil {
		p.mu.Unlock()
		return t.pool
	}
	own := p.base
	own.connector = announcing(own.connector, meta)
	if own.connector.Multiplexed() {
		t = &bindEntry{pool: &multiplexPool{base: own, single: true, isClosed: p.isClosed}}
	} else {
		t = &bindEntry{pool: &pingPongPool{base: own, isClosed: p.isClosed}}
	}
	if p.isClosed { // the exchange chose its host before; nobody else will come
		p.mu.Unlock()
		return t.pool
	}
	if p.own == nil {
		p.own = make(map[any]*bindEntry)
	}
	p.own[conn] = t
	p.mu.Unlock()
	p.bind(ctx, conn, t)
	return t.pool
}

// bind sees to it that t ends with its downstream connection, or is forgotten by
// that when the pool is closed.
func (p *bindPool) bind(ctx context.Context, conn any, t *bindEntry) {
	drop := func() { p.drop(conn) }
	var stop func()
	if link, ok := conn.(protocol.DownstreamConn); ok {
		stop = link.OnClose(drop)
	} else {
		forget := context.AfterFunc(ctx, drop)
		stop = func() { forget() }
	}
	p.mu.Lock()
	closed := p.isClosed
	t.stop = stop
	p.mu.Unlock()
	if closed {
		stop()
	}
}

// drop ends the connection of a downstream connection that has ended.
func (p *bindPool) drop(conn any) {
	p.mu.Lock()
	t := p.own[conn]
	delete(p.own, conn)
	p.mu.Unlock()
	if t != nil {
		t.pool.close()
	}
}

// counts is pool's.
func (p *bindPool) counts() (open int64, idle int) {
	for _, s := range p.all() {
		_, n := s.counts()
		idle += n
	}
	return p.open.Load(), idle
}

// close is pool's. The downstream connections may live on: they forget the pool.
func (p *bindPool) close() {
	p.mu.Lock()
	p.isClosed = true
	own := p.own
	p.own = nil
	var stops []func()
	for _, t := range own {
		if t.stop != nil {
			stops = append(stops, t.stop)
		}
	}
	p.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
	for _, t := range own {
		t.pool.close()
	}
}
