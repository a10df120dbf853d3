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

// exchange is a downstream stream while it is served, and the Caller of its protocol.Exchange.
type exchange struct {
	muxStream
	engine *Engine // immutable
	c      *downstreamConn
	x      protocol.Exchange
	watch  stream.DisconnectWatch[waiting]

	// Owned by the goroutine that works on the exchange.
	batch *batch // of that goroutine; nil: the goroutine belongs to the exchange
	stack bool   // the exchange has its own goroutine, which may block
	forked
	reserved bool // it holds one of the engine's reservations for workers

	// canceled: the client has disconnected or a deadline has passed. It is set before watchers are
	// called.
	canceled atomic.Bool
	expired  error // guarded by wire.mu; a Fault: why a deadline canceled the exchange

	text     []byte // x.Request holds views of it
	trailers bool   // the client accepts trailers (TE: trailers)
	grpc     string // the content-type of a gRPC request; "": not gRPC
	small    [512]byte
}

func (e *Engine) newExchange() *exchange {
	if x, ok := e.exchanges.Get().(*exchange); ok {
		return x
	}
	x := &exchange{engine: e}
	x.x.Caller = x
	x.x.Reset() // the state in which finish leaves it
	x.text = x.small[:0]
	return x
}

// read takes the head that has just arrived into x.Request. The error, possibly the Fault of a
// recovered panic, rejects the request. e.wire.mu is held.
func (e *exchange) read(s *downstreamConn, end bool, b *batch) (err error) {
	defer protocol.RecoverPanic(&err)
	x := &e.x
	x.Meta.Conn = &s.meta
	x.Meta.Protocol, x.Meta.Version = string(config.HTTP2), "HTTP/2.0"
	x.Meta.Start = b.now
	e.text, err = s.state.TakeRequest(&x.Request, e.text[:0])
	e.trailers = s.state.WantsTrailers()
	e.grpc = ""
	if protocol.IsGRPC(&x.Request.Header) {
		e.grpc = x.Request.Header.Get(contentType)
		takeTimeout(x)
	}
	e.in.start(&e.muxStream, &x.Request.Trailer, s.s.o.HTTP1.MaxRequestBodySize)
	if end {
		e.in.end()
		return err
	}
	if e.stream.Tunnel() {
		e.in.limit = 0
		return err // the bytes belong to the tunnel, if it is established
	}
	x.Request.Body = &e.in
	if limit := e.in.limit; err == nil && limit > 0 && x.Request.ContentLength > limit {
		err = protocol.Faultf(protocol.BodyTooLarge, "content-length %d exceeds %d bytes", x.Request.ContentLength, limit)
	}
	return err
}

// begin starts to serve the request on the goroutine that owns b. refused is the error of a
// rejected request, or nil. A request that is already canceled is not served.
func (e *exchange) begin(b *batch, refused error) {
	e.batch = b
	if e.canceled.Load() {
		refused = e.whyCanceled()
	}
	if refused == nil {
		refused = e.x.StartAsync(e.c.ctx, e.c.s.service)
	}
	e.respondIfDone(refused)
}

// whyCanceled returns the Fault of an exchange that was canceled before it was served.
func (e *exchange) whyCanceled() error {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	if e.cut != nil {
		return e.cut
	}
	return e.expired
}

// CloseContent implements protocol.ContentCloser.
func (e *exchange) CloseContent() { _ = e.in.Close() } // never fails

// Canceled implements protocol.Cancellable.
func (e *exchange) Canceled() bool { return e.canceled.Load() }

// resume continues the exchange on the goroutine that owns b. err is the result of the operation
// that it waited for.
func (e *exchange) resume(b *batch, err error) {
	e.batch = b
	e.respondIfDone(e.x.Resume(e.c.ctx, err))
}

