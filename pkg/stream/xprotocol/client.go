package xprotocol

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// UpstreamConn is one upstream connection, which carries the exchanges of many goroutines. It
// implements stream.UpstreamConn.
type UpstreamConn struct {
	engine *Engine                    // immutable
	codec  codec.Codec                // immutable
	traits *codec.Traits              // immutable; the codec's
	conn   *network.Conn              // immutable
	outbox *network.WriteQueue        // immutable
	o      stream.UpstreamConnOptions // immutable
	local  string                     // immutable; the local address
	tls    *protocol.TLS              // immutable; nil: plaintext

	// closing: the connection takes no new exchange. Written with mu held, read without.
	closing atomic.Bool
	// told: the connection was given a one-way request.
	told atomic.Bool

	mu       sync.Mutex
	calls    callTable      // guarded by mu; calls that wait for a response
	err      error          // guarded by mu; why the connection was lost
	timer    *time.Timer    // guarded by mu
	due      time.Time      // guarded by mu; when timer fires; zero: it is not set
	pulse    keepalive      // guarded by mu
	expiring sync.WaitGroup // running expire calls; Add is called with mu held while err is nil

	heard atomic.Int64 // time of the last read, in ns of the Unix epoch
}

// keepalive is the state of the heartbeats.
type keepalive struct {
	sent   time.Time // time of the last heartbeat; zero: the host has sent something since
	misses int       // consecutive heartbeats after which the host sent nothing
}

func newClient(e *Engine, c codec.Codec, conn *network.Conn, o stream.UpstreamConnOptions) *UpstreamConn {
	u := &UpstreamConn{engine: e, codec: c, traits: c.Traits(), conn: conn, o: o, local: conn.LocalAddr().String(), tls: stream.NewTLSMeta(conn)}
	u.outbox = network.NewWriteQueue(conn, e.start)
	u.outbox.Limit(o.RPC.MaxPendingBytes)
	conn.SetWriteTimeout(o.RPC.WriteTimeout)
	now := time.Now()
	u.heard.Store(now.UnixNano())
	u.calls.max = u.traits.MaxID
	u.mu.Lock()
	u.timer = time.AfterFunc(forever, u.expire)
	if d := o.RPC.HeartbeatInterval; d > 0 {
		u.arm(now, now.Add(d))
	}
	u.mu.Unlock()
	e.start(u.run)
	return u
}

// forever is longer than any connection lives.
const forever = 100 * 365 * 24 * time.Hour

// Usable implements stream.UpstreamConn.
func (u *UpstreamConn) Usable(time.Duration) bool { return !u.closing.Load() }

// upstreamCloseGrace is how long a closed connection keeps sending one-way requests.
const upstreamCloseGrace = 5 * time.Second

// Close implements stream.UpstreamConn. It first sends the queued one-way requests, for at most
// upstreamCloseGrace: TestALastRequestThatNobodyAnswersIsSent. The connection's goroutine ends soon
// after; Engine.Close waits for it.
func (u *UpstreamConn) Close() error {
	u.closing.Store(true)
	u.mu.Lock()
	parts := u.err == nil && u.told.Load()
	if parts {
		u.engine.start(u.closeAfterFlush) // with mu held: run, and so the engine, has not ended
	}
	u.mu.Unlock()
	if parts {
		return nil
	}
	return u.conn.Close() // without mu: it calls the connection's OnClose functions
}

// closeAfterFlush closes the connection once the socket has taken the write queue.
func (u *UpstreamConn) closeAfterFlush() {
	late := time.AfterFunc(upstreamCloseGrace, func() { _ = u.conn.Close() })
	defer late.Stop()
	u.outbox.Close()
	_ = u.conn.Close() // may be the second close
}

// waiter waits for a response: a request, or a blocked goroutine.
type waiter interface {
	// park blocks until one wake. It is not called for a request that is pending without a stack.
	park()
	// wake ends the wait. The continuation runs on the goroutine that owns b.
	wake(b *batch)
	// passes reports whether the waiter is done with the response when wake returns.
	passes() bool
}

// sleeper is the waiter of an exchange that another engine serves.
type sleeper chan struct{}

func (s sleeper) park()       { <-s }
func (s sleeper) wake(*batch) { s <- struct{}{} }
func (sleeper) passes() bool  { return false }

