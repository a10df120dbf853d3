package http2

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// watchAfter is how long a response has to be pending before the engine watches a client of another
// protocol for a disconnect. The watch costs a goroutine, and most responses arrive sooner.
const watchAfter = 250 * time.Millisecond

// maxInterims is the maximum number of interim responses from a host before the final one. Each is
// forwarded to a client that may not read.
const maxInterims = 32

// call is an exchange on an upstream connection. Its state says which goroutine owns it: see
// callState.
type call struct {
	muxStream
	upstream   *UpstreamConn
	x          *protocol.Exchange
	downstream *exchange     // x's Caller if it is an exchange of this engine, else nil
	id         atomic.Uint64 // unique in the engine; 0: the call is not in use

	// async: x resumes on the goroutine that owns the call. If false, the call is blocking: a
	// goroutine waits for wake.
	async bool
	wake  chan struct{}

	// Guarded by u.mu.
	state        callState
	pendingLinks links[call] // in upstream.pending
	err          error       // a Fault: why there is no response
	requestEnded bool        // the head ended the request
	interimCount int         // number of interim responses received
	headReadAt   time.Time   // when the final head was read
	interims     []interim   // interim responses to forward

	text     []byte // x.Response holds views of it
	body     responseBody
	uploader *uploader // the goroutine that sends the request's body; nil: none was started
}

// pendingCall identifies the connection and the call on which an exchange waits for a response.
// number is that of the call; no other call has it.
type pendingCall struct {
	conn   *UpstreamConn
	call   *call
	callID uint64
}

// interim is an interim response.
type interim struct {
	status int
	header protocol.Header
}

// newCall returns a call that is not in use.
func (e *Engine) newCall() *call {
	k, ok := e.calls.Get().(*call)
	if !ok {
		k = &call{wake: make(chan struct{}, 1)}
		k.body.call = k
	}
	return k
}

// init assigns k to x.
func (k *call) init(u *UpstreamConn, x *protocol.Exchange, e *exchange, async bool) {
	k.conn, k.upstream, k.x, k.downstream, k.async = &u.muxConn, u, x, e, async
	k.sendCond.L = &u.mu
	k.sendErr, k.blocked, k.bytesSent = nil, false, 0
	k.state, k.requestEnded, k.err = callWorking, false, nil
	k.interimCount = 0
	k.body.closed = false
	k.in.start(&k.muxStream, &x.Response.Trailer, 0)
	k.id.Store(u.engine.lastCallID.Add(1))
}

// yield ends the ownership of k, which then waits for an event. It returns false if k was resolved
// meanwhile: then the caller still owns k.
func (k *call) yield() (waits bool) {
	k.upstream.mu.Lock()
	defer k.upstream.mu.Unlock()
	return k.state.yield()
}

// resolve records that k has a response, or that it failed with err. If it returns true, the caller
// owns k and has to resume the exchange after it releases u.mu. u.mu is held.
func (k *call) resolve(err error) (owned bool) {
	k.err = err
	owned = k.state.resolve()
	if !k.async {
		k.signal()
		return false
	}
	return owned
}

// signal wakes the goroutine that waits.
func (k *call) signal() {
	select {
	case k.wake <- struct{}{}:
	default: // it is already signaled
	}
}

// resumeExchange resumes x after k was resolved.
func (k *call) resumeExchange(b *batch) {
	e := k.downstream
	e.batch = b
	e.resume(b, callRecovered(k.deliverResponse))
}

// continueOpened continues an asynchronous call after it left the queue.
func (k *call) continueOpened(b *batch) {
	k.upload(b)
	if !k.yield() {
		k.resumeExchange(b)
	}
}

// continueInterims forwards the interim responses of a call that handleHead has claimed.
func (k *call) continueInterims(b *batch) {
	k.forwardInterims()
	if !k.yield() {
		k.resumeExchange(b)
	}
}

// handleHead processes the head of a response, which is the session's last event. u.mu is held.
func (k *call) handleHead(e *syntax.Event, b *batch, fx *effects) {
	if k.state.resolved() {
		return // the call has failed: the response is discarded
	}
	r := &k.x.Response
	if err := k.takeHead(e); err != nil {
		k.fail(err, fx)
		return
	}
	if r.Status < 200 && r.Status != 101 {
		if k.interimCount++; k.interimCount > maxInterims {
			k.fail(protocol.Faultf(protocol.UpstreamMalformed, "more than %d interim responses", maxInterims), fx)
			return
		}
		k.interims = append(k.interims, interim{r.Status, r.Header})
		r.Status, r.Header, k.text = 0, protocol.Header{}, nil
		switch {
		case !k.async:
			k.signal()
		case k.state.claim():
			fx.interims = k
		} // else the goroutine that owns the call forwards them
		return
	}
	r.Version = "HTTP/2.0"
	k.headReadAt = b.now
	// The per-try timeout applies only to the head: TestPerTryTimeoutEndsWithHead.
	if !k.x.PerTryDeadline.IsZero() {
		k.deadline = k.x.Deadline
		k.upstream.arm(k.deadline)
	}
	if e.End {
		k.in.markComplete()
	}
	if k.resolve(nil) {
		k.upstream.readyCalls = append(k.upstream.readyCalls, k)
	}
}

// takeHead stores the head that has arrived in x.Response. The error is nil or the Fault of a
// recovered panic. u.mu is held.
func (k *call) takeHead(e *syntax.Event) (err error) {
	defer protocol.RecoverPanic(&err)
	k.text = k.upstream.state.TakeResponse(e.Stream, &k.x.Response, k.text[:0])
	return nil
}

