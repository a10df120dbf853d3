package upstream

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// exclusive is a pool whose connections carry one exchange at a time. The
// connection that came back last is given out first: it is the least likely to
// have been closed by its peer, and what is not needed grows old and is swept
// away.
type exclusive struct {
	base

	mu       sync.Mutex
	idle     []*member // guarded by mu; by since, oldest first
	isClosed bool      // guarded by mu
}

// member is a connection as its pool sees it. It belongs to the exchange that
// took it, and to the pool while it is idle.
type member struct {
	pool  *exclusive // immutable
	conn  Connection
	uses  int           // exchanges that it carried
	since time.Duration // when it became idle, by the set's clock
}

// Start is pool's: it may have to wait for a connection.
func (p *exclusive) Start(ctx context.Context, x *protocol.Exchange) error { return x.Fork(ctx, p) }

// Serve is pool's.
//
// A connection that was idle may turn out to have been closed by the host just
// when the request was on its way (RFC 9112 9.3.1). Nothing is wrong with the
// host then, so this is dealt with here and not by Retry: the request is sent
// once more, on a new connection, if it was not sent or sending it twice does no
// harm.
func (p *exclusive) Serve(ctx context.Context, x *protocol.Exchange) error {
	m, err := p.take(ctx, x)
	if err != nil {
		return &notSent{err}
	}
	reused := m.uses > 0 // m is another exchange's as soon as it is released
	if err = m.conn.Serve(ctx, x); err == nil {
		p.host.answered()
		return nil
	}
	if !reused || !unsent(err) && !(stale(err) && resendable(&x.Request)) || expired(x.Until()) {
		return err
	}
	p.breaker.again(p.host)
	m, err = p.make(ctx, x, true)
	if err != nil {
		return &notSent{err}
	}
	if err = m.conn.Serve(ctx, x); err == nil {
		p.host.answered()
	}
	return err
}

// again counts an exchange as in flight once more: its connection had gone stale
// and has released it.
func (b *Breaker) again(h *Host) {
	b.cluster.resent.Add(1)
	b.cluster.count(Resent)
	b.active.Add(1)
	h.load.Begin()
}

// unsent reports whether err is what a connection fails with that had ended
// before the request was sent.
func unsent(err error) bool { return protocol.ReasonOf(err) == protocol.ConnectFailure }

// stale reports whether err is what a connection fails with that its peer had
// closed. Serve returns errors only before the head of an answer.
func stale(err error) bool {
	reason := protocol.ReasonOf(err)
	return reason == protocol.UpstreamClosed || reason == protocol.UpstreamReset
}

// resendable reports whether a request may reach an application twice (RFC 9110
// 9.2.2) and can be sent again; if so, its body is at its start.
func resendable(r *protocol.Request) bool {
	switch r.Method {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
	default:
		return false
	}
	if r.Body == nil {
		return true
	}
	body, ok := r.Body.(protocol.Rewinder)
	return ok && body.Rewind()
}

// take returns a connection for x: an idle one that is usable, or a new one.
func (p *exclusive) take(ctx context.Context, x *protocol.Exchange) (*member, error) {
	for {
		m := p.pop()
		if m == nil {
			return p.make(ctx, x, false)
		}
		if m.conn.Usable(p.host.cluster.env.now() - m.since) {
			return m, nil
		}
		m.discard()
	}
}

// make opens a connection for x. While max_connections is reached it waits for
// one to be given back, or to end. fresh asks for one that was not idle.
func (p *exclusive) make(ctx context.Context, x *protocol.Exchange, fresh bool) (*member, error) {
	c := p.host.cluster
	x.Detach()
	b := p.breaker
	if err := b.enterPending(); err != nil {
		return nil, err
	}
	defer b.pending.Add(-1)
	// Who comes while others wait gets in line.
	if b.slots.waiting.Load() > 0 || !b.slots.take(b.limits().MaxConnections) {
		b.reached(ConnectionOverflow)
		from := p
		if fresh {
			from = nil
		}
		m, err := b.wait(ctx, x.Until(), x.Caller, &p.base, from)
		switch {
		case err != nil:
			return nil, err
		case m == nil: // a slot
		case m.conn.Usable(c.env.now() - m.since):
			return m, nil
		default:
			m.end() // its slot is ours
		}
	}
	m, err := p.dial(ctx, x)
	if err != nil {
		b.freeSlot()
	}
	return m, err
}

