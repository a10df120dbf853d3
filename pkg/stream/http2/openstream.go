package http2

import (
	"context"
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// Start implements stream.UpstreamConn. Errors are Faults. The reason is ConnectFailure if the host
// has not processed the request and the request can be sent again.
func (u *UpstreamConn) Start(_ context.Context, x *protocol.Exchange) error {
	e, ok := x.Downstream.(*exchange)
	async := ok && !e.ownsGoroutine // else this goroutine may wait
	k, err := u.send(x, async)
	switch {
	case k == nil:
		return err
	case async:
		return protocol.ErrPending
	}
	return k.await()
}

// send opens a stream for x, or queues it. The returned call is in flight; if async is set, it
// owns x. The call is nil if async is set and it was resolved meanwhile, or if x could not be sent.
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
		return nil, protocol.Faultf(protocol.UpstreamTimeout, "the client's timeout expired before the request was sent")
	}
	k := u.engine.newCall()
	k.init(u, x, e, async)
	if e != nil && !e.watch.SetPending(pendingCall{u, k, k.id.Load()}) {
		return nil, k.releaseUnsent(protocol.Faultf(protocol.ReasonDownstreamDisconnect, "client closed its connection"))
	}
	queued, opened := u.admit(k, now)
	if queued {
		b.scheduleFlush(u.writeQueue) // the host may wait for our SETTINGS before it sends its own
		return k, nil                 // openPending opens a stream for it
	}
	if opened {
		k.upload(b)
	}
	if k.yield() {
		return k, nil
	}
	if async {
		return nil, k.deliverResponse()
	}
	return k, nil
}

// admit locks mu and calls openOrEnqueue. It reports whether k waits for a stream, or has one.
func (u *UpstreamConn) admit(k *call, now time.Time) (queued, opened bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.openOrEnqueue(k, now)
	return k.state == callQueued, k.stream != nil
}

// openOrEnqueue opens a stream for k or queues it. If neither is possible, it resolves k with the
// reason. The caller owns k. mu is held.
func (u *UpstreamConn) openOrEnqueue(k *call, now time.Time) {
	switch {
	case k.state.resolved(): // its client has disconnected
		return
	case u.lostErr != nil:
		k.resolve(protocol.NewFault(protocol.ConnectFailure, u.lostErr))
		return
	case u.closing.Load():
		k.resolve(protocol.Faultf(protocol.ConnectFailure, "the connection accepts no more requests"))
		return
	}
	u.arm(k.x.EffectiveDeadline())
	if !u.canOpen(k) || !u.pending.empty() {
		k.state.on(callEnqueue)
		u.pending.push(k)
		return
	}
	if err := u.openStream(k, now); err != nil {
		k.resolve(err)
	}
}

// openPending opens streams for queued calls, as far as possible. mu is held.
func (u *UpstreamConn) openPending(now time.Time, fx *effects) {
	if !u.pending.empty() && u.state.Exhausted() {
		u.failPending(protocol.Faultf(protocol.ConnectFailure, "the connection accepts no more requests"), fx)
		return
	}
	for !u.pending.empty() && u.canOpen(u.pending.first) {
		k := u.pending.pop()
		switch err := u.openStream(k, now); {
		case err != nil:
			if k.resolve(err) {
				fx.resumed = append(fx.resumed, k)
			}
		case k.async:
			k.state.on(callOpen)
			fx.opened = append(fx.opened, k)
		default:
			k.state.on(callOpenBlocking)
			k.signal()
		}
	}
}

// canOpen reports whether a stream for k may be opened now. A request with Upgrade waits for the
// host's settings, which show whether the host supports extended CONNECT. mu is held.
func (u *UpstreamConn) canOpen(k *call) bool {
	return u.availableStreams() > 0 && (u.settingsReceived || k.x.Request.Upgrade == "")
}

// availableStreams returns how many streams may be opened now. mu is held.
func (u *UpstreamConn) availableStreams() int {
	n := u.state.AvailableStreams()
	if !u.settingsReceived {
		n = min(n, defaultMaxStreams-u.state.Len())
	}
	return n
}

// wantsTrailers reports whether the request is sent with "te: trailers": the client sent TE, in any
// version of HTTP, or the request is gRPC.
func (k *call) wantsTrailers() bool {
	h := &k.x.Request.Header
	if k.downstream != nil && k.downstream.acceptsTrailers || protocol.IsGRPC(h) {
		return true
	}
	if k.downstream != nil { // an HTTP/2 client, which did not send it
		return false
	}
	_, said := h.Lookup("te")
	return said
}

// openStream opens a stream with the head of k's request. Errors, including those of a recovered
// panic, are Faults. mu is held.
func (u *UpstreamConn) openStream(k *call, now time.Time) (err error) {
	defer func() {
		if p := recover(); p != nil {
			u.state.DropBlock()
			err = protocol.NewFault(protocol.Internal, protocol.NewPanic(p))
		}
	}()
	x := k.x
	wantsTunnel := x.Request.Upgrade != "" || x.Request.Method == "CONNECT"
	o := syntax.RequestOptions{End: !wantsTunnel && (x.Request.Body == nil || isEmpty(x.Request.Body))}
	o.AcceptTrailers = k.wantsTrailers()
	dst, err := u.startHead()
	if err != nil {
		return openFault(err)
	}
	dst, s, err := u.state.AppendRequest(dst, &x.Request, o)
	if err != nil {
		return openFault(err)
	}
	u.enqueue(dst)
	k.attach(s, k, now)
	k.requestEnded = o.End
	k.deadline = x.EffectiveDeadline()
	if u.streamIdleTimeout > 0 {
		u.arm(now.Add(u.streamIdleTimeout))
	}
	if o.End || x.Request.Body == nil {
		k.startResponseIdleTimeout(now)
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
	case errors.Is(err, syntax.ErrNoExtendedConnect):
		return protocol.NewFault(protocol.NotImplemented, err)
	case errors.Is(err, network.ErrWriteQueueFull):
		return protocol.NewFault(protocol.Overflow, err) // the host reads no requests
	}
	return protocol.NewFault(protocol.ConnectFailure, err)
}
