package http1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http1"
	"github.com/weft-proxy/weft/pkg/stream"
)

// earlyResponseTimeout is how long an upstream that stopped reading a request may take to send its
// response.
const earlyResponseTimeout = time.Second

// disconnectWatchDelay is how long the engine waits for bytes of a response before it watches for a
// client disconnect. Watching costs a goroutine, and most responses come sooner.
const disconnectWatchDelay = 250 * time.Millisecond

// responseBufferSize is the size of a response buffer in bytes; most responses fit.
const responseBufferSize = 16 << 10

// UpstreamConn is one upstream connection. It serves one exchange at a time, on the goroutine of
// the exchange.
type UpstreamConn struct {
	conn      *network.Conn // immutable
	local     string        // immutable; local address
	tls       *protocol.TLS // immutable; nil: plaintext
	limits    syntax.Limits // immutable
	onRelease func(bool)    // immutable
	// zeroLength is UpstreamConnOptions.ZeroLength; immutable.
	zeroLength bool

	// State of the current exchange. Between exchanges, x and upload are nil, and in holds no
	// buffer.
	x            *protocol.Exchange
	in           connReader
	framing      syntax.Framing
	body         *responseBody // reused, but see newResponseBody
	upload       *upload
	webSocketKey string // the Sec-WebSocket-Key that newWebSocketKey made for the request; "": none

	disconnected     atomic.Bool // the client disconnected, which interrupted the read
	requestTruncated bool        // the upstream did not accept the complete request
}

// newUpstreamConn returns an upstream connection on conn.
func newUpstreamConn(conn *network.Conn, o stream.UpstreamConnOptions) *UpstreamConn {
	c := &UpstreamConn{conn: conn, local: conn.LocalAddr().String(), tls: stream.NewTLSMeta(conn), limits: limitsOf(&o.HTTP1), onRelease: o.OnRelease, zeroLength: o.ZeroLength}
	c.in.conn = conn
	c.body = newResponseBody(c)
	conn.SetWriteTimeout(o.HTTP1.WriteTimeout)
	return c
}

// Usable implements stream.UpstreamConn. It checks the socket after even a short idle time: bytes
// that a host sends after its response, in a separate packet, must not become the response to
// another client's request.
func (c *UpstreamConn) Usable(time.Duration) bool { return c.conn.IsReusable() }

// Close implements stream.UpstreamConn.
func (c *UpstreamConn) Close() error { return c.conn.Close() }

// Start implements stream.UpstreamConn. Errors other than protocol.ErrPending are Faults.
func (c *UpstreamConn) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, c)
}

// Serve implements protocol.BlockingService.
func (c *UpstreamConn) Serve(_ context.Context, x *protocol.Exchange) error {
	c.x = x
	x.Record.UpstreamStart, x.Record.UpstreamFirstByte = time.Now(), time.Time{}
	if n := len(x.Record.Attempts); n > 0 {
		x.Record.Attempts[n-1].Local, x.Record.Attempts[n-1].TLS = c.local, c.tls
	}
	responded := false
	defer func() {
		if !responded { // an error or a panic
			c.abandon()
		}
	}()
	err := c.send()
	if err == nil {
		err = c.receive()
	}
	responded = err == nil
	return err
}

// abandon ends an exchange that got no response.
func (c *UpstreamConn) abandon() {
	x := c.x
	x.Response.Tunnel = nil
	x.Response.SetBody(nil) // finish releases what Close would release
	x.ResetResponse()
	c.finish(false)
}

