// Package http1 owns the HTTP/1.1 engine: downstream and upstream connections, each with one
// exchange at a time (RFC 9112).
//
// A request passes through the server side as follows:
//
//	ServeConn     wait without a buffer, get a downstreamConn
//	run           serve one exchange after the other
//	  readHead    parse, reject malformed heads
//	  serve       call the service
//	  answer      write the head and a small body in one write, a large body in pieces
//	  finish      observe, reset
//	  afterAnswer discard the unread body, or linger
//	handOver      continue the connection in another protocol
//
// Everything runs on the connection's goroutine. A second one exists only while the engine sends a
// large request body upstream, waits for a slow response, or runs a tunnel.
package http1

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http1"
	"github.com/weft-proxy/weft/pkg/stream"
)

const (
	// firstRead is the initial size of a request buffer in bytes; larger heads grow it.
	firstRead = 4 << 10
	// parkAfter is how long an idle connection keeps its goroutine.
	parkAfter = 2 * time.Second
)

// Protocol returns the engine's entry for the registry.
func Protocol() stream.Protocol {
	return stream.Protocol{
		Name:            config.HTTP1,
		Match:           Match,
		NewServer:       func(o stream.ServerOptions) stream.Server { return NewServer(o) },
		NewUpstreamConn: func(conn *network.Conn, o stream.UpstreamConnOptions) stream.UpstreamConn { return NewClient(conn, o) },
	}
}

// Server is the downstream side. NewServer creates one. It is safe for concurrent use.
type Server struct {
	o        stream.ServerOptions // immutable
	limits   syntax.Limits        // immutable
	yields   bool                 // immutable; GOMAXPROCS is 1: idle yields the processor
	sessions sync.Pool            // of *session
	clock    stream.DateCache
}

// NewServer returns a server for the connections of one listener.
func NewServer(o stream.ServerOptions) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{o: o, limits: limitsOf(&o.HTTP1), yields: runtime.GOMAXPROCS(0) == 1}
}

func limitsOf(o *config.HTTP1Options) syntax.Limits {
	return syntax.Limits{Line: o.MaxRequestLineSize, Head: o.MaxHeaderSize, Fields: o.MaxHeaderCount}
}

// IdleTimeout implements network.ClientFirstHandler.
func (s *Server) IdleTimeout() time.Duration { return s.o.IdleTimeout }

// ServeConn serves conn until it ends, or until it has been idle long enough to be parked.
func (s *Server) ServeConn(ctx context.Context, conn *network.Conn) error {
	if err := conn.SetIdle(true); err != nil {
		return idleEnd(conn, err)
	}
	in := connReader{conn: conn}
	_, err := conn.Fill(&in.rest, firstRead)
	_ = conn.SetIdle(false) // never fails
	if err != nil {
		in.release()
		return idleEnd(conn, err)
	}
	c := s.take(conn, in)
	err = c.run(ctx)
	if next := c.next; next != nil {
		c.next = nil
		return c.handOver(ctx, next)
	}
	s.give(c)
	return err
}

