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

// defaultMaxStreams is how many streams a connection carries as long as its host has not
// said how many it takes (RFC 9113 6.5.2 advises 100 at least).
const defaultMaxStreams = 100

// upstreamConnWindow is how many bytes of all answers on a connection may wait, together. It
// is so many that only each stream's own window counts: callers that take nothing
// must not hold up the answers to others (RFC 9113 5.2.2).
const upstreamConnWindow = 1 << 30

// UpstreamConn is one upstream connection, which carries the exchanges of many callers at
// once. It is a stream.UpstreamConn.
type UpstreamConn struct {
	muxConn
	o     stream.UpstreamConnOptions // immutable
	local string                     // immutable; our end's address
	tls   *protocol.TLS              // immutable; nil: plaintext

	// closing: it takes no new exchange. Changed with mu held, read without.
	closing atomic.Bool
	// limit is how many streams the host takes at once, as far as it has said. Changed
	// with mu held, read without.
	limit atomic.Int64
	// rtt is how long the answer to the last PING took, in ns; 0: none was answered.
	rtt atomic.Int64

	settingsReceived bool       // guarded by mu; the host's settings have come
	queue            fifo[call] // guarded by mu; those that wait until a stream may be opened
	ready            []*call    // of the reader: those whose answer has come
	pulse            keepalive  // guarded by mu
	// pingSentAt is when the PING was sent that is not answered; zero: there is none. Guarded
	// by mu.
	pingSentAt time.Time
}

// keepalive is the state of PING.
type keepalive struct {
	heard time.Time // when something was read last
	sent  time.Time // when the host was asked; zero: it was not, or something was heard since
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
		// Hosts are configured, not strangers: some open windows by little, and answer
		// each frame of a stream that is closed with a reset (TestAHostThatResetsWhatIsClosed).
		Budgets: syntax.FloodLimits{WindowUpdate: syntax.RateLimit{Burst: -1}, Reset: syntax.RateLimit{Burst: -1}},
	})
	conn.SetWriteTimeout(o.HTTP1.WriteTimeout)
	u.enqueue(u.state.AppendStart(nil)) // leaves with the first request
	u.pulse.heard = time.Now()
	e.start(u.run)
	return u
}

// Usable is stream.UpstreamConn's.
func (u *UpstreamConn) Usable(time.Duration) bool { return !u.closing.Load() }

// RTT is stream.RTTReporter's: the time that the host took to answer the last PING.
func (u *UpstreamConn) RTT() time.Duration { return time.Duration(u.rtt.Load()) }

// MaxConcurrentStreams is stream.LimitReporter's.
func (u *UpstreamConn) MaxConcurrentStreams() int64 { return u.limit.Load() }

// Close is stream.UpstreamConn's. The connection's goroutine ends soon after; Engine's
// Close waits for it.
func (u *UpstreamConn) Close() error {
	u.closing.Store(true)
	return u.conn.Close()
}

// Serve is stream.UpstreamConn's. Errors are Faults: of ConnectFailure if the request
// cannot have reached an application and can be sent again.
func (u *UpstreamConn) Serve(_ context.Context, x *protocol.Exchange) error {
	k, err := u.send(x, false)
	if k == nil {
		return err
	}
	return k.await()
}

// Start is protocol.AsyncService's.
func (u *UpstreamConn) Start(ctx context.Context, x *protocol.Exchange) error {
	if e, ok := x.Caller.(*exchange); !ok || e.stack {
		return u.Serve(ctx, x) // there is a stack to wait on
	}
	k, err := u.send(x, true)
	if k == nil {
		return err
	}
	return protocol.ErrPending
}

