package pool

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/breaker"
	"github.com/weft-proxy/weft/pkg/upstream/wait"
)

// multiplexPool is a pool whose connections carry many exchanges concurrently. An exchange goes to
// the connection with the fewest exchanges. While all connections are busy, the pool opens another,
// up to the configured number, and beyond that number while all of them carry as many exchanges as
// the host allows. A connect belongs to the pool, not to the exchange that needed it: exchanges
// that arrive meanwhile wait for the same connect. An exchange stops waiting at its deadline or
// when its client disconnects. A dial that has started continues.
//
// A connection on which maxRequestsPerConn exchanges have begun accepts no further exchanges and
// closes when they have ended. The pool opens a replacement immediately, if the limits allow it.
type multiplexPool struct {
	base
	singleConn bool // immutable; one connection, regardless of the configuration

	// active holds the connections that accept exchanges. Each change stores a new slice, with mu
	// held.
	active      atomic.Pointer[[]*multiplexConn]
	searchStart atomic.Uint32 // start index of the search for the least busy connection

	mu              sync.Mutex
	pendingConnects []*multiplexConnect // guarded by mu; oldest first
	isClosed        bool                // guarded by mu
	// growAfter is the time, by the set's clock, from which a pool with connections may open
	// another. Guarded by mu.
	growAfter time.Duration
	// hasPendingConnects is true if pendingConnects is not empty. It is changed with mu held and
	// read without.
	hasPendingConnects atomic.Bool
}

// growBackoff is how long a pool with connections waits after it failed to open another.
const growBackoff = time.Second

// maxConnAttempts bounds the connections that one exchange tries while each of them ends before the
// request is sent.
const maxConnAttempts = 3

// Start implements Pool.
func (p *multiplexPool) Start(ctx context.Context, x *protocol.Exchange) error {
	c, err := p.tryAcquire()
	switch {
	case err != nil:
		return &NotSentError{err}
	case c == nil:
		return x.RunBlocking(ctx, p)
	}
	x.PushFinisher(p)
	return c.conn.Start(ctx, x)
}

// Finish implements protocol.Finisher.
func (p *multiplexPool) Finish(ctx context.Context, x *protocol.Exchange, err error) error {
	if p.recordResult(x, err) {
		return x.RunBlocking(ctx, protocol.BlockingFunc(p.serveOnAnother))
	}
	return err
}

// Serve implements protocol.BlockingService. It may wait for a connection.
func (p *multiplexPool) Serve(ctx context.Context, x *protocol.Exchange) error {
	return p.serveAttempts(ctx, x, maxConnAttempts)
}

// serveOnAnother serves an exchange whose first connection had ended.
func (p *multiplexPool) serveOnAnother(ctx context.Context, x *protocol.Exchange) error {
	return p.serveAttempts(ctx, x, maxConnAttempts-1)
}

// serveAttempts sends x on one connection after another, up to the given number of attempts.
func (p *multiplexPool) serveAttempts(ctx context.Context, x *protocol.Exchange, attempts int) error {
	var last error
	for range attempts {
		c, err := p.acquire(ctx, x)
		if err != nil {
			return &NotSentError{err}
		}
		if err = x.Serve(ctx, c.conn); !p.recordResult(x, err) {
			return err
		}
		last = err
	}
	fault := protocol.Faultf(protocol.ConnectFailure, "each of %d connections to %s closed before the request was sent", maxConnAttempts, p.Address)
	if reply := protocol.EnvoyReplyOf(last); reply != nil {
		fault = fault.WithEnvoyReply(*reply)
	}
	return &NotSentError{fault}
}

// recordResult records the result of x on a connection. It reports whether to resend x: the
// connection had ended before the request was sent, and the deadline has not passed. recordResult
// then counts x as in flight at the host again.
func (p *multiplexPool) recordResult(x *protocol.Exchange, err error) (resend bool) {
	switch {
	case err == nil:
		p.recordAlive()
		return false
	case !closedBeforeSend(err) || wait.Expired(x.EffectiveDeadline()):
		return false
	}
	p.countResent()
	return true
}

// acquire returns a connection and counts x on it. It turns a panic into an error, and then counts
// nothing.
func (p *multiplexPool) acquire(ctx context.Context, x *protocol.Exchange) (c *multiplexConn, err error) {
	defer protocol.RecoverPanic(&err)
	for {
		if c, err := p.tryAcquire(); c != nil || err != nil {
			return c, err
		}
		c, d, err := p.joinConnect(ctx, x)
		switch {
		case err != nil:
			return nil, err
		case c != nil:
			if err := p.Breaker.AddActive(); err != nil {
				c.removeExchange()
				return nil, err
			}
			return c, nil
		case d == nil: // another connection is available by now
			continue
		}
		if c, err := p.awaitConnect(ctx, x, d); c != nil || err != nil {
			return c, err
		}
	}
}