// call is an exchange that waits for its response. The goroutine that removes it from the table
// owns it until wake.
type call struct {
	client   *UpstreamConn
	id       uint64
	by       waiter
	deadline time.Time // zero: none

	body  answer           // its Frame is the response
	err   error            // why there is no response
	unput error            // why the request was not sent; set by the sender
	held  *buffer.IoBuffer // holds the response; nil: the reader's input does
	read  time.Time        // when the response was read
}

// answer is the body of a response; closing it ends the exchange on the connection.
type answer struct {
	codec.Message
	k  *call
	of *protocol.Response // the response whose body it is; nil: none
}

// Close implements protocol.Body. It removes itself from the response, so that nothing closes it
// again.
func (a *answer) Close() error {
	a.of.BodyClosed(a)
	a.k.release()
	return nil
}

// release ends the exchange on the connection.
func (k *call) release() {
	u := k.client
	if k.held != nil {
		k.held.Release()
	}
	k.free()
	u.o.OnRelease(!u.closing.Load())
}

// free makes k ready for another exchange.
func (k *call) free() {
	k.body.Reset()
	k.body.of = nil
	k.client, k.by, k.err, k.unput, k.held = nil, nil, nil, nil, nil
}

// Start implements stream.UpstreamConn. Errors are Faults; ConnectFailure means that the connection
// had ended before the request was sent.
func (u *UpstreamConn) Start(_ context.Context, x *protocol.Exchange) error {
	r, _ := x.Downstream.(*request)
	k, err := u.send(x, r)
	if k == nil {
		return err
	}
	if r == nil || r.fork != nil {
		return u.await(x, k)
	}
	x.PushFinisher(k)
	if r.turn.rest() {
		return protocol.ErrPending
	}
	return nil
}

// await waits for the response on the goroutine or the fork of the caller.
func (u *UpstreamConn) await(x *protocol.Exchange, k *call) error {
	if _, ok := x.Downstream.(*request); !ok && x.Downstream != nil {
		defer x.Downstream.OnDisconnect(func() { u.abandon(k.id, nil) })()
	}
	k.by.park()
	return k.receive(x)
}

// Finish implements protocol.Finisher; the call has its response.
func (k *call) Finish(_ context.Context, x *protocol.Exchange, _ error) error { return k.receive(x) }

// send sends x. It returns a nil call if there is nothing to wait for: x was not sent or is
// one-way.
func (u *UpstreamConn) send(x *protocol.Exchange, r *request) (*call, error) {
	var now time.Time
	if r != nil {
		now = r.now()
	} else {
		now = time.Now()
	}
	x.Record.UpstreamStart, x.Record.UpstreamFirstByte = now, time.Time{}
	if n := len(x.Record.Attempts); n > 0 {
		x.Record.Attempts[n-1].Local, x.Record.Attempts[n-1].TLS = u.local, u.tls
	}
	m := codec.MessageOf(x.Request.Body)
	if err := u.carries(x, m); err != nil {
		u.o.OnRelease(true)
		return nil, err
	}
	if x.Request.OneWay {
		return nil, u.oneWay(x, m, r, now)
	}
	k, err := u.twoWay(x, m, r, now)
	if err != nil {
		u.o.OnRelease(!u.closing.Load())
	}
	return k, err
}

// carries returns an error if m, the request of x, cannot be sent in the codec's protocol.
func (u *UpstreamConn) carries(x *protocol.Exchange, m *codec.Message) error {
	if m == nil || m.Traits != u.traits {
		return protocol.Faultf(protocol.Internal, "a %s request cannot be sent as %s", x.Meta.Protocol, u.traits.Name)
	}
	return nil
}

// twoWay registers x and adds it to the write queue.
func (u *UpstreamConn) twoWay(x *protocol.Exchange, m *codec.Message, r *request, now time.Time) (*call, error) {
	var k *call
	if r != nil {
		k = &r.call
		k.by = r
	} else {
		k = &call{by: make(sleeper, 1)}
		k.body.k = k
	}
	k.client, k.deadline = u, x.EffectiveDeadline()
	id, err := u.register(k, now)
	if err != nil {
		k.free()
		return nil, err
	}
	if err := u.put(x, m, r, id, now); err != nil {
		if u.remove(id) != nil {
			k.free()
			return nil, err
		}
		k.unput = err // another goroutine removed k, because the connection was lost, and wakes it
		return k, nil
	}
	if r != nil && !r.awaits(waiting{u, id}) {
		if u.remove(id) != nil {
			k.free()
			return nil, protocol.Faultf(protocol.ReasonDownstreamDisconnect, "client closed its connection")
		}
	}
	return k, nil
}