// respondIfDone sends the response unless err is ErrPending. Afterwards e may belong to another
// request.
func (e *exchange) respondIfDone(err error) {
	if err == protocol.ErrPending { //nolint:errorlint // it is never wrapped
		return // another goroutine owns the exchange now
	}
	if panicked := e.reply(err); panicked != nil {
		e.failed(panicked)
	}
}

// reply sends x.Response, or the local reply for err. panicked is the Fault of a recovered panic of
// a body or the encoder: then the exchange has not ended.
func (e *exchange) reply(err error) (panicked error) {
	defer protocol.RecoverPanic(&panicked)
	x := &e.x
	if err != nil {
		x.LocalReplyError(err)
	}
	if x.Record.Reason == protocol.ReasonDownstreamDisconnect && !e.late() {
		e.finish(syntax.Cancel)
		return nil
	}
	e.answer()
	return nil
}

// late sets the local reply of an exchange that was canceled because a deadline passed. It returns
// false for other exchanges, and if the client has disconnected.
func (e *exchange) late() bool {
	if !e.canceled.Load() {
		return false
	}
	e.wire.mu.Lock()
	why := e.expired
	if e.cut != nil {
		why = nil
	}
	e.wire.mu.Unlock()
	if why == nil {
		return false
	}
	e.x.LocalReplyError(why)
	return true
}

// RunBlocking implements protocol.BlockingRunner.
func (e *exchange) RunBlocking(ctx context.Context, s protocol.Service) error {
	if e.stack {
		return s.Serve(ctx, &e.x)
	}
	if err := e.reserve(); err != nil {
		return err
	}
	e.forked = forked{ctx: ctx, service: s}
	e.engine.workers.Go(e)
	return protocol.ErrPending
}

// reserve takes one of the engine's reservations for workers, or returns a Fault. The caller then
// runs e on a worker.
func (e *exchange) reserve() error {
	if !e.engine.workers.Reserve() {
		return protocol.Faultf(protocol.Overloaded, "the limit of %d requests that wait on goroutines is reached", maxForked)
	}
	e.stack, e.reserved = true, true
	return nil
}

// forked is the work of an exchange on a worker.
type forked struct {
	ctx     context.Context //nolint:containedctx // of the service
	service protocol.Service
	body    protocol.Body // response body to send; nil: service serves the request
}

// work runs e's forked work on a worker. An exchange that was canceled while it waited for a worker
// is not served.
func (e *exchange) work() {
	f := e.forked
	e.forked = forked{}
	e.batch = nil
	switch {
	case f.body != nil:
		e.copy(f.body)
	case e.canceled.Load():
		e.respondIfDone(e.x.Resume(e.c.ctx, e.whyCanceled()))
	default:
		e.respondIfDone(e.x.Resume(e.c.ctx, protocol.ServeRecovered(f.ctx, f.service, &e.x)))
	}
}

// SendInterim implements protocol.Downstream.
func (e *exchange) SendInterim(status int, header *protocol.Header) (err error) {
	defer protocol.RecoverPanic(&err)
	w := e.wire
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.cut != nil {
		return e.cut
	}
	if status == 101 || e.stream == nil {
		return nil
	}
	dst, err := w.startHead()
	if err != nil {
		return goneFault(err)
	}
	err = w.put(w.state.AppendInterim(dst, e.stream, status, header))
	_ = w.outbox.Flush() // the connection's reader finds out
	return err
}

// OnDisconnect implements protocol.Downstream.
func (e *exchange) OnDisconnect(gone func()) (stop func()) {
	return e.watch.Start(e.engine.start, gone)
}