// forwardInterims forwards the interim responses that have arrived.
func (k *call) forwardInterims() {
	k.upstream.mu.Lock()
	list := k.interims
	k.interims = nil
	k.upstream.mu.Unlock()
	if k.x.Downstream == nil {
		return
	}
	for i := range list {
		err := callRecovered(func() error { return k.x.Downstream.SendInterim(list[i].status, &list[i].header) })
		protocol.PanicIn(err).Log(k.upstream.engine.goroutines.Log, "forwarding an interim response")
		if err != nil {
			return // the client has disconnected: its engine reports that
		}
	}
}

// await blocks the goroutine of Serve until k is resolved, and returns the error of
// deliverResponse.
func (k *call) await() error {
	var patience <-chan time.Time
	var sent <-chan struct{}
	if k.downstream == nil && k.x.Downstream != nil {
		t := time.NewTimer(watchAfter)
		defer t.Stop()
		patience = t.C
	}
	on := pendingCall{k.upstream, k, k.id.Load()}
	for {
		select {
		case <-k.wake:
		case <-patience:
			patience = nil
			if k.uploader != nil {
				sent = k.uploader.done // until the upload ends, it notices a disconnect
				continue
			}
			defer k.x.Downstream.OnDisconnect(on.abandon)()
		case <-sent:
			sent = nil
			defer k.x.Downstream.OnDisconnect(on.abandon)()
		}
		k.forwardInterims()
		k.upstream.mu.Lock()
		done, send := k.state.resolved(), k.state.startUpload()
		k.upstream.mu.Unlock()
		if send {
			k.upload(k.batch())
		}
		if done {
			return k.deliverResponse()
		}
	}
}

// deliverResponse sets the body or the tunnel of x's response. If the call failed, it releases the
// call and returns the Fault.
func (k *call) deliverResponse() error {
	x, u := k.x, k.upstream
	if len(k.interims) > 0 {
		k.forwardInterims()
	}
	if k.err == nil {
		x.Record.UpstreamFirstByte = k.headReadAt
		x.Response.Source = protocol.UpstreamResponse
		if s := x.Response.Status; s == 101 || x.Request.Method == "CONNECT" && x.Request.Upgrade == "" && s/100 == 2 {
			u.mu.Lock()
			k.responseIdleTimeout = 0 // idle timeouts of both connections apply to the tunnel
			u.mu.Unlock()
			x.Response.SetTunnel(newTunnel(k))
			return nil
		}
		x.Response.SetBody(&k.body)
		return nil
	}
	err := k.err
	if errors.Is(err, errResponseIdle) {
		x.PerTryDeadline = time.Time{} // the exchange is idle, not only this attempt: no retry
	}
	started := k.stopUpload()
	x.ResetResponse()
	if started && protocol.ReasonOf(err).Spec().SafeToRetry && !k.rewind() {
		err = protocol.Faultf(protocol.UpstreamReset, "a part of the request body was already sent: %w", err)
	}
	k.free()
	u.opts.OnRelease(!u.closing.Load())
	return err
}

// rewind rewinds the request's body, and reports whether the request can be sent again.
func (k *call) rewind() (again bool) {
	defer func() {
		if p := recover(); p != nil { // from the body of a filter
			k.upstream.engine.goroutines.LogPanic("rereading a request body", p)
			again = false
		}
	}()
	return protocol.RewindBody(k.x.Request.Body)
}

// releaseUnsent releases a call that was not sent, and returns err.
func (k *call) releaseUnsent(err error) error {
	u := k.upstream
	k.free()
	u.opts.OnRelease(!u.closing.Load())
	return err
}

func (k *call) batch() *batch {
	if k.downstream == nil {
		return nil
	}
	return k.downstream.batch
}

// free releases the stream and puts k back into the pool. Nothing reads the request any more.
func (k *call) free() {
	u, b := k.upstream, k.batch()
	_ = k.in.Close()
	u.mu.Lock()
	said := k.release(syntax.Cancel)
	k.id.Store(0)
	k.state = callUnused
	u.pending.remove(k)
	var fx effects
	u.openPending(b.time(), &fx)
	u.mu.Unlock()
	if said || !fx.empty() {
		b.scheduleFlush(u.writeQueue)
	}
	k.in.reset()
	select {
	case <-k.wake:
	default:
	}
	k.upstream, k.x, k.downstream, k.interims, k.uploader = nil, nil, nil, nil, nil
	u.engine.calls.Put(k)
	fx.apply(b)
}

// fail implements owner.
func (k *call) fail(why error, fx *effects) {
	k.failSends(why)
	k.upstream.pending.remove(k)
	response := k.in.fail(why)
	switch {
	case k.state.resolved():
		fx.kickReceived(response)
	case k.resolve(why):
		fx.resumed = append(fx.resumed, k)
	}
}

// expire implements owner.
func (k *call) expire(why error, fx *effects) { k.fail(why, fx) }

// abandon fails the call because its client has disconnected.
func (w pendingCall) abandon() { w.conn.abandon(w, nil) }

// abandon fails a call because its client has disconnected. It does nothing if the call belongs to
// another exchange by now.
func (u *UpstreamConn) abandon(on pendingCall, b *batch) {
	k := on.call
	if k.id.Load() != on.callID {
		return
	}
	u.mu.Lock()
	if k.id.Load() != on.callID {
		u.mu.Unlock()
		return
	}
	var fx effects
	k.fail(protocol.Faultf(protocol.ReasonDownstreamDisconnect, "client disconnected before the upstream response was complete"), &fx)
	u.mu.Unlock()
	fx.apply(b)
}
