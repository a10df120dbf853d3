package xprotocol

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// UpstreamConn is one upstream connection, which carries many exchanges concurrently. It implements
// stream.UpstreamConn.
type UpstreamConn struct {
	engine     *Engine                    // immutable
	codec      codec.Codec                // immutable
	traits     *codec.Traits              // immutable; of codec
	conn       *network.Conn              // immutable
	writeQueue *network.WriteQueue        // immutable
	opts       stream.UpstreamConnOptions // immutable
	localAddr  string                     // immutable
	tls        *protocol.TLS              // immutable; nil: plaintext

	closing   atomic.Bool // Usable returns false, so the pool selects another connection
	hasOneWay atomic.Bool // the connection has carried a one-way request

	mu        sync.Mutex
	calls     callTable        // guarded by mu; calls that wait for a response
	err       error            // guarded by mu; why the connection was lost; nil: it is not lost
	timer     stream.ConnTimer // guarded by mu; runs UpstreamConn.expire
	keepalive stream.Keepalive // guarded by mu; its probes are heartbeats

	lastReadAt atomic.Int64 // time of the last read, in ns since the Unix epoch
}

func newUpstreamConn(e *Engine, c codec.Codec, conn *network.Conn, o stream.UpstreamConnOptions) *UpstreamConn {
	u := &UpstreamConn{engine: e, codec: c, traits: c.Traits(), conn: conn, opts: o, localAddr: conn.LocalAddr().String(), tls: stream.NewTLSMeta(conn)}
	u.writeQueue = network.NewWriteQueue(conn, e.goroutines.Start)
	u.writeQueue.SetLimit(o.RPC.MaxPendingBytes)
	conn.SetWriteTimeout(o.RPC.WriteTimeout)
	now := time.Now()
	u.lastReadAt.Store(now.UnixNano())
	u.calls.max = u.traits.MaxID
	d := o.RPC.HeartbeatInterval
	u.keepalive = stream.Keepalive{Interval: d, Timeout: d, MaxMissed: o.RPC.MaxMissedHeartbeats}
	u.mu.Lock()
	u.timer.Init(u.expire)
	if d > 0 {
		u.timer.Arm(now.Add(d))
	}
	u.mu.Unlock()
	e.goroutines.Start(u.run)
	return u
}

// Usable implements stream.UpstreamConn.
func (u *UpstreamConn) Usable(time.Duration) bool { return !u.closing.Load() }

// upstreamCloseGrace is how long Close keeps the socket open to send queued one-way requests.
const upstreamCloseGrace = 5 * time.Second

// Close implements stream.UpstreamConn. If the connection has carried one-way requests, a new
// goroutine sends those that are still queued, for at most upstreamCloseGrace, before it closes the
// socket. Engine.Close waits for that goroutine, Close does not.
func (u *UpstreamConn) Close() error {
	u.closing.Store(true)
	u.mu.Lock()
	flushFirst := u.err == nil && u.hasOneWay.Load()
	if flushFirst {
		// Start must be called with mu held: u.err is nil, so run has not ended and the engine still
		// accepts goroutines.
		u.engine.goroutines.Start(u.closeAfterFlush)
	}
	u.mu.Unlock()
	if flushFirst {
		return nil
	}
	return u.conn.Close() // without mu: Close calls the connection's OnClose functions
}

// closeAfterFlush closes the connection once the socket has taken the bytes of the write queue, or
// after upstreamCloseGrace.
func (u *UpstreamConn) closeAfterFlush() {
	timer := time.AfterFunc(upstreamCloseGrace, func() { _ = u.conn.Close() })
	defer timer.Stop()
	u.writeQueue.Close()
	_ = u.conn.Close() // may be the second close
}

// run reads responses until the connection ends, and then fails the calls that still wait.
func (u *UpstreamConn) run() {
	var in input
	var b batch
	err := u.readAll(&in, &b)
	u.engine.logPanicIn("reading responses", err)
	in.Release()
	u.fail(err, &b)
	u.timer.Wait()
}

// readAll reads until the connection fails. It returns a panic of the codec as an error.
func (u *UpstreamConn) readAll(in *input, b *batch) (err error) {
	defer protocol.RecoverPanic(&err)
	flush := func() {
		b.flush()
		in.Unflushed = 0
	}
	for {
		if err := in.Fill(u.conn, flush); err != nil {
			return err
		}
		b.now = time.Now()
		u.lastReadAt.Store(b.now.UnixNano())
		if err := u.read(in, b); err != nil {
			return err
		}
		if in.Unflushed >= stream.MaxReadPerFlush {
			flush()
		}
	}
}

