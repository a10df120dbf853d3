package upstream

import (
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// multiplexConn is a connection in its multiplexPool.
type multiplexConn struct {
	pool        *multiplexPool
	conn        Connection
	start       protocol.AsyncService // conn, or its adapter to AsyncService
	limited     StreamLimitReporter   // conn; nil: its host does not limit exchanges
	maxRequests int64                 // exchanges that may begin on it; 0: any number

	// load is the number of exchanges that it carries, less closedBias once it is closed to new
	// ones. Then whoever brings load to -closedBias discards the connection.
	load atomic.Int64
	used atomic.Bool // an exchange was released since the last sweep
	// requests is the number of exchanges that began on it or were rejected because of maxRequests;
	// not counted if maxRequests is 0.
	requests atomic.Int64

	evicted bool          // guarded by pool.mu until it is discarded; closing for the sake of another host
	idleFor time.Duration // guarded by pool.mu; how long it was not used
}

// closedBias exceeds the number of exchanges that a connection can carry.
const closedBias = 1 << 40

// enter counts one more exchange, unless l is closed to new ones or maxRequests is reached. If last
// is true, no further exchange may begin on l, and the caller retires it.
func (l *multiplexConn) enter() (ok, last bool) {
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
	return l.begin()
}

// begin counts an exchange that has entered as one that begins. If maxRequests was reached, it
// removes the exchange again.
func (l *multiplexConn) begin() (ok, last bool) {
	n := l.requests.Add(1)
	if n <= l.maxRequests {
		return true, n == l.maxRequests
	}
	if l.exit() { // never true with pool.mu held: l is closed to exchanges only under it
		l.discard()
	}
	return false, true
}

// maxRequestsReached reports whether maxRequests exchanges have begun on l.
func (l *multiplexConn) maxRequestsReached() bool {
	return l.maxRequests > 0 && l.requests.Load() >= l.maxRequests
}

// limit returns how many concurrent exchanges the host allows on l, at least 1; 0: no limit.
func (l *multiplexConn) limit() int64 {
	if l.limited == nil {
		return 0
	}
	return max(l.limited.MaxConcurrentStreams(), 1)
}

// atStreamLimit reports whether l carries as many exchanges as its host allows.
func (l *multiplexConn) atStreamLimit() bool {
	limit := l.limit()
	return limit > 0 && l.load.Load() >= limit
}

// exit counts one exchange less, and reports whether the caller must discard l: it is closed to new
// exchanges, and this was the last.
func (l *multiplexConn) exit() bool { return l.load.Add(-1) == -closedBias }

// released is called by the connection when an exchange has released it.
func (l *multiplexConn) released(reusable bool) {
	p := l.pool
	p.host.load.End()
	p.breaker.active.Add(-1)
	if !l.used.Load() {
		l.used.Store(true)
	}
	if !reusable {
		p.retire(l) // it still carries the exchange: nothing discards it yet
	}
	l.vacate()
}

// vacate removes an exchange from l that was released or was not sent on it.
func (l *multiplexConn) vacate() {
	p := l.pool
	if l.exit() {
		l.discard()
		return
	}
	s := &p.breaker.slots
	switch carries := l.load.Load(); {
	case carries < 0: // it is closed to new exchanges
	case carries == 0 && p.breaker.slotsScarce():
		p.retire(l)
	case s.waiting.Load() > 0 && len(p.all()) > 1:
		p.giveUp(l)
	}
}

// discard closes a connection that carries nothing and frees its slot.
func (l *multiplexConn) discard() {
	defer l.pool.breaker.freeSlot()
	if l.evicted {
		l.pool.breaker.slots.leaving.Add(-1)
	}
	l.end()
}

// end implements evictedConn.
func (l *multiplexConn) end() { l.pool.ended(l.conn) }
