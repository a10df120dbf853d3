package http2

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

// exchange is a downstream stream while it is served, and the Downstream of its protocol.Exchange.
type exchange struct {
	muxStream
	engine     *Engine // immutable
	downstream *downstreamConn
	x          protocol.Exchange
	watch      stream.DisconnectWatch[pendingCall]

	// Owned by the goroutine that works on the exchange.
	batch         *batch // of that goroutine; nil: the goroutine belongs to the exchange
	ownsGoroutine bool   // the exchange has its own goroutine, which may block
	forked
	holdsWorkerSlot bool // it holds one of the engine's reservations for workers

	// canceled: the client has disconnected or a deadline has passed. It is set before watchers are
	// called.
	canceled   atomic.Bool
	expiredErr error // guarded by muxConn.mu; a Fault: why a deadline canceled the exchange

	text            []byte // x.Request holds views of it
	acceptsTrailers bool   // the client accepts trailers (TE: trailers)
	grpcContentType string // the content-type of a gRPC request; "": not gRPC
	inlineText      [512]byte
}

func (e *Engine) newExchange() *exchange {
	if x, ok := e.exchanges.Get().(*exchange); ok {
		return x
	}
	x := &exchange{engine: e}
	x.x.Downstream = x
	x.x.Reset() // the state in which finish leaves it
	x.text = x.inlineText[:0]
	return x
}

// takeHead takes the head that has just arrived into x.Request. The error, possibly the Fault of a
// recovered panic, rejects the request. e.muxConn.mu is held.
func (e *exchange) takeHead(s *downstreamConn, end bool, b *batch) (err error) {
	defer protocol.RecoverPanic(&err)
	x := &e.x
	x.Meta.Conn = &s.meta
	x.Meta.Protocol, x.Meta.Version = string(config.HTTP2), "HTTP/2.0"
	x.Meta.Start = b.now
	e.text, err = s.state.TakeRequest(&x.Request, e.text[:0])
	e.acceptsTrailers = s.state.WantsTrailers()
	e.grpcContentType = ""
	if protocol.IsGRPC(&x.Request.Header) {
		e.grpcContentType = x.Request.Header.Get(contentType)
		setDeadlineFromGRPCTimeout(x)
	}
	e.in.start(&e.muxStream, &x.Request.Trailer, s.server.opts.HTTP1.MaxRequestBodySize)
	if end {
		e.in.markComplete()
		return err
	}
	if e.stream.IsConnect() {
		e.in.maxBytes = 0
		return err // the bytes belong to the tunnel, if it is established
	}
	x.Request.Body = &e.in
	if limit := e.in.maxBytes; err == nil && limit > 0 && x.Request.ContentLength > limit {
		err = protocol.Faultf(protocol.BodyTooLarge, "content-length %d exceeds %d bytes", x.Request.ContentLength, limit)
	}
	return err
}

// start starts to serve the request on the goroutine that owns b. refused is the error of a
// rejected request, or nil. A request that is already canceled is not served.
func (e *exchange) start(b *batch, refused error) {
	e.batch = b
	if e.canceled.Load() {
		refused = e.cancelErr()
	}
	if refused == nil {
		refused = e.x.Start(e.downstream.ctx, e.downstream.server.service)
	}
	e.respondIfDone(refused)
}

// cancelErr returns the Fault of an exchange that was canceled before it was served.
func (e *exchange) cancelErr() error {
	e.conn.mu.Lock()
	defer e.conn.mu.Unlock()
	if e.sendErr != nil {
		return e.sendErr
	}
	return e.expiredErr
}

// CloseRequestBody implements protocol.RequestBodyCloser.
func (e *exchange) CloseRequestBody() { _ = e.in.Close() } // never fails

// Canceled implements protocol.Cancellable.
func (e *exchange) Canceled() bool { return e.canceled.Load() }

// resume continues the exchange on the goroutine that owns b. err is the result of the operation
// that it waited for.
func (e *exchange) resume(b *batch, err error) {
	e.batch = b
	e.respondIfDone(e.x.Resume(e.downstream.ctx, err))
}

// respondIfDone sends the response unless err is ErrPending. Afterwards e may belong to another
// request.
func (e *exchange) respondIfDone(err error) {
	if err == protocol.ErrPending { //nolint:errorlint // it is never wrapped
		return // another goroutine owns the exchange now
	}
	if panicked := e.respond(err); panicked != nil {
		e.failResponse(panicked)
	}
}

