package http2

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// disconnectWatchDelay is how long a response has to be pending before the engine watches a client
// of another protocol for a disconnect. The watch costs a goroutine, and most responses arrive
// sooner.
const disconnectWatchDelay = 250 * time.Millisecond

// maxInterims is the maximum number of interim responses from a host before the final one. Weft
// queues each of them without waiting until the client reads.
const maxInterims = 32

// call is an exchange on an upstream connection. Its callState says which goroutine owns it.
type call struct {
	muxStream
	upstream   *UpstreamConn
	x          *protocol.Exchange
	downstream *exchange     // x.Downstream if it is an exchange of this engine, otherwise nil
	id         atomic.Uint64 // unique in the engine; 0: the call is not in use

	// async: x resumes on the goroutine that owns the call. If false, the call is blocking: a
	// goroutine waits for wake.
	async bool
	wake  chan struct{} // signaled by signal

	// Guarded by upstream.mu. Once a field no longer changes, the owner of the call also reads it
	// without the lock.
	state        callState
	pendingLinks links[call]       // links in upstream.pending
	err          error             // a Fault: the reason that there is no response
	requestEnded bool              // the request head had END_STREAM
	interimCount int               // number of interim responses received
	headReadAt   time.Time         // when the final head was read
	interims     []interimResponse // interim responses to forward

	text     []byte // storage of the strings in x.Response
	body     responseBody
	uploader *uploader // the goroutine that sends the request's body; nil: none was started
}

// pendingCall identifies the connection and the call on which an exchange waits for a response. The
// call may belong to another exchange by now; then its id differs from callID.
type pendingCall struct {
	conn   *UpstreamConn
	call   *call
	callID uint64
}

type interimResponse struct {
	status int
	header protocol.Header
}

func (e *Engine) newCall() *call {
	c, ok := e.calls.Get().(*call)
	if !ok {
		c = &call{wake: make(chan struct{}, 1)}
		c.body.call = c
	}
	return c
}

// init assigns c to x.
func (c *call) init(u *UpstreamConn, x *protocol.Exchange, downstream *exchange, async bool) {
	c.conn, c.upstream, c.x, c.downstream, c.async = &u.muxConn, u, x, downstream, async
	c.sendCond.L = &u.mu
	c.sendErr, c.blocked, c.bytesSent = nil, false, 0
	c.state, c.requestEnded, c.err = callWorking, false, nil
	c.interimCount = 0
	c.body.closed = false
	c.in.start(&c.muxStream, &x.Response.Trailer, 0)
	c.id.Store(u.engine.lastCallID.Add(1))
}

// yield ends the ownership of c, which then waits for an event. It returns false if c was resolved
// meanwhile: then the caller still owns c.
func (c *call) yield() (waits bool) {
	c.upstream.mu.Lock()
	defer c.upstream.mu.Unlock()
	return c.state.yield()
}

// resolve records that c has a response, or that c failed with err. The caller holds c.upstream.mu.
// If resolve returns true, the caller now owns c and must resume the exchange after it unlocks mu.
func (c *call) resolve(err error) (nowOwner bool) {
	c.err = err
	nowOwner = c.state.resolve()
	if !c.async {
		c.signal()
		return false
	}
	return nowOwner
}

// signal wakes the goroutine in await.
func (c *call) signal() {
	select {
	case c.wake <- struct{}{}:
	default: // already signaled
	}
}

// resumeExchange resumes x after c was resolved.
func (c *call) resumeExchange(b *batch) {
	downstream := c.downstream
	downstream.batch = b
	downstream.resume(b, callRecovered(c.deliverResponse))
}

// continueOpened continues an asynchronous call after it left the queue.
func (c *call) continueOpened(b *batch) {
	c.upload(b)
	if !c.yield() {
		c.resumeExchange(b)
	}
}

// continueInterims forwards the interim responses of a call that handleHead has claimed.
func (c *call) continueInterims(b *batch) {
	c.forwardInterims()
	if !c.yield() {
		c.resumeExchange(b)
	}
}

// handleHead processes the head of a response, which is the session's last event. The caller holds
// c.upstream.mu.
func (c *call) handleHead(event *syntax.Event, b *batch, fx *effects) {
	if c.state.resolved() {
		return // the call has failed: the response is discarded
	}
	r := &c.x.Response
	if err := c.takeHead(event); err != nil {
		c.fail(err, fx)
		return
	}
	if r.Status < 200 && r.Status != 101 {
		if c.interimCount++; c.interimCount > maxInterims {
			c.fail(protocol.Faultf(protocol.UpstreamMalformed, "more than %d interim responses", maxInterims), fx)
			return
		}
		c.interims = append(c.interims, interimResponse{r.Status, r.Header})
		r.Status, r.Header, c.text = 0, protocol.Header{}, nil
		switch {
		case !c.async:
			c.signal()
		case c.state.claim():
			fx.interims = c
		} // otherwise the goroutine that owns the call forwards them
		return
	}
	r.Version = "HTTP/2.0"
	c.headReadAt = b.now
	// The per-try timeout applies only to the head: TestPerTryTimeoutEndsWithHead.
	if !c.x.PerTryDeadline.IsZero() {
		c.deadline = c.x.Deadline
		c.upstream.arm(c.deadline)
	}
	if event.End {
		c.in.markComplete()
	}
	if c.resolve(nil) {
		c.upstream.readyCalls = append(c.upstream.readyCalls, c)
	}
}

// takeHead sets x.Response from the head in event. The error is nil or the Fault of a recovered
// panic. The caller holds c.upstream.mu.
func (c *call) takeHead(event *syntax.Event) (err error) {
	defer protocol.RecoverPanic(&err)
	c.text = c.upstream.state.TakeResponse(event.Stream, &c.x.Response, c.text[:0])
	return nil
}

