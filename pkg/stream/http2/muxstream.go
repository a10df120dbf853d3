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

// muxStream is one stream of a downstream or upstream connection: the body that it receives, and
// the state of what it sends. exchange, call and lingeringStream embed it.
type muxStream struct {
	conn *muxConn
	in   recvBody // body received from the peer
	out  pump     // sends the body, if it comes from a stream of another connection

	// Guarded by muxConn.mu.
	stream       *syntax.Stream   // nil: not opened, or released
	owner        owner            // set with stream
	sendErr      error            // a Fault: nothing more can be sent
	blocked      bool             // blocked by its own window or, if in muxConn.blockedStreams, by the connection's
	blockedLinks links[muxStream] // links in muxConn.blockedStreams
	sendCond     sync.Cond        // wakes a goroutine that sends: blocked or sendErr changed
	bytesSent    int64            // bytes of the body sent
	lastActive   time.Time        // start of the idle time: usually the last send or receive
	// responseIdleTimeout is how long a host may send nothing of its response; 0: only
	// muxConn.streamIdleTimeout applies. Set once the request has been sent.
	responseIdleTimeout time.Duration
	deadline            time.Time // zero: none
	dropsData           bool      // the stream lingers: received DATA is dropped
}

// owner is the type that embeds a muxStream.
type owner interface {
	// fail handles the early end of the stream. fault is a Fault; a stream that lingers ignores
	// fault. The caller holds muxConn.mu.
	fail(fault error, fx *effects)
	// expire is like fail, for a stream whose deadline has passed while its peer is still
	// connected.
	expire(fault error, fx *effects)
}

// attach assigns the stream s to ms. The caller holds muxConn.mu.
func (ms *muxStream) attach(s *syntax.Stream, o owner, now time.Time) {
	ms.stream, ms.owner = s, o
	ms.sendCond.L = &ms.conn.mu
	ms.sendErr, ms.blocked, ms.bytesSent = nil, false, 0
	ms.lastActive, ms.responseIdleTimeout = now, 0
	s.Owner = ms
}

// muxStreamOf returns the muxStream of s, or nil if it was released.
func muxStreamOf(s *syntax.Stream) *muxStream {
	if s == nil {
		return nil
	}
	ms, _ := s.Owner.(*muxStream)
	return ms
}

// touch records that bytes were sent or received. The caller holds muxConn.mu.
func (ms *muxStream) touch(now time.Time) { ms.lastActive = now }

// reportConsumed reports to the session that n bytes were consumed, which may open windows.
func (ms *muxStream) reportConsumed(b *batch, n int) {
	if n == 0 {
		return
	}
	mc := ms.conn
	mc.mu.Lock()
	if ms.stream == nil {
		mc.mu.Unlock()
		return // release has counted the bytes as consumed
	}
	queued := mc.enqueue(mc.state.ReportConsumed(mc.scratch[:0], ms.stream, n))
	mc.mu.Unlock()
	if queued {
		b.scheduleFlush(mc.writeQueue)
	}
}

// failSends makes all further sends fail with fault, which is a Fault. The caller holds muxConn.mu.
func (ms *muxStream) failSends(fault error) {
	if ms.sendErr == nil {
		ms.sendErr = fault
		ms.sendCond.Broadcast()
	}
}

// release releases the stream, and resets it with code if it is still open. It reports whether
// there are frames to flush. The caller holds muxConn.mu.
func (ms *muxStream) release(code syntax.Code) (queued bool) {
	mc := ms.conn
	if ms.stream == nil {
		return false
	}
	queued = mc.enqueue(mc.state.Release(mc.scratch[:0], ms.stream, code))
	ms.stream, ms.owner, ms.deadline = nil, nil, time.Time{}
	if ms.blocked {
		mc.unblock(ms)
	}
	return queued
}

