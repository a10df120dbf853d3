package http2

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

// defaultMaxStreams is the maximum number of concurrent streams until the host has sent its limit
// (RFC 9113 6.5.2 recommends at least 100).
const defaultMaxStreams = 100

// upstreamConnWindow is the receive window of an upstream connection, in bytes. It is so large that
// only the window of each stream matters: a client that does not read must not block the responses
// to others (RFC 9113 5.2.2).
const upstreamConnWindow = 1 << 30

// UpstreamConn is one upstream connection, which carries the exchanges of many clients
// concurrently. It implements stream.UpstreamConn.
type UpstreamConn struct {
	muxConn
	o     stream.UpstreamConnOptions // immutable
	local string                     // immutable; the connection's local address
	tls   *protocol.TLS              // immutable; nil: plaintext

	// closing: the connection accepts no new exchange. Changed with mu held, read without it.
	closing atomic.Bool
	// limit is the number of concurrent streams that the host allows, or defaultMaxStreams until
	// its settings arrive. Changed with mu held, read without it.
	limit atomic.Int64
	// rtt is the round-trip time of the last acknowledged PING, in ns; 0: there is none.
	rtt atomic.Int64

	settingsReceived bool       // guarded by mu; the host's settings have arrived
	queue            fifo[call] // guarded by mu; calls that wait until a stream may be opened
	ready            []*call    // owned by the reader goroutine; calls whose response has arrived
	pulse            keepalive  // guarded by mu
	// pingSentAt is when the unacknowledged PING was sent; zero: there is none. Guarded by mu.
	pingSentAt time.Time
}

// keepalive is the state of PING keepalives.
type keepalive struct {
	heard time.Time // when something was last read
	sent  time.Time // when a PING was sent; zero: nothing was sent since heard
}

func newClient(e *Engine, conn *network.Conn, o stream.UpstreamConnOptions) *UpstreamConn {
	u := &UpstreamConn{o: o, local: conn.LocalAddr().String(), tls: stream.NewTLSMeta(conn)}
	u.limit.Store(defaultMaxStreams)
	h := &o.HTTP2
	u.init(e, conn, u)
	u.creditFrom, u.idle = creditFrom(h.StreamWindow, upstreamConnWindow, 1), h.StreamIdleTimeout
	u.queue.links = func(k *call) *links[call] { return &k.waits }
	u.state = syntax.NewSession(syntax.Config{
		Role:             syntax.Client,
		FirstStream:      e.FirstStream,
		StreamWindow:     uint32(h.StreamWindow),
		ConnectionWindow: upstreamConnWindow,
		// Hosts are configured and trusted. Some send small WINDOW_UPDATE frames, and reset a
		// closed stream for each frame that they get on it (TestAHostThatResetsWhatIsClosed).
		Budgets: syntax.FloodLimits{WindowUpdate: syntax.RateLimit{Burst: -1}, Reset: syntax.RateLimit{Burst: -1}},
	})
	conn.SetWriteTimeout(o.HTTP1.WriteTimeout)
	u.enqueue(u.state.AppendStart(nil)) // sent with the first request
	u.pulse.heard = time.Now()
	e.start(u.run)
	return u
}

// Usable implements stream.UpstreamConn.
func (u *UpstreamConn) Usable(time.Duration) bool { return !u.closing.Load() }

// RTT implements stream.RTTReporter. It returns the round-trip time of the last acknowledged PING,
// or 0.
func (u *UpstreamConn) RTT() time.Duration { return time.Duration(u.rtt.Load()) }

// MaxConcurrentStreams implements stream.LimitReporter.
func (u *UpstreamConn) MaxConcurrentStreams() int64 { return u.limit.Load() }

// Close implements stream.UpstreamConn. The connection's goroutine ends soon after; Engine.Close
// waits for it.
func (u *UpstreamConn) Close() error {
	u.closing.Store(true)
	return u.conn.Close()
}

// Serve implements stream.UpstreamConn. Errors are Faults. The reason is ConnectFailure if the host
// has not processed the request and the request can be sent again.
func (u *UpstreamConn) Serve(_ context.Context, x *protocol.Exchange) error {
	k, err := u.send(x, false)
	if k == nil {
		return err
	}
	return k.await()
}

