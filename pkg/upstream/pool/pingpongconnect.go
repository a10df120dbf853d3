package pool

import (
	"container/list"
	"context"
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/breaker"
	"github.com/weft-proxy/weft/pkg/upstream/wait"
)

// An exchange that finds no idle connection in a ping-pong pool becomes pending. Connects belong to
// the pool, not to the exchanges for which they began: a connect that succeeds serves the exchange
// that has waited longest, or becomes an idle connection. There is one connect for each pending
// exchange, but never more than Pool.MaxConnecting. A connect that has dialed for longer than
// minConnectTime no longer counts as the connect of an exchange: if it hangs, another may succeed.
//
//	pending, oldest first ──▶ served by the first connection that is ready: of a connect,
//	             │             or of an exchange that has ended
//	             └─▶ canceled, together with a connect that has not begun to dial
//
//	connecting:  queued (dial limit, then max_connections) ──▶ dialing ──▶ done or failed
//
// A failed connect ends the wait of the exchanges that arrived before it began to dial, or of all
// exchanges if no connection to the host is open: they try another host.

// pendingExchange is an exchange that waits for a connection of a ping-pong pool.
type pendingExchange struct {
	arrival uint64           // immutable; position in the order of arrival, from 1
	grant   chan grantResult // receives one value for each time in pending; buffered, so that sending never blocks
	elem    *list.Element    // guarded by the pool's mu; element of pingPongPool.pending; nil if it is not in pending
	// connect is the connect that began for the exchange, or nil. It is the first to be canceled
	// when the wait of the exchange ends. Guarded by the pool's mu.
	connect *pingPongConnect
}

// grantResult is a connection, or the error that explains why there is none.
type grantResult struct {
	conn *pingPongConn
	err  error
}

// pingPongConnect is a connection that a ping-pong pool is opening.
type pingPongConnect struct {
	cancel context.CancelFunc // immutable
	slot   breaker.Waiter     // waits for a slot

	elem        *list.Element // guarded by the pool's mu; element of queuedConnects or dialingConnects; nil once ended or canceled
	dialStarted bool          // guarded by the pool's mu; the connect has begun to dial
	lastArrival uint64        // guarded by the pool's mu; arrival of the last pending exchange before the dial began
	dialStart   time.Duration // guarded by the pool's mu; when the dial began
}

// minConnectTime is how long a connect must have run before a timeout of the exchange counts
// against the host. It is about the time after which TCP sends a lost SYN again (RFC 6298 2.1).
const minConnectTime = time.Second

// awaitConn waits for a connection and counts x on it. If newOnly is true, it uses no connection
// that is idle now.
func (p *pingPongPool) awaitConn(ctx context.Context, x *protocol.Exchange, newOnly bool) (*pingPongConn, error) {
	x.Detach()
	if err := checkCanceled(ctx, x, p.Address); err != nil {
		return nil, err
	}
	b := p.Breaker
	if err := b.EnterPending(); err != nil {
		return nil, err
	}
	defer b.LeavePending()
	if b.MaxConnectionsReached() {
		b.CountConnectionLimit()
	}
	w, c := p.enqueuePending(newOnly)
	for {
		if c == nil {
			var err error
			if c, err = p.awaitGrant(ctx, x, w); err != nil {
				return nil, err
			}
		}
		if !c.checkUsable() {
			c.discard()
			c = nil
			p.requeue(w)
			continue
		}
		if err := b.AddActive(); err != nil {
			c.returnToPool()
			return nil, err
		}
		return c, nil
	}
}

// checkCanceled returns a Fault of ReasonDownstreamDisconnect if the client no longer waits for the
// response, so that no connection is opened for it.
func checkCanceled(ctx context.Context, x *protocol.Exchange, address string) error {
	if ctx.Err() == nil && !x.Canceled() {
		return nil
	}
	return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client disconnected before a connection to %s was opened", address)
}

// awaitGrant waits until w is granted a connection, a connect fails for w, the deadline passes, ctx
// ends, or the client of x disconnects.
func (p *pingPongPool) awaitGrant(ctx context.Context, x *protocol.Exchange, w *pendingExchange) (*pingPongConn, error) {
	start, waited := p.Tasks.Now(), false
	defer func() {
		if !waited { // after a panic
			p.cancelPending(w)
		}
	}()
	g, reason := wait.For(ctx, x.EffectiveDeadline(), x.Downstream, w.grant)
	waited = true
	if reason == protocol.ReasonNone {
		return g.conn, g.err
	}
	oldestDial, dialing := p.cancelPending(w)
	address := p.Address
	switch {
	case reason == protocol.ReasonDownstreamDisconnect:
		return nil, protocol.Faultf(reason, "the client disconnected while a connection to %s was being opened", address)
	case !dialing:
		return nil, p.Breaker.ConnectionFault(reason)
	}
	err := protocol.Faultf(reason, "connecting to %s: no connection was established in time", address)
	if now := p.Tasks.Now(); now-start >= minConnectTime && now-oldestDial >= minConnectTime {
		p.Observer.ConnectFailed(err)
	}
	return nil, err
}