// send writes the request. It sends a small, buffered body with the head, and any other body from a
// separate goroutine. When it returns nil, response bytes may have arrived.
func (c *UpstreamConn) send() error {
	req := &c.x.Request
	out := buffer.Get(requestBufferSize)
	defer out.Release()
	chunked := req.Body != nil && req.ContentLength < 0
	c.webSocketKey = newWebSocketKey(c.x)
	head, err := syntax.AppendRequest(out.Storage(), req, syntax.RequestOptions{Chunked: chunked, WebSocketKey: c.webSocketKey, AcceptsTrailers: isGRPCOverHTTP2(c.x), ZeroLength: c.zeroLength})
	if err != nil {
		return err
	}
	out.SetStorage(head)
	c.conn.SetWriteDeadline(c.x.EffectiveDeadline())
	if req.Body != nil && !appendSmallBody(out, req) {
		if sent, err := c.conn.Write(out.Bytes()); err != nil {
			return c.writeFault(sent, err, "sending the request head")
		}
		c.conn.SetWriteDeadline(time.Time{}) // the goroutine that reads the response enforces the deadline, which may move
		c.upload = startUpload(c, chunked)
		return nil
	}
	c.conn.SetReadDeadline(c.capDeadline(c.x.Record.UpstreamStart.Add(disconnectWatchDelay)))
	sent, n, err := c.conn.WriteAndFill(out.Bytes(), &c.in.rest, responseBufferSize)
	switch {
	case n > 0:
		return nil
	case sent < out.Len():
		return c.receiveAfterFailedWrite(sent, err)
	}
	return c.retryHeadRead(err)
}

// isGRPCOverHTTP2 reports whether x is a gRPC call over HTTP/2. The gRPC status is in the trailers,
// which an HTTP/1.1 server sends only on request.
func isGRPCOverHTTP2(x *protocol.Exchange) bool {
	return x.Meta.Protocol == string(config.HTTP2) && protocol.IsGRPC(&x.Request.Header)
}

// receiveAfterFailedWrite continues after a failed write of which the kernel accepted sent bytes.
// If sent is not 0, the host may still respond to the part that it received.
func (c *UpstreamConn) receiveAfterFailedWrite(sent int, err error) error {
	c.requestTruncated = true
	if sent > 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.conn.SetReadDeadline(c.capDeadline(time.Now().Add(earlyResponseTimeout)))
		if c.in.readMore() == nil {
			return nil
		}
	}
	return c.writeFault(sent, err, "sending the request")
}

// writeFault is upstreamFault for a write of which the kernel accepted sent bytes. If sent is 0 and
// the connection had ended, the Fault wraps ErrNotSent. Over TLS it does not, because bytes may
// have been sent although sent is 0.
func (c *UpstreamConn) writeFault(sent int, err error, operation string) error {
	if sent == 0 && c.tls == nil && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
		err = fmt.Errorf("%w: %w", protocol.ErrNotSent, err)
	}
	return upstreamFault(err, operation)
}

// appendSmallBody appends the request body to out if it is small and fully buffered.
func appendSmallBody(out *buffer.IoBuffer, req *protocol.Request) bool {
	n := int(min(req.ContentLength, maxInlineBody+1))
	if n < 0 || n > maxInlineBody || req.Body.Buffered() < n {
		return false
	}
	out.Reserve(n)
	for copied := 0; copied < n; {
		m, err := req.Body.Read(out.Tail()[:n-copied])
		out.Extend(m)
		copied += m
		if err != nil && copied < n {
			return false // the upload gets the same error and reports it
		}
	}
	return true
}