// forwardInterims forwards the interim responses that have arrived.
func (c *call) forwardInterims() {
	c.upstream.mu.Lock()
	interims := c.interims
	c.interims = nil
	c.upstream.mu.Unlock()
	if c.x.Downstream == nil {
		return
	}
	for i := range interims {
		err := callRecovered(func() error { return c.x.Downstream.SendInterim(interims[i].status, &interims[i].header) })
		protocol.PanicIn(err).Log(c.upstream.engine.goroutines.Log, "forwarding an interim response")
		if err != nil {
			return // the client has disconnected; its engine reports that
		}
	}
}

// await blocks the calling goroutine until c is resolved, and returns the error of deliverResponse.
func (c *call) await() error {
	var watch <-chan time.Time
	var uploaded <-chan struct{}
	if c.downstream == nil && c.x.Downstream != nil {
		t := time.NewTimer(disconnectWatchDelay)
		defer t.Stop()
		watch = t.C
	}
	pending := pendingCall{c.upstream, c, c.id.Load()}
	for {
		select {
		case <-c.wake:
		case <-watch:
			watch = nil
			if c.uploader != nil {
				uploaded = c.uploader.done // the upload detects a disconnect until it ends
				continue
			}
			defer c.x.Downstream.OnDisconnect(pending.abandon)()
		case <-uploaded:
			uploaded = nil
			defer c.x.Downstream.OnDisconnect(pending.abandon)()
		}
		c.forwardInterims()
		c.upstream.mu.Lock()
		done, startUpload := c.state.resolved(), c.state.startUpload()
		c.upstream.mu.Unlock()
		if startUpload {
			c.upload(c.batch())
		}
		if done {
			return c.deliverResponse()
		}
	}
}

// deliverResponse sets the body or the tunnel of x's response. If the call failed, it releases the
// call and returns the Fault.
func (c *call) deliverResponse() error {
	x, u := c.x, c.upstream
	if len(c.interims) > 0 {
		c.forwardInterims()
	}
	if c.err == nil {
		x.Record.UpstreamFirstByte = c.headReadAt
		x.Response.Source = protocol.UpstreamResponse
		if status := x.Response.Status; status == 101 || x.Request.Method == "CONNECT" && x.Request.Upgrade == "" && status/100 == 2 {
			u.mu.Lock()
			c.responseIdleTimeout = 0 // idle timeouts of both connections apply to the tunnel
			u.mu.Unlock()
			x.Response.SetTunnel(newTunnel(c))
			return nil
		}
		x.Response.SetBody(&c.body)
		return nil
	}
	err := c.err
	if errors.Is(err, errResponseIdle) {
		x.PerTryDeadline = time.Time{} // the exchange is idle, not only this attempt: no retry
	}
	hasBody := c.stopUpload()
	x.ResetResponse()
	if hasBody && protocol.ReasonOf(err).Spec().SafeToRetry && !c.rewind() {
		err = protocol.Faultf(protocol.UpstreamReset, "a part of the request body was already sent: %w", err)
	}
	c.free()
	u.opts.OnRelease(!u.closing.Load())
	return err
}

// rewind rewinds the request's body, and reports whether the request can be sent again.
func (c *call) rewind() (ok bool) {
	defer func() {
		if p := recover(); p != nil { // from the body of a filter
			c.upstream.engine.goroutines.LogPanic("rereading a request body", p)
			ok = false
		}
	}()
	return protocol.RewindBody(c.x.Request.Body)
}

// releaseUnsent releases a call that was not sent, and returns err.
func (c *call) releaseUnsent(err error) error {
	u := c.upstream
	c.free()
	u.opts.OnRelease(!u.closing.Load())
	return err
}

func (c *call) batch() *batch {
	if c.downstream == nil {
		return nil
	}
	return c.downstream.batch
}

// free releases the stream and puts c back into the pool. No goroutine may still read the request.
func (c *call) free() {
	u, b := c.upstream, c.batch()
	_ = c.in.Close()
	u.mu.Lock()
	queued := c.release(syntax.Cancel)
	c.id.Store(0)
	c.state = callUnused
	u.pending.remove(c)
	var fx effects
	u.openPending(b.time(), &fx)
	u.mu.Unlock()
	if queued || !fx.empty() {
		b.scheduleFlush(u.writeQueue)
	}
	c.in.reset()
	select {
	case <-c.wake:
	default:
	}
	c.upstream, c.x, c.downstream, c.interims, c.uploader = nil, nil, nil, nil, nil
	u.engine.calls.Put(c)
	fx.apply(b)
}

// fail implements owner.
func (c *call) fail(fault error, fx *effects) {
	c.failSends(fault)
	c.upstream.pending.remove(c)
	response := c.in.fail(fault)
	switch {
	case c.state.resolved():
		fx.kickReceived(response)
	case c.resolve(fault):
		fx.resumed = append(fx.resumed, c)
	}
}

// expire implements owner.
func (c *call) expire(fault error, fx *effects) { c.fail(fault, fx) }

// abandon is UpstreamConn.abandon without a batch.
func (p pendingCall) abandon() { p.conn.abandon(p, nil) }

// abandon fails the call of an exchange that was canceled: its client has disconnected, or its
// deadline has passed. It does nothing if the call belongs to another exchange by now.
func (u *UpstreamConn) abandon(pending pendingCall, b *batch) {
	c := pending.call
	if c.id.Load() != pending.callID {
		return
	}
	u.mu.Lock()
	if c.id.Load() != pending.callID {
		u.mu.Unlock()
		return
	}
	var fx effects
	c.fail(protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client disconnected before the upstream response was complete"), &fx)
	u.mu.Unlock()
	fx.apply(b)
}
