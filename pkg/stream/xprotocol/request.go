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

// request is a request of a client, and the protocol.Downstream of its exchange. Connections reuse
// requests.
type request struct {
	engine *Engine  // immutable
	next   *request // the next request in a list of inflight or in a requestQueue
	x      protocol.Exchange
	state  waitState

	// The fields below describe the current request.
	watched  bool   // watch was used; placed next to state to save padding
	batch    *batch // the batch of the goroutine that runs the request; nil on a worker
	fiber    *fiber // runs a blocking service; nil: none
	call     call   // the call on an upstream connection
	c        *downstreamConn
	frame    *buffer.IoBuffer // the frame, from which x.Request borrows; nil: no buffer yet
	head     codec.Frame
	sentCall pendingCall   // owned by the reader of c: the call that it sent without a fiber
	message  codec.Message // x.Request.Body

	// watch may name a call that has ended. To abandon that call is harmless, because a connection
	// never reuses an id.
	watch stream.DisconnectWatch[pendingCall]
}

func newRequest(e *Engine) *request {
	r := &request{engine: e}
	r.x.Downstream = r
	r.call.body.call = &r.call
	return r
}

// serve parses the request and starts the service on the goroutine that owns b.
func (r *request) serve(b *batch) {
	r.batch = b
	r.x.Meta.Start = r.now()
	err := r.read()
	if err == nil {
		err = r.x.Start(r.context(), r.c.server.service)
	}
	r.respondIfDone(err)
}

// reject responds with protocol.Draining to a request that has not started.
func (r *request) reject(b *batch) {
	r.batch = b
	r.x.Meta.Start = r.now()
	_ = r.read() // fills x.Request for the access log; the request ends in any case
	r.respondIfDone(protocol.Faultf(protocol.Draining, "the drain deadline is near"))
}

// cancel ends a request whose client disconnected before the request started. A flood of such
// requests must be cheap, so cancel makes no response and parses the frame only if the observer
// needs the request's fields.
func (r *request) cancel(b *batch) {
	r.batch = b
	r.x.Meta.Start = r.now()
	if r.bindConfig() {
		_ = r.read() // fills x.Request for the access log; the request ends in any case
	}
	r.x.Abandon(disconnectedBeforeStart)
	r.finish()
}

// disconnectedBeforeStart is the detail that cancel records.
const disconnectedBeforeStart = "client disconnected: the client closed its connection before the request started"

// bindConfig binds the exchange of a request that does not start to the active configuration: see
// BatchObserver.BindConfig. It reports whether the observer needs the request's fields. It recovers
// and logs a panic of the observer.
func (r *request) bindConfig() (readsRequest bool) {
	defer r.engine.goroutines.Contain("recording a request")
	r.setMetadata()
	s := r.c.server
	return s.opts.Observe != nil && r.batch.observer(s).BindConfig(&r.x)
}

// oneWay reports whether the client expects no response.
func (r *request) oneWay() bool { return r.head.Kind == codec.OneWay }

// context returns the context for the services of r.
func (r *request) context() context.Context {
	if r.oneWay() {
		return r.c.oneWayCtx
	}
	return r.c.ctx
}

// resume continues the exchange. err is the result of the service for which r was pending.
func (r *request) resume(err error) { r.respondIfDone(r.x.Resume(r.context(), err)) }

