package http2

import (
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

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
	local := r.Source == protocol.LocalReply
	if local {
		x.EnvoyReplies.Apply(x)
	}
	hasNoLength := local && (e.grpcContentType != "" || x.EnvoyReplies.OmitLength(x))
	if e.grpcContentType != "" {
		protocol.ReplyGRPC(x, e.grpcContentType)
	}
	body := r.Body
	if x.Request.Method == "HEAD" || r.Status == 204 || r.Status == 304 {
		body = nil
	} else if body == nil && !hasNoLength && r.ContentLength < 0 {
		r.ContentLength = 0
	}
	endStream := body == nil || isEmpty(body)
	if err := e.sendHead(endStream); err != nil {
		e.failResponse(err)
		return
	}
	switch from := recvBodyOf(body); {
	case endStream:
		e.flush()
		e.finish(syntax.NoError)
	case from != nil:
		queue, b := e.conn.writeQueue, e.batch
		e.out.start(from, &e.muxStream, e, 0)
		e.out.kick(b)
		b.scheduleFlush(queue) // the head, if it was not flushed with the body
	default:
		e.sendBody(body)
	}
}

// isEmpty reports whether a body is known to be empty, without trailers.
func isEmpty(body protocol.Body) bool {
	if rb := recvBodyOf(body); rb != nil {
		return rb.isEmpty()
	}
	cb, ok := body.(protocol.CompleteBody) // for example a body that wraps a recvBody
	if !ok {
		return false
	}
	_, empty := cb.Complete()
	return empty
}

// recvBodyOf returns the recvBody of body, or nil for other types of bodies.
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
func (e *exchange) sendHead(endStream bool) error {
	mc, x := e.conn, &e.x
	opts := syntax.ResponseOptions{End: endStream, Server: e.downstream.server.opts.HTTP1.ServerName}
	local := x.Response.Source == protocol.LocalReply
	date := x.Record.UpstreamFirstByte
	if local {
		date = e.batch.time()
	} else {
		opts.Server = ""
	}
	opts.Date = e.downstream.server.dateCache.Date(date)
	mc.mu.Lock()
	defer mc.mu.Unlock()
	if e.sendErr != nil {
		return e.sendErr
	}
	if local {
		e.deadline = time.Time{}
	} else {
		e.deadline = x.Deadline // bounds how long a slow client occupies an upstream stream
	}
	mc.arm(e.deadline)
	dst, err := mc.startHead()
	if err != nil {
		return disconnectFault(err)
	}
	return mc.endHead(mc.state.AppendResponse(dst, e.stream, &x.Response, opts))
}

// sendBody sends a body that does not arrive on a stream: immediately if it is small, buffered and
// fits the window, and otherwise from a goroutine that may block.
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
	e.workerTask = workerTask{body: body}
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

// pumpEnded implements pumpOwner. Nothing else ends an exchange while a pump sends its response.
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
		p.Log(e.engine.goroutines.Log, "responding to a request; its stream is reset")
	} else if idle := e.idleErr(); idle != nil {
		err = idle
	}
	e.x.RecordFailure(err)
	code := syntax.InternalError
	if e.x.Record.Reason == protocol.ReasonDownstreamDisconnect {
		code = syntax.Cancel
	}
	e.finish(code)
}

// idleErr returns the Fault of an exchange whose stream was reset because it was idle, or nil.
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
