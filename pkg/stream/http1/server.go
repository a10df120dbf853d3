// Package http1 implements the HTTP/1.1 engine: downstream and upstream connections, each with one
// exchange at a time (RFC 9112).
//
// A request passes through the server side as follows:
//
//	ServeConn     wait without a buffer, get a downstreamConn
//	run           serve one exchange after another
//	  readHead    parse, reject malformed heads
//	  serve       call the service and write its response: the head and a small body in one
//	              write, a large body in pieces
//	  finish      observe, reset
//	  afterResponse  discard the unread body, or linger
//	handOver      continue the connection in another protocol
//
// All of this runs on the connection's goroutine. The engine starts a second one only while it
// sends a large or incomplete request body upstream, waits for a slow response, or runs a tunnel.
package http1

import (
	"context"
	"errors"
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
	// requestBufferSize is the initial size, in bytes, of the buffers for the head of a request and
	// for heads to send; larger heads grow them.
	requestBufferSize = 4 << 10
	// parkAfter is how long an idle connection keeps its goroutine before it is parked.
	parkAfter = 2 * time.Second
)

// Protocol returns the stream.Protocol of HTTP/1.1.
func Protocol() stream.Protocol {
	return stream.Protocol{
		Name:      config.HTTP1,
		Match:     Match,
		NewServer: func(o stream.ServerOptions) stream.Server { return NewServer(o) },
		NewUpstreamConn: func(conn *network.Conn, o stream.UpstreamConnOptions) stream.UpstreamConn {
			return newUpstreamConn(conn, o)
		},
	}
}

// Server is the downstream side. NewServer creates one. It is safe for concurrent use.
type Server struct {
	opts      stream.ServerOptions // immutable
	limits    syntax.Limits        // immutable
	yields    bool                 // immutable; GOMAXPROCS is 1: see awaitNextRequest
	conns     sync.Pool            // of *downstreamConn
	dateCache stream.DateCache
}

// NewServer returns a server for the connections of one listener.
func NewServer(o stream.ServerOptions) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{opts: o, limits: limitsOf(&o.HTTP1), yields: runtime.GOMAXPROCS(0) == 1}
}

func limitsOf(o *config.HTTP1Options) syntax.Limits {
	return syntax.Limits{Line: o.MaxRequestLineSize, Head: o.MaxHeaderSize, Fields: o.MaxHeaderCount}
}

// IdleTimeout implements network.ClientFirstHandler.
func (s *Server) IdleTimeout() time.Duration { return s.opts.IdleTimeout }

// ServeConn serves conn until it ends, or until it has been idle long enough to be parked.
func (s *Server) ServeConn(ctx context.Context, conn *network.Conn) error {
	if err := conn.SetIdle(true); err != nil {
		return stream.SetIdleCloseReason(conn, err)
	}
	in := connReader{conn: conn}
	_, err := conn.Fill(&in.rest, requestBufferSize)
	_ = conn.SetIdle(false) // never fails
	if err != nil {
		in.release()
		return stream.SetIdleCloseReason(conn, err)
	}
	c := s.getConn(conn, in)
	err = c.run(ctx)
	if next := c.next; next != nil {
		c.next = nil
		return c.handOver(ctx, next)
	}
	s.putConn(c)
	return err
}

// downstreamConn is the state of a connection from the first bytes of a request until the
// connection is parked or ends.
type downstreamConn struct {
	server *Server
	conn   *network.Conn
	meta   protocol.ConnMeta
	in     connReader
	x      protocol.Exchange

	framing         syntax.Framing
	body            requestBody
	targetNotServed bool            // the listener does not serve the target
	responseStarted bool            // the engine has tried to write the head of the final response
	progress        atomic.Int64    // when the response was last written while the request body was not read completely, in ns since x.Meta.Start
	next            network.Handler // takes over the connection; almost always nil
	// State of the last exchange.
	responseForwarded bool // the response was not a local reply
	endedAt           time.Time
}

func (s *Server) getConn(conn *network.Conn, in connReader) *downstreamConn {
	c, ok := s.conns.Get().(*downstreamConn)
	if !ok {
		c = &downstreamConn{server: s}
		c.x.Downstream = c
		c.x.Meta.Conn = &c.meta
		c.x.EnvoyReplies = s.opts.EnvoyReplies
		c.body.c = c
	}
	c.conn = conn
	c.in = in
	c.meta = stream.NewConnMeta(s.opts.Listener, conn)
	c.x.Reset()
	conn.SetWriteTimeout(s.opts.HTTP1.WriteTimeout)
	return c
}

func (s *Server) putConn(c *downstreamConn) {
	c.in.release()
	c.in.conn, c.conn = nil, nil
	s.conns.Put(c)
}

