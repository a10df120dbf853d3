package upstream

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// pendingConnect is a connection that is being opened.
type pendingConnect struct {
	done  chan struct{} // closed when line or err is set
	seats atomic.Int64  // once done is closed: exchanges that are counted on line and have not claimed it yet
	most  int64         // immutable; how many exchanges may begin on line; 0: any number
	// giveUp ends its wait for a slot. Immutable.
	giveUp context.CancelFunc

	ahead   bool           // immutable; it dials even if no exchange waits
	queued  bool           // guarded by the pool's mu; it has no slot yet
	waiting int            // guarded by the pool's mu; exchanges that wait for the line
	line    *multiplexConn // guarded by the pool's mu until done
	err     error          // guarded by the pool's mu until done
}

// errFull is why a host has no connection: max_connections is reached.
var errFull = errors.New("max_connections reached by other hosts")

// await waits for o; x is pending meanwhile. It returns o's connection if x is counted on it. It
// returns nil without an error if the connection carries fewer exchanges than waited for it, or if
// o failed but the pool has another connection.
func (p *multiplexPool) await(ctx context.Context, x *protocol.Exchange, o *pendingConnect) (l *multiplexConn, err error) {
	defer p.breaker.pending.Add(-1)
	waited := false
	defer func() {
		if !waited && !p.abandon(o) { // a panic unwinds
			p.forfeit(o)
		}
	}()
	x.Detach()
	_, why := await(ctx, x.EffectiveDeadline(), x.Caller, o.done)
	waited = true
	if why != protocol.ReasonNone && p.abandon(o) {
		return nil, protocol.Faultf(why, "while waiting for a connection to %s", p.host.address)
	}
	switch { // done, possibly at the last moment
	case o.err != nil && len(p.all()) > 0:
		return nil, nil
	case o.err != nil:
		return nil, o.err
	case o.seats.Add(-1) < 0:
		return nil, nil
	}
	if err := p.breaker.activate(); err != nil {
		o.line.vacate()
		return nil, err
	}
	return o.line, nil
}

// forfeit releases the seat of an exchange that waited for o.
func (p *multiplexPool) forfeit(o *pendingConnect) {
	if o.err == nil && o.seats.Add(-1) >= 0 {
		o.line.vacate()
	}
}

// abandon removes an exchange that waits for o, and returns false if o is already done. It drops a
// connect that nothing waits for from the queue for slots; the last connect of a pool stays for
// later exchanges.
func (p *multiplexPool) abandon(o *pendingConnect) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.line != nil || o.err != nil {
		return false
	}
	o.waiting--
	if o.queued && o.waiting == 0 && len(p.openings) > 1 {
		p.closeOpening(o)
		o.giveUp()
	}
	return true
}

// joinable returns a pending connect that can serve one more exchange than wait for it, or nil.
// p.mu is held.
func (p *multiplexPool) joinable() *pendingConnect {
	for _, o := range p.openings {
		if o.most == 0 || int64(o.waiting) < o.most {
			return o
		}
	}
	return nil
}

// begin opens a connection; slot says that the caller has taken a slot. p.mu is held.
func (p *multiplexPool) begin(slot bool) *pendingConnect {
	env := p.host.cluster.env
	ctx, giveUp := context.WithCancel(env.ctx)
	o := &pendingConnect{done: make(chan struct{}), most: p.maxRequestsPerConn(), giveUp: giveUp, ahead: slot, queued: !slot}
	p.openings = append(p.openings, o)
	p.isOpening.Store(true)
	env.start(func() { p.finish(ctx, o) })
	return o
}

// closeOpening stops further exchanges from waiting for o. p.mu is held.
func (p *multiplexPool) closeOpening(o *pendingConnect) {
	if i := slices.Index(p.openings, o); i >= 0 {
		p.openings = slices.Delete(p.openings, i, i+1)
	}
	p.isOpening.Store(len(p.openings) > 0)
}

// maxRequestsPerConn returns how many exchanges may begin on a new connection; 0: any number.
func (p *multiplexPool) maxRequestsPerConn() int64 {
	pool := &p.host.cluster.settings().Pool
	if p.protocol == config.HTTP2 {
		return int64(pool.MaxRequests)
	}
	return int64(pool.MaxCalls)
}

