package http2

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// muxStream is one stream of a connection, of either side: its received content and what it sends.
// exchange, call and lingeringStream embed it.
type muxStream struct {
	conn *muxConn
	in   recvBody // body received from the peer
	out  pump     // sends the body, if it comes from a stream of another connection

	// Guarded by muxConn.mu.
	stream       *syntax.Stream   // nil: not opened, or released
	owner        owner            // set with stream
	sendErr      error            // a Fault: nothing more can be sent
	blocked      bool             // blocked by its window, or, if in muxConn.blockedStreams, the connection's
	blockedLinks links[muxStream] // in muxConn.blockedStreams
	sendCond     sync.Cond        // wakes a goroutine that sends: blocked or sendErr changed
	bytesSent    int64            // bytes of the body sent
	lastActive   time.Time        // when bytes were last sent or received
	// responseIdleTimeout is how long a host may send nothing of its response; 0: only the
	// connection's idle timeout applies. Set once the request has been sent.
	responseIdleTimeout time.Duration
	deadline            time.Time // zero: none
	dropsData           bool      // the stream lingers: received DATA is dropped
}

// owner is the type that embeds a muxStream.
type owner interface {
	// fail is called with muxConn.mu held when the stream has ended early. why is a Fault.
	fail(why error, fx *effects)
	// expire is like fail, for a stream whose deadline has passed while its peer is still
	// connected.
	expire(why error, fx *effects)
}

// attach assigns the stream s to l. muxConn.mu is held.
func (l *muxStream) attach(s *syntax.Stream, o owner, now time.Time) {
	l.stream, l.owner = s, o
	l.sendCond.L = &l.conn.mu
	l.sendErr, l.blocked, l.bytesSent = nil, false, 0
	l.lastActive, l.responseIdleTimeout = now, 0
	s.Owner = l
}

// muxStreamOf returns the muxStream of s, or nil if it was released.
func muxStreamOf(s *syntax.Stream) *muxStream {
	if s == nil {
		return nil
	}
	l, _ := s.Owner.(*muxStream)
	return l
}

// touch records that bytes were sent or received. muxConn.mu is held.
func (l *muxStream) touch(now time.Time) { l.lastActive = now }

// reportConsumed tells the session that n bytes were consumed, which may open windows.
func (l *muxStream) reportConsumed(b *batch, n int) {
	if n == 0 {
		return
	}
	w := l.conn
	w.mu.Lock()
	if l.stream == nil {
		w.mu.Unlock()
		return // release counted them as consumed
	}
	said := w.enqueue(w.state.ReportConsumed(w.scratch[:0], l.stream, n))
	w.mu.Unlock()
	if said {
		b.scheduleFlush(w.writeQueue)
	}
}

// failSends makes all further sends fail with why, which is a Fault. muxConn.mu is held.
func (l *muxStream) failSends(why error) {
	if l.sendErr == nil {
		l.sendErr = why
		l.sendCond.Broadcast()
	}
}

// release releases the stream, and resets it with code if it is still open. It reports whether
// there are frames to flush. muxConn.mu is held.
func (l *muxStream) release(code syntax.Code) (said bool) {
	w := l.conn
	if l.stream == nil {
		return false
	}
	said = w.enqueue(w.state.Release(w.scratch[:0], l.stream, code))
	l.stream, l.owner, l.deadline = nil, nil, time.Time{}
	if l.blocked {
		w.unblock(l)
	}
	return said
}

// write sends p, and blocks until the windows allow all of it. end marks the end of the message.
// Errors are Faults.
func (l *muxStream) write(p []byte, end bool) error {
	w := l.conn
	for {
		w.mu.Lock()
		n, err := w.appendData(l, p, end)
		p = p[n:]
		if err != nil || len(p) == 0 {
			w.mu.Unlock()
			return err
		}
		w.mu.Unlock()
		if err := w.writeQueue.Flush(); err != nil {
			return disconnectFault(err)
		}
		w.writeQueue.AwaitCapacity()
		w.mu.Lock()
		if l.sendErr == nil && w.state.Writable(l.stream) == 0 {
			w.block(l)
		}
		for l.blocked && l.sendErr == nil {
			l.sendCond.Wait()
		}
		w.mu.Unlock()
	}
}

// writeEnd queues the end of the message, with trailers if there are any. The caller flushes it.
func (l *muxStream) writeEnd(trailer *protocol.Header) error {
	l.conn.mu.Lock()
	defer l.conn.mu.Unlock()
	return l.conn.appendEnd(l, trailer)
}

// bodyReadSize is the maximum size of one read of a body, in bytes.
const bodyReadSize = 16 << 10

// copyFrom sends the complete body, and the trailers that are known when it ends. It may block.
// length is the number of bytes that the body must have; -1: any. readErr is the error of the body,
// and writeErr that of the stream, which is a Fault.
func (l *muxStream) copyFrom(body protocol.Body, length int64, trailer *protocol.Header) (readErr, writeErr error) {
	defer protocol.RecoverPanic(&readErr) // from the body of a filter
	out := buffer.Get(bodyReadSize)
	defer out.Release()
	for left := length; ; {
		n, err := body.Read(out.Tail())
		left -= int64(n)
		if left == 0 && err == nil && n < len(out.Tail()) {
			// The declared length is reached: read the end too, to send it with the last bytes.
			var more int
			more, err = body.Read(out.Tail()[n:])
			left -= int64(more)
		}
		if length >= 0 && (left < 0 || err == io.EOF && left > 0) {
			return protocol.Faultf(protocol.Internal, "body length differs from the declared %d bytes", length), nil
		}
		if err != nil && err != io.EOF {
			return err, nil
		}
		end := err == io.EOF && trailer.Len() == 0
		if n > 0 {
			if werr := l.write(out.Tail()[:n], end); werr != nil {
				return nil, werr
			}
		}
		switch {
		case end && n > 0:
			return nil, nil
		case err == io.EOF:
			return nil, l.writeEnd(trailer)
		}
		if left != 0 && body.Buffered() == 0 || l.conn.writeQueue.Queued() >= network.HighWatermark {
			_ = l.conn.writeQueue.Flush() // the connection's reader finds out
		}
		l.conn.writeQueue.AwaitCapacity()
	}
}

// appendData queues as much of p as may be sent now, and returns that number of bytes. end marks
// the end of the message if all of p is queued. w.mu is held.
func (w *muxConn) appendData(l *muxStream, p []byte, end bool) (n int, err error) {
	if l.sendErr != nil {
		return 0, l.sendErr
	}
	defer protocol.RecoverPanic(&err)
	_, err, lost := w.writeQueue.AppendFrame(min(len(p), network.HighWatermark)+syntax.FrameHeaderLen, func(dst []byte) ([]byte, error) {
		var err error
		dst, n, err = w.state.AppendData(dst, l.stream, p, end)
		return dst, err
	})
	if lost != nil || errors.Is(err, syntax.ErrNotOpen) {
		err = disconnectFault(errors.Join(lost, err))
	}
	l.bytesSent += int64(n)
	if n > 0 && !(end && n == len(p)) { // no idle timeout is needed after the end
		l.touch(time.Now())
	}
	return n, err
}
