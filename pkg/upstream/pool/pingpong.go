package pool

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/breaker"
	"github.com/weft-proxy/weft/pkg/upstream/wait"
)

// pingPongPool is a pool whose connections carry one exchange at a time. It uses the connection
// that became idle last, which the host is least likely to have closed; surplus connections reach
// the idle timeout. While no connection is idle, exchanges wait (pingpongconnect.go).
type pingPongPool struct {
	base

	mu       sync.Mutex
	idle     []*pingPongConn // guarded by mu; oldest first, except for connections put back unused
	isClosed bool            // guarded by mu

	pending         list.List // guarded by mu; of *pendingExchange, oldest first
	arrivals        uint64    // guarded by mu; number of pending exchanges so far
	queuedConnects  list.List // guarded by mu; of *pingPongConnect that do not dial yet, oldest first
	dialingConnects list.List // guarded by mu; of *pingPongConnect that dial, oldest first
}

// pingPongConn is a connection of a pingPongPool. The pool owns it while it is idle; otherwise the
// exchange that acquired it owns it.
type pingPongConn struct {
	pool      *pingPongPool // immutable
	conn      Connection
	expiry    time.Duration // immutable; see base.expiryOfNew
	useCount  int           // number of exchanges that the connection has carried
	idleSince time.Duration // when the connection became idle, by the set's clock
}

// Start implements Pool. It may have to wait for a connection.
func (p *pingPongPool) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, p)
}

// Serve implements protocol.BlockingService.
//
// The host may close an idle connection just when the request is sent (RFC 9112 9.3.1). That is no
// failure of the host, so Serve handles it instead of the retry policy: if canResend allows it,
// Serve resends the request on a connection that was not idle.
func (p *pingPongPool) Serve(ctx context.Context, x *protocol.Exchange) error {
	c, err := p.acquire(ctx, x)
	if err != nil {
		return &NotSentError{err}
	}
	reused := c.useCount > 0 // read now: after its release, c may belong to another exchange
	if err = x.Serve(ctx, c.conn); err == nil {
		p.recordAlive()
		return nil
	}
	if !reused || !canResend(&x.Request, err) || wait.Expired(x.EffectiveDeadline()) {
		return err
	}
	p.countResent()
	c, err = p.acquireNew(ctx, x)
	if err != nil {
		return &NotSentError{err}
	}
	if err = x.Serve(ctx, c.conn); err == nil {
		p.recordAlive()
	}
	return err
}

// closedBeforeSend reports whether err means that the connection had ended before the request was
// sent.
func closedBeforeSend(err error) bool { return protocol.ReasonOf(err) == protocol.ConnectFailure }

// canResend reports whether a request that failed with err on a reused connection can be resent,
// and rewinds the body if it may have been read. A request of which bytes may have been sent
// can be resent only if the host did not receive all of it and its method is idempotent (RFC 9110
// 9.2.2).
func canResend(r *protocol.Request, err error) bool {
	switch {
	case closedBeforeSend(err):
		return true // the body was not read
	case errors.Is(err, protocol.ErrNotSent), errors.Is(err, protocol.ErrNotReceived) && protocol.IsIdempotentMethod(r.Method):
	default:
		return false
	}
	return protocol.RewindBody(r.Body)
}

// acquire returns a connection and counts x on it: a usable idle connection, or one for which x has
// waited. It turns a panic into an error, and then counts nothing.
func (p *pingPongPool) acquire(ctx context.Context, x *protocol.Exchange) (c *pingPongConn, err error) {
	defer protocol.RecoverPanic(&err)
	for {
		c := p.popIdle()
		if c == nil {
			return p.awaitConn(ctx, x, false)
		}
		if !c.checkUsable() {
			c.discard()
			continue
		}
		if err := p.Breaker.AddActive(); err != nil {
			c.returnToPool()
			return nil, err
		}
		return c, nil
	}
}

