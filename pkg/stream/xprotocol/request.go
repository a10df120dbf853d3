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

// request is a client's request in flight, and the Downstream of its exchange.
type request struct {
	engine *Engine  // immutable
	next   *request // link in a list of inflight, or in a requestQueue
	x      protocol.Exchange
	state  waitState

	// The fields below belong to the request in flight.
	watched  bool   // watch was used; next to state to save padding
	batch    *batch // of the goroutine that runs the request; nil on a worker
	fork     *fiber // runs the service, which may block; nil for none
	call     call   // the call on a host's connection
	c        *downstreamConn
	frame    *buffer.IoBuffer // the complete frame, which x.Request borrows; nil: no buffer yet
	head     codec.Frame
	sentCall pendingCall   // owned by the connection's reader: the call it sent without a fork
	message  codec.Message // x.Request.Body

	watch stream.DisconnectWatch[pendingCall] // a late abandon is harmless: a connection never reuses an id
}

func newRequest(e *Engine) *request {
	r := &request{engine: e}
	r.x.Downstream = r
	r.call.body.call = &r.call
	return r
}

// serve starts the service on the goroutine that owns b.
func (r *request) serve(b *batch) {
	r.batch = b
	r.x.Meta.Start = r.now()
	err := r.read()
	if err == nil {
		err = r.x.Start(r.context(), r.c.server.service)
	}
	r.respondIfDone(err)
}

// reject rejects a request that was read when the drain deadline was near.
func (r *request) reject(b *batch) {
	r.batch = b
	r.x.Meta.Start = r.now()
	_ = r.read() // for the log; the request ends in any case
	r.respondIfDone(protocol.Faultf(protocol.Draining, "the drain deadline is near"))
}

// cancel ends a request whose client disconnected before it started. Floods consist of such
// requests, so cancel makes no response and reads the frame only if an observer needs it.
func (r *request) cancel(b *batch) {
	r.batch = b
	r.x.Meta.Start = r.now()
	if r.enter() {
		_ = r.read() // for the log; the request ends in any case
	}
	r.x.Abandon(disconnectedBeforeStart)
	r.finish()
}

// disconnectedBeforeStart is the detail that cancel records.
const disconnectedBeforeStart = "client disconnected: the client closed its connection before the request started"

// enter describes a request that does not start and binds its exchange to the listener's
// configuration. It reports whether an observer needs the request's fields. It recovers and logs
// panics, including those of the codec.
func (r *request) enter() (readsRequest bool) {
	defer r.engine.goroutines.Contain("recording a request")
	r.describe()
	s := r.c.server
	return s.opts.Observe != nil && r.batch.observer(s).Enter(&r.x)
}

// oneWay reports whether the client expects no response.
func (r *request) oneWay() bool { return r.head.Kind == codec.OneWay }

// context returns the context for r's services.
func (r *request) context() context.Context {
	if r.oneWay() {
		return r.c.oneWayCtx
	}
	return r.c.ctx
}

// resume continues the exchange. err is the result of the service that r was pending in.
func (r *request) resume(err error) { r.respondIfDone(r.x.Resume(r.context(), err)) }

// respondIfDone sends the response unless r is pending. Afterwards r may serve another request. The
// request ends even after a panic, because its connection waits for the end.
func (r *request) respondIfDone(err error) {
	if err == protocol.ErrPending { //nolint:errorlint // it is never wrapped
		return // another goroutine may own r now
	}
	// A panic of a body's Read or Close becomes a fault, which the next attempt sends. The first
	// panic may come from the body that the second attempt closes; the third attempt has no body.
	if err != nil {
		r.engine.logPanicIn("serving a request", err)
	}
	for attempts := 0; ; attempts++ {
		if err = r.respond(err); err == nil {
			break
		}
		r.engine.logPanicIn("responding to a request", err)
		if attempts == 2 {
			r.c.abort(r.batch)
			break
		}
	}
	r.finish()
}

// respond sends the response: x.Response, or a local reply for err. It returns a recovered panic as
// an error.
func (r *request) respond(err error) (panicErr error) {
	defer protocol.RecoverPanic(&panicErr)
	x := &r.x
	if err != nil {
		x.LocalReplyError(err)
	}
	if !x.Request.OneWay && x.Record.Reason != protocol.ReasonDownstreamDisconnect {
		r.sendResponse()
	}
	return nil
}

