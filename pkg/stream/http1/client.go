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

// refusalTime is how long an upstream that takes no more of a request may take to
// say why.
const refusalTime = time.Second

// watchAfter is how long an answer may take before the caller is watched for
// having gone: watching costs a goroutine, and most answers come sooner.
const watchAfter = 250 * time.Millisecond

// upstreamRead is the buffer for an answer, in bytes: most answers fit whole.
const upstreamRead = 16 << 10

// UpstreamConn is one upstream connection. It carries one exchange at a time, on the
// goroutine of the exchange.
type UpstreamConn struct {
	conn     *network.Conn // immutable
	local    string        // immutable; our end's address
	tls      *protocol.TLS // immutable; nil: plaintext
	limits   syntax.Limits // immutable
	released func(bool)    // immutable

	// Of the exchange that the connection belongs to; nil and zero between.
	x       *protocol.Exchange
	in      connReader
	framing syntax.Framing
	answer  *responseBody // reused, but see newAnswer
	upload  *upload
	key     string // with which we shake hands for a caller of WebSocket that has none; almost always ""

	gone atomic.Bool // the caller went away and the read was interrupted for it
	cut  bool        // the upstream did not take all of a request
}

// NewClient makes conn an upstream connection.
func NewClient(conn *network.Conn, o stream.UpstreamConnOptions) *UpstreamConn {
	c := &UpstreamConn{conn: conn, local: conn.LocalAddr().String(), tls: stream.NewTLSMeta(conn), limits: limitsOf(&o.HTTP1), released: o.OnRelease}
	c.in.conn = conn
	c.answer = newAnswer(c)
	conn.SetWriteTimeout(o.HTTP1.WriteTimeout)
	return c
}

// Usable is stream.UpstreamConn's. It always asks the socket, however short the time
// was: what a server sends behind its answer, in a packet of its own, must not
// pass for the answer to another caller's request.
func (c *UpstreamConn) Usable(time.Duration) bool { return c.conn.IsReusable() }

// Close is stream.UpstreamConn's.
func (c *UpstreamConn) Close() error { return c.conn.Close() }

// Serve is stream.UpstreamConn's. Errors are Faults.
func (c *UpstreamConn) Serve(_ context.Context, x *protocol.Exchange) error {
	c.x = x
	x.Record.UpstreamStart, x.Record.UpstreamFirstByte = time.Now(), time.Time{}
	if n := len(x.Record.Attempts); n > 0 {
		x.Record.Attempts[n-1].Local, x.Record.Attempts[n-1].TLS = c.local, c.tls
	}
	answered := false
	defer func() {
		if !answered { // it failed, or a panic is on its way
			c.abandon()
		}
	}()
	err := c.send()
	if err == nil {
		err = c.receive()
	}
	answered = err == nil
	return err
}

// abandon ends an exchange that got no answer.
func (c *UpstreamConn) abandon() {
	x := c.x
	x.Response.Tunnel = nil
	x.Response.SetBody(nil) // finish does what closing it does
	x.ResetResponse()
	c.finish(false)
}

// send writes the request: all of it if its content is at hand and small, else
// the head, and the content on a goroutine of its own. When it returns nil there
// may be bytes of the answer already.
func (c *UpstreamConn) send() error {
	req := &c.x.Request
	out := buffer.Get(firstRead)
	defer out.Release()
	chunked := req.Body != nil && req.ContentLength < 0
	c.key = newWebSocketKey(c.x)
	head, err := syntax.AppendRequest(out.Storage(), req, syntax.RequestOptions{Chunked: chunked, WebSocketKey: c.key, Trailers: translatesGRPC(c.x)})
	if err != nil {
		return err
	}
	out.SetStorage(head)
	c.conn.SetWriteDeadline(c.x.EffectiveDeadline())
	if req.Body != nil && !takeWhole(out, req) {
		if sent, err := c.conn.Write(out.Bytes()); err != nil {
			return c.notSent(sent, err, "sending the request head")
		}
		c.conn.SetWriteDeadline(time.Time{}) // the deadline may move: who waits for the answer ends the upload
		c.upload = startUpload(c, chunked)
		return nil
	}
	c.conn.SetReadDeadline(c.until(c.x.Record.UpstreamStart.Add(watchAfter)))
	sent, n, err := c.conn.WriteAndFill(out.Bytes(), &c.in.rest, upstreamRead)
	switch {
	case n > 0:
		return nil
	case sent < out.Len():
		return c.unsent(sent, err)
	}
	return c.retryHeadRead(err)
}

// translatesGRPC reports whether x is a call of gRPC that came in HTTP/2. Its status
// comes in trailer fields, which HTTP/1.1 sends only to those who want them.
func translatesGRPC(x *protocol.Exchange) bool {
	return x.Meta.Protocol == string(config.HTTP2) && protocol.IsGRPC(&x.Request.Header)
}