// acquireNew does what acquire does but uses no connection that is idle now.
func (p *pingPongPool) acquireNew(ctx context.Context, x *protocol.Exchange) (c *pingPongConn, err error) {
	defer protocol.RecoverPanic(&err)
	return p.awaitConn(ctx, x, true)
}

// checkUsable reports whether the connection can take an exchange. If Usable panics, it discards
// the connection.
func (c *pingPongConn) checkUsable() (ok bool) {
	checked := false
	defer func() {
		if !checked {
			c.discard()
		}
	}()
	ok = !c.pool.isExpired(c.expiry) && c.conn.Usable(c.pool.Tasks.Now()-c.idleSince)
	checked = true
	return ok
}

// onReleased records that an exchange has released the connection, which calls onReleased.
func (c *pingPongConn) onReleased(reusable bool) {
	p := c.pool
	p.Load.End()
	p.Breaker.RemoveActive()
	c.useCount++
	limit := p.Config.Load().MaxRequestsPerConn
	switch {
	case limit > 0 && c.useCount >= limit:
		p.Observer.Count(MaxRequestsReached)
		c.discard()
	case !reusable, p.isExpired(c.expiry), p.Breaker.MaxConnectionsExceeded():
		c.discard()
	default:
		c.idleSince = p.Tasks.Now()
		c.returnToPool()
	}
}

// returnToPool gives the connection to a waiting exchange, or its slot to a waiting connect, or
// makes the connection idle. If the pool is closed, it discards the connection.
func (c *pingPongConn) returnToPool() {
	for {
		switch c.pool.tryKeepIdle(c) {
		case keptIdle:
			return
		case keepPoolClosed:
			c.discard()
			return
		case keepHasWaiter:
			if c.pool.Breaker.HandOver(c) {
				return
			}
		}
	}
}

// keepResult is the result of an attempt to keep a connection.
type keepResult uint8

const (
	keptIdle       keepResult = iota
	keepPoolClosed            // the pool is closed
	keepHasWaiter             // an exchange waits for a connection, or a connect for a slot
)

// tryKeepIdle makes c the newest idle connection, unless the pool is closed or an exchange or a
// connect waits.
func (p *pingPongPool) tryKeepIdle(c *pingPongConn) keepResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.isClosed:
		return keepPoolClosed
	case p.hasWaiters():
		return keepHasWaiter
	}
	p.idle = append(p.idle, c)
	p.arm(p)
	return keptIdle
}

// hasWaiters reports whether an exchange waits for a connection, or a connect for a slot. The
// caller holds p.mu.
func (p *pingPongPool) hasWaiters() bool {
	return p.pending.Len() > 0 || p.Breaker.SlotsAwaited()
}

// popIdle removes and returns the newest idle connection, or nil if there is none.
func (p *pingPongPool) popIdle() *pingPongConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle) - 1
	if n < 0 {
		return nil
	}
	c := p.idle[n]
	p.idle[n] = nil
	p.idle = p.idle[:n]
	return c
}

// EvictIdle implements Pool: it removes the connection that has been idle longest.
func (p *pingPongPool) EvictIdle() breaker.Evicted {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	c := p.idle[0]
	p.idle = slices.Delete(p.idle, 0, 1)
	return c
}

// Stats implements Pool. MaxRTT is 0.
func (p *pingPongPool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Open: p.open.Load(), Idle: len(p.idle)}
}

// discard closes a connection that carries no exchange and frees its slot.
func (c *pingPongConn) discard() {
	defer c.pool.Breaker.ReleaseSlot()
	c.CloseConn()
}

// CloseConn implements breaker.Evicted.
func (c *pingPongConn) CloseConn() { c.pool.closeConn(c.conn) }

// Close implements Pool.
func (p *pingPongPool) Close() {
	p.mu.Lock()
	p.isClosed = true
	idle := p.idle
	p.idle = nil
	p.stopTimer()
	canceled := p.cancelSurplusConnects(nil)
	p.mu.Unlock()
	p.Breaker.CancelWaits(canceled)
	for _, c := range idle {
		c.discard()
	}
}
