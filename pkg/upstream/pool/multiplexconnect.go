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
	done         chan struct{} // closed after conn or err is set
	reserved     atomic.Int64  // after done is closed: exchanges that are counted on conn and have not resumed yet
	maxExchanges int64         // immutable; how many exchanges may begin on conn; 0: any number
	// cancelWait ends the wait for a slot. Immutable.
	cancelWait context.CancelFunc

	openAhead bool           // immutable; opened ahead of exchanges: dial even if none waits
	queued    bool           // guarded by the pool's mu; the connect has no slot yet
	waiting   int            // guarded by the pool's mu; exchanges that wait for the connection
	conn      *multiplexConn // guarded by the pool's mu until done
	err       error          // guarded by the pool's mu until done
}

// errMaxConnections says that a host without connections gets none because max_connections is
// reached.
var errMaxConnections = errors.New("max_connections reached by other hosts")

// awaitConnect waits for d; x is pending meanwhile. It returns the connection of d if x is counted
// on it. It returns nil without an error if more exchanges waited than the connection may carry, or
// if d failed but the pool has another connection.
func (p *multiplexPool) awaitConnect(ctx context.Context, x *protocol.Exchange, d *multiplexConnect) (c *multiplexConn, err error) {
	defer p.Breaker.LeavePending()
	waited := false
	defer func() {
		if !waited && !p.stopWaiting(d) { // after a panic
			p.releaseReservation(d)
		}
	}()
	x.Detach()
	_, reason := wait.For(ctx, x.EffectiveDeadline(), x.Downstream, d.done)
	waited = true
	if reason != protocol.ReasonNone && p.stopWaiting(d) {
		return nil, protocol.Faultf(reason, "while waiting for a connection to %s", p.Address)
	}
	switch { // d is done, possibly after the wait had ended
	case d.err != nil && len(p.activeConns()) > 0:
		return nil, nil
	case d.err != nil:
		return nil, d.err
	case d.reserved.Add(-1) < 0:
		return nil, nil
	}
	if err := p.Breaker.AddActive(); err != nil {
		d.conn.removeExchange()
		return nil, err
	}
	return d.conn, nil
}

// releaseReservation releases the reservation of an exchange that waited for d.
func (p *multiplexPool) releaseReservation(d *multiplexConnect) {
	if d.err == nil && d.reserved.Add(-1) >= 0 {
		d.conn.removeExchange()
	}
}

// stopWaiting removes an exchange that waits for d, and returns false if d is already done. It
// cancels a connect that has no slot and for which no exchange waits; the last connect of a pool
// stays for later exchanges.
func (p *multiplexPool) stopWaiting(d *multiplexConnect) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.conn != nil || d.err != nil {
		return false
	}
	d.waiting--
	if d.queued && d.waiting == 0 && len(p.pendingConnects) > 1 {
		p.removePending(d)
		d.cancelWait()
	}
	return true
}

// joinableConnect returns a pending connect for which one more exchange can wait, or nil. The
// caller holds p.mu.
func (p *multiplexPool) joinableConnect() *multiplexConnect {
	for _, d := range p.pendingConnects {
		if d.maxExchanges == 0 || int64(d.waiting) < d.maxExchanges {
			return d
		}
	}
	return nil
}

// startConnect starts to open a connection. If hasSlot is true, the caller has acquired a slot for
// the connection, which then opens ahead of exchanges. The caller holds p.mu.
func (p *multiplexPool) startConnect(hasSlot bool) *multiplexConnect {
	ctx, cancel := context.WithCancel(p.Tasks.Context())
	d := &multiplexConnect{done: make(chan struct{}), maxExchanges: p.maxRequestsPerConn(), cancelWait: cancel, openAhead: hasSlot, queued: !hasSlot}
	p.pendingConnects = append(p.pendingConnects, d)
	p.hasPendingConnects.Store(true)
	p.Tasks.Go(func() { p.runConnect(ctx, d) })
	return d
}

// removePending stops further exchanges from waiting for d. The caller holds p.mu.
func (p *multiplexPool) removePending(d *multiplexConnect) {
	if i := slices.Index(p.pendingConnects, d); i >= 0 {
		p.pendingConnects = slices.Delete(p.pendingConnects, i, i+1)
	}
	p.hasPendingConnects.Store(len(p.pendingConnects) > 0)
}

// maxRequestsPerConn returns how many exchanges may begin on a new connection; 0: any number.
func (p *multiplexPool) maxRequestsPerConn() int64 {
	cfg := &p.Config.Load().Pool
	if p.Protocol == config.HTTP2 {
		return int64(cfg.MaxRequests)
	}
	return int64(cfg.MaxRPCRequests)
}

