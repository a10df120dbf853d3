package http2

import (
	"errors"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

const (
	// minPartialData is the minimum number of payload bytes of an incomplete DATA frame that the
	// reader processes before the rest arrives. Fewer bytes are not worth a frame of their own on
	// the other connection.
	minPartialData = 4 << 10
	// maxScratch is the maximum capacity, in bytes, of the scratch that a connection keeps.
	maxScratch = 16 << 10
	// minCharges is the number of charges (see syntax.Session.TakeCharges) at which a connection
	// charges the flood limits of its source address and of its listener. A connection with fewer
	// charges continues even if other connections have exceeded these limits. If none of its
	// requests got a complete response and its source address exceeds the flood limit, one charge is
	// enough.
	minCharges = 16
)

// muxConn is the common part of downstream and upstream connections.
type muxConn struct {
	engine            *Engine             // immutable
	conn              *network.Conn       // immutable
	writeQueue        *network.WriteQueue // immutable
	side              connSide            // immutable
	streamIdleTimeout time.Duration       // immutable; idle timeout of a stream; 0: none
	creditThreshold   int                 // immutable; number of consumed bytes at which a stream credits its peer

	mu               sync.Mutex
	state            *syntax.Session  // guarded by mu; the frames that it appends are queued before mu is released
	lostErr          error            // guarded by mu; a Fault: why the connection ended
	blockedStreams   fifo[muxStream]  // guarded by mu; streams blocked by the connection's window
	waitingPumps     fifo[pump]       // guarded by mu; pumps that wait for space in writeQueue
	awaitingCapacity bool             // guarded by mu; kickWhenWritable is running
	scratch          []byte           // guarded by mu; storage for frames that state appends
	timer            stream.ConnTimer // guarded by mu; calls onTimer

	// The reader goroutine owns these fields.
	read    stream.ReadBuffer
	event   syntax.Event // event of the last frame
	effects *effects     // effects of the last frame; nil: no frame since the connection was parked
}

// connSide is the side that embeds a muxConn: a downstreamConn or an UpstreamConn.
type connSide interface {
	// handleSideEvent handles the events that concern only one side: heads, settings, PING
	// acknowledgements, GOAWAY. The caller holds muxConn.mu.
	handleSideEvent(event *syntax.Event, b *batch, fx *effects)
	// resetFault and protocolFault return the Fault of a stream that the peer has reset, or on
	// which it violated the protocol.
	resetFault(ms *muxStream, code syntax.Code, now time.Time) error
	protocolFault(e *syntax.StreamError) error
	// chargeThreshold returns the number of charges at which charge is called. The caller holds
	// muxConn.mu.
	chargeThreshold(now time.Time) int
	// charge takes n tokens from the flood limits that the connection shares. An error ends the
	// connection. The caller holds muxConn.mu.
	charge(n int, now time.Time) error
	timeoutSide
}

// timeoutSide is the part of connSide that the timer uses.
type timeoutSide interface {
	// idleReason returns the reason of a stream that ends because it is idle.
	idleReason() protocol.Reason
	// expireSide handles the deadlines of the side when the timer has fired, and arms the timer for
	// the remaining ones. The caller holds muxConn.mu.
	expireSide(b *batch, fx *effects)
}

// init initializes mc for conn, except for state, streamIdleTimeout and creditThreshold, which the
// side sets.
func (mc *muxConn) init(e *Engine, conn *network.Conn, side connSide) {
	mc.engine, mc.conn, mc.side = e, conn, side
	mc.timer.Init(mc.onTimer)
	mc.writeQueue = network.NewWriteQueue(conn, e.goroutines.Start)
	mc.blockedStreams.linksOf = func(ms *muxStream) *links[muxStream] { return &ms.blockedLinks }
	mc.waitingPumps.linksOf = func(p *pump) *links[pump] { return &p.waitLinks }
}

// enqueue queues frames that state has appended to scratch, and reports whether there are any. The
// caller holds mu, or mc is not shared yet.
func (mc *muxConn) enqueue(frames []byte) (queued bool) {
	if len(frames) > 0 {
		_ = mc.enqueueFrames(frames) // the reader handles the error
	}
	return len(frames) > 0
}

// enqueueFrames queues frames that state has appended to scratch. It returns an error if nothing
// can be sent any more. The caller holds mu.
func (mc *muxConn) enqueueFrames(frames []byte) error {
	mc.scratch = frames[:0]
	if cap(frames) > maxScratch {
		mc.scratch = nil
	}
	return mc.writeQueue.EndFrame(append(mc.writeQueue.BeginFrame(len(frames)), frames...))
}

// startHead returns scratch. The caller appends the frames of a header section and passes the
// result to endHead. If the encoder panics, nothing is sent: the caller recovers and resets the
// stream, and the connection continues. The error is ErrWriteQueueFull: startHead checks the queue,
// because the peer must receive every section that was encoded (RFC 9113 4.3). The caller holds mu.
func (mc *muxConn) startHead() ([]byte, error) {
	if mc.writeQueue.Full() {
		return nil, network.ErrWriteQueueFull
	}
	if mc.scratch == nil {
		mc.scratch = make([]byte, 0, stream.MinReadSize/8)
	}
	return mc.scratch[:0], nil
}

// endHead queues the frames that were appended to startHead's scratch. err is the error of the
// encoder: endHead returns syntax.ErrNotOpen as a Fault, and other errors unchanged. The caller
// holds mu.
func (mc *muxConn) endHead(frames []byte, err error) error {
	switch {
	case err == nil:
		err = mc.enqueueFrames(frames)
	case !errors.Is(err, syntax.ErrNotOpen):
		return err
	}
	if err != nil {
		return disconnectFault(err)
	}
	return nil
}

// appendEnd queues the end of ms's message, with trailers if there are any. The caller holds mu.
func (mc *muxConn) appendEnd(ms *muxStream, trailer *protocol.Header) error {
	if ms.sendErr != nil {
		return ms.sendErr
	}
	dst, err := mc.startHead()
	if err != nil {
		return disconnectFault(err)
	}
	if trailer != nil && trailer.Len() > 0 {
		return mc.endHead(mc.state.AppendTrailer(dst, ms.stream, trailer))
	}
	dst, _, err = mc.state.ReserveData(dst, ms.stream, 0, true)
	return mc.endHead(dst, err)
}

// disconnectFault returns the Fault of a peer that has disconnected or accepts no more frames.
func disconnectFault(err error) error {
	return protocol.NewFault(protocol.ReasonDownstreamDisconnect, err)
}

// block marks ms as blocked by its window or the connection's. The caller holds mu.
func (mc *muxConn) block(ms *muxStream) {
	ms.blocked = true
	if mc.state.SendWindow() <= 0 {
		mc.blockedStreams.push(ms)
	}
}

// unblock marks ms as unblocked and wakes a goroutine that waits to send. The caller holds mu.
func (mc *muxConn) unblock(ms *muxStream) {
	ms.blocked = false
	mc.blockedStreams.remove(ms)
	ms.sendCond.Broadcast()
}

// onWindowUpdate unblocks ms, whose window has grown. ms may be nil. The caller holds mu.
func (mc *muxConn) onWindowUpdate(ms *muxStream, fx *effects) {
	if ms != nil && ms.blocked {
		mc.unblock(ms)
		fx.sendable = append(fx.sendable, &ms.out)
	}
}

// resumeBlocked resumes the streams that are blocked by the connection's window, oldest first,
// while the window is open. It does not resume streams that are blocked by their own window: there
// may be thousands, and each update would wake all of them without effect.
func (mc *muxConn) resumeBlocked(b *batch) {
	for {
		mc.mu.Lock()
		if mc.state.SendWindow() <= 0 || mc.blockedStreams.empty() {
			mc.mu.Unlock()
			return
		}
		ms := mc.blockedStreams.first
		mc.unblock(ms)
		mc.mu.Unlock()
		ms.out.kick(b)
	}
}

// unblockAll unblocks all blocked streams, because SETTINGS may have changed every stream's window.
// The caller holds mu.
func (mc *muxConn) unblockAll(fx *effects) {
	for s := range mc.state.Streams() {
		mc.onWindowUpdate(muxStreamOf(s), fx)
	}
}

// errInternal ends a connection after a panic on its reader goroutine.
var errInternal = &syntax.ConnectionError{Code: syntax.InternalError, Reason: "internal error"}

// failStreams fails the streams in flight because the connection ends, and waits until onTimer is
// not running. The reader calls it after its last read.
func (mc *muxConn) failStreams(fault error, b *batch) {
	var fx effects
	mc.mu.Lock()
	if mc.lostErr == nil {
		mc.lostErr = fault
		mc.timer.Stop()
		for s := range mc.state.Streams() {
			if ms := muxStreamOf(s); ms != nil {
				ms.owner.fail(fault, &fx)
			}
		}
	}
	mc.mu.Unlock()
	fx.apply(b)
	b.flush()
	mc.timer.Wait()
}

// enqueueBatched queues frames, which are flushed with b. The caller holds mu.
func (mc *muxConn) enqueueBatched(frames []byte, b *batch) {
	if mc.enqueue(frames) {
		b.scheduleFlush(mc.writeQueue)
	}
}
