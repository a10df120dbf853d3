package http2

import (
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// sending is a goroutine that sends a request's body.
type sending struct {
	body protocol.Body
	done chan struct{}
}

// over reports whether the goroutine has ended.
func (s *sending) over() bool {
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
	u, x := k.u, k.x
	defer b.sends(u.outbox)
	body := x.Request.Body
	if k.ended || body == nil {
		return
	}
	if c := contentOf(body); c != nil {
		k.out.start(c, &k.muxStream, k, k.number.Load())
		k.out.kick(b)
		return
	}
	length := x.Request.ContentLength
	small, err := k.fitsNow(body, length)
	if err != nil {
		k.pumped(b, &u.muxConn, k.number.Load(), err)
		return
	}
	if small {
		readErr, writeErr := k.copyFrom(body, length, &x.Request.Trailer)
		k.uploaded(k.number.Load())
		k.pumped(b, &u.muxConn, k.number.Load(), readErr)
		_ = writeErr // fail or sever has recorded why the stream was cut
		return
	}
	s := &sending{body, make(chan struct{})}
	k.sending = s
	trailer, number := &x.Request.Trailer, k.number.Load()
	u.engine.start(func() {
		// The write error is ignored: fail or sever has recorded why the stream was cut.
		readErr, _ := k.copyFrom(body, length, trailer)
		_ = u.outbox.Flush() // the connection's reader handles the error
		protocol.PanicIn(readErr).Log(u.engine.log, "reading a request body")
		k.uploaded(number)
		close(s.done)
		k.pumped(nil, &u.muxConn, number, readErr)
	})
}

// fitsNow reports whether a request's body is small, buffered and fits the window. The error is nil
// or the Fault of a recovered panic of the body.
func (k *call) fitsNow(body protocol.Body, length int64) (fits bool, err error) {
	defer protocol.RecoverPanic(&err) // from the body of a filter
	n := int(min(length, pieceSize+1))
	return n >= 0 && n <= pieceSize && body.Buffered() >= n && k.room() >= n, nil
}

// uploaded records that no more of the request's body will be sent.
func (k *call) uploaded(number uint64) {
	if k.x.IdleTimeout <= 0 {
		return
	}
	k.wire.mu.Lock()
	defer k.wire.mu.Unlock()
	if k.number.Load() == number {
		k.requestSent(time.Now())
	}
}

// requestSent starts the idle timeout of the response, if the exchange has one. u.mu is held.
func (k *call) requestSent(now time.Time) {
	if d := k.x.IdleTimeout; d > 0 && k.stream != nil {
		k.answerIdle, k.active = d, now
		k.u.arm(now.Add(d))
	}
}

// room returns how many bytes of the body may be sent now.
func (l *muxStream) room() int {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	if l.cut != nil || l.stream == nil {
		return 0
	}
	return l.wire.state.Writable(l.stream)
}

// pumped implements pumper: the request was sent, or failed with err. It fails the call, unless
// sending was cut: then a response may still arrive, or the call has already failed. k may belong
// to another exchange by now.
func (k *call) pumped(b *batch, to *muxConn, number uint64, err error) {
	u, ok := to.side.(*UpstreamConn)
	if !ok || err == nil || k.number.Load() != number {
		return
	}
	u.mu.Lock()
	if k.number.Load() != number || k.cut != nil && errors.Is(err, k.cut) {
		u.mu.Unlock()
		return
	}
	then := k.fail(err)
	u.mu.Unlock()
	if then != nil {
		then(b)
	}
}

// end stops sending the request. It reports whether the request has a body, part of which may have
// been consumed.
func (k *call) end() (started bool) {
	k.out.stop()
	if s := k.sending; s != nil {
		k.u.mu.Lock()
		k.sever(errClosed)
		k.u.mu.Unlock()
		select {
		case <-s.done:
		default:
			err := k.x.CloseContent(s.body) // unblocks a read of the client's body
			protocol.PanicIn(err).Log(k.u.engine.log, "closing a request body")
			<-s.done
		}
	}
	return k.x.Request.Body != nil
}