// unsent goes on after a write that failed. What is there to be read answers the
// part that was sent; if nothing was, it answers nothing of ours.
func (c *UpstreamConn) unsent(sent int, err error) error {
	c.cut = true
	if sent > 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.conn.SetReadDeadline(c.until(time.Now().Add(refusalTime)))
		if c.in.more() == nil {
			return nil
		}
	}
	return c.notSent(sent, err, "sending the request")
}

// notSent is upstreamFault for a write of which the kernel took so many bytes. If it took
// none, the connection had ended before; of TLS that is not known.
func (c *UpstreamConn) notSent(sent int, err error, doing string) error {
	if sent == 0 && c.tls == nil && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
		err = fmt.Errorf("%w: %w", protocol.ErrNotSent, err)
	}
	return upstreamFault(err, doing)
}

// takeWhole appends the request's content to out if all of it is at hand and it
// is small.
func takeWhole(out *buffer.IoBuffer, req *protocol.Request) bool {
	n := int(min(req.ContentLength, inlineContent+1))
	if n < 0 || n > inlineContent || req.Body.Buffered() < n {
		return false
	}
	out.Reserve(n)
	for got := 0; got < n; {
		m, err := req.Body.Read(out.Tail()[:n-got])
		out.Extend(m)
		got += m
		if err != nil && got < n {
			return false // the upload meets the error again and reports it
		}
	}
	return true
}

// receive reads the head of the final answer.
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
					if err := c.inform(); err != nil {
						return err
					}
					continue
				}
				return c.accept()
			}
			x.ResetResponse()
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
}

// inform passes an interim answer on (RFC 9110 15.2).
func (c *UpstreamConn) inform() error {
	x := c.x
	err := error(nil)
	if x.Caller != nil {
		err = x.Caller.SendInterim(x.Response.Status, &x.Response.Header)
	}
	x.ResetResponse()
	return err
}

// accept makes the answer whose head was parsed x's.
func (c *UpstreamConn) accept() error {
	x := c.x
	x.Record.UpstreamFirstByte = time.Now()
	x.Response.Version, x.Response.Source = versionText(c.framing.Minor), protocol.UpstreamResponse
	c.in.head = c.in.rest
	if c.framing.Upgrade {
		if x.Response.Status == 101 && !askedFor(x) {
			return protocol.Faultf(protocol.UpstreamMalformed, "101 to a protocol that the request did not ask for (RFC 9110 7.8)")
		}
		if c.key != "" && !verifyWebSocketAccept(&x.Response.Header, c.key) {
			return protocol.Faultf(protocol.UpstreamMalformed, "%s is not of our key (RFC 6455 4.1)", syntax.WebSocketAcceptField)
		}
		x.Response.SetTunnel(newTunnel(c))
		return nil
	}
	if invariants.Enabled {
		c.answer = newAnswer(c)
	}
	c.answer.closed = false
	c.answer.content.start(&c.in, &c.framing, &x.Response.Trailer, c.limits, 0)
	x.Response.SetBody(c.answer)
	return nil
}

// askedFor reports whether the protocol that a 101 names is one that the request
// named (RFC 9110 7.8). One that names none may be any of them.
func askedFor(x *protocol.Exchange) bool {
	if x.Request.Upgrade == "" {
		return false
	}
	to, named := x.Response.Header.Lookup("Upgrade")
	if !named {
		return true
	}
	for asked := range strings.SplitSeq(x.Request.Upgrade, ",") {
		if protocol.EqualFold(strings.TrimSpace(asked), strings.TrimSpace(to)) {
			return true
		}
	}
	return false
}

// until returns t or the exchange's deadline, whichever comes first.
func (c *UpstreamConn) until(t time.Time) time.Time {
	if d := c.x.EffectiveDeadline(); !d.IsZero() && d.Before(t) {
		return d
	}
	return t
}

// fill reads more of the head.
func (c *UpstreamConn) fill() error {
	c.conn.SetReadDeadline(c.until(c.x.Record.UpstreamStart.Add(watchAfter)))
	return c.retryHeadRead(c.in.more())
}

// retryHeadRead goes on after a read of the head that failed.
func (c *UpstreamConn) retryHeadRead(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = c.readWatchingDownstream(c.in.more)
	}
	if err == nil {
		return nil
	}
	if c.upload == nil && len(c.in.unread()) == 0 && c.conn.NotReceived(err) {
		err = fmt.Errorf("%w: %w", protocol.ErrNotReceived, err)
	}
	return c.readFault(err)
}

