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
// the connection with the fewest. While all are busy, the pool opens one more, up to the configured
// number, and beyond that while all of them carry as many exchanges as the host allows. A connect
// belongs to the pool, not to the exchange that needed it: exchanges that arrive meanwhile wait for
// the same connect, each until its own deadline, which does not end the connect for the others.
//
// A connection on which maxRequestsPerConn exchanges have begun takes no more and ends with the
// last of them. The pool opens another in its place immediately.
type multiplexPool struct {
	base
	single bool // immutable; one connection, regardless of the configuration

	// active are the connections that take exchanges: a new slice for each change, made with mu
	// held.
	active atomic.Pointer[[]*multiplexConn]
	turn   atomic.Uint32 // start index of the search for the least busy one

	mu              sync.Mutex
	pendingConnects []*multiplexConnect // guarded by mu; oldest first
	isClosed        bool                // guarded by mu
	// growAfter is when, by the set's clock, the pool with connections may open another; guarded by
	// mu.
	growAfter time.Duration
	// hasPendingConnects is true if pendingConnects is not empty. It is changed with mu held and
	// read without.
	hasPendingConnects atomic.Bool
}

// growBackoff is how long a pool with connections waits after it failed to open another.
const growBackoff = time.Second

// maxConnAttempts bounds the connections that one exchange tries when each ends before the exchange
// is sent.
const maxConnAttempts = 3

// Start implements Pool.
func (p *multiplexPool) Start(ctx context.Context, x *protocol.Exchange) error {
	l, err := p.tryAcquire()
	switch {
	case err != nil:
		return &NotSentError{err}
	case l == nil:
		return x.RunBlocking(ctx, p)
	}
	x.PushFinisher(p)
	return l.conn.Start(ctx, x)
}

// Finish implements protocol.Finisher.
func (p *multiplexPool) Finish(ctx context.Context, x *protocol.Exchange, err error) error {
	if p.handleResult(x, err) {
		return x.RunBlocking(ctx, protocol.BlockingFunc(p.serveOnAnother))
	}
	return err
}

// Serve implements protocol.BlockingService: x waits for a connection.
func (p *multiplexPool) Serve(ctx context.Context, x *protocol.Exchange) error {
	return p.serveAttempts(ctx, x, maxConnAttempts)
}

// serveOnAnother serves an exchange whose first connection had ended.
func (p *multiplexPool) serveOnAnother(ctx context.Context, x *protocol.Exchange) error {
	return p.serveAttempts(ctx, x, maxConnAttempts-1)
}

// serveAttempts sends x on up to that many connections, one after the other.
func (p *multiplexPool) serveAttempts(ctx context.Context, x *protocol.Exchange, most int) error {
	for range most {
		l, err := p.acquire(ctx, x)
		if err != nil {
			return &NotSentError{err}
		}
		if err = x.Serve(ctx, l.conn); !p.handleResult(x, err) {
			return err
		}
	}
	return &NotSentError{protocol.Faultf(protocol.ConnectFailure, "each of %d connections to %s closed before the request was sent", maxConnAttempts, p.Address)}
}