// respond sends x.Response, or the local reply for err. panicked is the Fault of a recovered panic of
// a body or the encoder: then the exchange has not ended.
func (e *exchange) respond(err error) (panicked error) {
	defer protocol.RecoverPanic(&panicked)
	x := &e.x
	if err != nil {
		x.LocalReplyError(err)
	}
	if x.Record.Reason == protocol.ReasonDownstreamDisconnect && !e.setExpiredReply() {
		e.finish(syntax.Cancel)
		return nil
	}
	e.sendResponse()
	return nil
}

// setExpiredReply sets the local reply of an exchange that was canceled because a deadline passed. It returns
// false for other exchanges, and if the client has disconnected.
func (e *exchange) setExpiredReply() bool {
	if !e.canceled.Load() {
		return false
	}
	e.conn.mu.Lock()
	why := e.expiredErr
	if e.sendErr != nil {
		why = nil
	}
	e.conn.mu.Unlock()
	if why == nil {
		return false
	}
	e.x.LocalReplyError(why)
	return true
}

// RunBlocking implements protocol.BlockingRunner.
func (e *exchange) RunBlocking(ctx context.Context, s protocol.BlockingService) error {
	if e.ownsGoroutine {
		return s.Serve(ctx, &e.x)
	}
	if err := e.reserveWorker(); err != nil {
		return err
	}
	e.forked = forked{ctx: ctx, service: s}
	e.engine.workers.Go(e)
	return protocol.ErrPending
}

// reserveWorker takes one of the engine's reservations for workers, or returns a Fault. The caller then
// runs e on a worker.
func (e *exchange) reserveWorker() error {
	if !e.engine.workers.Reserve() {
		return protocol.Faultf(protocol.Overloaded, "the limit of %d requests that wait on goroutines is reached", maxReservedWorkers)
	}
	e.ownsGoroutine, e.holdsWorkerSlot = true, true
	return nil
}

// forked is the work of an exchange on a worker.
type forked struct {
	ctx     context.Context //nolint:containedctx // of the service
	service protocol.BlockingService
	body    protocol.Body // response body to send; nil: service serves the request
}

// runOnWorker runs e's forked work on a worker. An exchange that was canceled while it waited for a worker
// is not served.
func (e *exchange) runOnWorker() {
	f := e.forked
	e.forked = forked{}
	e.batch = nil
	switch {
	case f.body != nil:
		e.copyBody(f.body)
	case e.canceled.Load():
		e.respondIfDone(e.x.Resume(e.downstream.ctx, e.cancelErr()))
	default:
		e.respondIfDone(e.x.Resume(e.downstream.ctx, protocol.ServeRecovered(f.ctx, f.service, &e.x)))
	}
}

// SendInterim implements protocol.Downstream.
func (e *exchange) SendInterim(status int, header *protocol.Header) (err error) {
	defer protocol.RecoverPanic(&err)
	w := e.conn
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.sendErr != nil {
		return e.sendErr
	}
	if status == 101 || e.stream == nil {
		return nil
	}
	dst, err := w.startHead()
	if err != nil {
		return disconnectFault(err)
	}
	err = w.endHead(w.state.AppendInterim(dst, e.stream, status, header))
	_ = w.writeQueue.Flush() // the connection's reader finds out
	return err
}

// OnDisconnect implements protocol.Downstream.
func (e *exchange) OnDisconnect(gone func()) (stop func()) {
	return e.watch.Start(e.engine.start, gone)
}