// send opens a stream for x, or queues it. The call that is returned is under way,
// and if resumes is set, x is its own. There is none if x was answered meanwhile, or
// could not be sent.
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
		return nil, protocol.Faultf(protocol.UpstreamTimeout, "the caller's time was up before the request was sent")
	}
	k := u.engine.newCall()
	k.begin(u, x, e, resumes)
	if e != nil && !e.watch.SetPending(waiting{u, k, k.number.Load()}) {
		return nil, k.drop(protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the caller has gone"))
	}
	queued, opened := u.admit(k, now)
	if queued {
		b.sends(u.outbox) // the host may wait for our settings before it sends its own
		return k, nil     // whoever opens a stream for it goes on
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

// admit is enter without mu. It reports whether k waits for a stream, or has one.
func (u *UpstreamConn) admit(k *call, now time.Time) (queued, opened bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.enter(k, now)
	return k.waits.queued, k.stream != nil
}

// enter opens a stream for k or queues it. If it can have neither, k is answered
// with the reason. mu is held.
func (u *UpstreamConn) enter(k *call, now time.Time) {
	switch {
	case k.answered: // by its caller's leaving
		return
	case u.lost != nil:
		k.setResult(protocol.NewFault(protocol.ConnectFailure, u.lost))
		return
	case u.closing.Load():
		k.setResult(protocol.Faultf(protocol.ConnectFailure, "the connection takes no more requests"))
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

// next opens streams for those that wait for one. mu is held. What it returns is
// called without.
func (u *UpstreamConn) next(now time.Time) (then []func(*batch)) {
	if !u.queue.empty() && u.state.Exhausted() {
		return u.failQueue(protocol.Faultf(protocol.ConnectFailure, "the connection takes no more requests"))
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

// mayOpen reports whether a stream for k may be opened now. Whether the host takes
// tunnels is known with its settings. mu is held.
func (u *UpstreamConn) mayOpen(k *call) bool {
	return u.slots() > 0 && (u.settingsReceived || k.x.Request.Upgrade == "")
}

// slots is how many streams may be opened now. mu is held.
func (u *UpstreamConn) slots() int {
	n := u.state.AvailableStreams()
	if !u.settingsReceived {
		n = min(n, defaultMaxStreams-u.state.Len())
	}
	return n
}

// wantsTrailers reports whether the request gets "te: trailers": the client sent it, in any
// version of HTTP, or the request is gRPC.
func (k *call) wantsTrailers() bool {
	h := &k.x.Request.Header
	if k.e != nil && k.e.trailers || protocol.IsGRPC(h) {
		return true
	}
	if k.e != nil { // a caller of HTTP/2, which has not said so
		return false
	}
	_, said := h.Lookup("te")
	return said
}

// open sends the head of k's request. mu is held. Errors are Faults, of a panic too.
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

// openFault is the Fault of a stream that could not be opened.
func openFault(err error) error {
	var f *protocol.Fault
	switch {
	case errors.As(err, &f):
		return err
	case errors.Is(err, syntax.ErrNoExtendedConnect):
		return protocol.NewFault(protocol.NotImplemented, err)
	case errors.Is(err, network.ErrOutboxFull):
		return protocol.NewFault(protocol.Overflow, err) // the host reads no requests
	}
	return protocol.NewFault(protocol.ConnectFailure, err)
}

// run reads answers until the connection ends, and then fails what is left.
func (u *UpstreamConn) run() {
	b := &batch{now: time.Now()}
	flush := func() {
		b.flush()
		u.read = 0
	}
	u.failAll(u.readAll(flush, b), b)
}

// readAll reads until the connection ends, and returns why it has.
func (u *UpstreamConn) readAll(flush func(), b *batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			u.engine.panicked("reading a host's connection: it is closed", p)
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

// take deals with every whole frame that there is, and then with the answers that
// came in them.
func (u *UpstreamConn) take(b *batch) error {
	err := u.frames(b)
	for _, f := range u.hear(b.now) {
		f(b)
	}
	u.resumeReady(b)
	return err
}

// resumeReady resumes the exchanges whose answer has come, each once.
func (u *UpstreamConn) resumeReady(b *batch) {
	for i, k := range u.ready {
		if k != nil { // else it was resumed before a panic
			u.ready[i] = nil
			k.goOn(b)
		}
	}
	u.ready = u.ready[:0]
}

// hear notes that the host is alive, and opens streams for those that wait for one. What
// it returns is called without mu.
func (u *UpstreamConn) hear(now time.Time) (then []func(*batch)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pulse = keepalive{heard: now}
	return u.next(now)
}

// happened is side's.
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
	default: // it is none of ours
	}
	return nil
}

// handleGoAway fails what the host will never look at (RFC 9113 6.8). The rest goes on.
func (u *UpstreamConn) handleGoAway(e *syntax.Event) func(*batch) {
	u.closing.Store(true)
	why := protocol.Faultf(protocol.ConnectFailure, "the host is going away: %v", e.Code)
	all := u.failQueue(why)
	for s := range u.state.Streams() {
		if l := muxStreamOf(s); l != nil && u.state.Unprocessed(s) {
			all = append(all, l.owner.fail(why))
		}
	}
	return callAll(all)
}

// failQueue fails those that wait for a stream. mu is held.
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

// reset is side's. A stream that was refused was not looked at (RFC 9113 8.7).
func (u *UpstreamConn) reset(code syntax.Code) error {
	reason := protocol.UpstreamReset
	if code == syntax.RefusedStream {
		reason = protocol.ConnectFailure
	}
	return protocol.Faultf(reason, "the host has reset the stream: %v", code)
}

// broken is side's.
func (u *UpstreamConn) broken(e *syntax.StreamError) error {
	return protocol.NewFault(protocol.UpstreamMalformed, e)
}

// chargeFrom is side's.
func (u *UpstreamConn) chargeFrom(time.Time) int { return leastCharge }

// charge is side's. Hosts are configured, not strangers.
func (u *UpstreamConn) charge(int, time.Time) error { return nil }

// idleReason is side's.
func (u *UpstreamConn) idleReason() protocol.Reason { return protocol.StreamIdle }

// expired is side's: it ends the wait for a stream of those whose time is up, and
// asks a silent host whether it lives.
func (u *UpstreamConn) expired(b *batch) (then []func(*batch), next time.Time) {
	for k := range u.queue.all() {
		switch at := k.x.EffectiveDeadline(); {
		case at.IsZero():
		case !at.After(b.now):
			then = append(then, k.fail(protocol.Faultf(protocol.UpstreamTimeout, "no stream was free in time")))
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	if interval := u.o.HTTP2.PingInterval; interval > 0 && u.state.Len() > 0 {
		at, dead := u.keepaliveTick(b, interval)
		if dead {
			then = append(then, func(*batch) { _ = u.conn.Close() }) // the reader tells
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return then, next
}

// keepaliveTick sends a PING if one is due, and returns when to look again. dead: the last
// one was not answered. mu is held.
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

// failAll fails everything, for the connection is lost.
func (u *UpstreamConn) failAll(err error, b *batch) {
	u.closing.Store(true)
	var wrong *syntax.ConnectionError
	if errors.As(err, &wrong) {
		u.mu.Lock()
		u.enqueueBatched(u.state.AppendGoAway(u.scratch[:0], wrong.Code, wrong.Reason), b)
		u.mu.Unlock()
	}
	u.resumeReady(b) // a panic of the reader has left some
	// What is lent is of the buffer that is given up.
	b.flush()
	_ = u.conn.Close() // a second time, perhaps
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

// connLostFault says what the end of the connection is to those who wait for an answer.
func connLostFault(err error) error {
	var wrong *syntax.ConnectionError
	switch {
	case errors.As(err, &wrong) && wrong.Code == syntax.InternalError:
		return protocol.NewFault(protocol.Internal, err)
	case wrong != nil:
		return protocol.NewFault(protocol.UpstreamMalformed, err)
	case errors.Is(err, io.EOF):
		return protocol.Faultf(protocol.UpstreamClosed, "waiting for the answer: %w", err)
	}
	return protocol.Faultf(protocol.UpstreamReset, "waiting for the answer: %w", err)
}