// answer sends x.Response, or starts to send it.
func (e *exchange) answer() {
	x := &e.x
	r := &x.Response
	if r.Tunnel != nil {
		e.tunnel()
		return
	}
	if e.wantsTunnel() {
		x.LocalReplyError(protocol.Faultf(protocol.NotImplemented, "the upstream responded with %d and did not switch to the requested protocol", r.Status))
	}
	own := r.Source == protocol.LocalReply
	if e.grpc != "" {
		protocol.ReplyGRPC(x, e.grpc)
	}
	body := r.Body
	if x.Request.Method == "HEAD" || r.Status == 204 || r.Status == 304 {
		body = nil
	} else if body == nil && (e.grpc == "" || !own) && r.ContentLength < 0 {
		r.ContentLength = 0
	}
	end := body == nil || isEmpty(body)
	if err := e.sendHead(end); err != nil {
		e.failed(err)
		return
	}
	switch from := contentOf(body); {
	case end:
		e.flush()
		e.finish(syntax.NoError)
	case from != nil:
		o, b := e.wire.outbox, e.batch
		e.out.start(from, &e.muxStream, e, 0)
		e.out.kick(b)
		b.sends(o) // the head, if it was not flushed with content
	default:
		e.sendBody(body)
	}
}

// isEmpty reports whether a body is known to be empty, without trailers.
func isEmpty(body protocol.Body) bool {
	if c := contentOf(body); c != nil {
		return c.isEmpty()
	}
	w, ok := body.(protocol.CompleteBody) // for example a body that wraps a content
	if !ok {
		return false
	}
	_, empty := w.Complete()
	return empty
}

// contentOf returns the content of a stream that body is, or nil for another kind of body.
func contentOf(body protocol.Body) *content {
	switch b := body.(type) {
	case *content:
		return b
	case *answer:
		return &b.k.in
	}
	return nil
}

// sendHead queues the head of the response. Errors are Faults.
func (e *exchange) sendHead(end bool) error {
	w, x := e.wire, &e.x
	o := syntax.ResponseOptions{End: end, Server: e.c.s.o.HTTP1.ServerName}
	own := x.Response.Source == protocol.LocalReply
	at := x.Record.UpstreamFirstByte
	if own {
		at = e.batch.time()
	} else {
		o.Server = ""
	}
	o.Date = e.c.s.clock.Date(at)
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.cut != nil {
		return e.cut
	}
	if own {
		e.deadline = time.Time{}
	} else {
		e.deadline = x.Deadline // a slow client occupies an upstream stream
	}
	w.arm(e.deadline)
	dst, err := w.startHead()
	if err != nil {
		return goneFault(err)
	}
	return w.put(w.state.AppendResponse(dst, e.stream, &x.Response, o))
}

// sendBody sends a body that is not the content of another stream: immediately if it is small,
// buffered and fits the window, else from a goroutine that may block.
func (e *exchange) sendBody(body protocol.Body) {
	length := e.x.Response.ContentLength
	if n := int(min(length, pieceSize+1)); !e.stack && n >= 0 && n <= pieceSize && body.Buffered() >= n && e.room() >= n {
		e.settle(e.copyFrom(body, length, &e.x.Response.Trailer))
		return
	}
	if e.stack {
		e.copy(body)
		return
	}
	if err := e.reserve(); err != nil {
		e.failed(err)
		return
	}
	e.flush()
	e.forked = forked{body: body}
	e.engine.workers.Go(e)
}

// copy sends a body from a goroutine that may block.
func (e *exchange) copy(body protocol.Body) {
	buffered := 0
	if err := contained(func() error { buffered = body.Buffered(); return nil }); err != nil {
		e.failed(err)
		return
	}
	if buffered == 0 {
		e.flush()
	}
	e.settle(e.copyFrom(body, e.x.Response.ContentLength, &e.x.Response.Trailer))
}

// settle ends an exchange whose body was sent, or could not be read or sent.
func (e *exchange) settle(readErr, writeErr error) {
	e.sentAll(e.batch, errors.Join(readErr, writeErr))
}

// pumped implements pumper. Nothing else ends an exchange while a pump sends its response.
func (e *exchange) pumped(b *batch, _ *muxConn, _ uint64, err error) { e.sentAll(b, err) }

// sentAll ends an exchange whose response was queued, or cannot be sent because of err.
func (e *exchange) sentAll(b *batch, err error) {
	e.batch = b
	if err != nil {
		e.failed(err)
		return
	}
	e.flush()
	e.finish(syntax.NoError)
}

