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

// exchange is a downstream stream that is being served. It is the Downstream of its
// protocol.Exchange.
type exchange struct {
	muxStream
	engine     *Engine // immutable
	downstream *downstreamConn
	x          protocol.Exchange
	watch      stream.DisconnectWatch[pendingCall]

	// Owned by the goroutine that works on the exchange.
	batch         *batch // of that goroutine; nil: the goroutine belongs to the exchange
	ownsGoroutine bool   // the exchange has its own goroutine, which may block
	workerTask
	holdsWorkerSlot bool // the exchange holds a slot of the engine's workers

	// canceled: the stream has ended early, or a deadline has passed. The method cancel sets it
	// before it calls watchers.
	canceled   atomic.Bool
	expiredErr error // guarded by muxConn.mu; a Fault: the deadline that canceled the exchange

	text            []byte    // storage of the strings in x.Request
	acceptsTrailers bool      // the client accepts trailers (TE: trailers)
	grpcContentType string    // the content-type of a gRPC request; "": not gRPC
	inlineText      [512]byte // the initial storage of text
}

func (e *Engine) newExchange() *exchange {
	if ex, ok := e.exchanges.Get().(*exchange); ok {
		return ex
	}
	ex := &exchange{engine: e}
	ex.x.Downstream = ex
	ex.x.Reset() // the state in which finish leaves it
	ex.text = ex.inlineText[:0]
	return ex
}

