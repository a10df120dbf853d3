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

// pingPongPool is a pool whose connections carry one exchange at a time. It hands out the newest
// idle connection first, which is the least likely to have been closed by its peer; surplus
// connections age and are swept. While there is none, exchanges wait (pingpongconnect.go).
type pingPongPool struct {
	base

	mu       sync.Mutex
	idle     []*pingPongConn // guarded by mu; ordered by idleSince, oldest first
	isClosed bool            // guarded by mu

	pending         list.List // guarded by mu; of *pendingExchange, oldest first
	arrivals        uint64    // guarded by mu; number of pending exchanges so far
	queuedConnects  list.List // guarded by mu; of *pingPongConnect, before they dial, oldest first
	dialingConnects list.List // guarded by mu; of *pingPongConnect, while they dial, oldest first
}

// pingPongConn is a connection in its pool. The exchange that took it owns it; while it is idle,
// the pool does.
type pingPongConn struct {
	pool      *pingPongPool // immutable
	conn      Connection
	useCount  int           // exchanges that it carried
	idleSince time.Duration // when it became idle, by the set's clock
}

// Start implements Pool. It may have to wait for a connection.
func (p *pingPongPool) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, p)
}

// Serve implements protocol.BlockingService.
//
// The host may close an idle connection just when the request is sent (RFC 9112 9.3.1). That is no
// failure of the host, so Serve handles it instead of the retry policy: it sends the request once
// more, on a new connection, if nothing of it was sent, or if the host cannot have received it and
// its method is idempotent.
func (p *pingPongPool) Serve(ctx context.Context, x *protocol.Exchange) error {
	m, err := p.acquire(ctx, x)
	if err != nil {
		return &NotSentError{err}
	}
	reused := m.useCount > 0 // after its release, m may belong to another exchange
	if err = x.Serve(ctx, m.conn); err == nil {
		p.recordAlive()
		return nil
	}
	if !reused || !canResend(&x.Request, err) || wait.Expired(x.EffectiveDeadline()) {
		return err
	}
	p.countResent()
	m, err = p.acquireNew(ctx, x)
	if err != nil {
		return &NotSentError{err}
	}
	if err = x.Serve(ctx, m.conn); err == nil {
		p.recordAlive()
	}
	return err
}

// closedBeforeSend reports whether err says that the connection had ended before the request was
// sent.
func closedBeforeSend(err error) bool { return protocol.ReasonOf(err) == protocol.ConnectFailure }

// canResend reports whether a request that failed with err on a reused connection can be sent
// again; if so, it rewinds the body. A request that may have been written can be sent again only if
// the host did not receive it and its method is idempotent (RFC 9110 9.2.2).
func canResend(r *protocol.Request, err error) bool {
	switch {
	case closedBeforeSend(err):
		return true // its body was not read
	case errors.Is(err, protocol.ErrNotSent), errors.Is(err, protocol.ErrNotReceived) && protocol.IsIdempotentMethod(r.Method):
	default:
		return false
	}
	return protocol.RewindBody(r.Body)
}

// acquire returns a connection and counts x on it: a usable idle connection, or one that x has
// waited for. acquire turns a panic into an error, and then counts nothing.
func (p *pingPongPool) acquire(ctx context.Context, x *protocol.Exchange) (m *pingPongConn, err error) {
	defer protocol.RecoverPanic(&err)
	for {
		m := p.popIdle()
		if m == nil {
			return p.awaitConn(ctx, x, false)
		}
		if !m.checkUsable() {
			m.discard()
			continue
		}
		if err := p.Breaker.AddActive(); err != nil {
			m.returnToPool()
			return nil, err
		}
		return m, nil
	}
}

// acquireNew does what acquire does but never returns a connection that was idle before.
func (p *pingPongPool) acquireNew(ctx context.Context, x *protocol.Exchange) (m *pingPongConn, err error) {
	defer protocol.RecoverPanic(&err)
	return p.awaitConn(ctx, x, true)
}

// checkUsable reports whether the connection can take an exchange. If Usable panics, it discards
// the connection.
func (m *pingPongConn) checkUsable() (ok bool) {
	checked := false
	defer func() {
		if !checked {
			m.discard()
		}
	}()
	ok = m.conn.Usable(m.pool.Tasks.Now() - m.idleSince)
	checked = true
	return ok
}

// onReleased is called by the connection when an exchange has released it.
func (m *pingPongConn) onReleased(reusable bool) {
	p := m.pool
	p.Load.End()
	p.Breaker.RemoveActive()
	m.useCount++
	limit := p.Config.Load().MaxRequestsPerConn
	switch {
	case limit > 0 && m.useCount >= limit:
		p.Observer.Count(MaxRequestsReached)
		m.discard()
	case !reusable, p.Breaker.MaxConnectionsExceeded():
		m.discard()
	default:
		m.idleSince = p.Tasks.Now()
		m.returnToPool()
	}
}

// returnToPool gives the connection to a waiting exchange or slot waiter, or makes it idle.
func (m *pingPongConn) returnToPool() {
	for {
		switch m.pool.tryKeepIdle(m) {
		case keptIdle:
			return
		case keepPoolClosed:
			m.discard()
			return
		case keepHasWaiter:
			if m.pool.Breaker.HandOver(m) {
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
	keepHasWaiter             // an exchange waits
)

// tryKeepIdle makes m the newest idle connection, unless the pool is closed or something waits for
// m.
func (p *pingPongPool) tryKeepIdle(m *pingPongConn) keepResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.isClosed:
		return keepPoolClosed
	case p.hasWaiters():
		return keepHasWaiter
	}
	p.idle = append(p.idle, m)
	p.arm(p)
	return keptIdle
}

// hasWaiters reports whether an exchange waits for a connection, or a connect for a slot.
// p.mu is held.
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
	m := p.idle[n]
	p.idle[n] = nil
	p.idle = p.idle[:n]
	return m
}

// EvictIdle implements Pool: it removes the connection that has been idle longest.
func (p *pingPongPool) EvictIdle() breaker.Evicted {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	m := p.idle[0]
	p.idle = slices.Delete(p.idle, 0, 1)
	return m
}

// Counts implements Pool.
func (p *pingPongPool) Counts() (open int64, idle int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open.Load(), len(p.idle)
}

// discard closes a connection that nothing uses and frees its slot.
func (m *pingPongConn) discard() {
	defer m.pool.Breaker.ReleaseSlot()
	m.CloseConn()
}

// CloseConn implements breaker.Evicted.
func (m *pingPongConn) CloseConn() { m.pool.closeConn(m.conn) }

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
	for _, m := range idle {
		m.discard()
	}
}
