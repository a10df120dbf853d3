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

// ended reports whether the goroutine has ended.
func (s *uploader) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// upload sends the body of k's request: what can be sent now, and the rest as bytes arrive and
// windows open. The caller owns k.
func (k *call) upload(b *batch) {
	u, x := k.upstream, k.x
	defer b.scheduleFlush(u.writeQueue)
	body := x.Request.Body
	if k.requestEnded || body == nil {
		return
	}
	if c := recvBodyOf(body); c != nil {
		k.out.start(c, &k.muxStream, k, k.id.Load())
		k.out.kick(b)
		return
	}
	length := x.Request.ContentLength
	small, err := k.fitsNow(body, length)
	if err != nil {
		k.pumpEnded(b, &u.muxConn, k.id.Load(), err)
		return
	}
	if small {
		readErr, writeErr := k.copyFrom(body, length, &x.Request.Trailer)
		k.uploadEnded(k.id.Load())
		k.pumpEnded(b, &u.muxConn, k.id.Load(), readErr)
		_ = writeErr // fail or failSends has recorded why sending failed
		return
	}
	s := &uploader{body, make(chan struct{})}
	k.uploader = s
	trailer, number := &x.Request.Trailer, k.id.Load()
	u.engine.goroutines.Start(func() {
		// The write error is ignored: fail or failSends has recorded why sending failed.
		readErr, _ := k.copyFrom(body, length, trailer)
		_ = u.writeQueue.Flush() // the connection's reader handles the error
		protocol.PanicIn(readErr).Log(u.engine.goroutines.Log, "reading a request body")
		k.uploadEnded(number)
		close(s.done)
		k.pumpEnded(nil, &u.muxConn, number, readErr)
	})
}

// fitsNow reports whether a request's body is small, buffered and fits the window. The error is nil
// or the Fault of a recovered panic of the body.
func (k *call) fitsNow(body protocol.Body, length int64) (fits bool, err error) {
	defer protocol.RecoverPanic(&err) // from the body of a filter
	n := int(min(length, bodyReadSize+1))
	return n >= 0 && n <= bodyReadSize && body.Buffered() >= n && k.sendCapacity() >= n, nil
}

// uploadEnded records that no more of the request's body will be sent.
func (k *call) uploadEnded(number uint64) {
	if k.x.IdleTimeout <= 0 {
		return
	}
	k.conn.mu.Lock()
	defer k.conn.mu.Unlock()
	if k.id.Load() == number {
		k.startResponseIdleTimeout(time.Now())
	}
}

// startResponseIdleTimeout starts the idle timeout of the response, if the exchange has one. u.mu
// is held.
func (k *call) startResponseIdleTimeout(now time.Time) {
	if d := k.x.IdleTimeout; d > 0 && k.stream != nil {
		k.responseIdleTimeout, k.lastActive = d, now
		k.upstream.arm(now.Add(d))
	}
}

// sendCapacity returns how many bytes of the body may be sent now.
func (l *muxStream) sendCapacity() int {
	l.conn.mu.Lock()
	defer l.conn.mu.Unlock()
	if l.sendErr != nil || l.stream == nil {
		return 0
	}
	return l.conn.state.Writable(l.stream)
}

// pumpEnded implements pumper: the request was sent, or failed with err. It fails the call, unless
// failSends was called: then a response may still arrive, or the call has already failed. k may
// belong to another exchange by now.
func (k *call) pumpEnded(b *batch, to *muxConn, number uint64, err error) {
	u, ok := to.side.(*UpstreamConn)
	if !ok || err == nil || k.id.Load() != number {
		return
	}
	u.mu.Lock()
	if k.id.Load() != number || k.sendErr != nil && errors.Is(err, k.sendErr) {
		u.mu.Unlock()
		return
	}
	var fx effects
	k.fail(err, &fx)
	u.mu.Unlock()
	fx.apply(b)
}

// stopUpload stops sending the request. It reports whether the request has a body, part of which
// may have been consumed.
func (k *call) stopUpload() (started bool) {
	k.out.stop()
	if s := k.uploader; s != nil {
		k.upstream.mu.Lock()
		k.failSends(errClosed)
		k.upstream.mu.Unlock()
		select {
		case <-s.done:
		default:
			err := k.x.CloseRequestBody(s.body) // unblocks a read of the client's body
			protocol.PanicIn(err).Log(k.upstream.engine.goroutines.Log, "closing a request body")
			<-s.done
		}
	}
	return k.x.Request.Body != nil
}
