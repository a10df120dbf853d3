package http2

import (
	"context"
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// Start implements stream.UpstreamConn. Errors other than protocol.ErrPending are Faults.
// ConnectFailure means that the host has not processed the request, which can be sent again.
func (u *UpstreamConn) Start(_ context.Context, x *protocol.Exchange) error {
	e, ok := x.Downstream.(*exchange)
	async := ok && !e.ownsGoroutine // otherwise this goroutine may block
	c, err := u.send(x, async)
	switch {
	case c == nil:
		return err
	case async:
		return protocol.ErrPending
	}
	return c.await()
}

// send opens a stream for x, or queues x. The returned call is in flight; if async is set, the call
// owns x. send returns a nil call if x could not be sent, or if async is set and the call has
// already been resolved.
func (u *UpstreamConn) send(x *protocol.Exchange, async bool) (*call, error) {
	e, _ := x.Downstream.(*exchange)
	var b *batch
	if e != nil {
		b = e.batch
	}
	now := b.time()
	x.Record.UpstreamStart, x.Record.UpstreamFirstByte = now, time.Time{}
	if n := len(x.Record.Attempts); n > 0 {
		x.Record.Attempts[n-1].Local, x.Record.Attempts[n-1].TLS = u.localAddr, u.tls
	}
	if !reduceGRPCTimeout(x, now) {
		u.opts.OnRelease(!u.closing.Load())
		return nil, protocol.Faultf(protocol.UpstreamTimeout, "the deadline passed before the request was sent")
	}
	c := u.engine.newCall()
	c.init(u, x, e, async)
	if e != nil && !e.watch.SetPending(pendingCall{u, c, c.id.Load()}) {
		return nil, c.releaseUnsent(protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client closed its connection"))
	}
	queued, opened := u.admit(c, now)
	if queued {
		b.scheduleFlush(u.writeQueue) // the host may wait for Weft's SETTINGS before it sends its own
		return c, nil                 // openPending opens a stream for it
	}
	if opened {
		c.upload(b)
	}
	if c.yield() {
		return c, nil
	}
	if async {
		return nil, c.deliverResponse()
	}
	return c, nil
}

// admit locks mu and calls openOrEnqueue. queued means that c waits for a stream, opened that c has
// one.
func (u *UpstreamConn) admit(c *call, now time.Time) (queued, opened bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.openOrEnqueue(c, now)
	return c.state == callQueued, c.stream != nil
}

// openOrEnqueue opens a stream for c or queues it. If neither is possible, it resolves c with the
// reason. The caller owns c and holds mu.
func (u *UpstreamConn) openOrEnqueue(c *call, now time.Time) {
	switch {
	case c.state.resolved(): // its client has disconnected
		return
	case u.lostErr != nil:
		c.resolve(protocol.NewFault(protocol.ConnectFailure, u.lostErr))
		return
	case u.closing.Load():
		c.resolve(protocol.Faultf(protocol.ConnectFailure, "the connection accepts no more requests"))
		return
	}
	u.arm(c.x.EffectiveDeadline())
	if !u.canOpen(c) || !u.pending.empty() {
		c.state.transition(callEnqueue)
		u.pending.push(c)
		return
	}
	if err := u.openStream(c, now); err != nil {
		c.resolve(err)
	}
}

// openPending opens streams for queued calls, as far as possible. The caller holds mu.
func (u *UpstreamConn) openPending(now time.Time, fx *effects) {
	if !u.pending.empty() && u.state.Exhausted() {
		u.failPending(protocol.Faultf(protocol.ConnectFailure, "the connection accepts no more requests"), fx)
		return
	}
	for !u.pending.empty() && u.canOpen(u.pending.first) {
		c := u.pending.pop()
		switch err := u.openStream(c, now); {
		case err != nil:
			if c.resolve(err) {
				fx.resumed = append(fx.resumed, c)
			}
		case c.async:
			c.state.transition(callOpen)
			fx.opened = append(fx.opened, c)
		default:
			c.state.transition(callOpenBlocking)
			c.signal()
		}
	}
}

// canOpen reports whether a stream for c may be opened now. A request with Upgrade waits for the
// host's settings, which show whether the host supports extended CONNECT. The caller holds mu.
func (u *UpstreamConn) canOpen(c *call) bool {
	return u.availableStreams() > 0 && (u.settingsReceived || c.x.Request.Upgrade == "")
}

// availableStreams returns how many streams may be opened now. The caller holds mu.
func (u *UpstreamConn) availableStreams() int {
	n := u.state.AvailableStreams()
	if !u.settingsReceived {
		n = min(n, defaultMaxStreams-u.state.Len())
	}
	return n
}

// wantsTrailers reports whether the request is sent with "te: trailers": the client sent TE, in any
// version of HTTP, or the request is gRPC.
func (c *call) wantsTrailers() bool {
	h := &c.x.Request.Header
	if c.downstream != nil && c.downstream.acceptsTrailers || protocol.IsGRPC(h) {
		return true
	}
	if c.downstream != nil { // an HTTP/2 client that did not send "te: trailers"
		return false
	}
	_, ok := h.Lookup("te")
	return ok
}

// openStream opens a stream with the head of c's request. Errors, including those of a recovered
// panic, are Faults. The caller holds mu.
func (u *UpstreamConn) openStream(c *call, now time.Time) (err error) {
	defer func() {
		if p := recover(); p != nil {
			u.state.DropBlock()
			err = protocol.NewFault(protocol.Internal, protocol.NewPanic(p))
		}
	}()
	x := c.x
	wantsTunnel := x.Request.Upgrade != "" || x.Request.Method == "CONNECT"
	opts := syntax.RequestOptions{End: !wantsTunnel && (x.Request.Body == nil || isEmpty(x.Request.Body))}
	opts.AcceptsTrailers = c.wantsTrailers()
	dst, err := u.startHead()
	if err != nil {
		return openFault(err)
	}
	dst, s, err := u.state.AppendRequest(dst, &x.Request, opts)
	if err != nil {
		return openFault(err)
	}
	u.enqueue(dst)
	c.attach(s, c, now)
	c.requestEnded = opts.End
	c.deadline = x.EffectiveDeadline()
	if u.streamIdleTimeout > 0 {
		u.arm(now.Add(u.streamIdleTimeout))
	}
	if opts.End || x.Request.Body == nil {
		c.startResponseIdleTimeout(now)
	}
	if d := u.opts.HTTP2.PingInterval; d > 0 {
		u.arm(now.Add(d))
	}
	if u.state.Exhausted() {
		u.closing.Store(true)
	}
	return nil
}

// openFault returns the Fault of a stream that could not be opened.
func openFault(err error) error {
	var f *protocol.Fault
	switch {
	case errors.As(err, &f):
		return err
	case errors.Is(err, syntax.ErrNoExtendedConnect), errors.Is(err, syntax.ErrNotOneProtocol):
		return protocol.NewFault(protocol.NotImplemented, err)
	case errors.Is(err, network.ErrWriteQueueFull):
		return protocol.NewFault(protocol.Overflow, err) // the host reads requests too slowly
	}
	return protocol.NewFault(protocol.ConnectFailure, err)
}