// readWatchingDownstream reads until the exchange's deadline, watching the caller. While an
// upload runs it is the upload that notices.
func (c *UpstreamConn) readWatchingDownstream(read func() error) error {
	if u := c.upload; u != nil {
		if u.await() {
			c.conn.SetReadDeadline(c.x.EffectiveDeadline())
			if err := read(); u.leave() || !c.resume(u) || !errors.Is(err, network.ErrInterrupted) {
				return err
			}
		}
		<-u.done
	}
	if c.refused() && c.x.Record.UpstreamFirstByte.IsZero() {
		c.conn.SetReadDeadline(c.until(time.Now().Add(refusalTime)))
		return read()
	}
	until, idle := c.idleUntil()
	c.conn.SetReadDeadline(until)
	if c.x.Caller != nil {
		stop := c.x.Caller.OnDisconnect(func() {
			c.gone.Store(true)
			c.conn.Interrupt()
		})
		defer stop()
	}
	err := read()
	if idle && errors.Is(err, os.ErrDeadlineExceeded) {
		c.x.PerTryDeadline = time.Time{} // the exchange as a whole is idle, not this try alone
		return protocol.Faultf(protocol.StreamIdle, "nothing of the answer for %v (stream_idle_timeout)", c.x.IdleTimeout)
	}
	return err
}

// idleUntil returns when the wait for the next byte of the answer ends, of which watchAfter
// has passed: at the exchange's deadline, or, which idle reports, when it has been idle for
// too long.
func (c *UpstreamConn) idleUntil() (until time.Time, idle bool) {
	until = c.x.EffectiveDeadline()
	if c.x.IdleTimeout <= 0 {
		return until, false
	}
	end := time.Now().Add(max(c.x.IdleTimeout-watchAfter, 0))
	if !until.IsZero() && until.Before(end) {
		return until, false
	}
	return end, true
}

// resume takes back the interruption by which u told of its end. It reports false
// if there is nothing left to wait for, because the request's content failed.
func (c *UpstreamConn) resume(u *upload) bool {
	if u.fault() != nil {
		return false
	}
	c.conn.Resume()
	return true
}

// refused reports whether the upstream takes no more of the content.
func (c *UpstreamConn) refused() bool {
	return c.upload != nil && c.upload.ended() && c.upload.writeErr != nil
}

// readFault says what a failed read of the answer costs.
func (c *UpstreamConn) readFault(err error) error {
	var f *protocol.Fault
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case c.gone.Load():
		return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "client closed its connection while the upstream was answering")
	case errors.Is(err, network.ErrInterrupted) && c.upload != nil:
		return c.upload.fault()
	case c.refused():
		return upstreamFault(c.upload.writeErr, "sending the content")
	}
	return upstreamFault(err, "reading the answer")
}

// upstreamFault names the reason of a socket error.
func upstreamFault(err error, doing string) error {
	reason := protocol.UpstreamReset
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		reason = protocol.UpstreamTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE):
		reason = protocol.UpstreamClosed
	}
	return protocol.Faultf(reason, "%s: %w", doing, err)
}

// finish ends the exchange: the connection goes back to its pool, or ends.
func (c *UpstreamConn) finish(whole bool) {
	var panicked *protocol.PanicError
	if c.upload != nil {
		whole = c.upload.stop() && whole
		panicked = c.upload.panicked
		c.upload = nil
	}
	reusable := whole && c.framing.KeepAlive && len(c.in.unread()) == 0 && !c.gone.Load() && !c.cut
	c.x = nil
	c.in.release()
	c.released(reusable) // from here on c may be another exchange's
	if panicked != nil {
		panic(panicked) // its stack is that of the body
	}
}

// responseBody is the content of an upstream's answer; closing it gives the
// connection back.
type responseBody struct {
	c       *UpstreamConn
	content content
	closed  bool
}

// newAnswer returns the content of answers on c. One serves them all, so nothing
// may touch it once it is closed; builds with invariants make one for each, which
// knows what touches it.
func newAnswer(c *UpstreamConn) *responseBody {
	b := &responseBody{c: c, closed: true}
	b.content.chunks.Reason = protocol.UpstreamMalformed
	return b
}

// Read is protocol.Body's. Its errors are Faults.
func (b *responseBody) Read(p []byte) (int, error) {
	if b.closed {
		panic("http1: Read of an answer that is closed")
	}
	c := b.c
	if b.content.buffered() == 0 && !b.content.done {
		c.conn.SetReadDeadline(c.until(time.Now().Add(watchAfter)))
	}
	n, err := b.content.next(p)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		err = c.readWatchingDownstream(func() error {
			var again error
			n, again = b.content.next(p)
			return again
		})
	}
	if err == nil || err == io.EOF || n > 0 {
		return n, err
	}
	return 0, c.readFault(err)
}

// Buffered is protocol.Body's.
func (b *responseBody) Buffered() int { return b.content.buffered() }

// Close is protocol.Body's. It takes itself out of the exchange, so that the
// engine does not close it again.
func (b *responseBody) Close() error {
	if b.closed {
		if invariants.Enabled {
			panic("http1: an answer is closed twice")
		}
		return nil
	}
	b.closed = true
	b.c.x.Response.BodyClosed(b)
	b.c.finish(b.content.done)
	return nil
}