// write sends p, and blocks until the windows allow all of it. With endStream, it ends the message.
// Errors are Faults.
func (ms *muxStream) write(p []byte, endStream bool) error {
	mc := ms.conn
	for {
		mc.mu.Lock()
		n, err := mc.appendData(ms, p, endStream)
		p = p[n:]
		if err != nil || len(p) == 0 {
			mc.mu.Unlock()
			return err
		}
		mc.mu.Unlock()
		if err := mc.writeQueue.Flush(); err != nil {
			return disconnectFault(err)
		}
		mc.writeQueue.AwaitCapacity()
		mc.mu.Lock()
		if ms.sendErr == nil && mc.state.Writable(ms.stream) == 0 {
			mc.block(ms)
		}
		for ms.blocked && ms.sendErr == nil {
			ms.sendCond.Wait()
		}
		mc.mu.Unlock()
	}
}

// writeEnd queues the end of the message, with trailers if there are any. The caller flushes it.
func (ms *muxStream) writeEnd(trailer *protocol.Header) error {
	ms.conn.mu.Lock()
	defer ms.conn.mu.Unlock()
	return ms.conn.appendEnd(ms, trailer)
}

// bodyReadSize is the maximum size of one read of a body, in bytes.
const bodyReadSize = 16 << 10

// copyFrom sends the complete body, and the trailers that are known when the body ends. It may
// block. length is the number of bytes that the body must have; -1: any. readErr is the error of
// the body. writeErr is the error of the stream, a Fault.
func (ms *muxStream) copyFrom(body protocol.Body, length int64, trailer *protocol.Header) (readErr, writeErr error) {
	defer protocol.RecoverPanic(&readErr) // from the body of a filter
	buf := buffer.Get(bodyReadSize)
	defer buf.Release()
	for remaining := length; ; {
		n, err := body.Read(buf.Tail())
		remaining -= int64(n)
		if remaining == 0 && err == nil && n < len(buf.Tail()) {
			// The declared length is reached: read io.EOF too, to send the end with the last bytes.
			var extra int
			extra, err = body.Read(buf.Tail()[n:])
			remaining -= int64(extra)
		}
		if length >= 0 && (remaining < 0 || err == io.EOF && remaining > 0) {
			return protocol.Faultf(protocol.Internal, "the body length differs from the declared %d bytes", length), nil
		}
		if err != nil && err != io.EOF {
			return err, nil
		}
		endStream := err == io.EOF && trailer.Len() == 0
		if n > 0 {
			if err := ms.write(buf.Tail()[:n], endStream); err != nil {
				return nil, err
			}
		}
		switch {
		case endStream && n > 0:
			return nil, nil
		case err == io.EOF:
			return nil, ms.writeEnd(trailer)
		}
		if remaining != 0 && body.Buffered() == 0 || ms.conn.writeQueue.Queued() >= network.HighWatermark {
			_ = ms.conn.writeQueue.Flush() // the connection's reader handles the error
		}
		ms.conn.writeQueue.AwaitCapacity()
	}
}

// appendData queues as much of p as may be sent now, and returns that number of bytes. With
// endStream, it ends the message if all of p is queued. The caller holds mc.mu.
func (mc *muxConn) appendData(ms *muxStream, p []byte, endStream bool) (n int, err error) {
	if ms.sendErr != nil {
		return 0, ms.sendErr
	}
	defer protocol.RecoverPanic(&err)
	_, err, lost := mc.writeQueue.AppendFrame(min(len(p), network.HighWatermark)+syntax.FrameHeaderLen, func(dst []byte) ([]byte, error) {
		var err error
		dst, n, err = mc.state.AppendData(dst, ms.stream, p, endStream)
		return dst, err
	})
	if lost != nil || errors.Is(err, syntax.ErrNotOpen) {
		err = disconnectFault(errors.Join(lost, err))
	}
	ms.bytesSent += int64(n)
	if n > 0 && !(endStream && n == len(p)) { // no idle timeout is needed after the end
		ms.touch(time.Now())
	}
	return n, err
}