// register gives k an id.
func (u *UpstreamConn) register(k *call, now time.Time) (id uint64, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil {
		return 0, protocol.Faultf(protocol.ConnectFailure, "the connection was closed: %w", u.err)
	}
	id = u.calls.add(k)
	u.mayEnd()
	if !k.deadline.IsZero() {
		u.arm(now, k.deadline)
	}
	return id, nil
}

// mayEnd stops new exchanges, so that the pool replaces the connection before its ids run out. The
// caller holds u.mu.
func (u *UpstreamConn) mayEnd() {
	if u.calls.exhausted() {
		u.closing.Store(true)
	}
}

// remove removes and returns a call; nil if it is no longer in the table.
func (u *UpstreamConn) remove(id uint64) *call {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.calls.remove(id)
}

// put adds the request to the write queue. It returns a panic of the codec as an error.
func (u *UpstreamConn) put(x *protocol.Exchange, m *codec.Message, r *request, id uint64, now time.Time) (err error) {
	defer protocol.RecoverPanic(&err)
	left := time.Duration(0)
	if until := x.EffectiveDeadline(); m.View.Timeout > 0 && !until.IsZero() {
		if left = until.Sub(now); left <= 0 {
			return protocol.Faultf(protocol.UpstreamTimeout, "the client's timeout expired before the request was sent")
		}
	}
	_, err, lost := u.outbox.AppendFrame(len(m.Frame)+faultSize, func(dst []byte) ([]byte, error) {
		start := len(dst)
		out, err := u.codec.AppendRequest(dst, m.Frame, &x.Request, &m.View, left)
		if err == nil {
			u.codec.SetID(out[start:], id)
		}
		return out, err
	})
	switch {
	case err != nil:
		return err
	case lost == nil:
	case errors.Is(lost, network.ErrWriteQueueFull):
		return protocol.NewFault(protocol.Overflow, lost) // the host reads no requests
	default:
		return protocol.Faultf(protocol.ConnectFailure, "the connection was closed: %w", lost)
	}
	if r != nil {
		r.flush(u.outbox)
	} else {
		_ = u.outbox.Flush() // the reader finds out
	}
	return nil
}

// oneWay sends a request that expects no response.
func (u *UpstreamConn) oneWay(x *protocol.Exchange, m *codec.Message, r *request, now time.Time) error {
	u.told.Store(true)
	u.mu.Lock()
	err := u.err
	id := uint64(0)
	if err == nil {
		id = u.calls.reserveID()
		u.mayEnd()
	}
	u.mu.Unlock()
	if err != nil {
		err = protocol.Faultf(protocol.ConnectFailure, "the connection was closed: %w", err)
	} else {
		err = u.put(x, m, r, id, now)
	}
	u.o.OnRelease(!u.closing.Load())
	if err == nil {
		x.Response.Status = 200
		x.Response.ContentLength = 0
	}
	return err
}

// receive sets x.Response from k, or returns k's error.
func (k *call) receive(x *protocol.Exchange) (err error) {
	defer func() {
		if x.Response.Body == nil { // also after a panic of the codec's
			x.ResetResponse()
			k.release()
		}
	}()
	switch {
	case k.unput != nil:
		return k.unput
	case k.err != nil:
		return k.err
	}
	c := k.client.codec
	x.Record.UpstreamFirstByte = k.read
	x.Response.Source = protocol.UpstreamResponse
	k.body.Set(c, k.body.Frame)
	if err = c.ReadResponse(k.body.Frame, &x.Response, &k.body.View); err == nil {
		k.body.of = &x.Response
		x.Response.SetBody(&k.body)
	}
	return err
}

// errAbandoned ends a call whose client has disconnected.
var errAbandoned = protocol.Faultf(protocol.ReasonDownstreamDisconnect, "client closed its connection before the upstream response was complete")

// abandon ends the wait of a call whose client has disconnected.
func (u *UpstreamConn) abandon(id uint64, b *batch) {
	if k := u.remove(id); k != nil {
		k.err = errAbandoned
		k.by.wake(b)
	}
}

// run reads responses until the connection ends, and then fails the calls that still wait.
func (u *UpstreamConn) run() {
	var in input
	var b batch
	err := u.readAll(&in, &b)
	u.engine.report("reading responses", err)
	in.release()
	u.fail(err, &b)
	u.expiring.Wait()
}

