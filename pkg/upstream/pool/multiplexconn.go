package pool

import (
	"sync/atomic"
	"time"
)

// multiplexConn is a connection of a multiplexPool.
type multiplexConn struct {
	pool          *multiplexPool
	conn          Connection
	streamLimiter StreamLimitReporter // conn, if its host limits concurrent exchanges; else nil
	expiry        time.Duration       // immutable; see base.expiryOfNew
	maxRequests   int64               // how many exchanges may begin on conn; 0: any number

	// load is the number of exchanges that the connection carries, minus closedBias once it is
	// closed to new exchanges. From then on the goroutine that decrements load to -closedBias
	// discards the connection.
	load           atomic.Int64
	usedSinceSweep atomic.Bool // an exchange was released, or the connection was opened, since the last sweep
	// requests is the number of exchanges that began on conn or were rejected because of
	// maxRequests. It is not maintained if maxRequests is 0.
	requests atomic.Int64

	evicted bool          // guarded by pool.mu until the discard; the connection drains because a connect waits for its slot
	idleFor time.Duration // guarded by pool.mu; how long the connection has been idle, as of the last sweep
}

// closedBias exceeds the number of exchanges that a connection can carry.
const closedBias = 1 << 40

// tryEnter counts one more exchange, unless c is closed to new exchanges or maxRequests is reached.
// If last is true, no further exchange may begin on c, and the caller calls drainConn or
// closeToNewExchanges.
func (c *multiplexConn) tryEnter() (ok, last bool) {
	for {
		n := c.load.Load()
		if n < 0 {
			return false, false
		}
		if c.load.CompareAndSwap(n, n+1) {
			break
		}
	}
	if c.maxRequests == 0 {
		return true, false
	}
	return c.countRequest()
}

// countRequest counts an exchange that has entered as one that begins. If maxRequests was reached,
// it removes the exchange again.
func (c *multiplexConn) countRequest() (ok, last bool) {
	n := c.requests.Add(1)
	if n <= c.maxRequests {
		return true, n == c.maxRequests
	}
	if c.decrementLoad() { // never true with pool.mu held: closing to new exchanges needs the lock
		c.discard()
	}
	return false, true
}

// maxRequestsReached reports whether maxRequests exchanges have begun on c.
func (c *multiplexConn) maxRequestsReached() bool {
	return c.maxRequests > 0 && c.requests.Load() >= c.maxRequests
}

// streamLimit returns how many concurrent exchanges the host allows on c, at least 1; 0: no limit.
func (c *multiplexConn) streamLimit() int64 {
	if c.streamLimiter == nil {
		return 0
	}
	return max(c.streamLimiter.MaxConcurrentStreams(), 1)
}

// atStreamLimit reports whether c carries as many exchanges as its host allows.
func (c *multiplexConn) atStreamLimit() bool {
	limit := c.streamLimit()
	return limit > 0 && c.load.Load() >= limit
}

// decrementLoad removes one exchange from load, and reports whether the caller must discard c: c is
// closed to new exchanges, and this was its last exchange.
func (c *multiplexConn) decrementLoad() bool { return c.load.Add(-1) == -closedBias }

// onReleased records that an exchange has released the connection, which calls onReleased.
func (c *multiplexConn) onReleased(reusable bool) {
	p := c.pool
	p.Load.End()
	p.Breaker.RemoveActive()
	if !c.usedSinceSweep.Load() {
		c.usedSinceSweep.Store(true)
	}
	if !reusable {
		p.drainConn(c) // c still carries the exchange, so it is not discarded yet
	}
	c.removeExchange()
}

// removeExchange removes from c an exchange that was released or not sent.
func (c *multiplexConn) removeExchange() {
	p := c.pool
	if c.decrementLoad() {
		c.discard()
		return
	}
	switch load := c.load.Load(); {
	case load < 0: // c is closed to new exchanges
	case load == 0 && p.Breaker.SlotsScarce():
		p.drainConn(c)
	case p.Breaker.SlotsAwaited() && len(p.activeConns()) > 1:
		p.evictBusy(c)
	}
}

// discard closes a connection that carries no exchange and frees its slot.
func (c *multiplexConn) discard() {
	defer c.pool.Breaker.ReleaseSlot()
	if c.evicted {
		c.pool.Breaker.EndEviction()
	}
	c.CloseConn()
}

// CloseConn implements breaker.Evicted.
func (c *multiplexConn) CloseConn() { c.pool.closeConn(c.conn) }
