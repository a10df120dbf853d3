package http2

import (
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// uploader is a goroutine that sends a request's body.
type uploader struct {
	body protocol.Body
	done chan struct{}
}

func (u *uploader) ended() bool {
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}

// upload sends the body of c's request: as much as possible now, and the rest as bytes arrive and
// windows open. The caller owns c.
func (c *call) upload(b *batch) {
	u, x := c.upstream, c.x
	defer b.scheduleFlush(u.writeQueue)
	body := x.Request.Body
	if c.requestEnded || body == nil {
		return
	}
	if rb := recvBodyOf(body); rb != nil {
		c.out.start(rb, &c.muxStream, c, c.id.Load())
		c.out.kick(b)
		return
	}
	length := x.Request.ContentLength
	small, err := c.fitsNow(body, length)
	if err != nil {
		c.pumpEnded(b, &u.muxConn, c.id.Load(), err)
		return
	}
	if small {
		readErr, writeErr := c.copyFrom(body, length, &x.Request.Trailer)
		c.uploadEnded(c.id.Load())
		c.pumpEnded(b, &u.muxConn, c.id.Load(), readErr)
		_ = writeErr // fail or failSends has recorded the write error
		return
	}
	s := &uploader{body, make(chan struct{})}
	c.uploader = s
	trailer, callID := &x.Request.Trailer, c.id.Load()
	u.engine.goroutines.Start(func() {
		// The write error is ignored: fail or failSends has recorded it.
		readErr, _ := c.copyFrom(body, length, trailer)
		_ = u.writeQueue.Flush() // the connection's reader handles the error
		protocol.PanicIn(readErr).Log(u.engine.goroutines.Log, "reading a request body")
		c.uploadEnded(callID)
		close(s.done)
		c.pumpEnded(nil, &u.muxConn, callID, readErr)
	})
}

// fitsNow reports whether a request's body is small, buffered and fits the window. The error is nil
// or the Fault of a recovered panic of the body.
func (c *call) fitsNow(body protocol.Body, length int64) (ok bool, err error) {
	defer protocol.RecoverPanic(&err) // from the body of a filter
	n := int(min(length, bodyReadSize+1))
	return n >= 0 && n <= bodyReadSize && body.Buffered() >= n && c.sendCapacity() >= n, nil
}

// uploadEnded starts the idle timeout of the response, because no more of the request's body will
// be sent.
func (c *call) uploadEnded(callID uint64) {
	if c.x.IdleTimeout <= 0 {
		return
	}
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	if c.id.Load() == callID {
		c.startResponseIdleTimeout(time.Now())
	}
}

// startResponseIdleTimeout starts the idle timeout of the response, if the exchange has one. The
// caller holds c.upstream.mu.
func (c *call) startResponseIdleTimeout(now time.Time) {
	if d := c.x.IdleTimeout; d > 0 && c.stream != nil {
		c.responseIdleTimeout, c.lastActive = d, now
		c.upstream.arm(now.Add(d))
	}
}

// sendCapacity returns how many bytes of the body may be sent now.
func (ms *muxStream) sendCapacity() int {
	ms.conn.mu.Lock()
	defer ms.conn.mu.Unlock()
	if ms.sendErr != nil || ms.stream == nil {
		return 0
	}
	return ms.conn.state.Writable(ms.stream)
}

// pumpEnded implements pumpOwner. If err is not nil, pumpEnded fails the call, unless failSends was
// called: then a response may still arrive, or the call has already failed. c may belong to another
// exchange by now.
func (c *call) pumpEnded(b *batch, to *muxConn, callID uint64, err error) {
	u, ok := to.side.(*UpstreamConn)
	if !ok || err == nil || c.id.Load() != callID {
		return
	}
	u.mu.Lock()
	if c.id.Load() != callID || c.sendErr != nil && errors.Is(err, c.sendErr) {
		u.mu.Unlock()
		return
	}
	var fx effects
	c.fail(err, &fx)
	u.mu.Unlock()
	fx.apply(b)
}

// stopUpload stops sending the request. It reports whether the request has a body, part of which
// may have been consumed.
func (c *call) stopUpload() (hasBody bool) {
	c.out.stop()
	if s := c.uploader; s != nil {
		c.upstream.mu.Lock()
		c.failSends(errClosed)
		c.upstream.mu.Unlock()
		select {
		case <-s.done:
		default:
			err := c.x.CloseRequestBody(s.body) // unblocks a read of the client's body
			protocol.PanicIn(err).Log(c.upstream.engine.goroutines.Log, "closing a request body")
			<-s.done
		}
	}
	return c.x.Request.Body != nil
}