// RunBlocking implements protocol.BlockingRunner.
func (r *request) RunBlocking(ctx context.Context, s protocol.BlockingService) error {
	if r.fork != nil {
		return s.Serve(ctx, &r.x)
	}
	if r.x.Response.Body != nil {
		r.x.ResetResponse() // the caller of RunBlocking should have reset it: see doneOnWake
	}
	if !r.engine.workers.Reserve() {
		return protocol.Faultf(protocol.Overloaded, "the limit of %d requests that wait on goroutines of their own is reached", maxForked)
	}
	f := r.engine.getFiber()
	f.r, f.ctx, f.service = r, ctx, s
	r.fork = f
	if !r.runFork(r.batch) {
		return protocol.ErrPending
	}
	return r.joinFork()
}

// runFork resumes the fork on the goroutine that owns b, or passes it to a worker. It reports
// whether the service has returned.
func (r *request) runFork(b *batch) bool {
	switch r.fork.resume(b) {
	case outcomeNeedsWorker:
		r.engine.workers.Go(r)
	case outcomeServed:
		return true
	case outcomeParked:
	}
	return false
}

// joinFork releases the fork and returns the service's error.
func (r *request) joinFork() error {
	f := r.fork
	err := f.err
	f.r, f.ctx, f.service, f.err = nil, nil, nil, nil
	r.fork = nil
	r.engine.putFiber(f)
	r.engine.workers.Release()
	return err
}

// resumeForkOnWorker calls resumeFork on a worker.
func (r *request) resumeForkOnWorker() { r.resumeFork(nil) }

// resumeFork resumes the fork. Once the service has returned, resumeFork continues without it.
func (r *request) resumeFork(b *batch) {
	if r.runFork(b) {
		r.resume(r.joinFork())
	}
}

// park implements waiter; only a fork waits.
func (r *request) park() { r.fork.park() }

// doneOnWake implements waiter. A request that is pending and has no fork is done with the response
// when wake returns. If a service then calls RunBlocking, the response was dropped before.
func (r *request) doneOnWake() bool { return r.state.value.Load() == stateWaiting && r.fork == nil }

// wake implements waiter.
func (r *request) wake(b *batch) {
	switch {
	case !r.state.wake():
	case r.fork != nil:
		r.resumeFork(b)
	default:
		r.batch = b
		r.resume(nil)
	}
}

// now returns the time at which the current input was read; on a worker, the current time.
func (r *request) now() time.Time {
	if r.batch == nil {
		return time.Now()
	}
	return r.batch.now
}

// flush adds q to the batch, which flushes it; on a worker, flush flushes q after a yield.
func (r *request) flush(q *network.WriteQueue) {
	if r.batch == nil {
		_ = q.FlushAfterYield() // the connection's reader gets the error
		return
	}
	r.batch.dirty.Add(q)
}

// Detach implements protocol.Detacher.
func (r *request) Detach() {
	if r.fork != nil { // without a fork nothing blocks
		r.fork.moveToWorker()
	}
}

// SendInterim implements protocol.Downstream; RPC has no interim responses.
func (*request) SendInterim(int, *protocol.Header) error { return nil }

// OnDisconnect implements protocol.Downstream.
func (r *request) OnDisconnect(onDisconnect func()) (stop func()) {
	r.watched = true
	return r.watch.Start(r.engine.goroutines.Start, onDisconnect)
}

// Canceled implements protocol.Cancellable.
func (r *request) Canceled() bool { return r.watch.Disconnected() }

// read fills x.Request from the frame. It returns a panic of the codec as an error: the end of the
// frame is known, so only this request fails.
func (r *request) read() (err error) {
	defer protocol.RecoverPanic(&err)
	x, s := &r.x, r.c.server
	r.describe()
	frame := r.frame.Bytes()
	x.Request.Scheme = "http"
	x.Request.OneWay = r.oneWay()
	r.message.Set(s.codec, frame)
	x.Request.Body = &r.message
	if r.head.Size > len(frame) { // only the beginning of the frame was kept
		return protocol.Faultf(protocol.BodyTooLarge, "a frame of %d bytes; max_request_body_size is %d", r.head.Size, s.opts.RPC.MaxFrameSize)
	}
	if err := s.codec.ReadRequest(frame, &x.Request, &r.message.View); err != nil {
		return err
	}
	if t := r.message.View.Timeout; t > 0 {
		x.Deadline = x.Meta.Start.Add(t)
	}
	return nil
}