// Start implements protocol.AsyncService.
func (u *UpstreamConn) Start(ctx context.Context, x *protocol.Exchange) error {
	if e, ok := x.Caller.(*exchange); !ok || e.stack {
		return u.Serve(ctx, x) // this goroutine may block
	}
	k, err := u.send(x, true)
	if k == nil {
		return err
	}
	return protocol.ErrPending
}

// send opens a stream for x, or queues it. The returned call is in flight; if resumes is set, it
// owns x. The call is nil if resumes is set and it was answered meanwhile, or if x could not be
// sent.
func (u *UpstreamConn) send(x *protocol.Exchange, resumes bool) (*call, error) {
	e, _ := x.Caller.(*exchange)
	var b *batch
	if e != nil {
		b = e.batch
	}
	now := b.time()
	x.Record.UpstreamStart, x.Record.UpstreamFirstByte = now, time.Time{}
	if n := len(x.Record.Attempts); n > 0 {
		x.Record.Attempts[n-1].Local, x.Record.Attempts[n-1].TLS = u.local, u.tls
	}
	if !passTimeout(x, now) {
		u.o.OnRelease(!u.closing.Load())
		return nil, protocol.Faultf(protocol.UpstreamTimeout, "the client's timeout expired before the request was sent")
	}
	k := u.engine.newCall()
	k.begin(u, x, e, resumes)
	if e != nil && !e.watch.SetPending(waiting{u, k, k.number.Load()}) {
		return nil, k.drop(protocol.Faultf(protocol.ReasonDownstreamDisconnect, "client closed its connection"))
	}
	queued, opened := u.admit(k, now)
	if queued {
		b.sends(u.outbox) // the host may wait for our SETTINGS before it sends its own
		return k, nil     // next opens a stream for it
	}
	if opened {
		k.upload(b)
	}
	if k.yield() {
		return k, nil
	}
	if resumes {
		return nil, k.receive()
	}
	return k, nil
}

// admit locks mu and calls enter. It reports whether k waits for a stream, or has one.
func (u *UpstreamConn) admit(k *call, now time.Time) (queued, opened bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.enter(k, now)
	return k.waits.queued, k.stream != nil
}

// enter opens a stream for k or queues it. If neither is possible, enter sets k's result to the
// reason. mu is held.
func (u *UpstreamConn) enter(k *call, now time.Time) {
	switch {
	case k.answered: // its client has disconnected
		return
	case u.lost != nil:
		k.setResult(protocol.NewFault(protocol.ConnectFailure, u.lost))
		return
	case u.closing.Load():
		k.setResult(protocol.Faultf(protocol.ConnectFailure, "the connection accepts no more requests"))
		return
	}
	u.arm(k.x.EffectiveDeadline())
	if !u.mayOpen(k) || !u.queue.empty() {
		k.busy = false
		u.queue.push(k)
		return
	}
	if err := u.open(k, now); err != nil {
		k.setResult(err)
	}
}

// next opens streams for queued calls, as far as possible. mu is held. The caller runs the returned
// functions without mu.
func (u *UpstreamConn) next(now time.Time) (then []func(*batch)) {
	if !u.queue.empty() && u.state.Exhausted() {
		return u.failQueue(protocol.Faultf(protocol.ConnectFailure, "the connection accepts no more requests"))
	}
	for !u.queue.empty() && u.mayOpen(u.queue.first) {
		k := u.queue.pop()
		k.busy = true
		err := u.open(k, now)
		if err != nil {
			k.setResult(err)
		}
		if k.resumes {
			then = append(then, k.opened)
			continue
		}
		k.unsent = err == nil
		k.rouse()
	}
	return then
}

// mayOpen reports whether a stream for k may be opened now. A request with Upgrade waits for the
// host's settings, which show whether the host supports extended CONNECT. mu is held.
func (u *UpstreamConn) mayOpen(k *call) bool {
	return u.slots() > 0 && (u.settingsReceived || k.x.Request.Upgrade == "")
}

// slots returns how many streams may be opened now. mu is held.
func (u *UpstreamConn) slots() int {
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
	if k.e != nil && k.e.trailers || protocol.IsGRPC(h) {
		return true
	}
	if k.e != nil { // an HTTP/2 client, which did not send it
		return false
	}
	_, said := h.Lookup("te")
	return said
}