// read handles the complete frames in the input.
func (u *UpstreamConn) read(in *input, b *batch) (err error) {
	in.drop()
	for in.HasBytes() {
		head, frame, err := in.next(u.codec, u.opts.RPC.MaxFrameSize)
		if err != nil {
			return protocol.NewFault(protocol.UpstreamMalformed, err)
		}
		if frame == nil {
			break
		}
		u.handleFrame(head, frame, b)
		in.consume(head, len(frame))
	}
	in.ReleaseEmpty()
	return nil
}

// handleFrame handles one frame. If the frame is too large, frame holds only its beginning.
func (u *UpstreamConn) handleFrame(head codec.Frame, frame []byte, b *batch) {
	switch head.Kind {
	case codec.Response:
		k := u.remove(head.ID)
		if k == nil {
			return // the call has ended, or the id was never used
		}
		k.readAt = b.now
		if head.Size > len(frame) {
			k.err = protocol.Faultf(protocol.UpstreamMalformed, "the response has %d bytes, more than connection_pool.max_frame_size (%d)", head.Size, u.opts.RPC.MaxFrameSize)
		} else {
			k.setResponse(frame)
		}
		k.waiter.wake(b)
	case codec.Heartbeat:
		if head.Size == len(frame) {
			u.sendFrame(b, func(dst []byte) []byte { return u.codec.AppendHeartbeatAck(dst, frame) })
		}
	case codec.Request:
		// The host calls back over the connection. Weft has no client to which it could pass the
		// request.
		u.sendFrame(b, func(dst []byte) []byte {
			return u.codec.AppendErrorResponse(dst, frame, protocol.ReasonNoRoute, "weft: callbacks over an upstream connection are not supported")
		})
	case codec.GoAway:
		u.closing.Store(true)
	case codec.OneWay, codec.HeartbeatAck, codec.Ignored:
	}
}

// sendFrame enqueues a frame that Weft generates.
func (u *UpstreamConn) sendFrame(b *batch, encode func(dst []byte) []byte) {
	if enqueueFrame(u.writeQueue, encode) {
		b.dirty.Add(u.writeQueue)
	}
}

// remove removes the call with the id from the table and returns it; nil: the call has ended.
func (u *UpstreamConn) remove(id uint64) *call {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.calls.remove(id)
}

// drainIfExhausted stops new exchanges, so that the pool replaces the connection before its ids run
// out. The caller holds u.mu.
func (u *UpstreamConn) drainIfExhausted() {
	if u.calls.exhausted() {
		u.closing.Store(true)
	}
}

// errAbandoned ends a call whose client has disconnected.
var errAbandoned = protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client closed its connection before the upstream response was complete")

// abandon ends the call with the id, whose client has disconnected, unless it has already ended.
func (u *UpstreamConn) abandon(id uint64, b *batch) {
	if k := u.remove(id); k != nil {
		k.err = errAbandoned
		k.waiter.wake(b)
	}
}

// fail closes the lost connection and ends all of its calls.
func (u *UpstreamConn) fail(err error, b *batch) {
	u.mu.Lock()
	if u.err != nil { // the connection has already failed
		u.mu.Unlock()
		b.flush() // sends the responses received until then
		return
	}
	u.err = err
	u.closing.Store(true)
	calls := u.calls.clear()
	u.timer.Stop()
	u.mu.Unlock()
	_ = u.conn.Close() // may be the second close
	u.writeQueue.Fail(err)
	fault := connFault(err)
	b.now = time.Now()
	for _, k := range calls {
		u.failCall(k, fault, b)
	}
	b.flush()
}

// failCall ends k with err. It recovers and logs panics, so that the caller can end other calls.
func (u *UpstreamConn) failCall(k *call, err error, b *batch) {
	defer u.engine.goroutines.Contain("ending a request")
	k.err = err
	k.waiter.wake(b)
}

// connFault returns the fault for calls that wait when the connection ends.
func connFault(err error) error {
	var f *protocol.Fault
	switch {
	case errors.As(err, &f):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, errHeartbeatTimeout):
		return protocol.Faultf(protocol.UpstreamClosed, "waiting for the response: %w", err)
	}
	return protocol.Faultf(protocol.UpstreamReset, "waiting for the response: %w", err)
}
