package http1

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http1"
)

// upload sends a request body upstream, on its own goroutine, while the exchange's goroutine reads
// the response. The response may begin before the body is complete (RFC 9112 9.5).
type upload struct {
	c     *UpstreamConn
	req   *protocol.Request
	state atomic.Uint32 // one of the states below
	done  chan struct{}
	// bodyRead is true once the complete body has been read. The upload may still have to write the
	// last bytes.
	bodyRead atomic.Bool

	panicked *protocol.PanicError // panic of closing the body, or nil; owned by the goroutine that reads the response

	// Valid once done is closed.
	readErr  error // the request body failed
	writeErr error // the upstream accepts no more bytes
}

// States of an upload and who changes them:
//
//	running <-> awaited  the goroutine that reads the response
//	either -> ended      the upload, which then interrupts that goroutine if the
//	                     goroutine awaits the end or the request body failed
const (
	uploadRunning = iota
	uploadAwaited
	uploadEnded
)

func startUpload(c *UpstreamConn, chunked bool) *upload {
	u := &upload{c: c, req: &c.x.Request, done: make(chan struct{})}
	go u.run(chunked)
	return u
}

func (u *upload) run(chunked bool) {
	defer close(u.done)
	out := buffer.Get(pieceSize)
	defer out.Release()
	defer u.end()
	appendNext := u.appendPlain
	if chunked {
		appendNext = u.appendChunk
	}
	for remaining := u.req.ContentLength; ; {
		n, err := appendNext(out, remaining)
		remaining -= int64(n)
		last := err == io.EOF
		if err != nil && !last {
			u.readErr = err
			return
		}
		if last {
			u.bodyRead.Store(true)
		}
		if out.Len() > 0 && (last || u.req.Body.Buffered() == 0 || out.Len() > maxInlineBody) {
			if _, err := u.c.conn.Write(out.Bytes()); err != nil {
				u.writeErr = err // a response may have arrived anyway
				return
			}
			out.Reset()
		}
		if last {
			return
		}
	}
}

// end publishes the end of the upload and interrupts the connection if needed. run defers it.
func (u *upload) end() {
	if p := recover(); p != nil { // from a body that a filter created
		u.readErr = protocol.NewFault(protocol.Internal, protocol.NewPanic(p))
	}
	if u.state.Swap(uploadEnded) == uploadAwaited || u.readErr != nil {
		u.c.conn.Interrupt()
	}
}

// awaitEnd requests that the end of the upload interrupts the connection. It returns false if the
// upload has ended.
func (u *upload) awaitEnd() bool { return u.state.CompareAndSwap(uploadRunning, uploadAwaited) }

// stopAwaiting reverts awaitEnd. It returns false if the upload has ended; the connection is then
// interrupted, or will be before done is closed.
func (u *upload) stopAwaiting() bool { return u.state.CompareAndSwap(uploadAwaited, uploadRunning) }

// appendPlain appends bytes of a body with a declared length. It returns io.EOF with the last ones.
func (u *upload) appendPlain(out *buffer.IoBuffer, remaining int64) (int, error) {
	out.Reserve(1)
	tail := out.Tail()
	if int64(len(tail)) > remaining {
		tail = tail[:remaining]
	}
	n, err := u.req.Body.Read(tail)
	out.Extend(n)
	switch {
	case err == io.EOF && int64(n) < remaining:
		return n, protocol.Faultf(protocol.Internal, "the request body ended %d bytes before its declared length", remaining-int64(n))
	case err == nil && int64(n) == remaining:
		return n, io.EOF
	}
	return n, err
}

// appendChunk appends body bytes in the chunked coding. It returns io.EOF with the last chunk.
func (u *upload) appendChunk(out *buffer.IoBuffer, _ int64) (int, error) {
	n, err := appendChunk(out, u.req.Body)
	if err == io.EOF {
		out.SetStorage(syntax.AppendLastChunk(out.Storage(), &u.req.Trailer))
	}
	return n, err
}

// ended reports whether the upload has ended and sends nothing more.
func (u *upload) ended() bool {
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}

// uploadGrace is how long stop waits for an upload that has read its complete body: the response
// may arrive before the upload's goroutine is scheduled again.
const uploadGrace = 100 * time.Millisecond

// stop ends the upload, waits for its goroutine, and reports whether it sent everything, so that
// the connection can be reused.
func (u *upload) stop() bool {
	if u.bodyRead.Load() && !u.ended() {
		timer := time.NewTimer(uploadGrace)
		defer timer.Stop()
		select {
		case <-u.done:
		case <-timer.C:
		}
	}
	if !u.ended() {
		u.panicked = protocol.PanicIn(u.c.x.CloseRequestBody(u.req.Body)) // unblocks a read from the client
		_ = u.c.conn.Close()                                              // unblocks a write to the upstream, which cannot be reused
		<-u.done
		return false
	}
	return u.readErr == nil && u.writeErr == nil
}

// fault waits for the end of the upload and returns the error of the request body, or nil.
func (u *upload) fault() error {
	<-u.done
	return u.readErr
}