// sendResponse sends x.Response, or starts to send it.
func (e *exchange) sendResponse() {
	x := &e.x
	r := &x.Response
	if r.Tunnel != nil {
		e.startTunnel()
		return
	}
	if e.wantsTunnel() {
		x.LocalReplyError(protocol.Faultf(protocol.NotImplemented, "the upstream responded with %d and did not switch to the requested protocol", r.Status))
	}
	own := r.Source == protocol.LocalReply
	if e.grpcContentType != "" {
		protocol.ReplyGRPC(x, e.grpcContentType)
	}
	body := r.Body
	if x.Request.Method == "HEAD" || r.Status == 204 || r.Status == 304 {
		body = nil
	} else if body == nil && (e.grpcContentType == "" || !own) && r.ContentLength < 0 {
		r.ContentLength = 0
	}
	end := body == nil || isEmpty(body)
	if err := e.sendHead(end); err != nil {
		e.failResponse(err)
		return
	}
	switch from := recvBodyOf(body); {
	case end:
		e.flush()
		e.finish(syntax.NoError)
	case from != nil:
		o, b := e.conn.writeQueue, e.batch
		e.out.start(from, &e.muxStream, e, 0)
		e.out.kick(b)
		b.scheduleFlush(o) // the head, if it was not flushed with content
	default:
		e.sendBody(body)
	}
}

// isEmpty reports whether a body is known to be empty, without trailers.
func isEmpty(body protocol.Body) bool {
	if c := recvBodyOf(body); c != nil {
		return c.isEmpty()
	}
	w, ok := body.(protocol.CompleteBody) // for example a body that wraps a content
	if !ok {
		return false
	}
	_, empty := w.Complete()
	return empty
}

// recvBodyOf returns the content of a stream that body is, or nil for another kind of body.
func recvBodyOf(body protocol.Body) *recvBody {
	switch b := body.(type) {
	case *recvBody:
		return b
	case *responseBody:
		return &b.call.in
	}
	return nil
}

// sendHead queues the head of the response. Errors are Faults.
func (e *exchange) sendHead(end bool) error {
	w, x := e.conn, &e.x
	o := syntax.ResponseOptions{End: end, Server: e.downstream.server.opts.HTTP1.ServerName}
	own := x.Response.Source == protocol.LocalReply
	at := x.Record.UpstreamFirstByte
	if own {
		at = e.batch.time()
	} else {
		o.Server = ""
	}
	o.Date = e.downstream.server.dateCache.Date(at)
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.sendErr != nil {
		return e.sendErr
	}
	if own {
		e.deadline = time.Time{}
	} else {
		e.deadline = x.Deadline // a slow client occupies an upstream stream
	}
	w.arm(e.deadline)
	dst, err := w.startHead()
	if err != nil {
		return disconnectFault(err)
	}
	return w.endHead(w.state.AppendResponse(dst, e.stream, &x.Response, o))
}

// sendBody sends a body that is not the content of another stream: immediately if it is small,
// buffered and fits the window, else from a goroutine that may block.
func (e *exchange) sendBody(body protocol.Body) {
	length := e.x.Response.ContentLength
	if n := int(min(length, bodyReadSize+1)); !e.ownsGoroutine && n >= 0 && n <= bodyReadSize && body.Buffered() >= n && e.sendCapacity() >= n {
		e.finishCopy(e.copyFrom(body, length, &e.x.Response.Trailer))
		return
	}
	if e.ownsGoroutine {
		e.copyBody(body)
		return
	}
	if err := e.reserveWorker(); err != nil {
		e.failResponse(err)
		return
	}
	e.flush()
	e.forked = forked{body: body}
	e.engine.workers.Go(e)
}

// copyBody sends a body from a goroutine that may block.
func (e *exchange) copyBody(body protocol.Body) {
	buffered := 0
	if err := callRecovered(func() error { buffered = body.Buffered(); return nil }); err != nil {
		e.failResponse(err)
		return
	}
	if buffered == 0 {
		e.flush()
	}
	e.finishCopy(e.copyFrom(body, e.x.Response.ContentLength, &e.x.Response.Trailer))
}

// finishCopy ends an exchange whose body was sent, or could not be read or sent.
func (e *exchange) finishCopy(readErr, writeErr error) {
	e.finishResponse(e.batch, errors.Join(readErr, writeErr))
}

// pumpEnded implements pumper. Nothing else ends an exchange while a pump sends its response.
func (e *exchange) pumpEnded(b *batch, _ *muxConn, _ uint64, err error) { e.finishResponse(b, err) }

// finishResponse ends an exchange whose response was queued, or cannot be sent because of err.
func (e *exchange) finishResponse(b *batch, err error) {
	e.batch = b
	if err != nil {
		e.failResponse(err)
		return
	}
	e.flush()
	e.finish(syntax.NoError)
}