// describe sets the metadata that the codec's traits and the frame's size determine.
func (r *request) describe() {
	x, traits := &r.x, r.c.server.traits
	x.Meta.Conn = &r.c.meta
	x.Meta.Protocol, x.Meta.Version = traits.Name, traits.Version
	x.Meta.HeadSize = traits.FrameHeaderLen
	x.Record.RequestBytes = int64(r.frame.Len())
}

// sendResponse enqueues the response for the client: the host's, or an error response if there is
// none or the codec cannot write it.
func (r *request) sendResponse() {
	if m := codec.MessageOf(r.x.Response.Body); m != nil {
		err := r.enqueue(len(m.Frame)+errorResponseSize, func(dst []byte) ([]byte, error) { return r.appendResponse(dst, m) })
		if err == nil {
			return
		}
		r.x.LocalReplyError(err) // the codec cannot write the response
	}
	reason, text := r.errorReasonAndText()
	clientCodec := r.c.server.codec
	_ = r.enqueue(errorResponseSize, func(dst []byte) ([]byte, error) { // never fails
		start := len(dst)
		dst = clientCodec.AppendErrorResponse(dst, r.frame.Bytes(), reason, text)
		var resp protocol.Response
		if clientCodec.ReadResponse(dst[start:], &resp, new(codec.FrameView)) == nil {
			r.x.Response.Code = resp.Code
		}
		return dst, nil
	})
}

// appendResponse appends the host's response with the client's request id.
func (r *request) appendResponse(dst []byte, m *codec.Message) ([]byte, error) {
	clientCodec := r.c.server.codec
	start := len(dst)
	out, err := clientCodec.AppendResponse(dst, m.Frame, &r.x.Response, &m.View)
	if err == nil {
		clientCodec.SetID(out[start:], r.head.ID)
	}
	return out, err
}

// enqueue enqueues a frame for the client. If the queue does not accept the frame, enqueue records
// the reason.
func (r *request) enqueue(size int, encode func(dst []byte) ([]byte, error)) error {
	x, q := &r.x, r.c.writeQueue
	n, err, queueErr := q.AppendFrame(size, encode)
	if err != nil {
		return err
	}
	x.Record.ResponseBytes = int64(n)
	if queueErr != nil {
		r.recordSendError(queueErr)
	}
	r.flush(q)
	return nil
}

// recordSendError records why the client does not get its response.
func (r *request) recordSendError(err error) {
	if errors.Is(err, network.ErrWriteQueueFull) {
		// The client does not read its responses and will miss this one.
		r.c.abort(r.batch)
	}
	if record := &r.x.Record; record.Reason == protocol.ReasonNone {
		record.Reason, record.Detail = protocol.ReasonDownstreamDisconnect, err.Error()
	}
}

// maxKeptFrame is the maximum capacity, in bytes, of the frame buffer that an idle request keeps.
const maxKeptFrame = 4 << 10

// finish reports the exchange to the observer and makes r ready for the next request.
func (r *request) finish() {
	x := &r.x
	x.Record.End = r.now()
	r.observe()
	r.resetExchange() // after observe, because the fields of the response borrow its memory
	r.message.Reset()
	if r.frame.Cap() > maxKeptFrame {
		r.frame.Release()
		r.frame = nil
	} else {
		r.frame.Reuse()
	}
	if r.watched {
		r.watch.Reset()
		r.watched = false
	}
	r.c.inflight.release(r)
}

// resetExchange resets the exchange. A panic in the Close of the response is logged and has no
// other effect.
func (r *request) resetExchange() {
	defer r.x.Reset()
	defer r.engine.goroutines.Contain("closing a response")
	r.x.ResetResponse()
}

// observe reports the exchange to the observer. A panic is logged and has no other effect.
func (r *request) observe() {
	defer r.engine.goroutines.Contain("recording a request")
	s := r.c.server
	switch {
	case s.opts.Observe == nil:
	case r.batch == nil:
		s.opts.Observe(&r.x)
	default:
		r.batch.observe(s, &r.x)
	}
}

// setPending records what r waits for, and returns false if the client has disconnected. The
// connection's reader detects disconnects, so a call that the reader sends needs no lock for that.
func (r *request) setPending(call pendingCall) bool {
	if r.fork == nil && r.batch == &r.c.batch {
		r.sentCall = call
		return true
	}
	r.watched = true
	return r.watch.SetPending(call)
}

// pendingCall identifies the connection and the call whose response a request waits for.
type pendingCall struct {
	conn *UpstreamConn
	id   uint64
}
