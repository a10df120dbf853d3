package upstream

import (
	"container/list"
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// An exchange that finds no idle connection in an exclusive pool makes a claim and waits.
// Connects belong to the pool and not to the exchanges for which they began: each serves
// the exchange that has waited longest when it is done, or leaves an idle connection.
// There is one connect for each claim, but never more than Pool.MaxConnecting. One that has
// dialed for longer than minConnectTime does not count as one for a claim any more: where a
// connect hangs, the next may not.
//
//	claim ──▶ waiting, oldest first ──▶ served by whatever is ready first:
//	             │                         a connect, or an exchange that has ended
//	             └─▶ withdrawn: a connect that has not begun to dial is canceled
//
//	connecting:  queued (dial limit, then max_connections) ──▶ dialing ──▶ done or failed
//
// A connect that fails ends the wait of the exchanges that had come before it began to
// dial, and of all if no connection to the host is open: they try another host.

// claimProbe is an exchange that waits for a connection of an exclusive pool.
type claimProbe struct {
	number uint64        // immutable; its place in the order of arrival, from 1
	grant  chan granted  // receives once; it has room for that, so that giving never blocks
	place  *list.Element // guarded by the pool's mu; in waiting; nil once granted
	// connect began for the claim, and is the first to be canceled when that ends; nil: none
	// did. Guarded by the pool's mu.
	connect *connecting
}

// granted is a connection, or why there is none.
type granted struct {
	m   *pingPongConn
	err error
}

// connecting is a connection that an exclusive pool is opening.
type connecting struct {
	cancel context.CancelFunc // immutable
	slot   waiter             // for a slot

	place  *list.Element // guarded by the pool's mu; in queued or dialing; nil once canceled
	dialed bool          // guarded by the pool's mu; it has begun to dial
	after  uint64        // guarded by the pool's mu; number of the last claim made before it dialed
	began  time.Duration // guarded by the pool's mu; when it dialed
}

// minConnectTime is how long a connect must have had before it counts against the
// host that the exchange's own deadline ended it: about the time after which a
// lost SYN is sent again (RFC 6298 2.1).
const minConnectTime = time.Second

// await waits for a connection and counts x on it. newly: none that is idle now.
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

// checkCanceled returns a Fault of DownstreamGone if the client no longer waits for the response, so that no
// connection is opened for it.
func checkCanceled(ctx context.Context, x *protocol.Exchange, h *Host) error {
	if ctx.Err() == nil && !x.Canceled() {
		return nil
	}
	return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "before a connection to %s was opened", h.address)
}