// takeHead sets x.Request from the head of the session's last event. The error, possibly the Fault
// of a recovered panic, rejects the request. The caller holds c.mu.
func (e *exchange) takeHead(c *downstreamConn, end bool, b *batch) (err error) {
	defer protocol.RecoverPanic(&err)
	x := &e.x
	x.Meta.Conn, x.EnvoyReplies = &c.meta, c.server.opts.EnvoyReplies
	x.Meta.Protocol, x.Meta.Version = string(config.HTTP2), "HTTP/2.0"
	x.Meta.Start = b.now
	e.text, err = c.state.TakeRequest(&x.Request, e.text[:0])
	if err == nil {
		err = c.server.opts.ApplyUnderscoreAction(&x.Request.Header)
	}
	e.acceptsTrailers = c.state.AcceptsTrailers()
	e.grpcContentType = ""
	if protocol.IsGRPC(&x.Request.Header) {
		e.grpcContentType = x.Request.Header.Get(contentType)
		setDeadlineFromGRPCTimeout(x)
	}
	e.in.start(&e.muxStream, &x.Request.Trailer, c.server.opts.HTTP1.MaxRequestBodySize)
	e.in.server = &c.server.opts
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

// start starts to serve the request on the goroutine that owns b. rejectErr is the error of a
// rejected request, or nil. A request that is already canceled is not served.
func (e *exchange) start(b *batch, rejectErr error) {
	e.batch = b
	if e.canceled.Load() {
		rejectErr = e.cancelErr()
	}
	if rejectErr != nil && errors.Is(rejectErr, stream.ErrUnderscore) {
		e.failResponse(rejectErr) // as Envoy, which sends no response
		return
	}
	if rejectErr == nil {
		rejectErr = e.x.Start(e.downstream.ctx, e.downstream.server.service)
	}
	e.respondIfDone(rejectErr)
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

// RequestReceived implements protocol.RequestReceiver.
func (e *exchange) RequestReceived() bool { return e.in.isComplete() }

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
	if err == protocol.ErrPending { //nolint:errorlint // ErrPending is never wrapped
		return // another goroutine owns the exchange now
	}
	if panicErr := e.respond(err); panicErr != nil {
		e.failResponse(panicErr)
	}
}

// respond sends x.Response, or the local reply for err. panicErr is the Fault of a recovered panic
// of a body or the encoder: then the exchange has not ended.
func (e *exchange) respond(err error) (panicErr error) {
	defer protocol.RecoverPanic(&panicErr)
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

// setExpiredReply sets the local reply of an exchange that was canceled because a deadline passed.
// It returns false for other exchanges, and if the client has disconnected.
func (e *exchange) setExpiredReply() bool {
	if !e.canceled.Load() {
		return false
	}
	e.conn.mu.Lock()
	fault := e.expiredErr
	if e.sendErr != nil {
		fault = nil
	}
	e.conn.mu.Unlock()
	if fault == nil {
		return false
	}
	e.x.LocalReplyError(fault)
	return true
}

// RunBlocking implements protocol.BlockingRunner.
func (e *exchange) RunBlocking(ctx context.Context, service protocol.BlockingService) error {
	if e.ownsGoroutine {
		return service.Serve(ctx, &e.x)
	}
	if err := e.reserveWorker(); err != nil {
		return err
	}
	e.workerTask = workerTask{ctx: ctx, service: service}
	e.engine.workers.Go(e)
	return protocol.ErrPending
}

// reserveWorker reserves a slot of the engine's workers, or returns a Fault. The caller then runs e
// on a worker.
func (e *exchange) reserveWorker() error {
	if !e.engine.workers.Reserve() {
		return protocol.Faultf(protocol.Overloaded, "the limit of %d requests in blocking filters is reached", maxReservedWorkers)
	}
	e.ownsGoroutine, e.holdsWorkerSlot = true, true
	return nil
}

// workerTask is what an exchange runs on a worker.
type workerTask struct {
	ctx     context.Context //nolint:containedctx // of the service
	service protocol.BlockingService
	body    protocol.Body // response body to send; nil: service serves the request
}

// runOnWorker runs e's workerTask on a worker. An exchange that was canceled while it waited for a
// worker is not served.
func (e *exchange) runOnWorker() {
	task := e.workerTask
	e.workerTask = workerTask{}
	e.batch = nil
	switch {
	case task.body != nil:
		e.copyBody(task.body)
	case e.canceled.Load():
		e.respondIfDone(e.x.Resume(e.downstream.ctx, e.cancelErr()))
	default:
		e.respondIfDone(e.x.Resume(e.downstream.ctx, protocol.ServeRecovered(task.ctx, task.service, &e.x)))
	}
}

// SendInterim implements protocol.Downstream.
func (e *exchange) SendInterim(status int, header *protocol.Header) (err error) {
	defer protocol.RecoverPanic(&err)
	mc := e.conn
	mc.mu.Lock()
	defer mc.mu.Unlock()
	if e.sendErr != nil {
		return e.sendErr
	}
	if status == 101 || e.stream == nil {
		return nil
	}
	dst, err := mc.startHead()
	if err != nil {
		return disconnectFault(err)
	}
	err = mc.endHead(mc.state.AppendInterim(dst, e.stream, status, header))
	_ = mc.writeQueue.Flush() // the connection's reader handles the error
	return err
}

// OnDisconnect implements protocol.Downstream.
func (e *exchange) OnDisconnect(onDisconnect func()) (stop func()) {
	return e.watch.Start(e.engine.goroutines.Start, onDisconnect)
}

// finish records the exchange and puts it back into the pool. code is the error code with which it
// resets a stream that is still open. After a complete response, code is NoError (RFC 9113 8.1),
// and the stream may linger.
func (e *exchange) finish(code syntax.Code) {
	x, c, b := &e.x, e.downstream, e.batch
	x.Record.RequestBytes = e.in.received.Load()
	x.Record.ResponseBytes = e.bytesSent // no other goroutine writes any more
	x.Record.End = b.time()
	e.observe()
	_ = e.in.Close() // discards unread bytes
	e.dropResponse() // makes readers of the request body return
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
	if cap(e.text) > stream.MinReadSize {
		e.text = e.inlineText[:0]
	}
	c.engine.exchanges.Put(e)
	c.releaseExchange()
}

// observe calls Observe for the exchange. A panic is logged and has no other effect.
func (e *exchange) observe() {
	defer e.engine.goroutines.Contain("recording a request")
	if observe := e.downstream.server.opts.Observe; observe != nil {
		observe(&e.x)
	}
}

// dropResponse resets the response, which closes its body. It logs a panic of the body of a filter.
func (e *exchange) dropResponse() {
	x := &e.x
	defer e.engine.goroutines.Contain("closing a response")
	x.ResetResponse()
}

// fail implements owner. The client has reset the stream or violated the protocol on it, the
// connection has ended, or a deadline has passed and the client gets no local reply.
func (e *exchange) fail(fault error, fx *effects) {
	e.failSends(fault)
	e.cancel(fault, fx)
}

// expire implements owner. If no response head was sent, the client gets a local reply: 408 if the
// stream was idle and the request is incomplete, otherwise 504. The goroutine that works on the
// exchange stops as after a disconnect, and respond sends the local reply. A second expiry resets
// the stream.
func (e *exchange) expire(fault error, fx *effects) {
	complete, _ := e.in.Complete()
	if (complete || e.stream.IsConnect()) && protocol.ReasonOf(fault) == protocol.RequestIdle {
		fault = protocol.Faultf(protocol.StreamIdle, "the stream was idle for its idle timeout")
	}
	if e.expiredErr != nil || e.stream.HeadSent() {
		e.fail(fault, fx)
		return
	}
	e.expiredErr = fault
	e.touch(time.Now())
	e.cancel(fault, fx)
}

// cancel makes the goroutine that works on the exchange stop. The caller holds muxConn.mu.
func (e *exchange) cancel(fault error, fx *effects) {
	e.canceled.Store(true)
	fx.kickReceived(e.in.fail(fault))
	if pending := e.watch.NotifyDisconnect(e.engine.goroutines.Start); pending.conn != nil {
		fx.abandoned = append(fx.abandoned, pending)
	}
	fx.sendable = append(fx.sendable, &e.out)
}
