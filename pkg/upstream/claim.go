package upstream

import (
	"container/list"
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// An exchange that finds no idle connection in a ping-pong pool makes a claim and waits. Connects
// belong to the pool, not to the exchanges for which they began: a connect that succeeds serves the
// exchange that has waited longest, or becomes an idle connection. There is one connect for each
// claim, but never more than Pool.MaxConnecting. A connect that has dialed for longer than
// minConnectTime no longer counts for a claim: where one connect hangs, the next one may not.
// connect hangs, the next may not.
//
//	claim ──▶ waiting, oldest first ──▶ served by whatever is ready first:
//	             │                         a connect, or an exchange that has ended
//	             └─▶ withdrawn: a connect that has not begun to dial is canceled
//
//	connecting:  queued (dial limit, then max_connections) ──▶ dialing ──▶ done or failed
//
// A connect that fails ends the wait of the exchanges that arrived before it began to dial, and of
// all exchanges if no connection to the host is open: they try another host.

// pendingClaim is an exchange that waits for a connection of a ping-pong pool.
type pendingClaim struct {
	number uint64        // immutable; its position in the order of arrival, from 1
	grant  chan granted  // receives once; it is buffered, so that sending never blocks
	place  *list.Element // guarded by the pool's mu; element of waiting; nil once granted
	// connect is the connect that began for the claim and the first to be canceled when the claim
	// ends; nil if none began. Guarded by the pool's mu.
	connect *connecting
}

// granted is a connection, or the error why there is none.
type granted struct {
	m   *pingPongConn
	err error
}

// connecting is a connection that a ping-pong pool is opening.
type connecting struct {
	cancel context.CancelFunc // immutable
	slot   waiter             // for a slot

	place  *list.Element // guarded by the pool's mu; element of queued or dialing; nil once canceled
	dialed bool          // guarded by the pool's mu; it has begun to dial
	after  uint64        // guarded by the pool's mu; number of the last claim made before it dialed
	began  time.Duration // guarded by the pool's mu; when it dialed
}

// minConnectTime is the time that a connect must have had before a timeout of the exchange counts
// against the host. It is about the time after which a lost SYN is sent again (RFC 6298 2.1).
const minConnectTime = time.Second

// await waits for a connection and counts x on it. If newly is true, it does not take a connection
// that is idle now.
func (p *pingPongPool) await(ctx context.Context, x *protocol.Exchange, newly bool) (*pingPongConn, error) {
	x.Detach()
	if err := checkCanceled(ctx, x, p.host); err != nil {
		return nil, err
	}
	b := p.breaker
	if err := b.enterPending(); err != nil {
		return nil, err
	}
	defer b.pending.Add(-1)
	if b.connectionsReached(b.limits()) {
		b.reached(ConnectionOverflow)
	}
	w, m := p.claim(newly)
	for {
		if m == nil {
			var err error
			if m, err = p.granted(ctx, x, w); err != nil {
				return nil, err
			}
		}
		if !m.usable() {
			m.discard()
			m = nil
			p.renew(w)
			continue
		}
		if err := b.activate(); err != nil {
			m.put()
			return nil, err
		}
		return m, nil
	}
}

// checkCanceled returns a Fault of ReasonDownstreamDisconnect if the client no longer waits for the
// response, so that no connection is opened for it.
func checkCanceled(ctx context.Context, x *protocol.Exchange, h *Host) error {
	if ctx.Err() == nil && !x.Canceled() {
		return nil
	}
	return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client disconnected before a connection to %s was opened", h.address)
}

// granted waits until w is granted a connection, the deadline passes, or the client of x
// disconnects.
func (p *pingPongPool) granted(ctx context.Context, x *protocol.Exchange, w *pendingClaim) (*pingPongConn, error) {
	began, waited := p.host.cluster.env.now(), false
	defer func() {
		if !waited { // a panic unwinds
			p.withdraw(w)
		}
	}()
	g, why := await(ctx, x.EffectiveDeadline(), x.Caller, w.grant)
	waited = true
	if why == protocol.ReasonNone {
		return g.m, g.err
	}
	dialed, dials := p.withdraw(w)
	a := p.host.address
	switch {
	case why == protocol.ReasonDownstreamDisconnect:
		return nil, protocol.Faultf(why, "the client disconnected while a connection to %s was being opened", a)
	case !dials:
		return nil, protocol.Faultf(why, "cluster %s: no connection became free; max_connections is %d", p.breaker.cluster.name, p.breaker.limits().MaxConnections)
	}
	err := protocol.Faultf(why, "connecting to %s: no connection was established in time", a)
	if now := p.host.cluster.env.now(); now-began >= minConnectTime && now-dialed >= minConnectTime {
		p.host.connectFailed(err)
	}
	return nil, err
}

// claim makes a claim and begins a connect for it, or returns in m an idle connection instead.
func (p *pingPongPool) claim(newly bool) (w *pendingClaim, m *pingPongConn) {
	w = &pendingClaim{grant: make(chan granted, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrivals++
	w.number = p.arrivals
	if n := len(p.idle) - 1; n >= 0 && !newly { // it became idle in the meantime
		m = p.idle[n]
		p.idle[n] = nil
		p.idle = p.idle[:n]
		return w, m
	}
	w.place = p.waiting.PushBack(w)
	w.connect = p.connectMore()
	return w, nil
}

// renew puts a claim back to the front of the queue, because the granted connection was not usable.
func (p *pingPongPool) renew(w *pendingClaim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.place = p.waiting.PushFront(w)
	p.connectMore()
}

// withdraw withdraws a claim and passes on a connection that was granted meanwhile. If a connect is
// dialing, dials is true and dialed is the time when the oldest one began.
func (p *pingPongPool) withdraw(w *pendingClaim) (dialed time.Duration, dials bool) {
	p.mu.Lock()
	if d := p.dialing.Front(); d != nil {
		dialed, dials = d.Value.(*connecting).began, true //nolint:forcetypeassert // it holds nothing else
	}
	if w.place != nil {
		p.waiting.Remove(w.place)
		w.place = nil
		canceled := p.trim(w)
		p.mu.Unlock()
		p.breaker.cancel(canceled)
		return dialed, dials
	}
	p.mu.Unlock()
	if g := <-w.grant; g.m != nil {
		g.m.put()
	}
	return dialed, dials
}

// serve gives m to the exchange that has waited longest, and returns false if none waits. The
// caller cancels the slots of the canceled connects.
func (p *pingPongPool) serve(m *pingPongConn) (served bool, canceled []*connecting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.grant(m)
	if w == nil {
		return false, nil
	}
	return true, p.trim(w)
}

// grant gives m to the oldest claim and returns that claim, or nil if there is none. p.mu is held.
func (p *pingPongPool) grant(m *pingPongConn) *pendingClaim {
	front := p.waiting.Front()
	if front == nil {
		return nil
	}
	return p.end(front, granted{m: m})
}

// end ends the wait of the claim at place and returns the claim. p.mu is held.
func (p *pingPongPool) end(place *list.Element, g granted) *pendingClaim {
	w := p.waiting.Remove(place).(*pendingClaim) //nolint:forcetypeassert // it holds nothing else
	w.place = nil
	w.grant <- g
	return w
}

// connectMore begins connects until there is one for each claim, as far as Pool.MaxConnecting
// allows, and returns the last that it began, or nil. p.mu is held.
func (p *pingPongPool) connectMore() (last *connecting) {
	limit := p.host.cluster.settings().Pool.ConnectLimit()
	all, promising := p.queued.Len()+p.dialing.Len(), p.promising()
	for ; all < limit && promising < p.waiting.Len(); all, promising = all+1, promising+1 {
		ctx, cancel := context.WithCancel(p.host.cluster.env.ctx)
		d := &connecting{cancel: cancel, after: p.arrivals}
		d.slot = waiter{pool: &p.base, grant: make(chan bool, 1)}
		d.place = p.queued.PushBack(d)
		last = d
		p.host.cluster.env.start(func() { p.finish(ctx, d) })
	}
	return last
}

// promising returns the number of connects that are expected to serve a claim. p.mu is held.
func (p *pingPongPool) promising() int { return p.queued.Len() + p.dialingLately() }

// dialingLately returns the number of connects that began to dial within minConnectTime. p.mu is
// held.
func (p *pingPongPool) dialingLately() (n int) {
	since := p.host.cluster.env.now() - minConnectTime
	for e := p.dialing.Back(); e != nil && e.Value.(*connecting).began > since; e = e.Prev() { //nolint:forcetypeassert // it holds nothing else
		n++
	}
	return n
}

// trim cancels connects that have not begun to dial and that no claim needs, first the connect of
// the ended claim, if any. In a closed pool without claims it also cancels connects that are
// dialing. p.mu is held; the caller cancels their slots.
func (p *pingPongPool) trim(ended *pendingClaim) (canceled []*connecting) {
	for p.queued.Len() > 0 && p.promising() > p.waiting.Len() {
		d := p.queued.Back().Value.(*connecting) //nolint:forcetypeassert // it holds nothing else
		if ended != nil && ended.connect != nil && ended.connect.place != nil && !ended.connect.dialed {
			d = ended.connect
		}
		canceled = append(canceled, p.drop(d))
	}
	for p.isClosed && p.waiting.Len() == 0 && p.dialing.Len() > 0 {
		canceled = append(canceled, p.drop(p.dialing.Back().Value.(*connecting))) //nolint:forcetypeassert // it holds nothing else
	}
	return canceled
}

// drop cancels d. p.mu is held.
func (p *pingPongPool) drop(d *connecting) *connecting {
	p.remove(d)
	d.cancel()
	return d
}

// finish opens a connection and gives it to the exchange that has waited longest.
func (p *pingPongPool) finish(ctx context.Context, d *connecting) {
	defer d.cancel() // it has no effect by then
	m, err := p.establish(ctx, d)
	if m != nil {
		m.since = p.host.cluster.env.now()
		if !p.opened(d, m) {
			m.put()
		}
		return
	}
	p.mu.Lock()
	dialed := d.place != nil && d.dialed
	p.mu.Unlock()
	if dialed {
		err = p.judge(err)
	}
	p.failed(d, p.closing(err))
}

// judge counts a failed connect against the host. It returns the error, or that of a panic while
// counting.
func (p *pingPongPool) judge(failed error) (err error) {
	defer protocol.RecoverPanic(&err)
	if p.host.cluster.env.ctx.Err() == nil {
		p.host.connectFailed(failed)
	}
	return failed
}

// establish opens a connection when it is d's turn. It turns a panic into an error and frees the
// slot.
func (p *pingPongPool) establish(ctx context.Context, d *connecting) (m *pingPongConn, err error) {
	defer protocol.RecoverPanic(&err)
	c, b := p.host.cluster, p.breaker
	s := c.state.Load()
	if err := p.dials.acquire(ctx, s.config.Pool.ConnectLimit(), s.connectBy(), p.host); err != nil {
		return nil, err
	}
	defer p.dials.release()
	if b.slots.waiting.Load() > 0 || !b.slots.take(b.limits().MaxConnections) {
		if err := b.wait(ctx, time.Time{}, &d.slot); err != nil {
			return nil, err
		}
	}
	defer func() {
		if m == nil {
			b.freeSlot()
		}
	}()
	if !p.dial(d) {
		return nil, errUnwanted
	}
	made := &pingPongConn{pool: p}
	if made.conn, err = p.connect(ctx, c.state.Load().connectBy(), made.released); err != nil {
		return nil, err
	}
	return made, nil
}

// dial marks d as dialing, or returns false if no claim needs it.
func (p *pingPongPool) dial(d *connecting) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.place == nil || p.dialingLately() >= p.waiting.Len() {
		return false
	}
	p.queued.Remove(d.place)
	d.place = p.dialing.PushBack(d)
	d.dialed, d.after, d.began = true, p.arrivals, p.host.cluster.env.now()
	return true
}

// opened ends d, which has opened m, and reports whether m serves an exchange.
func (p *pingPongPool) opened(d *connecting, m *pingPongConn) bool {
	p.mu.Lock()
	p.remove(d)
	w := p.grant(m)
	canceled := p.trim(w)
	p.connectMore()
	p.mu.Unlock()
	p.breaker.cancel(canceled)
	return w != nil
}

// failed ends d, which has opened no connection, and the wait of the claims that fail with it.
func (p *pingPongPool) failed(d *connecting, err error) {
	p.mu.Lock()
	if d.place != nil && err != errUnwanted { //nolint:errorlint // it is never wrapped
		all := p.host.load.Connections() == 0
		for e := p.waiting.Front(); e != nil && (all || e.Value.(*pendingClaim).number <= d.after); e = p.waiting.Front() { //nolint:forcetypeassert // it holds nothing else
			p.end(e, granted{err: err})
		}
	}
	p.remove(d)
	canceled := p.trim(nil)
	p.connectMore()
	p.mu.Unlock()
	p.breaker.cancel(canceled)
}

// remove removes d from the connects, unless it was canceled. p.mu is held.
func (p *pingPongPool) remove(d *connecting) {
	if d.place == nil {
		return
	}
	p.queued.Remove(d.place) // no effect if it is in the other list
	p.dialing.Remove(d.place)
	d.place = nil
}