// failed ends an exchange whose response cannot be sent completely.
func (e *exchange) failed(err error) {
	if p := protocol.PanicIn(err); p != nil {
		p.Log(e.engine.log, "responding to a request, whose stream is reset")
	} else if idle := e.wasIdle(); idle != nil {
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

// wasIdle returns the Fault of an exchange whose stream was cut because it was idle, or nil.
func (e *exchange) wasIdle() error {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	if r := protocol.ReasonOf(e.cut); r == protocol.RequestIdle || r == protocol.StreamIdle {
		return e.cut
	}
	return nil
}

// flush schedules a flush of the queued frames.
func (e *exchange) flush() { e.batch.sends(e.wire.outbox) }

// finish records the exchange and puts it back into the pool. It resets a stream that is still open
// with code. After a complete response, code is NoError (RFC 9113 8.1), and the stream may linger.
func (e *exchange) finish(code syntax.Code) {
	x, c, b := &e.x, e.c, e.batch
	x.Record.RequestBytes = e.in.total.Load()
	x.Record.ResponseBytes = e.sent // no other goroutine writes any more
	x.Record.End = b.time()
	e.observe()
	_ = e.in.Close() // the unread rest is discarded
	e.dropResponse() // ends readers of the request
	if e.detach(code, b.time()) {
		b.sends(e.wire.outbox)
	}
	e.in.reset()
	x.Reset()
	e.watch.Reset()
	if e.reserved {
		e.engine.workers.Release()
	}
	e.c, e.batch, e.stack, e.reserved, e.expired = nil, nil, false, false, nil
	e.canceled.Store(false)
	if cap(e.text) > firstRead {
		e.text = e.small[:0]
	}
	c.engine.exchanges.Put(e)
	c.release()
}

// observe calls Observe for the exchange. A panic is logged and has no other effect.
func (e *exchange) observe() {
	defer func() {
		if p := recover(); p != nil {
			e.engine.panicked("recording a request", p)
		}
	}()
	if observe := e.c.s.o.Observe; observe != nil {
		observe(&e.x)
	}
}

// dropResponse resets the response, which closes its body. It logs a panic of the body of a filter.
func (e *exchange) dropResponse() {
	x := &e.x
	defer func() {
		if p := recover(); p != nil {
			e.engine.panicked("closing a response", p)
		}
	}()
	x.ResetResponse()
}

// fail implements owner: the client has reset the stream, violated the protocol on it, or
// disconnected.
func (e *exchange) fail(why error) func(*batch) {
	e.sever(why)
	return e.cancel(why)
}

// expire implements owner. If no response head was sent, the client gets a local reply (504, or 408
// if its request is incomplete): the goroutine that works on the exchange gives up as after a
// disconnect, and reply sends the local reply. A second expiry resets the stream.
func (e *exchange) expire(why error) func(*batch) {
	whole, _ := e.in.Complete()
	if (whole || e.stream.Tunnel()) && protocol.ReasonOf(why) == protocol.RequestIdle {
		why = protocol.Faultf(protocol.StreamIdle, "no byte on the stream for its idle timeout")
	}
	if e.expired != nil || e.stream.Answered() {
		return e.fail(why)
	}
	e.expired = why
	e.touch(time.Now())
	return e.cancel(why)
}

// cancel makes the goroutine that works on the exchange give up. The caller runs the returned
// function without wire.mu. wire.mu is held.
func (e *exchange) cancel(why error) func(*batch) {
	e.canceled.Store(true)
	upload := e.in.fail(why)
	on := e.watch.NotifyDisconnect(e.engine.start)
	out := &e.out
	return func(b *batch) {
		if upload != nil {
			upload.kick(b)
		}
		if on.client != nil {
			on.client.abandon(on, b)
		}
		out.kick(b)
	}
}