// open opens a stream with the head of k's request. Errors, including those of a recovered panic,
// are Faults. mu is held.
func (u *UpstreamConn) open(k *call, now time.Time) (err error) {
	defer func() {
		if p := recover(); p != nil {
			u.state.DropBlock()
			err = protocol.NewFault(protocol.Internal, protocol.NewPanic(p))
		}
	}()
	x := k.x
	wantsTunnel := x.Request.Upgrade != "" || x.Request.Method == "CONNECT"
	o := syntax.RequestOptions{End: !wantsTunnel && (x.Request.Body == nil || isEmpty(x.Request.Body))}
	o.Trailers = k.wantsTrailers()
	dst, err := u.startHead()
	if err != nil {
		return openFault(err)
	}
	dst, s, err := u.state.AppendRequest(dst, &x.Request, o)
	if err != nil {
		return openFault(err)
	}
	u.enqueue(dst)
	k.open(s, k, now)
	k.ended = o.End
	k.deadline = x.EffectiveDeadline()
	if u.idle > 0 {
		u.arm(now.Add(u.idle))
	}
	if o.End || x.Request.Body == nil {
		k.requestSent(now)
	}
	if d := u.o.HTTP2.PingInterval; d > 0 {
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

// run reads until the connection ends, and then fails the remaining calls.
func (u *UpstreamConn) run() {
	b := &batch{now: time.Now()}
	flush := func() {
		b.flush()
		u.read = 0
	}
	u.failAll(u.readAll(flush, b), b)
}

// readAll reads and processes frames until the connection ends, and returns the reason.
func (u *UpstreamConn) readAll(flush func(), b *batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			u.engine.panicked("reading an upstream connection, which is closed", p)
			err = errInternal
		}
	}()
	for {
		if err := u.fill(flush, b); err != nil {
			return err
		}
		b.now = time.Now()
		if err := u.take(b); err != nil {
			return err
		}
		if u.read >= maxReadPerFlush || u.outbox.Queued() >= network.HighWatermark {
			flush()
		}
		u.outbox.AwaitCapacityBelow(maxPendingWrites)
	}
}

// take processes every complete frame in the buffer, and then the responses that arrived in them.
func (u *UpstreamConn) take(b *batch) error {
	err := u.frames(b)
	for _, f := range u.hear(b.now) {
		f(b)
	}
	u.resumeReady(b)
	return err
}

// resumeReady resumes the exchanges whose response has arrived, each one once.
func (u *UpstreamConn) resumeReady(b *batch) {
	for i, k := range u.ready {
		if k != nil { // nil: it was resumed before a panic
			u.ready[i] = nil
			k.goOn(b)
		}
	}
	u.ready = u.ready[:0]
}

// hear records that something was read, and opens streams for queued calls. The caller runs the
// returned functions without mu.
func (u *UpstreamConn) hear(now time.Time) (then []func(*batch)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pulse = keepalive{heard: now}
	return u.next(now)
}

// happened implements connSide.
func (u *UpstreamConn) happened(e *syntax.Event, b *batch) func(*batch) {
	switch e.Kind {
	case syntax.HeadersArrived:
		if l := muxStreamOf(e.Stream); l != nil {
			if k, ok := l.owner.(*call); ok {
				l.touch(b.now)
				return k.head(e, b)
			}
		}
	case syntax.SettingsArrived:
		u.settingsReceived = true
		u.limit.Store(int64(u.state.Peer().MaxConcurrentStreams))
	case syntax.GoAwayArrived:
		return u.handleGoAway(e)
	case syntax.PingAcked:
		if !u.pingSentAt.IsZero() {
			u.rtt.Store(int64(max(b.now.Sub(u.pingSentAt), 1)))
			u.pingSentAt = time.Time{}
		}
	default: // the other events need no action
	}
	return nil
}

// handleGoAway fails the calls that the host will not process (RFC 9113 6.8), and those that wait
// for a stream. The others continue. mu is held.
func (u *UpstreamConn) handleGoAway(e *syntax.Event) func(*batch) {
	u.closing.Store(true)
	why := protocol.Faultf(protocol.ConnectFailure, "the host sent GOAWAY: %v", e.Code)
	all := u.failQueue(why)
	for s := range u.state.Streams() {
		if l := muxStreamOf(s); l != nil && u.state.Unprocessed(s) {
			all = append(all, l.owner.fail(why))
		}
	}
	return callAll(all)
}