// run serves one exchange after another. c.in.rest holds the first bytes of the first request. If a
// panic escapes, run releases the exchange and the buffers.
func (c *downstreamConn) run(ctx context.Context) error {
	ended := false
	defer func() {
		if !ended { // a panic, which the listener recovers
			c.resetExchange()
			c.in.release()
		}
	}()
	err := c.serveExchanges(ctx)
	ended = true
	return err
}

func (c *downstreamConn) serveExchanges(ctx context.Context) error {
	c.x.Meta.Start = time.Now()
	for {
		if !c.serveExchange(ctx) {
			return nil
		}
		if c.in.rest != nil { // pipelined
			c.x.Meta.Start = c.endedAt
			continue
		}
		if ready, err := c.awaitNextRequest(); !ready {
			return err
		}
	}
}

// awaitNextRequest waits for the next request, for at most parkAfter. ready is false if the
// connection must end or be parked.
func (c *downstreamConn) awaitNextRequest() (ready bool, err error) {
	if err := c.conn.SetIdle(true); err != nil {
		return false, stream.SetIdleCloseReason(c.conn, err)
	}
	idleDeadline := deadlineAfter(c.endedAt, c.server.opts.IdleTimeout)
	parkAt := c.endedAt.Add(parkAfter)
	parkFirst := idleDeadline.IsZero() || parkAt.Before(idleDeadline)
	if parkFirst {
		c.conn.SetReadDeadline(parkAt)
	} else {
		c.conn.SetReadDeadline(idleDeadline)
	}
	if c.server.yields && c.responseForwarded {
		// While other goroutines run, the client often sends its next request, which Fill then
		// reads without a wait in the poller. Do not yield after a local reply: if no goroutine
		// waits for an upstream, the poller might not run, and goroutines that only the poller can
		// wake would starve.
		runtime.Gosched()
	}
	_, err = c.conn.Fill(&c.in.rest, requestBufferSize)
	if err != nil {
		if parkFirst && errors.Is(err, os.ErrDeadlineExceeded) {
			c.conn.SetReadDeadline(idleDeadline)
			return false, network.ErrPark
		}
		return false, stream.SetIdleCloseReason(c.conn, err)
	}
	_ = c.conn.SetIdle(false) // never fails
	c.x.Meta.Start = time.Now()
	return true, nil
}