// respondIfDone sends the response and ends the request, unless err is ErrPending. The caller must
// not use r afterwards: another goroutine may own r, or r may serve another request. The request
// ends even after a panic, because the reader of its connection waits for the end.
func (r *request) respondIfDone(err error) {
	if err == protocol.ErrPending { //nolint:errorlint // it is never wrapped
		return
	}
	// If an attempt panics, the next one sends an error response for the panic, and first closes
	// the response body. That Close may panic too, so the second attempt may fail. The third has no
	// body to close.
	if err != nil {
		r.engine.logPanicIn("serving a request", err)
	}
	for attempts := 0; ; attempts++ {
		if err = r.respond(err); err == nil {
			break
		}
		r.engine.logPanicIn("responding to a request", err)
		if attempts == 2 {
			r.c.abort(r.batch, err)
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
	if r.fiber != nil {
		return s.Serve(ctx, &r.x)
	}
	if r.x.Response.Body != nil {
		r.x.ResetResponse() // the response is valid only until wake returns: see doneOnWake
	}
	if !r.engine.workers.Reserve() {
		return protocol.Faultf(protocol.Overloaded, "the limit of %d requests in blocking filters is reached", maxBusyFibers)
	}
	f := r.engine.getFiber()
	f.r, f.ctx, f.service = r, ctx, s
	r.fiber = f
	if !r.runFiber(r.batch) {
		return protocol.ErrPending
	}
	return r.releaseFiber()
}

// runFiber resumes the fiber on the goroutine that owns b. If the fiber asks for a worker, runFiber
// passes r to a worker. It reports whether the service has returned.
func (r *request) runFiber(b *batch) bool {
	switch r.fiber.resume(b) {
	case outcomeNeedsWorker:
		r.engine.workers.Go(r)
	case outcomeServed:
		return true
	case outcomeParked:
	}
	return false
}

// releaseFiber puts the fiber into the engine's free list and returns the service's error.
func (r *request) releaseFiber() error {
	f := r.fiber
	err := f.err
	f.r, f.ctx, f.service, f.err = nil, nil, nil, nil
	r.fiber = nil
	r.engine.putFiber(f)
	r.engine.workers.Release()
	return err
}

// resumeFiberOnWorker is resumeFiber for a worker, which has no batch.
func (r *request) resumeFiberOnWorker() { r.resumeFiber(nil) }

// resumeFiber resumes the fiber. If the service returns, resumeFiber releases the fiber and
// continues the exchange on this goroutine.
func (r *request) resumeFiber(b *batch) {
	if r.runFiber(b) {
		r.resume(r.releaseFiber())
	}
}

// park implements waiter. Only a request on a fiber parks.
func (r *request) park() { r.fiber.park() }

// doneOnWake implements waiter. A pending request without a fiber no longer needs the response when
// wake returns: it has copied the response to the write queue or dropped it, at the latest in
// RunBlocking.
func (r *request) doneOnWake() bool { return r.state.value.Load() == stateWaiting && r.fiber == nil }

// wake implements waiter.
func (r *request) wake(b *batch) {
	switch {
	case !r.state.wake():
	case r.fiber != nil:
		r.resumeFiber(b)
	default:
		r.batch = b
		r.resume(nil)
	}
}

// now returns the time of the batch; on a worker, the current time.
func (r *request) now() time.Time {
	if r.batch == nil {
		return time.Now()
	}
	return r.batch.now
}

// flush adds q to the write queues that the batch flushes. On a worker, which has no batch, it
// flushes q itself.
func (r *request) flush(q *network.WriteQueue) {
	if r.batch == nil {
		_ = q.FlushAfterYield() // the connection's reader gets the error
		return
	}
	r.batch.dirty.Add(q)
}

// Detach implements protocol.Detacher.
func (r *request) Detach() {
	if r.fiber != nil { // only services on a fiber may block
		r.fiber.moveToWorker()
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

// read fills x.Request from the frame. It returns a panic of the codec as an error: the reader
// knows where the frame ends, so the connection continues and only this request fails.
func (r *request) read() (err error) {
	defer protocol.RecoverPanic(&err)
	x, s := &r.x, r.c.server
	r.setMetadata()
	frame := r.frame.Bytes()
	x.Request.Scheme = "http"
	x.Request.OneWay = r.oneWay()
	r.message.Set(s.codec, frame)
	x.Request.Body = &r.message
	if r.head.Size > len(frame) { // the frame is too large, and addRequest stored only its beginning
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

// setMetadata sets the fields of the exchange that do not depend on the content of the frame.
func (r *request) setMetadata() {
	x, traits := &r.x, r.c.server.traits
	x.Meta.Conn = &r.c.meta
	x.Meta.Protocol, x.Meta.Version = traits.Name, traits.Version
	x.Record.RequestBytes = int64(r.frame.Len())
}

// sendResponse enqueues the response for the client. If the exchange has no host's response, or the
// codec cannot write it, sendResponse enqueues an error response.
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

// enqueue enqueues a frame for the client and returns the error of encode. If the write queue does
// not accept the frame, enqueue records the reason and returns nil.
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

// recordSendError records why the client does not get its response. If the write queue is full, it
// ends the connection, because the client would wait for this response forever.
func (r *request) recordSendError(err error) {
	if errors.Is(err, network.ErrWriteQueueFull) {
		r.c.abort(r.batch, err)
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
	r.resetExchange() // after observe: the fields of the response borrow memory of the body
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

// resetExchange resets the exchange. A panic when the response body is closed is logged and has no
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

// setPending records the call that r waits for, so that the call can be abandoned. It returns false
// if the client has already disconnected. downstreamConn.abandon runs on the connection's reader,
// or while the reader waits, so the reader records its own calls without a lock.
func (r *request) setPending(call pendingCall) bool {
	if r.fiber == nil && r.batch == &r.c.batch {
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
