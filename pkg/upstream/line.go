package upstream

import (
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// multiplexConn is a connection as its pool sees it.
type multiplexConn struct {
	pool        *multiplexPool
	conn        Connection
	start       protocol.AsyncService // conn, or what makes two halves of it
	limited     StreamLimitReporter   // conn; nil: its host has no limit of exchanges
	maxRequests int64                 // how many exchanges may begin on it; 0: any number

	// load is how many exchanges it carries, less gone once it has left: then it takes
	// no more, and who makes it carry nothing discards it.
	load atomic.Int64
	used atomic.Bool // an exchange left it since the last sweep
	// requests is how many exchanges have begun on it, and those that found that no more may;
	// not counted if most is 0.
	requests atomic.Int64

	evicted bool          // guarded by pool.mu, until it is discarded; for another host
	idleFor time.Duration // guarded by pool.mu; how long it was not used
}

// closedBias is more than a connection can carry.
const closedBias = 1 << 40

// enter counts one exchange more, unless l has left or is spent. last: no more may begin
// on it, and whoever is told so has it leave.
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

// begin counts an exchange that has entered as one that begins, or takes it out again if
// no more may: so those that l carries are all that it is spent for.
func (l *multiplexConn) begin() (ok, last bool) {
	n := l.requests.Add(1)
	if n <= l.maxRequests {
		return true, n == l.maxRequests
	}
	if l.exit() { // never with pool.mu held: l leaves with that only
		l.discard()
	}
	return false, true
}

// maxRequestsReached reports whether as many exchanges have begun on l as may.
func (l *multiplexConn) maxRequestsReached() bool {
	return l.maxRequests > 0 && l.requests.Load() >= l.maxRequests
}

// limit is how many exchanges the host takes on l, at least 1; 0: as many as come.
func (l *multiplexConn) limit() int64 {
	if l.limited == nil {
		return 0
	}
	return max(l.limited.MaxConcurrentStreams(), 1)
}

// atStreamLimit reports whether l carries as many exchanges as its host takes.
func (l *multiplexConn) atStreamLimit() bool {
	limit := l.limit()
	return limit > 0 && l.load.Load() >= limit
}

// exit counts one exchange less, and reports whether l is to be discarded: it has
// left, and this was the last.
func (l *multiplexConn) exit() bool { return l.load.Add(-1) == -closedBias }

// released is called by the connection when an exchange has left it.
func (l *multiplexConn) released(reusable bool) {
	p := l.pool
	p.host.load.End()
	p.breaker.active.Add(-1)
	if !l.used.Load() {
		l.used.Store(true)
	}
	if !reusable {
		p.retire(l) // it still carries the exchange: nobody discards it yet
	}
	l.vacate()
}

// vacate takes an exchange off l that has left it, or that was not sent on it.
func (l *multiplexConn) vacate() {
	p := l.pool
	if l.exit() {
		l.discard()
		return
	}
	s := &p.breaker.slots
	switch carries := l.load.Load(); {
	case carries < 0: // it has left
	case carries == 0 && p.breaker.slotsScarce():
		p.retire(l)
	case s.waiting.Load() > 0 && len(p.all()) > 1:
		p.giveUp(l)
	}
}

// discard ends a connection that carries nothing and frees its slot.
func (l *multiplexConn) discard() {
	defer l.pool.breaker.freeSlot()
	if l.evicted {
		l.pool.breaker.slots.leaving.Add(-1)
	}
	l.end()
}

// end is ender's.
func (l *multiplexConn) end() { l.pool.ended(l.conn) }