// receive reads the head of the final response.
func (c *UpstreamConn) receive() error {
	x := c.x
	for {
		if b := c.in.unread(); len(b) > 0 {
			n, err := syntax.ParseResponse(b, c.limits, x.Request.Method, &x.Response, &c.framing)
			if err != nil {
				return err
			}
			if n > 0 {
				c.in.rest.Discard(n)
				if c.framing.Interim {
					if err := c.forwardInterim(); err != nil {
						return err
					}
					continue
				}
				return c.acceptResponse()
			}
			x.ResetResponse()
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
}

// forwardInterim forwards an interim response (RFC 9110 15.2).
func (c *UpstreamConn) forwardInterim() error {
	x := c.x
	err := error(nil)
	if x.Downstream != nil {
		err = x.Downstream.SendInterim(x.Response.Status, &x.Response.Header)
	}
	x.ResetResponse()
	return err
}

// acceptResponse completes x.Response, whose head receive has parsed.
func (c *UpstreamConn) acceptResponse() error {
	x := c.x
	x.Record.UpstreamFirstByte = time.Now()
	x.Response.Version, x.Response.Source = versionText(c.framing.Minor), protocol.UpstreamResponse
	c.in.head = c.in.rest
	if c.framing.BecomesTunnel {
		if x.Response.Status == 101 && !upgradeRequested(x) {
			return protocol.Faultf(protocol.UpstreamMalformed, "101 switches to a protocol that the request did not ask for (RFC 9110 7.8)")
		}
		if c.webSocketKey != "" && !verifyWebSocketAccept(&x.Response.Header, c.webSocketKey) {
			return protocol.Faultf(protocol.UpstreamMalformed, "%s does not match the request key (RFC 6455 4.1)", syntax.WebSocketAcceptField)
		}
		x.Response.SetTunnel(newTunnel(c))
		return nil
	}
	if invariants.Enabled {
		c.body = newResponseBody(c)
	}
	c.body.closed = false
	c.body.reader.start(&c.in, &c.framing, &x.Response.Trailer, c.limits, 0)
	x.Response.SetBody(c.body)
	return nil
}

// upgradeRequested reports whether the request named the protocol of the 101 (RFC 9110 7.8).
func upgradeRequested(x *protocol.Exchange) bool {
	if x.Request.Upgrade == "" {
		return false
	}
	chosen := x.Response.Header.Get("Upgrade")
	for requested := range strings.SplitSeq(x.Request.Upgrade, ",") {
		if protocol.EqualFold(strings.TrimSpace(requested), strings.TrimSpace(chosen)) {
			return true
		}
	}
	return false
}

// capDeadline returns t or the exchange's deadline, whichever comes first.
func (c *UpstreamConn) capDeadline(t time.Time) time.Time {
	if d := c.x.EffectiveDeadline(); !d.IsZero() && d.Before(t) {
		return d
	}
	return t
}

// fill reads more bytes of the response head.
func (c *UpstreamConn) fill() error {
	c.conn.SetReadDeadline(c.capDeadline(c.x.Record.UpstreamStart.Add(disconnectWatchDelay)))
	return c.retryHeadRead(c.in.readMore())
}

// retryHeadRead continues after a read of the response head that returned err, which may be nil.
func (c *UpstreamConn) retryHeadRead(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = c.readWatchingDownstream(c.in.readMore)
	}
	if err == nil {
		return nil
	}
	if c.upload == nil && len(c.in.unread()) == 0 && c.conn.NotReceived(err) {
		err = fmt.Errorf("%w: %w", protocol.ErrNotReceived, err)
	}
	return c.readFault(err)
}

// readWatchingDownstream reads until the exchange's deadline or idle timeout, and watches for a
// client disconnect. While an upload runs, the upload detects the disconnect and the idle exchange.
func (c *UpstreamConn) readWatchingDownstream(read func() error) error {
	if u := c.upload; u != nil {
		if u.awaitEnd() {
			c.conn.SetReadDeadline(c.x.EffectiveDeadline())
			if err := read(); u.stopAwaiting() || !c.resume(u) || !errors.Is(err, network.ErrInterrupted) {
				return err
			}
		}
		<-u.done
	}
	if c.uploadRejected() && c.x.Record.UpstreamFirstByte.IsZero() {
		c.conn.SetReadDeadline(c.capDeadline(time.Now().Add(earlyResponseTimeout)))
		return read()
	}
	deadline, limitedByIdle := c.waitDeadline()
	c.conn.SetReadDeadline(deadline)
	if c.x.Downstream != nil {
		stop := c.x.Downstream.OnDisconnect(func() {
			c.disconnected.Store(true)
			c.conn.Interrupt()
		})
		defer stop()
	}
	err := read()
	if limitedByIdle && errors.Is(err, os.ErrDeadlineExceeded) {
		c.x.PerTryDeadline = time.Time{} // the exchange is idle, not only this attempt: no retry
		return protocol.Faultf(protocol.StreamIdle, "no byte of the response for %v (stream_idle_timeout)", c.x.IdleTimeout)
	}
	return err
}

// waitDeadline returns when the wait for the next response byte ends: at the exchange's deadline
// or, if limitedByIdle, at the idle timeout. disconnectWatchDelay of the wait has already passed.
func (c *UpstreamConn) waitDeadline() (deadline time.Time, limitedByIdle bool) {
	deadline = c.x.EffectiveDeadline()
	if c.x.IdleTimeout <= 0 {
		return deadline, false
	}
	idleDeadline := time.Now().Add(max(c.x.IdleTimeout-disconnectWatchDelay, 0))
	if !deadline.IsZero() && deadline.Before(idleDeadline) {
		return deadline, false
	}
	return idleDeadline, true
}

// resume clears the interrupt by which u signaled its end. It returns false if the request body
// failed, so there is no response to wait for.
func (c *UpstreamConn) resume(u *upload) bool {
	if u.fault() != nil {
		return false
	}
	c.conn.Resume()
	return true
}

// uploadRejected reports whether the upstream stopped reading the request body.
func (c *UpstreamConn) uploadRejected() bool {
	return c.upload != nil && c.upload.ended() && c.upload.writeErr != nil
}

// readFault returns the Fault for a failed read of the response.
func (c *UpstreamConn) readFault(err error) error {
	var f *protocol.Fault
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case c.disconnected.Load():
		return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client closed its connection before the upstream response was complete")
	case errors.Is(err, network.ErrInterrupted) && c.upload != nil:
		return c.upload.fault()
	case c.uploadRejected():
		return upstreamFault(c.upload.writeErr, "sending the body")
	}
	return upstreamFault(err, "reading the response")
}