// fairChance is how long a connect must have had before it counts against the
// host that the exchange's own deadline ended it: about the time after which a
// lost SYN is sent again (RFC 6298 2.1).
const fairChance = time.Second

// dial opens a connection, with a slot taken, within connect_timeout and before
// x.Until.
func (p *exclusive) dial(ctx context.Context, x *protocol.Exchange) (*member, error) {
	c := p.host.cluster
	began := c.env.now()
	deadline := c.state.Load().connectBy()
	until := x.Until()
	own := !until.IsZero() && (deadline.IsZero() || until.Before(deadline))
	if own {
		deadline = until
	}
	m := &member{pool: p}
	conn, err := p.connect(ctx, deadline, m.released)
	if err == nil {
		m.conn = conn
		return m, nil
	}
	switch {
	case ctx.Err() != nil:
		return nil, protocol.Faultf(protocol.DownstreamGone, "connecting to %s: %w", p.host.address, context.Cause(ctx))
	case own && protocol.ReasonOf(err) == protocol.ConnectTimeout:
		if c.env.now()-began >= fairChance {
			p.host.connectFailed(err)
		}
		return nil, protocol.Faultf(protocol.UpstreamTimeout, "connecting to %s: %w", p.host.address, err)
	}
	p.host.connectFailed(err)
	return nil, err
}

// released is called by the connection when an exchange has left it.
func (m *member) released(reusable bool) {
	h := m.pool.host
	c := h.cluster
	h.load.End()
	b := m.pool.breaker
	b.active.Add(-1)
	m.uses++
	s := c.settings()
	limit := s.Limits(b.priority).MaxConnections
	switch {
	case s.MaxRequestsPerConn > 0 && m.uses >= s.MaxRequestsPerConn:
		h.countConnection(ConnectionSpent)
		m.discard()
	case !reusable,
		limit != 0 && b.slots.open.Load() > int64(limit): // it was lowered
		m.discard()
	default:
		m.since = c.env.now()
		m.put()
	}
}

// put gives the connection to an exchange that waits for one, else it becomes
// idle.
func (m *member) put() {
	for {
		switch m.pool.keep(m, -1) {
		case kept:
			return
		case refused:
			m.discard()
			return
		case wanted:
			if m.pool.breaker.handOver(m) {
				return
			}
		}
	}
}

// outcome is what became of an attempt to keep a connection.
type outcome uint8

const (
	kept    outcome = iota
	refused         // the pool is closed
	wanted          // an exchange waits
)

// keep puts m among the idle connections at a place, -1 for the newest.
func (p *exclusive) keep(m *member, place int) outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.isClosed:
		return refused
	case p.breaker.slots.waiting.Load() > 0:
		return wanted
	}
	if place < 0 || place > len(p.idle) {
		place = len(p.idle)
	}
	p.idle = slices.Insert(p.idle, place, m)
	p.arm(p)
	return kept
}

// pop takes the connection that became idle last, nil if there is none.
func (p *exclusive) pop() *member {
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

// giveWay is pool's: it takes the connection that has been idle longest.
func (p *exclusive) giveWay() ender {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	m := p.idle[0]
	p.idle = slices.Delete(p.idle, 0, 1)
	return m
}

// counts is pool's.
func (p *exclusive) counts() (open int64, idle int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open.Load(), len(p.idle)
}

// discard ends a connection that nobody uses and frees its slot.
func (m *member) discard() {
	m.end()
	m.pool.breaker.freeSlot()
}

// end ends a connection whose slot has been passed on.
func (m *member) end() { m.pool.ended(m.conn) }

// close is pool's.
func (p *exclusive) close() {
	p.mu.Lock()
	p.isClosed = true
	idle := p.idle
	p.idle = nil
	p.still()
	p.mu.Unlock()
	for _, m := range idle {
		m.discard()
	}
}
