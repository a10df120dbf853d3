package pool

import (
	"context"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// bindPool is a pool in which each downstream connection has upstream connections of its own, for
// hosts that treat the requests of one connection as related, and for PROXY headers. The upstream
// connections end with the downstream connection.
type bindPool struct {
	base                      // the subpools count their connections in base.open
	subpools[any, *bindEntry] // by the downstream connection
}

// bindEntry is the pool of one downstream connection.
type bindEntry struct {
	pool Pool
	stop func() // unregisters the close hook of the downstream connection; nil until registered; guarded by bindPool.mu
}

func (e *bindEntry) connPool() Pool { return e.pool }

// Start implements Pool. For an exchange without a downstream connection, the end of ctx closes the
// subpool.
func (p *bindPool) Start(ctx context.Context, x *protocol.Exchange) error {
	return p.poolFor(ctx, x.Meta.Conn).Start(ctx, x)
}

// poolFor returns the pool of a downstream connection.
func (p *bindPool) poolFor(ctx context.Context, meta *protocol.ConnMeta) Pool {
	var conn any = meta
	if meta != nil && meta.DownstreamConn != nil {
		conn = meta.DownstreamConn
	}
	p.mu.Lock()
	e := p.entries[conn]
	if e != nil {
		p.mu.Unlock()
		return e.pool
	}
	b := p.base
	b.Connector = b.Connector.ForDownstream(meta)
	if b.Connector.Multiplexed() {
		e = &bindEntry{pool: &multiplexPool{base: b, singleConn: true, isClosed: p.isClosed}}
	} else {
		e = &bindEntry{pool: &pingPongPool{base: b, isClosed: p.isClosed}}
	}
	if p.isClosed { // the exchange picked its host before the close
		p.mu.Unlock()
		return e.pool
	}
	if p.entries == nil {
		p.entries = make(map[any]*bindEntry)
	}
	p.entries[conn] = e
	p.mu.Unlock()
	p.bind(ctx, conn, e)
	return e.pool
}

// bind registers e to be dropped when its downstream connection ends, or unregisters it immediately
// if the pool is closed.
func (p *bindPool) bind(ctx context.Context, conn any, e *bindEntry) {
	drop := func() { p.onDownstreamClose(conn) }
	var stop func()
	if downstream, ok := conn.(protocol.DownstreamConn); ok {
		stop = downstream.OnClose(drop)
	} else {
		stopAfterFunc := context.AfterFunc(ctx, drop)
		stop = func() { stopAfterFunc() }
	}
	p.mu.Lock()
	closed := p.isClosed
	e.stop = stop
	p.mu.Unlock()
	if closed {
		stop()
	}
}

// onDownstreamClose closes the pool of a downstream connection that has ended.
func (p *bindPool) onDownstreamClose(conn any) {
	p.mu.Lock()
	e := p.entries[conn]
	delete(p.entries, conn)
	p.mu.Unlock()
	if e != nil {
		e.pool.Close()
	}
}

// Stats implements Pool. Open includes connections whose downstream connection has ended.
func (p *bindPool) Stats() Stats {
	s := p.stats()
	s.Open = p.open.Load()
	return s
}

// Close implements Pool. It unregisters the pool from downstream connections that stay open.
func (p *bindPool) Close() {
	p.mu.Lock()
	p.isClosed = true
	entries := p.entries
	p.entries = nil
	var stops []func()
	for _, e := range entries {
		if e.stop != nil {
			stops = append(stops, e.stop)
		}
	}
	p.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
	for _, e := range entries {
		e.pool.Close()
	}
}
