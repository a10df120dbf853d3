package http2

import (
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// sending is a goroutine that sends a request's content.
type sending struct {
	body protocol.Body
	done chan struct{}
}

// over reports whether it has ended.
func (s *sending) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// upload sends the content of k's request: what can be sent now, and the rest as it
// comes, or as there is room. k is the caller's.
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
		_ = writeErr // whoever cut the stream tells
		return
	}
	s := &sending{body, make(chan struct{})}
	k.sending = s
	trailer, number := &x.Request.Trailer, k.number.Load()
	u.engine.start(func() {
		readErr, _ := k.copyFrom(body, length, trailer) // whoever cut the stream tells
		_ = u.outbox.Flush()                            // the reader finds out
		protocol.PanicIn(readErr).Log(u.engine.log, "reading a request's content")
		k.uploaded(number)
		close(s.done)
		k.pumped(nil, &u.muxConn, number, readErr)
	})
}

// fitsNow reports whether a request's content is small and all of it can be sent now. The
// error is a panic of the body.
func (k *call) fitsNow(body protocol.Body, length int64) (fits bool, err error) {
	defer protocol.RecoverPanic(&err) // of a body that a filter made
	n := int(min(length, pieceSize+1))
	return n >= 0 && n <= pieceSize && body.Buffered() >= n && k.room() >= n, nil
}

// uploaded notes that nothing more of the request's content will be sent.
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

// requestSent begins to count how long the host sends nothing of the answer, if the
// exchange has a limit for that. u.mu is held.
func (k *call) requestSent(now time.Time) {
	if d := k.x.IdleTimeout; d > 0 && k.stream != nil {
		k.answerIdle, k.active = d, now
		k.u.arm(now.Add(d))
	}
}

// room is how many bytes of content may be sent now.
func (l *muxStream) room() int {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	if l.cut != nil || l.stream == nil {
		return 0
	}
	return l.wire.state.Writable(l.stream)
}

// pumped is pumper's: the request has been sent, or cannot be because its content
// failed. If the host takes no more of it, an answer may come all the same. k may be
// another's.
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

// end stops sending, and reports whether anything of the content had been taken.
func (k *call) end() (started bool) {
	k.out.stop()
	if s := k.sending; s != nil {
		k.u.mu.Lock()
		k.sever(errClosed)
		k.u.mu.Unlock()
		select {
		case <-s.done:
		default:
			err := k.x.CloseContent(s.body) // wakes a read of the caller
			protocol.PanicIn(err).Log(k.u.engine.log, "closing a request's content")
			<-s.done
		}
	}
	return k.x.Request.Body != nil
}