// idleEnd records why an idle connection ended. It returns nil for the normal reasons.
func idleEnd(conn *network.Conn, err error) error {
	conn.CloseReason = network.CloseReasonOf(err)
	if err == io.EOF || errors.Is(err, network.ErrDraining) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// downstreamConn is the state of a connection while it is not parked.
type downstreamConn struct {
	s    *Server
	conn *network.Conn
	meta protocol.ConnMeta
	in   connReader
	x    protocol.Exchange

	framing  syntax.Framing
	body     requestBody
	unrouted bool            // the listener does not serve the target
	answered bool            // the head of the final response was written, or the write was tried
	moved    atomic.Int64    // time since x.Meta.Start of the last response write while the request body was incomplete
	next     network.Handler // takes over the connection; almost always nil
	// State of the last exchange.
	forwarded bool // the response was not a local reply
	end       time.Time
}

func (s *Server) take(conn *network.Conn, in connReader) *downstreamConn {
	c, ok := s.sessions.Get().(*downstreamConn)
	if !ok {
		c = &downstreamConn{s: s}
		c.x.Downstream = c
		c.x.Meta.Conn = &c.meta
		c.body.c = c
	}
	c.conn = conn
	c.in = in
	c.meta = stream.NewConnMeta(s.o.Listener, conn)
	c.x.Reset()
	conn.SetWriteTimeout(s.o.HTTP1.WriteTimeout)
	return c
}

func (s *Server) give(c *downstreamConn) {
	c.in.release()
	c.in.conn, c.conn = nil, nil
	s.sessions.Put(c)
}

// run serves exchanges one after the other. On entry there are unread bytes. On a panic it releases
// what the exchange holds.
func (c *downstreamConn) run(ctx context.Context) error {
	ended := false
	defer func() {
		if !ended { // a panic, which the listener contains
			c.drop()
			c.in.release()
		}
	}()
	err := c.exchanges(ctx)
	ended = true
	return err
}

func (c *downstreamConn) exchanges(ctx context.Context) error {
	c.x.Meta.Start = time.Now()
	for {
		if !c.exchange(ctx) {
			return nil
		}
		if c.in.rest != nil { // pipelined
			c.x.Meta.Start = c.end
			continue
		}
		if more, err := c.idle(); !more {
			return err
		}
	}
}

// idle waits for the next request, for parkAfter at most before the connection is parked. more is
// false when the connection must end or be parked.
func (c *downstreamConn) idle() (more bool, err error) {
	if err := c.conn.SetIdle(true); err != nil {
		return false, idleEnd(c.conn, err)
	}
	limit := later(c.end, c.s.o.IdleTimeout)
	soon := c.end.Add(parkAfter)
	parks := limit.IsZero() || soon.Before(limit)
	if parks {
		c.conn.SetReadDeadline(soon)
	} else {
		c.conn.SetReadDeadline(limit)
	}
	if c.s.yields && c.forwarded {
		// On a busy processor, the turn of the other goroutines takes about as long as a client
		// takes to send its next request, which is then found without a wait in the poller. After a
		// local reply this could starve goroutines that only the poller can wake: only waits for
		// upstreams run the poller.
		runtime.Gosched()
	}
	_, err = c.conn.Fill(&c.in.rest, firstRead)
	if err != nil {
		if parks && errors.Is(err, os.ErrDeadlineExceeded) {
			c.conn.SetReadDeadline(limit)
			return false, network.ErrPark
		}
		return false, idleEnd(c.conn, err)
	}
	_ = c.conn.SetIdle(false) // never fails
	c.x.Meta.Start = time.Now()
	return true, nil
}

// exchange serves one request. keep reports whether the connection can take another.
func (c *downstreamConn) exchange(ctx context.Context) (keep bool) {
	x := &c.x
	c.answered = false
	c.body.content.read.Store(0)
	c.conn.Requests++
	if err := c.readHead(); err != nil {
		x.Request.Method = "" // the parsed parts are unreliable
		c.refuse(err)
		return false
	}
	x.Meta.Protocol = string(config.HTTP1)
	x.Meta.Version = versionText(c.framing.Minor)
	if accept := &c.s.o.HTTP1.Accept; *accept != (config.HTTP1Accept{}) {
		if status, err := c.acceptable(accept); err != nil {
			c.refuseAs(status, err)
			return false
		}
	}
	x.IdleTimeout = c.s.o.HTTP1.StreamIdleTimeout
	if x.Request.Scheme == "" { // every target except absolute-form
		x.Request.Scheme = c.scheme()
	}
	x.Request.Body = nil
	if c.framing.Body != syntax.NoBody {
		x.Request.Body = &c.body
		c.moved.Store(0)
		if limit := c.s.o.HTTP1.MaxRequestBodySize; limit > 0 && c.framing.Length > limit {
			c.refuse(protocol.Faultf(protocol.BodyTooLarge, "content-length %d exceeds %d bytes", c.framing.Length, limit))
			return false
		}
		c.awaitSmallBody()
	}
	if c.framing.HTTP2Settings != "" {
		if c.next = c.upgrade(); c.next != nil {
			return false
		}
	}
	keep, err := c.serve(ctx)
	if p := protocol.PanicIn(err); p != nil {
		c.report("responding to a request", p)
	}
	if err != nil && !c.answered {
		c.framing.KeepAlive = false
		c.fail(err)
		_, _ = c.answer() // the first error is recorded
	}
	c.forwarded = !c.isOwn()
	gone := protocol.ReasonOf(err) == protocol.ReasonDownstreamDisconnect || x.Record.Reason == protocol.ReasonDownstreamDisconnect
	if keep = keep && err == nil; !keep {
		c.conn.CloseReason = c.closeReason(err)
	}
	c.finish(err)
	if gone {
		return false
	}
	return c.afterAnswer(keep)
}

// serve calls the service and writes its response. A panic of the service, or of a body that it
// created, ends only the exchange and its connection. serve writes nothing if the client
// disconnected.
func (c *downstreamConn) serve(ctx context.Context) (keep bool, err error) {
	defer protocol.RecoverPanic(&err)
	if err := c.respond(ctx); err != nil { // the chain has no service.Respond
		if protocol.PanicIn(err) != nil {
			return false, err
		}
		c.x.LocalReplyError(err)
	}
	if c.x.Record.Reason == protocol.ReasonDownstreamDisconnect {
		return false, nil
	}
	return c.answer()
}

// afterAnswer advances the connection to the first byte of the next request, if it can. A client
// that expected to send more requests may be sending one: it gets time to read its response.
func (c *downstreamConn) afterAnswer(keep bool) bool {
	b := &c.body.content
	if b.closed.Load() { // an upload was aborted: the end of its request is unknown
		c.conn.Resume()
		keep = false
	}
	if keep && !b.done {
		keep = c.drainBody()
		c.conn.CloseReason = network.ClosedRequestUnread // if the connection ends
	}
	if !keep && (!b.done || c.framing.KeepAlive) {
		stream.Linger(c.conn, lingerTime, lingerLimit)
	}
	c.in.endMessage()
	return keep
}

// readHead reads until the request head is complete.
func (c *downstreamConn) readHead() error {
	x := &c.x
	waited := false
	var scan syntax.Scanner
	for {
		n, err := syntax.ParseRequest(c.in.rest.Bytes(), c.s.limits, &x.Request, &c.framing)
		if err != nil {
			return err
		}
		if n > 0 {
			c.in.rest.Discard(n)
			c.in.head = c.in.rest
			x.Meta.HeadSize = n
			c.body.content.start(&c.in, &c.framing, &x.Request.Trailer, c.s.limits, c.s.o.HTTP1.MaxRequestBodySize)
			return nil
		}
		if !waited {
			waited = true
			c.conn.SetReadDeadline(later(x.Meta.Start, c.s.o.HTTP1.HeadTimeout))
		}
		meta := x.Meta
		x.Reset()
		x.Meta = meta
		for again := true; again; again = !scan.Ready(c.in.rest.Bytes(), c.s.limits) {
			if _, err := c.conn.Fill(&c.in.rest, firstRead); err != nil {
				return readFault(cutShort(err))
			}
		}
	}
}

// refuse sends the local reply for err and ends the connection.
func (c *downstreamConn) refuse(err error) { c.refuseAs(0, err) }

// refuseAs is refuse with the given status; 0 means that of err's Reason.
func (c *downstreamConn) refuseAs(status int, err error) {
	x := &c.x
	c.framing.KeepAlive = false
	c.fail(err)
	if status != 0 {
		x.Response.Status = status
	}
	x.Meta.Protocol = string(config.HTTP1)
	if x.Record.Reason == protocol.ReasonDownstreamDisconnect {
		x.Response.Status = 0
		c.conn.CloseReason = network.ClosedByPeer
		c.finish(nil)
		return
	}
	_, werr := c.answer()
	c.conn.CloseReason = c.closeReason(werr)
	c.finish(werr)
	stream.Linger(c.conn, lingerTime, lingerLimit)
}

// finish records the exchange and resets x for the next one. The body's state stays for drainBody.
func (c *downstreamConn) finish(err error) {
	x := &c.x
	if err != nil && x.Record.Reason == protocol.ReasonNone {
		x.Record.Reason = protocol.ReasonOf(err)
		x.Record.Detail = err.Error()
	}
	x.Record.RequestBytes = c.body.content.read.Load()
	c.end = time.Now()
	x.Record.End = c.end
	if c.s.o.Observe != nil {
		c.observe()
	}
	c.drop() // after observe: the response headers are views
}

// observe calls Observe and contains its panic.
func (c *downstreamConn) observe() {
	defer c.contain("recording a request")
	c.s.o.Observe(&c.x)
}

// drop resets the exchange and contains a panic of closing the response.
func (c *downstreamConn) drop() {
	defer c.x.Reset()
	defer c.contain("closing a response")
	c.x.ResetResponse()
}

// fail replaces the response with the local reply for err. Closing the old response may panic; fail
// then logs the panic and sets the local reply again.
func (c *downstreamConn) fail(err error) {
	defer func() {
		if p := recover(); p != nil {
			c.report("closing a response", p)
			c.x.LocalReplyError(err)
		}
	}()
	c.x.LocalReplyError(err)
}

// contain recovers and logs a panic that must not end the connection. Callers defer it.
func (c *downstreamConn) contain(doing string) {
	if p := recover(); p != nil {
		c.report(doing, p)
	}
}

// report logs a contained panic. p is the value of recover, or a *protocol.PanicError. The deferred
// function that recovers calls report.
func (c *downstreamConn) report(doing string, p any) {
	protocol.NewPanic(p).Log(c.s.o.Log, doing, "listener", c.s.o.Listener)
}

// scheme returns the scheme of the downstream connection (RFC 9112 3.3).
func (c *downstreamConn) scheme() string {
	if c.meta.Secure {
		return "https"
	}
	return "http"
}

func versionText(minor int) string {
	if minor == 0 {
		return "HTTP/1.0"
	}
	return "HTTP/1.1"
}