// finish opens the connection of o; the end of ctx ends its wait for a slot.
func (p *multiplexPool) finish(ctx context.Context, o *pendingConnect) {
	defer o.giveUp() // it has no effect by then
	l := &multiplexConn{pool: p, maxRequests: o.most}
	limit, err := p.dial(ctx, o, l)
	if p.settle(o, l, limit, err) {
		l.discard()
	}
}

// settle ends o, which has opened l for at most limit exchanges (0: any number) or has failed, and
// reports whether the caller must discard l.
func (p *multiplexPool) settle(o *pendingConnect, l *multiplexConn, limit int64, err error) (over bool) {
	defer close(o.done)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeOpening(o)
	if err != nil {
		o.err = err
		return false
	}
	o.line = l
	seats := int64(o.waiting)
	if limit > 0 {
		seats = min(seats, limit)
	}
	if l.maxRequests > 0 {
		seats = min(seats, l.maxRequests)
	}
	o.seats.Store(seats)
	l.load.Store(seats)
	l.requests.Store(seats)
	l.used.Store(true)
	if p.isClosed || l.maxRequestsReached() || o.waiting == 0 && p.breaker.slotsScarce() {
		return p.leave(l)
	}
	more := append(slices.Clone(p.all()), l)
	p.lines.Store(&more)
	p.arm(p)
	return false
}

// dial opens l's connection within connect_timeout when it is o's turn. It waits as long for the
// turn, or until ctx ends. It returns how many exchanges the host allows on l, 0 for any number. It
// turns a panic into an error and frees the slot.
func (p *multiplexPool) dial(ctx context.Context, o *pendingConnect, l *multiplexConn) (limit int64, err error) {
	defer protocol.RecoverPanic(&err)
	c := p.host.cluster
	s, b := c.state.Load(), p.breaker
	var conn Connection
	defer func() {
		if l.conn == nil && conn != nil {
			p.ended(conn)
		}
		if l.conn == nil && !o.isQueued(p) {
			b.freeSlot()
		}
	}()
	if err := p.dials.acquire(ctx, s.config.Pool.ConnectLimit(), s.connectBy(), p.host); err != nil {
		return 0, p.closing(err)
	}
	defer p.dials.release()
	if err := p.awaitSlot(ctx, o, s); err != nil {
		return 0, err
	}
	if !p.wanted(o) {
		return 0, errUnwanted
	}
	conn, err = p.connect(c.env.ctx, s.connectBy(), l.released)
	if err != nil {
		if c.env.ctx.Err() == nil {
			p.failed(err)
		}
		return 0, err
	}
	l.limited, _ = conn.(StreamLimitReporter)
	limit = l.limit()
	l.conn, l.start = conn, protocol.Async(conn)
	return limit, nil
}

// wanted reports whether o is to dial: an exchange waits for it, or it is ahead of exchanges.
// Otherwise no exchange can join o any more.
func (p *multiplexPool) wanted(o *pendingConnect) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.ahead || o.waiting > 0 {
		return true
	}
	p.closeOpening(o)
	return false
}

func (o *pendingConnect) isQueued(p *multiplexPool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return o.queued
}

// awaitSlot waits for a slot for o, unless it has one.
func (p *multiplexPool) awaitSlot(ctx context.Context, o *pendingConnect, s *state) (err error) {
	b, limit := p.breaker, s.config.Limits(p.breaker.priority).MaxConnections
	if !o.isQueued(p) {
		return nil
	}
	if b.slots.waiting.Load() > 0 || !b.slots.take(limit) {
		b.reached(ConnectionOverflow)
		err = b.wait(ctx, s.connectBy(), &waiter{pool: &p.base, grant: make(chan bool, 1)})
	}
	switch {
	case err == nil:
		p.mu.Lock()
		o.queued = false
		p.mu.Unlock()
		return nil
	case p.host.cluster.env.ctx.Err() != nil:
		return p.closing(err)
	default: // another host may have a connection
		return protocol.Faultf(protocol.Overflow, "no connection to %s: %w (%d)", p.host.address, errFull, limit)
	}
}

// failed records that a connection could not be opened. A host with another connection is not
// marked down: it may limit their number.
func (p *multiplexPool) failed(err error) {
	p.mu.Lock()
	p.growAt = p.host.cluster.env.now() + growPause
	more := len(p.all()) > 0
	p.mu.Unlock()
	if more {
		p.host.countFailed()
	} else {
		p.host.connectFailed(err)
	}
}