// handleResult handles the result of an exchange on a connection, and reports whether the
// connection had ended before the request was sent. Then the exchange counts as in flight at the
// host once more and may use another connection.
func (p *multiplexPool) handleResult(x *protocol.Exchange, err error) bool {
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

// acquire returns a connection that x is counted on. It turns a panic into an error, and then
// nothing is counted.
func (p *multiplexPool) acquire(ctx context.Context, x *protocol.Exchange) (l *multiplexConn, err error) {
	defer protocol.RecoverPanic(&err)
	for {
		if l, err := p.tryAcquire(); l != nil || err != nil {
			return l, err
		}
		l, o, err := p.joinConnect(ctx, x)
		switch {
		case err != nil:
			return nil, err
		case l != nil:
			if err := p.Breaker.AddActive(); err != nil {
				l.removeExchange()
				return nil, err
			}
			return l, nil
		case o == nil: // another connection is available by now
			continue
		}
		if l, err := p.awaitConnect(ctx, x, o); l != nil || err != nil {
			return l, err
		}
	}
}

// joinConnect returns a connection on which x waits until its host allows more exchanges, or a
// pending connect that x, which is pending then, waits for. It returns neither if a connection may
// have room by now.
func (p *multiplexPool) joinConnect(ctx context.Context, x *protocol.Exchange) (*multiplexConn, *multiplexConnect, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch l := p.leastBusy(); {
	case l != nil && !l.atStreamLimit():
		return nil, nil, nil
	case l != nil && p.joinableConnect() == nil && (p.single || !p.openAnother()):
		ok, last := l.tryEnter()
		if last {
			p.closeToNew(l) // it carries an exchange, so it is not discarded yet
		}
		if !ok {
			return nil, nil, nil
		}
		return l, nil, nil
	}
	if err := checkCanceled(ctx, x, p.Address); err != nil {
		return nil, nil, err
	}
	if err := p.Breaker.EnterPending(); err != nil {
		return nil, nil, err
	}
	o := p.joinableConnect()
	if o == nil {
		o = p.startConnect(false)
	}
	o.waiting++
	return nil, o, nil
}

// tryAcquire returns a connection that one more exchange is counted on, or nil if there is none
// with room. It turns a panic into an error, and then nothing is counted.
func (p *multiplexPool) tryAcquire() (l *multiplexConn, err error) {
	defer protocol.RecoverPanic(&err)
	l = p.enterLeastBusy()
	if l == nil {
		return nil, nil
	}
	if err := p.Breaker.AddActive(); err != nil {
		l.removeExchange()
		return nil, err
	}
	return l, nil
}

// activeConns returns the connections that take exchanges. The caller must not change the slice.
func (p *multiplexPool) activeConns() []*multiplexConn {
	if conns := p.active.Load(); conns != nil {
		return *conns
	}
	return nil
}

// enterLeastBusy returns a connection with one more exchange entered, or nil if there is none with
// room. In steady state it takes no lock.
func (p *multiplexPool) enterLeastBusy() *multiplexConn {
	for {
		l := p.leastBusy()
		if l == nil {
			return nil
		}
		if !l.conn.Usable(0) {
			p.retire(l)
			continue
		}
		if l.atStreamLimit() {
			return nil
		}
		if l.load.Load() > 0 && p.canGrow() {
			p.grow()
		}
		ok, last := l.tryEnter()
		if last {
			p.retire(l)
		}
		if ok {
			return l
		}
	}
}

// leastBusy returns the connection that carries the fewest exchanges, or nil if there is none. It
// rotates among equals.
func (p *multiplexPool) leastBusy() *multiplexConn {
	conns := p.activeConns()
	switch len(conns) {
	case 0:
		return nil
	case 1:
		return conns[0]
	}
	turn := int(p.turn.Add(1))
	var best *multiplexConn
	fewest := int64(0)
	for i := range conns {
		l := conns[(turn+i)%len(conns)]
		if n := l.load.Load(); best == nil || n < fewest {
			best, fewest = l, n
		}
	}
	return best
}

// closeToNew closes l to new exchanges, and reports whether the caller must discard l because it
// carries none. p.mu is held.
func (p *multiplexPool) closeToNew(l *multiplexConn) bool {
	p.removeConn(l)
	for {
		n := l.load.Load()
		if n < 0 {
			return false // it was closed to new exchanges before, and another goroutine discards it
		}
		if !l.load.CompareAndSwap(n, n-closedBias) {
			continue
		}
		if l.maxRequestsReached() {
			p.Observer.Count(MaxRequestsReached)
			p.openReplacement()
		}
		return n == 0
	}
}

// openReplacement opens a connection in the place of one that reached maxRequests, ahead of the
// exchanges that would have to wait for it. Like keepWarm it takes none from another host. p.mu is
// held.
func (p *multiplexPool) openReplacement() {
	if p.joinableConnect() == nil && len(p.activeConns()) < p.maxConns() {
		_ = p.openAnother() // otherwise the next exchange opens it
	}
}

// removeConn removes l from the connections that take exchanges. p.mu is held.
func (p *multiplexPool) removeConn(l *multiplexConn) {
	conns := p.activeConns()
	if i := slices.Index(conns, l); i >= 0 {
		fewer := slices.Concat(conns[:i], conns[i+1:])
		p.active.Store(&fewer)
	}
}

// retire does what closeToNew does, discards l if needed and keeps the pool warm. p.mu is not held.
func (p *multiplexPool) retire(l *multiplexConn) {
	p.mu.Lock()
	over := p.closeToNew(l)
	p.keepWarm()
	p.mu.Unlock()
	if over {
		l.discard()
	}
}

// Warm opens a connection of p if there is none and pools of its kind keep one open ahead of
// exchanges. Warm ignores a nil p.
func Warm(p Pool) {
	if m, ok := p.(*multiplexPool); ok {
		m.warm()
	}
}

// isWarm reports whether the pool keeps a connection open ahead of exchanges.
func (p *multiplexPool) isWarm() bool {
	cfg := p.Config.Load()
	return cfg.Pool.WarmProtocol == p.Protocol && cfg.Pool.Mode == config.Multiplex && p.Breaker.Priority() == config.DefaultPriority
}

// warm opens a connection if there is none.
func (p *multiplexPool) warm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keepWarm()
}