// enqueuePending queues a pending exchange and begins a connect for it, or returns an idle
// connection c instead.
func (p *pingPongPool) enqueuePending(newOnly bool) (w *pendingExchange, c *pingPongConn) {
	w = &pendingExchange{grant: make(chan grantResult, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrivals++
	w.arrival = p.arrivals
	if n := len(p.idle) - 1; n >= 0 && !newOnly { // the connection became idle in the meantime
		c = p.idle[n]
		p.idle[n] = nil
		p.idle = p.idle[:n]
		return w, c
	}
	w.elem = p.pending.PushBack(w)
	w.connect = p.startConnects()
	return w, nil
}

// requeue puts w back at the front of the queue, because the granted connection was not usable.
func (p *pingPongPool) requeue(w *pendingExchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.elem = p.pending.PushFront(w)
	p.startConnects()
}

// cancelPending ends the wait of w and passes on a connection that was granted meanwhile. If a
// connect is dialing, dialing is true and oldestDial is the time when the oldest dial began.
func (p *pingPongPool) cancelPending(w *pendingExchange) (oldestDial time.Duration, dialing bool) {
	p.mu.Lock()
	if d := p.dialingConnects.Front(); d != nil {
		oldestDial, dialing = d.Value.(*pingPongConnect).dialStart, true //nolint:forcetypeassert // it holds nothing else
	}
	if w.elem != nil {
		p.pending.Remove(w.elem)
		w.elem = nil
		canceled := p.cancelSurplusConnects(w)
		p.mu.Unlock()
		p.Breaker.CancelWaits(canceled)
		return oldestDial, dialing
	}
	p.mu.Unlock()
	if g := <-w.grant; g.conn != nil {
		g.conn.returnToPool()
	}
	return oldestDial, dialing
}

// Pool implements breaker.Idle.
func (c *pingPongConn) Pool() breaker.Pool { return &c.pool.base }

// GrantToOldest implements breaker.Idle.
func (c *pingPongConn) GrantToOldest() (served bool, canceled []*breaker.Waiter) {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.grantLocked(c)
	if w == nil {
		return false, nil
	}
	return true, p.cancelSurplusConnects(w)
}

// grantLocked gives c to the oldest pending exchange and returns that exchange, or nil if there is
// none. The caller holds p.mu.
func (p *pingPongPool) grantLocked(c *pingPongConn) *pendingExchange {
	front := p.pending.Front()
	if front == nil {
		return nil
	}
	return p.finishPending(front, grantResult{conn: c})
}

// finishPending ends the wait of the pending exchange in elem and returns it. The caller holds
// p.mu.
func (p *pingPongPool) finishPending(elem *list.Element, g grantResult) *pendingExchange {
	w := p.pending.Remove(elem).(*pendingExchange) //nolint:forcetypeassert // it holds nothing else
	w.elem = nil
	w.grant <- g
	return w
}

// startConnects begins connects until there is one for each pending exchange, as far as
// Pool.MaxConnecting allows. It returns the last connect that it began, or nil. The caller holds
// p.mu.
func (p *pingPongPool) startConnects() (last *pingPongConnect) {
	limit := p.Config.Load().Pool.ConnectLimit()
	connects, expected := p.queuedConnects.Len()+p.dialingConnects.Len(), p.expectedConnects()
	for ; connects < limit && expected < p.pending.Len(); connects, expected = connects+1, expected+1 {
		ctx, cancel := context.WithCancel(p.Tasks.Context())
		d := &pingPongConnect{cancel: cancel, lastArrival: p.arrivals, slot: breaker.NewWaiter(&p.base)}
		d.elem = p.queuedConnects.PushBack(d)
		last = d
		p.Tasks.Go(func() { p.runConnect(ctx, d) })
	}
	return last
}

// expectedConnects returns the number of connects that are expected to serve a pending exchange.
// The caller holds p.mu.
func (p *pingPongPool) expectedConnects() int { return p.queuedConnects.Len() + p.recentDials() }

// recentDials returns the number of connects that began to dial within minConnectTime. The caller
// holds p.mu.
func (p *pingPongPool) recentDials() (n int) {
	since := p.Tasks.Now() - minConnectTime
	for e := p.dialingConnects.Back(); e != nil && e.Value.(*pingPongConnect).dialStart > since; e = e.Prev() { //nolint:forcetypeassert // it holds nothing else
		n++
	}
	return n
}

// cancelSurplusConnects cancels connects that have not begun to dial and that no pending exchange
// needs, first the connect of the exchange ended, if not nil. In a closed pool without pending
// exchanges it also cancels connects that are dialing. The caller holds p.mu. After it has
// unlocked p.mu, it passes canceled to Breaker.CancelWaits.
func (p *pingPongPool) cancelSurplusConnects(ended *pendingExchange) (canceled []*breaker.Waiter) {
	for p.queuedConnects.Len() > 0 && p.expectedConnects() > p.pending.Len() {
		d := p.queuedConnects.Back().Value.(*pingPongConnect) //nolint:forcetypeassert // it holds nothing else
		if ended != nil && ended.connect != nil && ended.connect.elem != nil && !ended.connect.dialStarted {
			d = ended.connect
		}
		canceled = append(canceled, p.cancelConnect(d))
	}
	for p.isClosed && p.pending.Len() == 0 && p.dialingConnects.Len() > 0 {
		canceled = append(canceled, p.cancelConnect(p.dialingConnects.Back().Value.(*pingPongConnect))) //nolint:forcetypeassert // it holds nothing else
	}
	return canceled
}

// cancelConnect cancels d and returns its Waiter, which may still be queued. The caller holds p.mu.
func (p *pingPongPool) cancelConnect(d *pingPongConnect) *breaker.Waiter {
	p.removeConnect(d)
	d.cancel()
	return &d.slot
}

// runConnect opens a connection and gives it to the exchange that has waited longest.
func (p *pingPongPool) runConnect(ctx context.Context, d *pingPongConnect) {
	defer d.cancel() // releases ctx
	c, err := p.openConn(ctx, d)
	if c != nil {
		c.idleSince = p.Tasks.Now()
		if !p.connectSucceeded(d, c) {
			c.returnToPool()
		}
		return
	}
	p.mu.Lock()
	dialStarted := d.elem != nil && d.dialStarted
	p.mu.Unlock()
	if dialStarted {
		err = p.recordConnectFailure(err)
	}
	p.connectFailed(d, p.errOrClosed(err))
}

// recordConnectFailure counts a failed connect against the host. It returns connectErr, or the
// error of a panic while counting.
func (p *pingPongPool) recordConnectFailure(connectErr error) (err error) {
	defer protocol.RecoverPanic(&err)
	if !p.Tasks.Closed() && !errors.Is(connectErr, errOtherProtocol) {
		p.Observer.ConnectFailed(connectErr)
	}
	return connectErr
}

// openConn waits until d may dial, and then opens a connection. It turns a panic into an error. If
// it fails, it frees the slot.
func (p *pingPongPool) openConn(ctx context.Context, d *pingPongConnect) (c *pingPongConn, err error) {
	defer protocol.RecoverPanic(&err)
	b, cfg := p.Breaker, p.Config.Load()
	if err := p.dials.Acquire(ctx, cfg.Pool.ConnectLimit(), ConnectDeadline(cfg), p.Address); err != nil {
		return nil, err
	}
	defer p.dials.Release()
	if !b.TryAcquireSlot() {
		if err := b.AwaitSlot(ctx, time.Time{}, &d.slot); err != nil {
			return nil, err
		}
	}
	defer func() {
		if c == nil {
			b.ReleaseSlot()
		}
	}()
	if !p.startDial(d) {
		return nil, breaker.ErrNotNeeded
	}
	opened := &pingPongConn{pool: p}
	if opened.conn, err = p.connect(ctx, ConnectDeadline(p.Config.Load()), opened.onReleased); err != nil {
		return nil, err
	}
	opened.expiry = p.expiryOfNew()
	return opened, nil
}

// startDial marks d as dialing, or returns false if no pending exchange needs it.
func (p *pingPongPool) startDial(d *pingPongConnect) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.elem == nil || p.recentDials() >= p.pending.Len() {
		return false
	}
	p.queuedConnects.Remove(d.elem)
	d.elem = p.dialingConnects.PushBack(d)
	d.dialStarted, d.lastArrival, d.dialStart = true, p.arrivals, p.Tasks.Now()
	return true
}

// connectSucceeded ends d, which has opened c, and reports whether c serves an exchange.
func (p *pingPongPool) connectSucceeded(d *pingPongConnect, c *pingPongConn) bool {
	p.mu.Lock()
	p.removeConnect(d)
	w := p.grantLocked(c)
	canceled := p.cancelSurplusConnects(w)
	p.startConnects()
	p.mu.Unlock()
	p.Breaker.CancelWaits(canceled)
	return w != nil
}

// connectFailed ends d, which has opened no connection, and the wait of the exchanges that fail
// with d.
func (p *pingPongPool) connectFailed(d *pingPongConnect, err error) {
	p.mu.Lock()
	if d.elem != nil && err != breaker.ErrNotNeeded { //nolint:errorlint // it is never wrapped
		failAll := p.Load.Connections() == 0
		for e := p.pending.Front(); e != nil && (failAll || e.Value.(*pendingExchange).arrival <= d.lastArrival); e = p.pending.Front() { //nolint:forcetypeassert // it holds nothing else
			p.finishPending(e, grantResult{err: err})
		}
	}
	p.removeConnect(d)
	canceled := p.cancelSurplusConnects(nil)
	p.startConnects()
	p.mu.Unlock()
	p.Breaker.CancelWaits(canceled)
}

// removeConnect removes d from the connects, unless it was canceled. The caller holds p.mu.
func (p *pingPongPool) removeConnect(d *pingPongConnect) {
	if d.elem == nil {
		return
	}
	p.queuedConnects.Remove(d.elem) // no effect if d.elem is in dialingConnects
	p.dialingConnects.Remove(d.elem)
	d.elem = nil
}