// failQueue fails the calls that wait for a stream. mu is held.
func (u *UpstreamConn) failQueue(why error) (then []func(*batch)) {
	for k := u.queue.pop(); k != nil; k = u.queue.pop() {
		then = append(then, k.fail(why))
	}
	return then
}

func callAll(all []func(*batch)) func(*batch) {
	return func(b *batch) {
		for _, f := range all {
			if f != nil {
				f(b)
			}
		}
	}
}

// reset implements connSide. The host did not process a stream that it refused (RFC 9113 8.7).
func (u *UpstreamConn) reset(code syntax.Code) error {
	reason := protocol.UpstreamReset
	if code == syntax.RefusedStream {
		reason = protocol.ConnectFailure
	}
	return protocol.Faultf(reason, "the host reset the stream: %v", code)
}

// broken implements connSide.
func (u *UpstreamConn) broken(e *syntax.StreamError) error {
	return protocol.NewFault(protocol.UpstreamMalformed, e)
}

// chargeFrom implements connSide.
func (u *UpstreamConn) chargeFrom(time.Time) int { return leastCharge }

// charge implements connSide. Hosts are configured and trusted, so nothing is charged.
func (u *UpstreamConn) charge(int, time.Time) error { return nil }

// idleReason implements connSide.
func (u *UpstreamConn) idleReason() protocol.Reason { return protocol.StreamIdle }

// expired implements connSide: it fails the queued calls whose deadline has passed, and sends a
// PING to a silent host.
func (u *UpstreamConn) expired(b *batch) (then []func(*batch), next time.Time) {
	for k := range u.queue.all() {
		switch at := k.x.EffectiveDeadline(); {
		case at.IsZero():
		case !at.After(b.now):
			then = append(then, k.fail(protocol.Faultf(protocol.UpstreamTimeout, "timeout before a stream was available")))
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	if interval := u.o.HTTP2.PingInterval; interval > 0 && u.state.Len() > 0 {
		at, dead := u.keepaliveTick(b, interval)
		if dead {
			then = append(then, func(*batch) { _ = u.conn.Close() }) // the reader notices
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return then, next
}

// keepaliveTick sends a PING if one is due, and returns when it has to be called again. dead:
// nothing was read within PingTimeout after the last PING. mu is held.
func (u *UpstreamConn) keepaliveTick(b *batch, interval time.Duration) (next time.Time, dead bool) {
	p := &u.pulse
	switch {
	case !p.sent.IsZero():
		next = p.sent.Add(u.o.HTTP2.PingTimeout)
		return next, !b.now.Before(next)
	case b.now.Sub(p.heard) >= interval:
		p.sent, u.pingSentAt = b.now, b.now
		u.enqueueBatched(u.state.AppendPing(u.scratch[:0], 0), b)
		return b.now.Add(u.o.HTTP2.PingTimeout), false
	}
	return p.heard.Add(interval), false
}

// failAll fails all calls because the connection is lost.
func (u *UpstreamConn) failAll(err error, b *batch) {
	u.closing.Store(true)
	var wrong *syntax.ConnectionError
	if errors.As(err, &wrong) {
		u.mu.Lock()
		u.enqueueBatched(u.state.AppendGoAway(u.scratch[:0], wrong.Code, wrong.Reason), b)
		u.mu.Unlock()
	}
	u.resumeReady(b) // a panic of the reader may have left some calls
	// Flush now: write queues may borrow bytes of the buffer that is released below.
	b.flush()
	_ = u.conn.Close() // it may already be closed
	u.outbox.Fail(err)
	u.release()
	why := connLostFault(err)
	b.now = time.Now()
	u.end(why, b)
	u.mu.Lock()
	then := u.failQueue(why)
	u.mu.Unlock()
	callAll(then)(b)
	b.flush()
}

// connLostFault returns the Fault of the calls in flight on a connection that ended with err.
func connLostFault(err error) error {
	var wrong *syntax.ConnectionError
	switch {
	case errors.As(err, &wrong) && wrong.Code == syntax.InternalError:
		return protocol.NewFault(protocol.Internal, err)
	case wrong != nil:
		return protocol.NewFault(protocol.UpstreamMalformed, err)
	case errors.Is(err, io.EOF):
		return protocol.Faultf(protocol.UpstreamClosed, "waiting for the response: %w", err)
	}
	return protocol.Faultf(protocol.UpstreamReset, "waiting for the response: %w", err)
}