// joinConnect returns a connection on which x waits until its host allows more exchanges, or a
// connect for which x waits, pending. It returns neither if a connection may have capacity by now.
func (p *multiplexPool) joinConnect(ctx context.Context, x *protocol.Exchange) (*multiplexConn, *multiplexConnect, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch c := p.leastBusy(); {
	case c != nil && !c.atStreamLimit():
		return nil, nil, nil
	case c != nil && p.joinableConnect() == nil && (p.singleConn || !p.openAnother()):
		ok, last := c.tryEnter()
		if last {
			p.closeToNewExchanges(c) // c carries an exchange, so it is not discarded yet
		}
		if !ok {
			return nil, nil, nil
		}
		return c, nil, nil
	}
	if err := checkCanceled(ctx, x, p.Address); err != nil {
		return nil, nil, err
	}
	if err := p.Breaker.EnterPending(); err != nil {
		return nil, nil, err
	}
	d := p.joinableConnect()
	if d == nil {
		d = p.startConnect(false)
	}
	d.waiting++
	return nil, d, nil
}

// tryAcquire counts an exchange on a connection and returns the connection, or returns nil if none
// has capacity. It turns a panic into an error, and then counts nothing.
func (p *multiplexPool) tryAcquire() (c *multiplexConn, err error) {
	defer protocol.RecoverPanic(&err)
	c = p.enterLeastBusy()
	if c == nil {
		return nil, nil
	}
	if err := p.Breaker.AddActive(); err != nil {
		c.removeExchange()
		return nil, err
	}
	return c, nil
}

// activeConns returns the connections that accept exchanges. The caller must not change the slice.
func (p *multiplexPool) activeConns() []*multiplexConn {
	if conns := p.active.Load(); conns != nil {
		return *conns
	}
	return nil
}

// enterLeastBusy counts an exchange on the least busy usable connection and returns the connection,
// or returns nil if none has capacity. In steady state it locks no mutex.
func (p *multiplexPool) enterLeastBusy() *multiplexConn {
	for {
		c := p.leastBusy()
		if c == nil {
			return nil
		}
		if p.isExpired(c.expiry) || !c.conn.Usable(0) {
			p.drainConn(c)
			continue
		}
		if c.atStreamLimit() {
			return nil
		}
		if c.load.Load() > 0 && p.canGrow() {
			p.grow()
		}
		ok, last := c.tryEnter()
		if last {
			p.drainConn(c)
		}
		if ok {
			return c
		}
	}
}

// leastBusy returns the connection that carries the fewest exchanges, or nil if there is none. It
// rotates among connections with the same number.
func (p *multiplexPool) leastBusy() *multiplexConn {
	conns := p.activeConns()
	switch len(conns) {
	case 0:
		return nil
	case 1:
		return conns[0]
	}
	start := int(p.searchStart.Add(1))
	var best *multiplexConn
	fewest := int64(0)
	for i := range conns {
		c := conns[(start+i)%len(conns)]
		if n := c.load.Load(); best == nil || n < fewest {
			best, fewest = c, n
		}
	}
	return best
}

// closeToNewExchanges closes c to new exchanges, and reports whether the caller must discard c
// because it carries none. The caller holds p.mu.
func (p *multiplexPool) closeToNewExchanges(c *multiplexConn) bool {
	p.removeConn(c)
	for {
		n := c.load.Load()
		if n < 0 {
			return false // c is closed to new exchanges already, and another goroutine discards it
		}
		if !c.load.CompareAndSwap(n, n-closedBias) {
			continue
		}
		if c.maxRequestsReached() {
			p.Observer.Count(MaxRequestsReached)
			p.openReplacement()
		}
		return n == 0
	}
}

// openReplacement opens a replacement for a connection that reached maxRequests, before an exchange
// has to wait for it. Like keepWarm, it evicts no connection of another host. The caller holds
// p.mu.
func (p *multiplexPool) openReplacement() {
	if p.joinableConnect() == nil && len(p.activeConns()) < p.maxConns() {
		_ = p.openAnother() // if that fails, the next exchange opens it
	}
}

// removeConn removes c from the connections that accept exchanges. The caller holds p.mu.
func (p *multiplexPool) removeConn(c *multiplexConn) {
	conns := p.activeConns()
	if i := slices.Index(conns, c); i >= 0 {
		remaining := slices.Concat(conns[:i], conns[i+1:])
		p.active.Store(&remaining)
	}
}

// drainConn closes c to new exchanges, discards c if it carries none, and keeps the pool warm. The
// caller does not hold p.mu.
func (p *multiplexPool) drainConn(c *multiplexConn) {
	p.mu.Lock()
	mustDiscard := p.closeToNewExchanges(c)
	p.keepWarm()
	p.mu.Unlock()
	if mustDiscard {
		c.discard()
	}
}

// Warm opens a connection of p if p has none and is a pool that keeps one open ahead of exchanges.
// It ignores a nil p.
func Warm(p Pool) {
	if m, ok := p.(*multiplexPool); ok {
		m.warm()
	}
}

