package http2

import (
	"errors"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// sending is a goroutine that sends a request's content.
type sending struct {
	body protocol.Body
	done chan struct{}
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
		k.out.start(c, &k.lane, k)
		k.out.kick(b)
		return
	}
	length := x.Request.ContentLength
	if n := int(min(length, pieceSize+1)); n >= 0 && n <= pieceSize && body.Buffered() >= n && k.room() >= n {
		readErr, writeErr := k.copyFrom(body, length, &x.Request.Trailer)
		k.sentAll(b, readErr, writeErr)
		return
	}
	s := &sending{body, make(chan struct{})}
	k.sending = s
	trailer := &x.Request.Trailer
	on := waiting{u, k, k.number.Load()}
	u.engine.start(func() {
		defer close(s.done)
		readErr, writeErr := k.copyFrom(body, length, trailer)
		_ = u.outbox.Flush() // the reader finds out
		if on.call.number.Load() == on.number {
			k.sentAll(nil, readErr, writeErr)
		}
	})
}

// room is how many bytes of content may be sent now.
func (l *lane) room() int {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	if l.cut != nil || l.stream == nil {
		return 0
	}
	return l.wire.state.Writable(l.stream)
}

// sentAll notes that the request has been sent, or cannot be: because its content
// failed, or because the host takes no more of it, in which case an answer may come
// all the same.
func (k *call) sentAll(b *batch, readErr, writeErr error) {
	if readErr != nil {
		k.pumped(b, readErr)
		return
	}
	_ = writeErr // the reader, or who has cut the stream, tells
	k.pumped(b, nil)
}

// pumped is pumper's.
func (k *call) pumped(b *batch, err error) {
	u := k.u
	u.mu.Lock()
	k.ended = true
	if err == nil || k.cut != nil && errors.Is(err, k.cut) {
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
			_ = s.body.Close() // wakes a read of the caller
			<-s.done
		}
	}
	return k.x.Request.Body != nil
}