// granted waits until w is granted a connection, or for the deadline or the caller of x.
func (p *pingPongPool) granted(ctx context.Context, x *protocol.Exchange, w *claimProbe) (*pingPongConn, error) {
	began, waited := p.host.cluster.env.now(), false
	defer func() {
		if !waited { // a panic is on its way
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
		return nil, protocol.Faultf(why, "while a connection to %s was being opened", a)
	case !dials:
		return nil, protocol.Faultf(why, "cluster %s: no connection became free; max_connections is %d", p.breaker.cluster.name, p.breaker.limits().MaxConnections)
	}
	err := protocol.Faultf(why, "connecting to %s: no connection was established in time", a)
	if now := p.host.cluster.env.now(); now-began >= minConnectTime && now-dialed >= minConnectTime {
		p.host.connectFailed(err)
	}
	return nil, err
}

// claim makes a claim, for which a connect begins; m is an idle connection that takes its
// place.
func (p *pingPongPool) claim(newly bool) (w *claimProbe, m *pingPongConn) {
	w = &claimProbe{grant: make(chan granted, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrivals++
	w.number = p.arrivals
	if n := len(p.idle) - 1; n >= 0 && !newly { // it has come meanwhile
		m = p.idle[n]
		p.idle[n] = nil
		p.idle = p.idle[:n]
		return w, m
	}
	w.place = p.waiting.PushBack(w)
	w.connect = p.connectMore()
	return w, nil
}

// renew puts a claim back in front: the connection that it was granted was of no use.
func (p *pingPongPool) renew(w *claimProbe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.place = p.waiting.PushFront(w)
	p.connectMore()
}

// withdraw takes back a claim; what it was granted meanwhile is passed on. dialed is when
// the oldest connect began to dial, if dials is true: one does.
func (p *pingPongPool) withdraw(w *claimProbe) (dialed time.Duration, dials bool) {
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

// serve gives m to the exchange that has waited longest, and returns false if none waits.
// The slots of the connects that it has canceled are for the caller to cancel.
func (p *pingPongPool) serve(m *pingPongConn) (served bool, canceled []*connecting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.grant(m)
	if w == nil {
		return false, nil
	}
	return true, p.trim(w)
}

// grant gives m to the oldest claim, and returns that, nil if there is none. p.mu is held.
func (p *pingPongPool) grant(m *pingPongConn) *claimProbe {
	front := p.waiting.Front()
	if front == nil {
		return nil
	}
	return p.end(front, granted{m: m})
}

// end ends the wait of the claim at place, and returns it. p.mu is held.
func (p *pingPongPool) end(place *list.Element, g granted) *claimProbe {
	w := p.waiting.Remove(place).(*claimProbe) //nolint:forcetypeassert // it holds nothing else
	w.place = nil
	w.grant <- g
	return w
}

// connectMore begins connects until there is one for each claim, as far as Pool.MaxConnecting
// allows, and returns the last that it began, nil for none. p.mu is held.
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

// promising is how many connects there are that claims are expected to be served by. p.mu is
// held.
func (p *pingPongPool) promising() int { return p.queued.Len() + p.dialingLately() }

// dialingLately is how many connects have begun to dial within minConnectTime. p.mu is held.
func (p *pingPongPool) dialingLately() (n int) {
	since := p.host.cluster.env.now() - minConnectTime
	for e := p.dialing.Back(); e != nil && e.Value.(*connecting).began > since; e = e.Prev() { //nolint:forcetypeassert // it holds nothing else
		n++
	}
	return n
}

// trim cancels connects that have not begun to dial and that no claim is left for, first
// that of a claim which has ended, if there is one; of a pool that is closed those that
// dial, too, once nothing waits. p.mu is held; the caller cancels their slots.
func (p *pingPongPool) trim(ended *claimProbe) (canceled []*connecting) {
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
	defer d.cancel() // which has nothing to end then
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

// judge counts a failed connect against the host, and returns its error: that of a panic
// meanwhile.
func (p *pingPongPool) judge(failed error) (err error) {
	defer protocol.RecoverPanic(&err)
	if p.host.cluster.env.ctx.Err() == nil {
		p.host.connectFailed(failed)
	}
	return failed
}

// establish opens a connection when it is d's turn. A panic is an error, and gives the slot back.
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

// dial has d begin to dial, and reports false if there is no claim left for it.
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

// opened ends d, which has opened m, and reports whether that serves an exchange.
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

// failed ends d, which has opened no connection, and the wait of those that it fails with it.
func (p *pingPongPool) failed(d *connecting, err error) {
	p.mu.Lock()
	if d.place != nil && err != errUnwanted { //nolint:errorlint // it is never wrapped
		all := p.host.load.Connections() == 0
		for e := p.waiting.Front(); e != nil && (all || e.Value.(*claimProbe).number <= d.after); e = p.waiting.Front() { //nolint:forcetypeassert // it holds nothing else
			p.end(e, granted{err: err})
		}
	}
	p.remove(d)
	canceled := p.trim(nil)
	p.connectMore()
	p.mu.Unlock()
	p.breaker.cancel(canceled)
}

// remove takes d out of the connects, unless it was canceled. p.mu is held.
func (p *pingPongPool) remove(d *connecting) {
	if d.place == nil {
		return
	}
	p.queued.Remove(d.place) // does nothing if it is in the other
	p.dialing.Remove(d.place)
	d.place = nil
}