// serveExchange serves one request. keep reports whether the connection can take another.
func (c *downstreamConn) serveExchange(ctx context.Context) (keep bool) {
	x := &c.x
	c.responseStarted = false
	c.body.reader.read.Store(0)
	c.conn.Requests++
	if err := c.readHead(); err != nil {
		x.Request.Method = "" // the parsed parts are unreliable
		c.reject(err)
		return false
	}
	x.Meta.Protocol = string(config.HTTP1)
	x.Meta.Version = versionText(c.framing.Minor)
	if accept := &c.server.opts.HTTP1.Accept; *accept != (config.HTTP1Accept{}) {
		if status, err := c.checkAccept(accept); err != nil {
			c.rejectWithStatus(status, err)
			return false
		}
	}
	if err := c.server.opts.ApplyUnderscoreAction(&x.Request.Header); err != nil {
		c.reject(err)
		return false
	}
	x.IdleTimeout = c.server.opts.HTTP1.StreamIdleTimeout
	if x.Request.Scheme == "" { // every target except absolute-form
		x.Request.Scheme = c.scheme()
	}
	x.Request.Body = nil
	if c.framing.Body != syntax.NoBody {
		x.Request.Body = &c.body
		c.progress.Store(0)
		if limit := c.server.opts.HTTP1.MaxRequestBodySize; limit > 0 && c.framing.Length > limit {
			c.reject(protocol.Faultf(protocol.BodyTooLarge, "content-length %d exceeds %d bytes", c.framing.Length, limit))
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
		c.logPanic("responding to a request", p)
	}
	if err != nil && !c.responseStarted {
		c.framing.KeepAlive = false
		c.setLocalReply(err)
		_, _ = c.writeResponse() // finish records the first error
	}
	c.responseForwarded = !c.isLocalReply()
	disconnected := protocol.ReasonOf(err) == protocol.ReasonDownstreamDisconnect || x.Record.Reason == protocol.ReasonDownstreamDisconnect
	if keep = keep && err == nil; !keep {
		c.conn.CloseReason = c.closeReason(err)
	}
	c.finish(err)
	if disconnected {
		return false
	}
	return c.afterResponse(keep)
}

// serve calls the service and writes its response. A panic of the service, or of a body that it
// created, ends only the exchange and its connection. serve writes nothing if the client
// disconnected.
func (c *downstreamConn) serve(ctx context.Context) (keep bool, err error) {
	defer protocol.RecoverPanic(&err)
	if err := c.callService(ctx); err != nil { // only if the chain has no service.Respond, which handles errors
		if protocol.PanicIn(err) != nil {
			return false, err
		}
		c.x.LocalReplyError(err)
	}
	if c.x.Record.Reason == protocol.ReasonDownstreamDisconnect {
		return false, nil
	}
	return c.writeResponse()
}

// afterResponse discards the rest of the request body, so that the connection can take another
// request, and reports whether it can. If the connection must end although the client may still be
// sending, afterResponse lingers, so that the client can read its response.
func (c *downstreamConn) afterResponse(keep bool) bool {
	b := &c.body.reader
	if b.closed.Load() { // an upload was aborted: the end of its request is unknown
		c.conn.Resume()
		keep = false
	}
	if keep && !b.done {
		keep = c.discardBody()
		c.conn.CloseReason = network.ClosedRequestUnread // applies only if keep is false
	}
	if !keep && (!b.done || c.framing.KeepAlive) {
		stream.Linger(c.conn, lingerTimeout, maxLingerBytes)
	}
	c.in.endMessage()
	return keep
}

// readHead reads until the request head is complete.
func (c *downstreamConn) readHead() error {
	x := &c.x
	deadlineSet := false
	var scan syntax.Scanner
	for {
		n, err := syntax.ParseRequest(c.in.rest.Bytes(), c.server.limits, &x.Request, &c.framing)
		if err != nil {
			return err
		}
		if n > 0 {
			c.in.rest.Discard(n)
			c.in.head = c.in.rest
			x.Meta.HeadSize = n
			c.body.reader.start(&c.in, &c.framing, &x.Request.Trailer, c.server.limits, c.server.opts.HTTP1.MaxRequestBodySize)
			c.body.reader.server = &c.server.opts
			return nil
		}
		if !deadlineSet {
			deadlineSet = true
			c.conn.SetReadDeadline(deadlineAfter(x.Meta.Start, c.server.opts.HTTP1.HeadTimeout))
		}
		meta := x.Meta
		x.Reset()
		x.Meta = meta
		for incomplete := true; incomplete; incomplete = !scan.Ready(c.in.rest.Bytes(), c.server.limits) {
			if _, err := c.conn.Fill(&c.in.rest, requestBufferSize); err != nil {
				return readFault(unexpectedEOF(err))
			}
		}
	}
}

// reject sends the local reply for err and ends the connection.
func (c *downstreamConn) reject(err error) { c.rejectWithStatus(0, err) }

// rejectWithStatus is like reject, but with the given status; 0 means the status of err's Reason.
func (c *downstreamConn) rejectWithStatus(status int, err error) {
	x := &c.x
	c.framing.KeepAlive = false
	c.setLocalReply(err)
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
	_, werr := c.writeResponse()
	c.conn.CloseReason = c.closeReason(werr)
	c.finish(werr)
	stream.Linger(c.conn, lingerTimeout, maxLingerBytes)
}

// finish records the exchange and resets c.x for the next one. It leaves the state of c.body to
// discardBody.
func (c *downstreamConn) finish(err error) {
	x := &c.x
	if err != nil {
		x.RecordFailure(err)
	}
	x.Record.RequestBytes = c.body.reader.read.Load()
	c.endedAt = time.Now()
	x.Record.End = c.endedAt
	if c.server.opts.Observe != nil {
		c.observe()
	}
	c.resetExchange() // after observe, which reads headers that borrow memory of the response
}

// observe calls Observe. A panic is logged and has no other effect.
func (c *downstreamConn) observe() {
	defer c.contain("recording a request")
	c.server.opts.Observe(&c.x)
}

// resetExchange resets the exchange. A panic while the response is closed is logged and has no
// other effect.
func (c *downstreamConn) resetExchange() {
	defer c.x.Reset()
	defer c.contain("closing a response")
	c.x.ResetResponse()
}

// setLocalReply replaces the response with the local reply for err. Closing the old response may
// panic; setLocalReply then logs the panic and sets the local reply again.
func (c *downstreamConn) setLocalReply(err error) {
	defer func() {
		if p := recover(); p != nil {
			c.logPanic("closing a response", p)
			c.x.LocalReplyError(err)
		}
	}()
	c.x.LocalReplyError(err)
}

// contain recovers and logs a panic that must not end the connection. Callers defer it.
func (c *downstreamConn) contain(operation string) {
	if p := recover(); p != nil {
		c.logPanic(operation, p)
	}
}

// logPanic logs a recovered panic. p is a *protocol.PanicError, or the value of recover: then the
// deferred function that recovered the panic calls logPanic, so that the log contains the stack.
func (c *downstreamConn) logPanic(operation string, p any) {
	protocol.NewPanic(p).Log(c.server.opts.Log, operation, "listener", c.server.opts.Listener)
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