// staysWarm reports whether the pool keeps a connection open ahead of exchanges.
func (p *multiplexPool) staysWarm() bool {
	cfg := p.Config.Load()
	return cfg.Pool.WarmProtocol == p.Protocol && cfg.Pool.Mode == config.Multiplex && p.Breaker.Priority() == config.DefaultPriority
}

// warm opens a connection if there is none.
func (p *multiplexPool) warm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keepWarm()
}

// keepWarm opens a connection if there is none and the pool is to keep one open. The caller holds
// p.mu. It evicts no connection of another host and does not overtake waiting connects: while
// max_connections is reached, it opens none.
func (p *multiplexPool) keepWarm() {
	if len(p.activeConns()) > 0 || len(p.pendingConnects) > 0 || p.isClosed || !p.staysWarm() {
		return
	}
	if b := p.Breaker; b.TryAcquireSlot() {
		p.startConnect(true)
	}
	p.arm(p) // to try again if the connect fails
}

// canGrow reports whether grow might open one more connection.
func (p *multiplexPool) canGrow() bool {
	return len(p.activeConns()) < p.maxConns() && !p.hasPendingConnects.Load()
}

// maxConns returns the number of connections that the pool opens at most, unless stream limits of
// the host require more.
func (p *multiplexPool) maxConns() int {
	if p.singleConn {
		return 1
	}
	return max(p.Config.Load().Pool.Connections, 1)
}

// grow opens one more connection, if the cluster's limits allow it.
func (p *multiplexPool) grow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.canGrow() {
		_ = p.openAnother() // if that fails, the pool does not grow
	}
}

// openAnother opens a connection in addition to others, and returns false if none can be opened
// now. The caller holds p.mu.
func (p *multiplexPool) openAnother() bool {
	b := p.Breaker
	if p.isClosed || !p.Health.Up() || p.Tasks.Now() < p.growAfter {
		return false
	}
	if !b.TryAcquireSlot() {
		return false
	}
	p.startConnect(true)
	return true
}

// evictBusy drains c if the pool has other connections, because a connect waits for a slot. At most
// one connection drains for each waiter.
func (p *multiplexPool) evictBusy(c *multiplexConn) {
	p.mu.Lock()
	if len(p.activeConns()) < 2 || c.load.Load() < 0 || !p.Breaker.BeginEviction() {
		p.mu.Unlock()
		return
	}
	c.evicted = true
	mustDiscard := p.closeToNewExchanges(c)
	p.mu.Unlock()
	if mustDiscard {
		c.discard()
	}
}

// EvictIdle implements Pool.
func (p *multiplexPool) EvictIdle() breaker.Evicted {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.activeConns() {
		if c.load.CompareAndSwap(0, -closedBias) {
			p.removeConn(c)
			return c
		}
	}
	return nil
}

// Stats implements Pool.
func (p *multiplexPool) Stats() Stats {
	s := Stats{Open: p.open.Load()}
	for _, c := range p.activeConns() {
		if c.load.Load() == 0 {
			s.Idle++
		}
		if reporter, ok := c.conn.(RTTReporter); ok {
			s.MaxRTT = max(s.MaxRTT, reporter.RTT())
		}
	}
	return s
}

// runSweep drains the connections that were idle for the idle timeout, except the only connection
// of a pool that stays warm. It also drains connections that are no longer usable, connections
// whose maxRequests differs from the configuration, and those beyond maxConns. If the host has a
// stream limit, the latter stay while they carry exchanges. The timer calls runSweep.
func (p *multiplexPool) runSweep() {
	timeout, interval := p.Config.Load().IdleTimeout, p.sweepInterval()
	p.mu.Lock()
	var drained []*multiplexConn
	limit := p.maxConns() // it may have been lowered
	for _, c := range p.activeConns() {
		if c.usedSinceSweep.Swap(false) || c.load.Load() > 0 {
			c.idleFor = 0
		} else {
			c.idleFor += interval
		}
		expired := p.isExpired(c.expiry) || timeout > 0 && c.idleFor >= timeout && !(len(p.activeConns()) == 1 && p.staysWarm())
		surplus := len(p.activeConns()) > limit && (c.streamLimiter == nil || c.load.Load() == 0)
		if !expired && !surplus && c.maxRequests == p.maxRequestsPerConn() && p.isUsable(c.conn, c.idleFor) {
			continue
		}
		if p.closeToNewExchanges(c) {
			drained = append(drained, c)
		}
	}
	p.mu.Unlock()
	for _, c := range drained {
		p.runRecovered(c.discard)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keepWarm()
	p.finishSweep(!p.isClosed && (len(p.activeConns()) > 0 || p.staysWarm()))
}

// Close implements Pool.
func (p *multiplexPool) Close() {
	p.mu.Lock()
	p.isClosed = true
	var idle []*multiplexConn
	for _, c := range p.activeConns() {
		if p.closeToNewExchanges(c) {
			idle = append(idle, c)
		}
	}
	p.stopTimer()
	p.mu.Unlock()
	for _, c := range idle {
		c.discard()
	}
}