// failResponse ends an exchange whose response cannot be sent completely.
func (e *exchange) failResponse(err error) {
	if p := protocol.PanicIn(err); p != nil {
		p.Log(e.engine.log, "responding to a request, whose stream is reset")
	} else if idle := e.idleErr(); idle != nil {
		err = idle
	}
	r := &e.x.Record
	if r.Reason == protocol.ReasonNone {
		r.Reason, r.Detail = protocol.ReasonOf(err), err.Error()
	}
	code := syntax.InternalError
	if r.Reason == protocol.ReasonDownstreamDisconnect {
		code = syntax.Cancel
	}
	e.finish(code)
}

// idleErr returns the Fault of an exchange whose stream was cut because it was idle, or nil.
func (e *exchange) idleErr() error {
	e.conn.mu.Lock()
	defer e.conn.mu.Unlock()
	if r := protocol.ReasonOf(e.sendErr); r == protocol.RequestIdle || r == protocol.StreamIdle {
		return e.sendErr
	}
	return nil
}

// flush schedules a flush of the queued frames.
func (e *exchange) flush() { e.batch.scheduleFlush(e.conn.writeQueue) }

// finish records the exchange and puts it back into the pool. It resets a stream that is still open
// with code. After a complete response, code is NoError (RFC 9113 8.1), and the stream may linger.
func (e *exchange) finish(code syntax.Code) {
	x, c, b := &e.x, e.downstream, e.batch
	x.Record.RequestBytes = e.in.received.Load()
	x.Record.ResponseBytes = e.bytesSent // no other goroutine writes any more
	x.Record.End = b.time()
	e.observe()
	_ = e.in.Close() // the unread rest is discarded
	e.dropResponse() // ends readers of the request
	if e.detach(code, b.time()) {
		b.scheduleFlush(e.conn.writeQueue)
	}
	e.in.reset()
	x.Reset()
	e.watch.Reset()
	if e.holdsWorkerSlot {
		e.engine.workers.Release()
	}
	e.downstream, e.batch, e.ownsGoroutine, e.holdsWorkerSlot, e.expiredErr = nil, nil, false, false, nil
	e.canceled.Store(false)
	if cap(e.text) > minReadSize {
		e.text = e.inlineText[:0]
	}
	c.engine.exchanges.Put(e)
	c.releaseExchange()
}

// observe calls Observe for the exchange. A panic is logged and has no other effect.
func (e *exchange) observe() {
	defer func() {
		if p := recover(); p != nil {
			e.engine.logPanic("recording a request", p)
		}
	}()
	if observe := e.downstream.server.opts.Observe; observe != nil {
		observe(&e.x)
	}
}

// dropResponse resets the response, which closes its body. It logs a panic of the body of a filter.
func (e *exchange) dropResponse() {
	x := &e.x
	defer func() {
		if p := recover(); p != nil {
			e.engine.logPanic("closing a response", p)
		}
	}()
	x.ResetResponse()
}

// fail implements owner: the client has reset the stream, violated the protocol on it, or
// disconnected.
func (e *exchange) fail(why error, fx *effects) {
	e.failSends(why)
	e.cancel(why, fx)
}

// expire implements owner. If no response head was sent, the client gets a local reply (504, or 408
// if its request is incomplete): the goroutine that works on the exchange gives up as after a
// disconnect, and reply sends the local reply. A second expiry resets the stream.
func (e *exchange) expire(why error, fx *effects) {
	whole, _ := e.in.Complete()
	if (whole || e.stream.IsConnect()) && protocol.ReasonOf(why) == protocol.RequestIdle {
		why = protocol.Faultf(protocol.StreamIdle, "no byte on the stream for its idle timeout")
	}
	if e.expiredErr != nil || e.stream.HeadSent() {
		e.fail(why, fx)
		return
	}
	e.expiredErr = why
	e.touch(time.Now())
	e.cancel(why, fx)
}

// cancel makes the goroutine that works on the exchange give up. muxConn.mu is held.
func (e *exchange) cancel(why error, fx *effects) {
	e.canceled.Store(true)
	fx.kickReceived(e.in.fail(why))
	if on := e.watch.NotifyDisconnect(e.engine.start); on.conn != nil {
		fx.abandoned = append(fx.abandoned, on)
	}
	fx.sendable = append(fx.sendable, &e.out)
}
