package pool

import (
	"context"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// bindPool is a pool in which each downstream connection has an upstream connection of its own, for
// hosts that treat the requests of one connection as related. The upstream connection ends with the
// downstream connection.
type bindPool struct {
	base                      // its pools count the connections in base.open
	subpools[any, *bindEntry] // by the downstream connection
}

// bindEntry is the pool of one downstream connection.
type bindEntry struct {
	pool Pool
	stop func() // unregisters from the downstream connection; nil until registered. Guarded by bindPool.mu
}

func (t *bindEntry) connPool() Pool { return t.pool }

// Start implements Pool. For an exchange without a downstream connection, the end of ctx releases
// the pool.
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
	t := p.entries[conn]
	if t != nil {
		p.mu.Unlock()
		return t.pool
	}
	own := p.base
	own.Connector = own.Connector.ForDownstream(meta)
	if own.Connector.Multiplexed() {
		t = &bindEntry{pool: &multiplexPool{base: own, single: true, isClosed: p.isClosed}}
	} else {
		t = &bindEntry{pool: &pingPongPool{base: own, isClosed: p.isClosed}}
	}
	if p.isClosed { // the exchange picked its host before the close
		p.mu.Unlock()
		return t.pool
	}
	if p.entries == nil {
		p.entries = make(map[any]*bindEntry)
	}
	p.entries[conn] = t
	p.mu.Unlock()
	p.bind(ctx, conn, t)
	return t.pool
}

// bind registers t to be dropped when its downstream connection ends, or unregisters immediately if
// the pool is closed.
func (p *bindPool) bind(ctx context.Context, conn any, t *bindEntry) {
	drop := func() { p.onDownstreamClose(conn) }
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

// onDownstreamClose closes the pool of a downstream connection that has ended.
func (p *bindPool) onDownstreamClose(conn any) {
	p.mu.Lock()
	t := p.entries[conn]
	delete(p.entries, conn)
	p.mu.Unlock()
	if t != nil {
		t.pool.Close()
	}
}

// Counts implements Pool.
func (p *bindPool) Counts() (open int64, idle int) {
	for _, s := range p.pools() {
		_, n := s.Counts()
		idle += n
	}
	return p.open.Load(), idle
}

// Close implements Pool. Downstream connections that stay open unregister the pool.
func (p *bindPool) Close() {
	p.mu.Lock()
	p.isClosed = true
	own := p.entries
	p.entries = nil
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
		t.pool.Close()
	}
}