// readAll reads until the connection fails; a panic of the codec fails it too.
func (u *UpstreamConn) readAll(in *input, b *batch) (err error) {
	defer protocol.RecoverPanic(&err)
	flush := func() {
		b.flush()
		in.read = 0
	}
	for err == nil {
		if err = in.fill(u.conn, flush); err == nil {
			b.now = time.Now()
			u.heard.Store(b.now.UnixNano())
			err = u.read(in, b)
			if in.read >= mostHeld {
				flush()
			}
		}
	}
	return err
}

// read handles every complete frame.
func (u *UpstreamConn) read(in *input, b *batch) (err error) {
	for in.whole() {
		head, frame, err := in.next(u.codec, u.o.RPC.MaxFrameSize)
		if err != nil {
			return protocol.NewFault(protocol.UpstreamMalformed, err)
		}
		if frame == nil {
			break
		}
		u.frame(head, frame, b)
		in.consume(head, len(frame))
	}
	in.rest()
	return nil
}

// frame handles one frame.
func (u *UpstreamConn) frame(head codec.Frame, frame []byte, b *batch) {
	switch head.Kind {
	case codec.Response:
		k := u.remove(head.ID)
		if k == nil {
			return // the call has ended, or the id was never used
		}
		k.read = b.now
		if head.Size > len(frame) {
			k.err = protocol.Faultf(protocol.UpstreamMalformed, "a response of %d bytes; connection_pool.max_frame_size is %d", head.Size, u.o.RPC.MaxFrameSize)
		} else {
			k.answered(frame)
		}
		k.by.wake(b)
	case codec.Heartbeat:
		if head.Size == len(frame) {
			u.reply(b, func(dst []byte) []byte { return u.codec.AppendHeartbeatAck(dst, frame) })
		}
	case codec.Request:
		// The host calls back over the connection. Weft has no client to pass that to.
		u.reply(b, func(dst []byte) []byte {
			return u.codec.AppendErrorResponse(dst, frame, protocol.ReasonNoRoute, "weft: callbacks over an upstream connection are not supported")
		})
	case codec.GoAway:
		u.closing.Store(true)
	case codec.OneWay, codec.HeartbeatAck, codec.Ignored:
	}
}

// answered stores k's response. It copies the frame if the response must outlast wake.
func (k *call) answered(frame []byte) {
	k.body.Frame = frame
	if !k.by.passes() {
		k.held = buffer.Get(len(frame))
		_, _ = k.held.Write(frame) // never fails
		k.body.Frame = k.held.Bytes()
	}
}

// reply enqueues a frame that Weft generates.
func (u *UpstreamConn) reply(b *batch, frame func(dst []byte) []byte) {
	if put(u.outbox, frame) {
		b.add(u.outbox)
	}
}

// put adds a frame that Weft generates to a write queue, and reports success. On failure the
// connection's reader gets the error.
func put(o *network.WriteQueue, frame func(dst []byte) []byte) bool {
	_, err, lost := o.AppendFrame(faultSize, func(dst []byte) ([]byte, error) { return frame(dst), nil })
	return err == nil && lost == nil
}

// fail closes the lost connection and ends all of its calls.
func (u *UpstreamConn) fail(err error, b *batch) {
	u.mu.Lock()
	if u.err != nil { // the connection has already failed
		u.mu.Unlock()
		b.flush() // sends the responses received until then
		return
	}
	u.err = err
	u.closing.Store(true)
	all := u.calls.clear()
	u.timer.Stop()
	u.mu.Unlock()
	_ = u.conn.Close() // may be the second close
	u.outbox.Fail(err)
	fault := lost(err)
	b.now = time.Now()
	for _, k := range all {
		u.wake(k, fault, b)
	}
	b.flush()
}

// wake ends the wait of k, which has no response. It contains panics, so that the other calls are
// woken.
func (u *UpstreamConn) wake(k *call, err error, b *batch) {
	defer u.engine.contain("ending a request")
	k.err = err
	k.by.wake(b)
}

// lost returns the fault for calls that wait when the connection ends.
func lost(err error) error {
	var f *protocol.Fault
	switch {
	case errors.As(err, &f):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, errHeartbeatTimeout):
		return protocol.Faultf(protocol.UpstreamClosed, "waiting for the response: %w", err)
	}
	return protocol.Faultf(protocol.UpstreamReset, "waiting for the response: %w", err)
}