// upstreamFault returns the Fault for a socket error.
func upstreamFault(err error, operation string) error {
	reason := protocol.UpstreamReset
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		reason = protocol.UpstreamTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE):
		reason = protocol.UpstreamClosed
	}
	return protocol.Faultf(reason, "%s: %w", operation, err)
}

// finish ends the exchange and releases the connection to its pool. complete means that the
// response was read to its end, which the pool requires before it reuses the connection.
func (c *UpstreamConn) finish(complete bool) {
	var panicked *protocol.PanicError
	if c.upload != nil {
		complete = c.upload.stop() && complete
		panicked = c.upload.panicked
		c.upload = nil
	}
	reusable := complete && c.framing.KeepAlive && len(c.in.unread()) == 0 && !c.disconnected.Load() && !c.requestTruncated
	c.x = nil
	c.in.release()
	c.onRelease(reusable) // c may serve another exchange from here on
	if panicked != nil {
		panic(panicked) // contains the stack of the original panic
	}
}

// responseBody is the body of an upstream's response. Closing it releases the connection.
type responseBody struct {
	c      *UpstreamConn
	reader bodyReader
	closed bool
}

// newResponseBody returns the body for responses on c. All responses on c share one body, so
// nothing may use it after Close. Builds with invariants create one body per response to detect
// such use.
func newResponseBody(c *UpstreamConn) *responseBody {
	b := &responseBody{c: c, closed: true}
	b.reader.chunks.Reason = protocol.UpstreamMalformed
	return b
}

// Read implements protocol.Body. Its errors other than io.EOF are Faults.
func (b *responseBody) Read(p []byte) (int, error) {
	if b.closed {
		panic("http1: Read of a closed response")
	}
	c := b.c
	if b.reader.buffered() == 0 && !b.reader.done {
		c.conn.SetReadDeadline(c.capDeadline(time.Now().Add(disconnectWatchDelay)))
	}
	n, err := b.reader.next(p)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		err = c.readWatchingDownstream(func() error {
			var again error
			n, again = b.reader.next(p)
			return again
		})
	}
	if err == nil || err == io.EOF || n > 0 {
		return n, err
	}
	return 0, c.readFault(err)
}

// Buffered implements protocol.Body.
func (b *responseBody) Buffered() int { return b.reader.buffered() }

// Close implements protocol.Body. It removes the body from the exchange, so that the engine does
// not close it again.
func (b *responseBody) Close() error {
	if b.closed {
		if invariants.Enabled {
			panic("http1: response closed twice")
		}
		return nil
	}
	b.closed = true
	b.c.x.Response.BodyClosed(b)
	b.c.finish(b.reader.done)
	return nil
}
