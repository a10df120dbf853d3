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
	seats atomic.Int64  // once done is closed: exchanges that are counted on line, and have not come yet
	most  int64         // immutable; how many exchanges may begin on line; 0: any number
	// giveUp ends its wait for a slot. Immutable.
	giveUp context.CancelFunc

	ahead   bool           // immutable; no exchange wanted it: it dials though none waits
	queued  bool           // guarded by the pool's mu; it has no slot yet
	waiting int            // guarded by the pool's mu; exchanges that wait for the line
	line    *multiplexConn // guarded by the pool's mu until done
	err     error          // guarded by the pool's mu until done
}

// errFull is why a host has no connection.
var errFull = errors.New("all that max_connections allows are busy at other hosts")

// await waits for o, for which x is pending. It returns o's connection if x is counted on it,
// and nil without an error if the connection carries fewer exchanges than wait for it, or if
// the host has too many connections for one more.
func (p *multiplexPool) await(ctx context.Context, x *protocol.Exchange, o *pendingConnect) (l *multiplexConn, err error) {
	defer p.breaker.pending.Add(-1)
	waited := false
	defer func() {
		if !waited && !p.abandon(o) { // a panic is on its way
			p.forfeit(o)
		}
	}()
	x.Detach()
	_, why := await(ctx, x.EffectiveDeadline(), x.Caller, o.done)
	waited = true
	if why != protocol.ReasonNone && p.abandon(o) {
		return nil, protocol.Faultf(why, "while a connection to %s was being opened", p.host.address)
	}
	switch { // it is open, if at the last moment
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

// forfeit gives back what an exchange that waited for o has on its connection.
func (p *multiplexPool) forfeit(o *pendingConnect) {
	if o.err == nil && o.seats.Add(-1) >= 0 {
		o.line.vacate()
	}
}

// abandon takes back that an exchange waits for o, and reports false if it need
// not wait any more. One that nobody waits for does not stand in the way of others in
// the queue for slots; of a pool the last stays, for who comes.
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

// joinable returns a connection that is being opened and may carry one exchange more than
// wait for it, else nil. p.mu is held.
func (p *multiplexPool) joinable() *pendingConnect {
	for _, o := range p.openings {
		if o.most == 0 || int64(o.waiting) < o.most {
			return o
		}
	}
	return nil
}

// begin opens a connection; slot says that one is taken. p.mu is held.
func (p *multiplexPool) begin(slot bool) *pendingConnect {
	env := p.host.cluster.env
	ctx, giveUp := context.WithCancel(env.ctx)
	o := &pendingConnect{done: make(chan struct{}), most: p.maxRequestsPerConn(), giveUp: giveUp, ahead: slot, queued: !slot}
	p.openings = append(p.openings, o)
	p.isOpening.Store(true)
	env.start(func() { p.finish(ctx, o) })
	return o
}

// closeOpening has nobody wait for o any more who does not yet. p.mu is held.
func (p *multiplexPool) closeOpening(o *pendingConnect) {
	if i := slices.Index(p.openings, o); i >= 0 {
		p.openings = slices.Delete(p.openings, i, i+1)
	}
	p.isOpening.Store(len(p.openings) > 0)
}

// maxRequestsPerConn is how many exchanges may begin on a connection that is opened now; 0: any
// number.
func (p *multiplexPool) maxRequestsPerConn() int64 {
	pool := &p.host.cluster.settings().Pool
	if p.protocol == config.HTTP2 {
		return int64(pool.MaxRequests)
	}
	return int64(pool.MaxCalls)
}

// finish opens the connection that o is to have; ctx ends its wait for a slot.
func (p *multiplexPool) finish(ctx context.Context, o *pendingConnect) {
	defer o.giveUp() // which has nothing to end then
	l := &multiplexConn{pool: p, maxRequests: o.most}
	limit, err := p.dial(ctx, o, l)
	if p.settle(o, l, limit, err) {
		l.discard()
	}
}

// settle ends o, which has opened l for at most limit exchanges (0: any number) or has
// failed, and reports whether l is to be discarded.
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

// dial opens l's connection within connect_timeout when it is o's turn, for which it waits
// as long, or until ctx ends. It returns how many exchanges its host takes on it, 0 for any
// number. A panic is an error, and gives the slot back.
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

// wanted reports whether o is to dial: an exchange waits for it, or it began ahead of
// exchanges. One that is not takes no more exchanges.
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

// awaitSlot has o have a slot.
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
		return protocol.Faultf(protocol.Overflow, "%s has no connection: %w (%d)", p.host.address, errFull, limit)
	}
}

// failed takes note that a connection could not be opened. A host that has
// another is not down for that: it may have as many as it wants.
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
