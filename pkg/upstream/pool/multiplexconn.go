package pool

import (
	"sync/atomic"
	"time"
)

// multiplexConn is a connection in its multiplexPool.
type multiplexConn struct {
	pool          *multiplexPool
	conn          Connection
	streamLimiter StreamLimitReporter // conn; nil: its host does not limit exchanges
	maxRequests   int64               // exchanges that may begin on it; 0: any number

	// load is the number of exchanges that the connection carries, minus closedBias once it is
	// closed to new exchanges. From then on the goroutine that decrements load to -closedBias
	// discards the connection.
	load           atomic.Int64
	usedSinceSweep atomic.Bool // an exchange was released since the last sweep
	// requests is the number of exchanges that began on it or were rejected because of maxRequests;
	// not counted if maxRequests is 0.
	requests atomic.Int64

	evicted bool          // guarded by pool.mu until it is discarded; it closes to free a slot for another host
	idleFor time.Duration // guarded by pool.mu; how long it was not used
}

// closedBias exceeds the number of exchanges that a connection can carry.
const closedBias = 1 << 40

// tryEnter counts one more exchange, unless l is closed to new ones or maxRequests is reached. If
// last is true, no further exchange may begin on l, and the caller retires it.
func (l *multiplexConn) tryEnter() (ok, last bool) {
	for {
		n := l.load.Load()
		if n < 0 {
			return false, false
		}
		if l.load.CompareAndSwap(n, n+1) {
			break
		}
	}
	if l.maxRequests == 0 {
		return true, false
	}
	return l.countRequest()
}

// countRequest counts an exchange that has entered as one that begins. If maxRequests was reached,
// it removes the exchange again.
func (l *multiplexConn) countRequest() (ok, last bool) {
	n := l.requests.Add(1)
	if n <= l.maxRequests {
		return true, n == l.maxRequests
	}
	if l.decrementLoad() { // never true with pool.mu held: l is closed to exchanges only under it
		l.discard()
	}
	return false, true
}

// maxRequestsReached reports whether maxRequests exchanges have begun on l.
func (l *multiplexConn) maxRequestsReached() bool {
	return l.maxRequests > 0 && l.requests.Load() >= l.maxRequests
}

// streamLimit returns how many concurrent exchanges the host allows on l, at least 1; 0: no limit.
func (l *multiplexConn) streamLimit() int64 {
	if l.streamLimiter == nil {
		return 0
	}
	return max(l.streamLimiter.MaxConcurrentStreams(), 1)
}

// atStreamLimit reports whether l carries as many exchanges as its host allows.
func (l *multiplexConn) atStreamLimit() bool {
	limit := l.streamLimit()
	return limit > 0 && l.load.Load() >= limit
}

// decrementLoad counts one exchange less, and reports whether the caller must discard l: it is
// closed to new exchanges, and this was the last.
func (l *multiplexConn) decrementLoad() bool { return l.load.Add(-1) == -closedBias }

// onReleased is called by the connection when an exchange has released it.
func (l *multiplexConn) onReleased(reusable bool) {
	p := l.pool
	p.Load.End()
	p.Breaker.RemoveActive()
	if !l.usedSinceSweep.Load() {
		l.usedSinceSweep.Store(true)
	}
	if !reusable {
		p.retire(l) // it still carries the exchange: nothing discards it yet
	}
	l.removeExchange()
}

// removeExchange removes an exchange from l that was released or was not sent on it.
func (l *multiplexConn) removeExchange() {
	p := l.pool
	if l.decrementLoad() {
		l.discard()
		return
	}
	switch carries := l.load.Load(); {
	case carries < 0: // it is closed to new exchanges
	case carries == 0 && p.Breaker.SlotsScarce():
		p.retire(l)
	case p.Breaker.SlotsAwaited() && len(p.activeConns()) > 1:
		p.evictBusy(l)
	}
}

// discard closes a connection that carries nothing and frees its slot.
func (l *multiplexConn) discard() {
	defer l.pool.Breaker.ReleaseSlot()
	if l.evicted {
		l.pool.Breaker.EndEviction()
	}
	l.CloseConn()
}

// CloseConn implements breaker.Evicted.
func (l *multiplexConn) CloseConn() { l.pool.closeConn(l.conn) }
