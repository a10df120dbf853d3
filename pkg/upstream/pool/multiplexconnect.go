package pool

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/breaker"
	"github.com/weft-proxy/weft/pkg/upstream/wait"
)

// multiplexConnect is a connection that is being opened.
type multiplexConnect struct {
	done         chan struct{} // closed when conn or err is set
	reserved     atomic.Int64  // once done is closed: exchanges that are counted on conn and have not claimed it yet
	maxExchanges int64         // immutable; how many exchanges may begin on conn; 0: any number
	// cancelWait ends its wait for a slot. Immutable.
	cancelWait context.CancelFunc

	unconditional bool           // immutable; it dials even if no exchange waits
	queued        bool           // guarded by the pool's mu; it has no slot yet
	waiting       int            // guarded by the pool's mu; exchanges that wait for the connection
	conn          *multiplexConn // guarded by the pool's mu until done
	err           error          // guarded by the pool's mu until done
}

// errMaxConnections is the error of a host without connections while max_connections is reached.
var errMaxConnections = errors.New("max_connections reached by other hosts")

// awaitConnect waits for o; x is pending meanwhile. It returns o's connection if x is counted on
// it. It returns nil without an error if the connection carries fewer exchanges than waited for it,
// or if o failed but the pool has another connection.
func (p *multiplexPool) awaitConnect(ctx context.Context, x *protocol.Exchange, o *multiplexConnect) (l *multiplexConn, err error) {
	defer p.Breaker.LeavePending()
	waited := false
	defer func() {
		if !waited && !p.stopWaiting(o) { // a panic unwinds
			p.releaseReservation(o)
		}
	}()
	x.Detach()
	_, why := wait.For(ctx, x.EffectiveDeadline(), x.Downstream, o.done)
	waited = true
	if why != protocol.ReasonNone && p.stopWaiting(o) {
		return nil, protocol.Faultf(why, "while waiting for a connection to %s", p.Address)
	}
	switch { // done, possibly at the last moment
	case o.err != nil && len(p.activeConns()) > 0:
		return nil, nil
	case o.err != nil:
		return nil, o.err
	case o.reserved.Add(-1) < 0:
		return nil, nil
	}
	if err := p.Breaker.AddActive(); err != nil {
		o.conn.removeExchange()
		return nil, err
	}
	return o.conn, nil
}

// releaseReservation releases the reservation of an exchange that waited for o.
func (p *multiplexPool) releaseReservation(o *multiplexConnect) {
	if o.err == nil && o.reserved.Add(-1) >= 0 {
		o.conn.removeExchange()
	}
}

// stopWaiting removes an exchange that waits for o, and returns false if o is already done. It
// drops a connect that nothing waits for from the queue for slots; the last connect of a pool stays
// for later exchanges.
func (p *multiplexPool) stopWaiting(o *multiplexConnect) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.conn != nil || o.err != nil {
		return false
	}
	o.waiting--
	if o.queued && o.waiting == 0 && len(p.pendingConnects) > 1 {
		p.removePending(o)
		o.cancelWait()
	}
	return true
}

// joinableConnect returns a pending connect that one more exchange can wait for, or nil. p.mu is
// held.
func (p *multiplexPool) joinableConnect() *multiplexConnect {
	for _, o := range p.pendingConnects {
		if o.maxExchanges == 0 || int64(o.waiting) < o.maxExchanges {
			return o
		}
	}
	return nil
}

// startConnect opens a connection; slot says that the caller has taken a slot. p.mu is held.
func (p *multiplexPool) startConnect(slot bool) *multiplexConnect {
	ctx, giveUp := context.WithCancel(p.Tasks.Context())
	o := &multiplexConnect{done: make(chan struct{}), maxExchanges: p.maxRequestsPerConn(), cancelWait: giveUp, unconditional: slot, queued: !slot}
	p.pendingConnects = append(p.pendingConnects, o)
	p.hasPendingConnects.Store(true)
	p.Tasks.Go(func() { p.runConnect(ctx, o) })
	return o
}

// removePending stops further exchanges from waiting for o. p.mu is held.
func (p *multiplexPool) removePending(o *multiplexConnect) {
	if i := slices.Index(p.pendingConnects, o); i >= 0 {
		p.pendingConnects = slices.Delete(p.pendingConnects, i, i+1)
	}
	p.hasPendingConnects.Store(len(p.pendingConnects) > 0)
}

// maxRequestsPerConn returns how many exchanges may begin on a new connection; 0: any number.
func (p *multiplexPool) maxRequestsPerConn() int64 {
	pool := &p.Config.Load().Pool
	if p.Protocol == config.HTTP2 {
		return int64(pool.MaxRequests)
	}
	return int64(pool.MaxRPCRequests)
}

