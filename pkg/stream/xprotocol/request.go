package xprotocol

import (
	"context"
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// request is a caller's request while it is served, and the Caller of its
// exchange.
type request struct {
	engine *Engine  // immutable
	next   *request // of the session's requests that serve nothing
	x      protocol.Exchange
	turn   waitState

	// Of the request that is served.
	watched bool   // watch was used; a byte next to turn
	batch   *batch // of the goroutine that it is on; nil: a worker's
	fork    *fiber // what serves it and may wait; nil: nothing
	call    call   // on a host's connection
	c       *downstreamConn
	frame   *buffer.IoBuffer // the whole frame; x.Request is a view of it; nil: there is no memory for one
	head    codec.Frame
	sent    waiting       // of the session's reader: what it sent on its own stack
	message codec.Message // x.Request.Body

	watch stream.DisconnectWatch[waiting] // an id comes only once
}

func newRequest(e *Engine) *request {
	r := &request{engine: e}
	r.x.Caller = r
	r.call.body.k = &r.call
	return r
}

// serve begins to serve the request that r has been given, on the goroutine that
// b belongs to.
func (r *request) serve(b *batch) {
	r.batch = b
	r.x.Meta.Start = r.now()
	err := r.read()
	if err == nil {
		err = r.x.StartAsync(r.context(), r.c.s.service)
	}
	r.conclude(err)
}

// refuse is serve for a request that comes too late.
func (r *request) refuse(b *batch) {
	r.batch = b
	r.x.Meta.Start = r.now()
	_ = r.read() // for the log; the request ends in any case
	r.conclude(protocol.Faultf(protocol.Draining, "the time to drain is nearly over"))
}

// cancel ends a request whose caller has left before it started. Floods consist of such
// requests, so cancel makes no response and reads the frame only if an observer needs it.
func (r *request) cancel(b *batch) {
	r.batch = b
	r.x.Meta.Start = r.now()
	if r.enter() {
		_ = r.read() // for the log; the request ends in any case
	}
	r.x.Abandon(leftBeforeStart)
	r.finish()
}

// leftBeforeStart is the detail that is recorded of a request that cancel ends.
const leftBeforeStart = "client gone: the client closed its connection before the request started"

// enter describes the request, which does not start, and has its exchange belong to its
// listener's configuration. It reports whether an observer reads the request. A panic, of
// the codec too, costs no more than that.
func (r *request) enter() (readsRequest bool) {
	defer r.engine.contain("accounting for a request")
	r.describe()
	s := r.c.s
	return s.o.Observe != nil && r.batch.tally(s).Enter(&r.x)
}

// oneWay reports whether the caller wants no answer.
func (r *request) oneWay() bool { return r.head.Kind == codec.OneWay }

// context returns the context of r's services.
func (r *request) context() context.Context {
	if r.oneWay() {
		return r.c.lasting
	}
	return r.c.ctx
}

// resume goes on after what r was pending in has returned err.
func (r *request) resume(err error) { r.conclude(r.x.Resume(r.context(), err)) }

// conclude answers, if r is not pending. Afterwards r serves another request,
// perhaps. Whatever panics on the way, the request ends: its connection waits for that.
func (r *request) conclude(err error) {
	if err == protocol.ErrPending { //nolint:errorlint // it is never wrapped
		return // and r is somebody else's
	}
	// A panic on the way, of a body's Read or Close, is a fault that is answered in turn.
	// The first may come from the body that the second closes, and then there is none.
	if err != nil {
		r.engine.report("serving a request", err)
	}
	for tries := 0; ; tries++ {
		if err = r.settle(err); err == nil {
			break
		}
		r.engine.report("answering a request", err)
		if tries == 2 {
			r.c.abort(r.batch)
			break
		}
	}
	r.finish()
}

// settle has the caller answered: with what there is, or with err. The error that it
// returns is a panic of what it called.
func (r *request) settle(err error) (failed error) {
	defer protocol.RecoverPanic(&failed)
	x := &r.x
	if err != nil {
		x.LocalReplyError(err)
	}
	if !x.Request.OneWay && x.Record.Reason != protocol.ReasonDownstreamDisconnect {
		r.answer()
	}
	return nil
}

// RunBlocking is protocol.BlockingRunner's.
func (r *request) RunBlocking(ctx context.Context, s protocol.Service) error {
	if r.fork != nil {
		return s.Serve(ctx, &r.x)
	}
	if r.x.Response.Body != nil {
		r.x.ResetResponse() // as its caller should have: see passes
	}
	if !r.engine.workers.Reserve() {
		return protocol.Faultf(protocol.Overloaded, "%d exchanges wait on stacks of their own already", maxForked)
	}
	f := r.engine.takeFiber()
	f.r, f.ctx, f.service = r, ctx, s
	r.fork = f
	if !r.run(r.batch) {
		return protocol.ErrPending
	}
	return r.join()
}

// run lets the fork go on, on the goroutine that b belongs to, or a worker's, and
// reports whether it is at its end.
func (r *request) run(b *batch) bool {
	switch r.fork.resume(b) {
	case moves:
		r.engine.workers.Go(r)
	case served:
		return true
	case parked:
	}
	return false
}

// join ends the fork and returns what it did.
func (r *request) join() error {
	f := r.fork
	err := f.err
	f.r, f.ctx, f.service, f.err = nil, nil, nil, nil
	r.fork = nil
	r.engine.giveFiber(f)
	r.engine.workers.Release()
	return err
}

// goOnAlone is goOn on a worker.
func (r *request) goOnAlone() { r.goOn(nil) }

// goOn is run, and then goes on without the fork.
func (r *request) goOn(b *batch) {
	if r.run(b) {
		r.resume(r.join())
	}
}

// park is waiter's: only a fork waits.
func (r *request) park() { r.fork.park() }

// passes is waiter's: a request that rests, and has no fork, is answered and done
// with on the stack of who wakes it. A service that forks then has dropped the
// answer before.
func (r *request) passes() bool { return r.turn.state.Load() == stateWaiting && r.fork == nil }

// wake is waiter's.
func (r *request) wake(b *batch) {
	switch {
	case !r.turn.wake():
	case r.fork != nil:
		r.goOn(b)
	default:
		r.batch = b
		r.resume(nil)
	}
}

// now is when what is being dealt with was read.
func (r *request) now() time.Time {
	if r.batch == nil {
		return time.Now()
	}
	return r.batch.now
}

// flush sees to it that o is flushed.
func (r *request) flush(o *network.WriteQueue) {
	if r.batch == nil {
		_ = o.FlushAfterYield() // its reader finds out
		return
	}
	r.batch.add(o)
}

// Detach is protocol.Detacher's.
func (r *request) Detach() {
	if r.fork != nil { // else nothing waits
		r.fork.move()
	}
}

// SendInterim is protocol.Downstream's: there are no interim answers in RPC.
func (*request) SendInterim(int, *protocol.Header) error { return nil }

// OnDisconnect is protocol.Downstream's.
func (r *request) OnDisconnect(gone func()) (stop func()) {
	r.watched = true
	return r.watch.Start(r.engine.start, gone)
}

// Canceled is protocol.Cancellable's.
func (r *request) Canceled() bool { return r.watch.Ended() }

// read makes the frame x.Request. A panic of the codec's is an error: where the frame
// ends is known, so that it costs no more than the request.
func (r *request) read() (err error) {
	defer protocol.RecoverPanic(&err)
	x, s := &r.x, r.c.s
	r.describe()
	frame := r.frame.Bytes()
	x.Request.Scheme = "http"
	x.Request.OneWay = r.oneWay()
	r.message.Set(s.codec, frame)
	x.Request.Body = &r.message
	if r.head.Size > len(frame) { // nothing but the head was kept
		return protocol.Faultf(protocol.BodyTooLarge, "a frame of %d bytes; max_request_body_size is %d", r.head.Size, s.o.RPC.MaxFrameSize)
	}
	if err := s.codec.ReadRequest(frame, &x.Request, &r.message.View); err != nil {
		return err
	}
	if t := r.message.View.Timeout; t > 0 {
		x.Deadline = x.Meta.Start.Add(t)
	}
	return nil
}

// describe notes what is known of the request without reading it.
func (r *request) describe() {
	x, traits := &r.x, r.c.s.traits
	x.Meta.Conn = &r.c.meta
	x.Meta.Protocol, x.Meta.Version = traits.Name, traits.Version
	x.Meta.HeadSize = traits.FrameHeaderLen
	x.Record.RequestBytes = int64(r.frame.Len())
}

// answer puts the answer into the caller's outbox: the host's, or a fault if there is
// none, or it cannot be sent.
func (r *request) answer() {
	if m := codec.MessageOf(r.x.Response.Body); m != nil {
		err := r.put(len(m.Frame)+faultSize, func(dst []byte) ([]byte, error) { return r.pass(dst, m) })
		if err == nil {
			return
		}
		r.x.LocalReplyError(err) // the codec cannot write the response
	}
	reason, text := r.fault()
	own := r.c.s.codec
	_ = r.put(faultSize, func(dst []byte) ([]byte, error) { // never fails
		start := len(dst)
		dst = own.AppendErrorResponse(dst, r.frame.Bytes(), reason, text)
		var sent protocol.Response
		if own.ReadResponse(dst[start:], &sent, new(codec.FrameView)) == nil {
			r.x.Response.Code = sent.Code
		}
		return dst, nil
	})
}

// pass appends the host's answer.
func (r *request) pass(dst []byte, m *codec.Message) ([]byte, error) {
	own := r.c.s.codec
	start := len(dst)
	out, err := own.AppendResponse(dst, m.Frame, &r.x.Response, &m.View)
	if err == nil {
		own.SetID(out[start:], r.head.ID)
	}
	return out, err
}

// put puts a frame into the caller's outbox. That the caller is gone is noted.
func (r *request) put(size int, frame func(dst []byte) ([]byte, error)) error {
	x, o := &r.x, r.c.outbox
	n, err, lost := o.AppendFrame(size, frame)
	if err != nil {
		return err
	}
	x.Record.ResponseBytes = int64(n)
	if lost != nil {
		r.noteLost(lost)
	}
	r.flush(o)
	return nil
}

// noteLost records why the caller does not get its response.
func (r *request) noteLost(why error) {
	if errors.Is(why, network.ErrOutboxFull) {
		// The caller does not read its answers, of which it will miss one.
		r.c.abort(r.batch)
	}
	if record := &r.x.Record; record.Reason == protocol.ReasonNone {
		record.Reason, record.Detail = protocol.ReasonDownstreamDisconnect, why.Error()
	}
}

// finish accounts for the exchange and makes r ready for the next.
func (r *request) finish() {
	x := &r.x
	x.Record.End = r.now()
	r.observe()
	r.drop() // not before: the answer's fields are views
	r.message.Reset()
	if r.frame.Cap() > keepFrame {
		r.frame.Release()
		r.frame = nil
	} else {
		r.frame.Reuse()
	}
	if r.watched {
		r.watch.Reset()
		r.watched = false
	}
	r.c.end(r)
}

// drop resets the exchange. A panic while the answer is closed costs no more than that.
func (r *request) drop() {
	defer r.x.Reset()
	defer r.engine.contain("closing an answer")
	r.x.ResetResponse()
}

// observe has the exchange accounted for. A panic costs no more than that.
func (r *request) observe() {
	defer r.engine.contain("accounting for a request")
	s := r.c.s
	switch {
	case s.o.Observe == nil:
	case r.batch == nil:
		s.o.Observe(&r.x)
	default:
		r.batch.observe(s, &r.x)
	}
}

// awaits notes what r waits for, and reports false if its caller is gone. That is
// found out by the session's reader: what it sends itself needs no lock for it.
func (r *request) awaits(on waiting) bool {
	if r.fork == nil && r.batch == &r.c.batch {
		r.sent = on
		return true
	}
	r.watched = true
	return r.watch.SetPending(on)
}

// waiting says on which connection, and under which id, r waits for an answer.
type waiting struct {
	client *UpstreamConn
	id     uint64
}