// keepWarm does what warm does. p.mu is held. It takes no connection from another host and does not
// overtake waiting connects: while max_connections is reached, it opens none.
func (p *multiplexPool) keepWarm() {
	if len(p.activeConns()) > 0 || len(p.pendingConnects) > 0 || p.isClosed || !p.isWarm() {
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

// maxConns returns how many connections that take exchanges the pool opens without regard to the
// stream limits of the host.
func (p *multiplexPool) maxConns() int {
	if p.single {
		return 1
	}
	return max(p.Config.Load().Pool.Connections, 1)
}

// grow opens one more connection, if the cluster's limits allow it.
func (p *multiplexPool) grow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.canGrow() {
		_ = p.openAnother() // the pool stays as it is otherwise
	}
}

// openAnother opens a connection in addition to others, and returns false if none can be opened
// now. p.mu is held.
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

// evictBusy makes one of several busy connections end with its last exchange, because another host
// waits for a slot. At most one connection ends for each waiter.
func (p *multiplexPool) evictBusy(l *multiplexConn) {
	p.mu.Lock()
	if len(p.activeConns()) < 2 || l.load.Load() < 0 || !p.Breaker.BeginEviction() {
		p.mu.Unlock()
		return
	}
	l.evicted = true
	over := p.closeToNew(l)
	p.mu.Unlock()
	if over {
		l.discard()
	}
}

// EvictIdle implements Pool.
func (p *multiplexPool) EvictIdle() breaker.Evicted {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.activeConns() {
		if l.load.CompareAndSwap(0, -closedBias) {
			p.removeConn(l)
			return l
		}
	}
	return nil
}

// Counts implements Pool.
func (p *multiplexPool) Counts() (open int64, idle int) {
	for _, l := range p.activeConns() {
		if l.load.Load() == 0 {
			idle++
		}
	}
	return p.open.Load(), idle
}

// MaxRTT returns the longest of the last round-trip times of the connections of p; 0: none was
// measured.
func MaxRTT(p Pool) time.Duration {
	if m, ok := p.(interface{ maxRTT() time.Duration }); ok {
		return m.maxRTT()
	}
	return 0
}

// maxRTT returns the longest of the connections' last round-trip times; 0: none was measured.
func (p *multiplexPool) maxRTT() (longest time.Duration) {
	for _, l := range p.activeConns() {
		if c, ok := l.conn.(RTTReporter); ok {
			longest = max(longest, c.RTT())
		}
	}
	return longest
}

// runSweep closes the connections that carried nothing for the idle timeout or are no longer
// usable. The timer runs it.
func (p *multiplexPool) runSweep() {
	timeout, since := p.Config.Load().IdleTimeout, p.sweepInterval()
	p.mu.Lock()
	var over []*multiplexConn
	most := p.maxConns() // it may have been lowered
	for _, l := range p.activeConns() {
		if l.usedSinceSweep.Swap(false) || l.load.Load() > 0 {
			l.idleFor = 0
		} else {
			l.idleFor += since
		}
		old := timeout > 0 && l.idleFor >= timeout && !(len(p.activeConns()) == 1 && p.isWarm())
		surplus := len(p.activeConns()) > most && (l.streamLimiter == nil || l.load.Load() == 0)
		if !old && !surplus && l.maxRequests == p.maxRequestsPerConn() && p.isUsable(l.conn, l.idleFor) {
			continue
		}
		if p.closeToNew(l) {
			over = append(over, l)
		}
	}
	p.mu.Unlock()
	for _, l := range over {
		p.runRecovered(l.discard)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keepWarm()
	p.rearm(!p.isClosed && (len(p.activeConns()) > 0 || p.isWarm()))
}

// Close implements Pool.
func (p *multiplexPool) Close() {
	p.mu.Lock()
	p.isClosed = true
	var idle []*multiplexConn
	for _, l := range p.activeConns() {
		if p.closeToNew(l) {
			idle = append(idle, l)
		}
	}
	p.stopTimer()
	p.mu.Unlock()
	for _, l := range idle {
		l.discard()
	}
}