// runConnect opens the connection of o; the end of ctx ends its wait for a slot.
func (p *multiplexPool) runConnect(ctx context.Context, o *multiplexConnect) {
	defer o.cancelWait() // it has no effect by then
	l := &multiplexConn{pool: p, maxRequests: o.maxExchanges}
	limit, err := p.openConn(ctx, o, l)
	if p.finishConnect(o, l, limit, err) {
		l.discard()
	}
}

// finishConnect ends o, which has opened l for at most limit exchanges (0: any number) or has
// failed, and reports whether the caller must discard l.
func (p *multiplexPool) finishConnect(o *multiplexConnect, l *multiplexConn, limit int64, err error) (over bool) {
	defer close(o.done)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removePending(o)
	if err != nil {
		o.err = err
		return false
	}
	o.conn = l
	seats := int64(o.waiting)
	if limit > 0 {
		seats = min(seats, limit)
	}
	if l.maxRequests > 0 {
		seats = min(seats, l.maxRequests)
	}
	o.reserved.Store(seats)
	l.load.Store(seats)
	l.requests.Store(seats)
	l.usedSinceSweep.Store(true)
	if p.isClosed || l.maxRequestsReached() || o.waiting == 0 && p.Breaker.SlotsScarce() {
		return p.closeToNew(l)
	}
	more := append(slices.Clone(p.activeConns()), l)
	p.active.Store(&more)
	p.arm(p)
	return false
}

// openConn opens l's connection within connect_timeout when it is o's turn. It waits as long for
// the turn, or until ctx ends. It returns how many exchanges the host allows on l, 0 for any
// number. It turns a panic into an error and frees the slot.
func (p *multiplexPool) openConn(ctx context.Context, o *multiplexConnect, l *multiplexConn) (limit int64, err error) {
	defer protocol.RecoverPanic(&err)
	b, cfg := p.Breaker, p.Config.Load()
	var conn Connection
	defer func() {
		if l.conn == nil && conn != nil {
			p.closeConn(conn)
		}
		if l.conn == nil && !o.isQueued(p) {
			b.ReleaseSlot()
		}
	}()
	if err := p.dials.Acquire(ctx, cfg.Pool.ConnectLimit(), ConnectDeadline(cfg), p.Address); err != nil {
		return 0, p.errOrClosed(err)
	}
	defer p.dials.Release()
	if err := p.awaitSlot(ctx, o, cfg); err != nil {
		return 0, err
	}
	if !p.stillNeeded(o) {
		return 0, breaker.ErrNotNeeded
	}
	conn, err = p.connect(p.Tasks.Context(), ConnectDeadline(cfg), l.onReleased)
	if err != nil {
		if !p.Tasks.Closed() {
			p.recordConnectFailure(err)
		}
		return 0, err
	}
	l.streamLimiter, _ = conn.(StreamLimitReporter)
	limit = l.streamLimit()
	l.conn = conn
	return limit, nil
}

// stillNeeded reports whether o must dial: an exchange waits for it, or it opens a connection ahead
// of exchanges. Otherwise no exchange can join o any more.
func (p *multiplexPool) stillNeeded(o *multiplexConnect) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.unconditional || o.waiting > 0 {
		return true
	}
	p.removePending(o)
	return false
}

func (o *multiplexConnect) isQueued(p *multiplexPool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return o.queued
}

// awaitSlot waits for a slot for o, unless it has one.
func (p *multiplexPool) awaitSlot(ctx context.Context, o *multiplexConnect, cfg *config.Cluster) (err error) {
	b, limit := p.Breaker, cfg.Limits(p.Breaker.Priority()).MaxConnections
	if !o.isQueued(p) {
		return nil
	}
	if !b.TryAcquireSlot() {
		b.OnConnectionLimit()
		w := breaker.NewWaiter(&p.base)
		err = b.AwaitSlot(ctx, ConnectDeadline(cfg), &w)
	}
	switch {
	case err == nil:
		p.mu.Lock()
		o.queued = false
		p.mu.Unlock()
		return nil
	case p.Tasks.Closed():
		return p.errOrClosed(err)
	default: // the exchange may find a connection to another host
		return protocol.Faultf(protocol.Overflow, "no connection to %s: %w (%d)", p.Address, errMaxConnections, limit)
	}
}

// recordConnectFailure records that a connection could not be opened. A host with another
// connection is not marked down: it may limit their number.
func (p *multiplexPool) recordConnectFailure(err error) {
	p.mu.Lock()
	p.growAfter = p.Tasks.Now() + growBackoff
	more := len(p.activeConns()) > 0
	p.mu.Unlock()
	if more {
		p.Observer.Count(ExtraConnectFailed)
	} else {
		p.Observer.ConnectFailed(err)
	}
}