// runConnect opens the connection of d; the end of ctx ends its wait for a slot.
func (p *multiplexPool) runConnect(ctx context.Context, d *multiplexConnect) {
	defer d.cancelWait() // releases ctx
	c := &multiplexConn{pool: p, maxRequests: d.maxExchanges}
	limit, err := p.openConn(ctx, d, c)
	if p.finishConnect(d, c, limit, err) {
		c.discard()
	}
}

// finishConnect ends d, which has opened c for at most limit concurrent exchanges (0: any number)
// or has failed, and reports whether the caller must discard c.
func (p *multiplexPool) finishConnect(d *multiplexConnect, c *multiplexConn, limit int64, err error) (mustDiscard bool) {
	defer close(d.done)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removePending(d)
	if err != nil {
		d.err = err
		return false
	}
	d.conn = c
	reserved := int64(d.waiting)
	if limit > 0 {
		reserved = min(reserved, limit)
	}
	if c.maxRequests > 0 {
		reserved = min(reserved, c.maxRequests)
	}
	d.reserved.Store(reserved)
	c.load.Store(reserved)
	c.requests.Store(reserved)
	c.usedSinceSweep.Store(true)
	if p.isClosed || c.maxRequestsReached() || d.waiting == 0 && p.Breaker.SlotsScarce() {
		return p.closeToNewExchanges(c)
	}
	conns := append(slices.Clone(p.activeConns()), c)
	p.active.Store(&conns)
	p.arm(p)
	return false
}

// openConn waits until d may dial, and then opens the connection of c. Each wait and the dial may
// take connect_timeout; the end of ctx ends the waits. It returns how many exchanges the host
// allows on c, 0 for any number. It turns a panic into an error. If it fails, it frees the slot.
func (p *multiplexPool) openConn(ctx context.Context, d *multiplexConnect, c *multiplexConn) (limit int64, err error) {
	defer protocol.RecoverPanic(&err)
	b, cfg := p.Breaker, p.Config.Load()
	var conn Connection
	defer func() {
		if c.conn == nil && conn != nil {
			p.closeConn(conn)
		}
		if c.conn == nil && !d.isQueued(p) {
			b.ReleaseSlot()
		}
	}()
	if err := p.dials.Acquire(ctx, cfg.Pool.ConnectLimit(), ConnectDeadline(cfg), p.Address); err != nil {
		return 0, p.errOrClosed(err)
	}
	defer p.dials.Release()
	if err := p.awaitSlot(ctx, d, cfg); err != nil {
		return 0, err
	}
	if !p.stillNeeded(d) {
		return 0, breaker.ErrNotNeeded
	}
	conn, err = p.connect(p.Tasks.Context(), ConnectDeadline(cfg), c.onReleased)
	if err != nil {
		if !p.Tasks.Closed() && !errors.Is(err, errOtherProtocol) {
			p.recordConnectFailure(err)
		}
		return 0, err
	}
	c.streamLimiter, _ = conn.(StreamLimitReporter)
	c.expiry = p.expiryOfNew()
	limit = c.streamLimit()
	c.conn = conn
	return limit, nil
}

// stillNeeded reports whether d must dial: an exchange waits for it, or it opens a connection ahead
// of exchanges. Otherwise it removes d from the pending connects, so that no exchange joins it.
func (p *multiplexPool) stillNeeded(d *multiplexConnect) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.openAhead || d.waiting > 0 {
		return true
	}
	p.removePending(d)
	return false
}

func (d *multiplexConnect) isQueued(p *multiplexPool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return d.queued
}

// awaitSlot waits for a slot for d, unless d has one.
func (p *multiplexPool) awaitSlot(ctx context.Context, d *multiplexConnect, cfg *config.Cluster) (err error) {
	b, limit := p.Breaker, cfg.Limits(p.Breaker.Priority()).MaxConnections
	if !d.isQueued(p) {
		return nil
	}
	if !b.TryAcquireSlot() {
		b.CountConnectionLimit()
		w := breaker.NewWaiter(&p.base)
		err = b.AwaitSlot(ctx, ConnectDeadline(cfg), &w)
	}
	switch {
	case err == nil:
		p.mu.Lock()
		d.queued = false
		p.mu.Unlock()
		return nil
	case p.Tasks.Closed():
		return p.errOrClosed(err)
	default: // the exchange may find a connection to another host
		return protocol.Faultf(protocol.Overflow, "no connection to %s: %w (%d)", p.Address, errMaxConnections, limit)
	}
}

// recordConnectFailure records that a connection could not be opened. It does not mark the host
// down if the pool has another connection, because the host may limit the number of connections.
func (p *multiplexPool) recordConnectFailure(err error) {
	p.mu.Lock()
	p.growAfter = p.Tasks.Now() + growBackoff
	hasOtherConn := len(p.activeConns()) > 0
	p.mu.Unlock()
	if hasOtherConn {
		p.Observer.Count(ExtraConnectFailed)
	} else {
		p.Observer.ConnectFailed(err)
	}
}
