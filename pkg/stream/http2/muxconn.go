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
	// minPartialData is the minimum number of bytes of an incomplete DATA frame that are processed
	// before the rest arrives. Less is not worth a separate frame.
	minPartialData = 4 << 10
	// maxScratch is the maximum capacity of scratch that is kept for the next frames, in bytes.
	maxScratch = 16 << 10
	// minCharges is the minimum number of charges of a connection that are added to the budgets of
	// its source address and its listener. A connection with fewer charges is not closed because of
	// the charges of others, unless none of its requests got a complete response and its address is
	// over its budget.
	minCharges = 16
)

// muxConn is the common part of downstream and upstream connections.
type muxConn struct {
	engine            *Engine             // immutable
	conn              *network.Conn       // immutable
	writeQueue        *network.WriteQueue // immutable
	side              connSide            // immutable
	streamIdleTimeout time.Duration       // immutable; idle timeout of a stream; 0: none
	creditThreshold   int                 // immutable; bytes of a stream to consume before a credit

	mu               sync.Mutex
	state            *syntax.Session  // guarded by mu; appended frames are queued with mu held
	lostErr          error            // guarded by mu; a Fault: why the connection ended
	blockedStreams   fifo[muxStream]  // guarded by mu; streams blocked by the connection's window
	waitingPumps     fifo[pump]       // guarded by mu; pumps that wait for space in writeQueue
	awaitingCapacity bool             // guarded by mu; kickWhenWritable is running
	scratch          []byte           // guarded by mu; storage for frames that state appends
	timer            stream.ConnTimer // guarded by mu; calls onTimer

	// The reader goroutine owns these fields.
	read    stream.ReadBuffer
	event   syntax.Event // meaning of the last frame
	effects *effects     // of the last frame; nil: none since the connection was parked
}

// connSide is the side that embeds a muxConn: a downstreamConn or an UpstreamConn.
type connSide interface {
	// handleSideEvent handles the events that concern only one side: heads, settings, PING
	// acknowledgements, GOAWAY. muxConn.mu is held.
	handleSideEvent(e *syntax.Event, b *batch, fx *effects)
	// resetFault and protocolFault return the Fault of a stream that the peer has reset, or on
	// which it violated the protocol.
	resetFault(code syntax.Code) error
	protocolFault(e *syntax.StreamError) error
	// chargeThreshold returns the number of charges at which charge is called. muxConn.mu is held.
	chargeThreshold(now time.Time) int
	// charge adds n charges to the budgets that the connection shares. An error ends the
	// connection. muxConn.mu is held.
	charge(n int, now time.Time) error
	timeoutSide
}

// timeoutSide is the part of connSide that the timer uses.
type timeoutSide interface {
	// idleReason returns the reason of a stream that ends because it is idle.
	idleReason() protocol.Reason
	// expireSide is called when the timer fires, with muxConn.mu held. next is when it has to be
	// called again, or zero.
	expireSide(b *batch, fx *effects) (next time.Time)
}

// init initializes w for conn, except for state, which the side sets.
func (w *muxConn) init(e *Engine, conn *network.Conn, side connSide) {
	w.engine, w.conn, w.side = e, conn, side
	w.timer.Init(w.onTimer)
	w.writeQueue = network.NewWriteQueue(conn, e.goroutines.Start)
	w.blockedStreams.linksOf = func(l *muxStream) *links[muxStream] { return &l.blockedLinks }
	w.waitingPumps.linksOf = func(p *pump) *links[pump] { return &p.waitLinks }
}

// enqueue queues frames that state has appended to scratch, and reports whether there are any. mu
// is held.
func (w *muxConn) enqueue(frames []byte) (some bool) {
	if len(frames) > 0 {
		_ = w.enqueueFrames(frames) // the reader handles the error
	}
	return len(frames) > 0
}

// enqueueFrames queues frames that state has appended to scratch. It returns an error if the
// connection is lost. mu is held.
func (w *muxConn) enqueueFrames(frames []byte) error {
	w.scratch = frames[:0]
	if cap(frames) > maxScratch {
		w.scratch = nil
	}
	return w.writeQueue.EndFrame(append(w.writeQueue.BeginFrame(len(frames)), frames...))
}

// startHead returns scratch for the frames of a header section, which the caller passes to endHead.
// If appending panics, nothing is sent: the caller recovers and resets the stream, and the
// connection continues. The error is ErrWriteQueueFull. startHead checks the queue before anything
// is encoded, because the peer has to receive each section that was encoded (RFC 9113 4.3). mu is
// held.
func (w *muxConn) startHead() ([]byte, error) {
	if w.writeQueue.Full() {
		return nil, network.ErrWriteQueueFull
	}
	if w.scratch == nil {
		w.scratch = make([]byte, 0, stream.MinReadSize/8)
	}
	return w.scratch[:0], nil
}

// endHead queues the frames that were appended to startHead's scratch. err is the error of
// appending them, which put returns as a Fault. mu is held.
func (w *muxConn) endHead(frames []byte, err error) error {
	switch {
	case err == nil:
		err = w.enqueueFrames(frames)
	case !errors.Is(err, syntax.ErrNotOpen):
		return err
	}
	if err != nil {
		return disconnectFault(err)
	}
	return nil
}

// appendEnd queues the end of l's message, with trailers if there are any. mu is held.
func (w *muxConn) appendEnd(l *muxStream, trailer *protocol.Header) error {
	if l.sendErr != nil {
		return l.sendErr
	}
	dst, err := w.startHead()
	if err != nil {
		return disconnectFault(err)
	}
	if trailer != nil && trailer.Len() > 0 {
		return w.endHead(w.state.AppendTrailer(dst, l.stream, trailer))
	}
	dst, _, err = w.state.ReserveData(dst, l.stream, 0, true)
	return w.endHead(dst, err)
}

// disconnectFault returns the Fault of a peer that has disconnected or accepts no more frames.
func disconnectFault(err error) error {
	return protocol.NewFault(protocol.ReasonDownstreamDisconnect, err)
}

// block marks l as blocked by its window or the connection's. mu is held.
func (w *muxConn) block(l *muxStream) {
	l.blocked = true
	if w.state.SendWindow() <= 0 {
		w.blockedStreams.push(l)
	}
}

// unblock marks l as unblocked. mu is held.
func (w *muxConn) unblock(l *muxStream) {
	l.blocked = false
	w.blockedStreams.remove(l)
	l.sendCond.Broadcast()
}

// onWindowUpdate unblocks l, whose window has grown. l may be nil. mu is held.
func (w *muxConn) onWindowUpdate(l *muxStream, fx *effects) {
	if l != nil && l.blocked {
		w.unblock(l)
		fx.sendable = append(fx.sendable, &l.out)
	}
}

// resumeBlocked resumes the streams that are blocked by the connection's window, oldest first,
// while the window is open. It does not resume streams that are blocked by their own window: there
// may be thousands, and each update would wake all of them without effect.
func (w *muxConn) resumeBlocked(b *batch) {
	for {
		w.mu.Lock()
		if w.state.SendWindow() <= 0 || w.blockedStreams.empty() {
			w.mu.Unlock()
			return
		}
		l := w.blockedStreams.first
		w.unblock(l)
		w.mu.Unlock()
		l.out.kick(b)
	}
}

// unblockAll unblocks all blocked streams, because SETTINGS may have changed every stream's window.
// mu is held.
func (w *muxConn) unblockAll(fx *effects) {
	for s := range w.state.Streams() {
		w.onWindowUpdate(muxStreamOf(s), fx)
	}
}

// errInternal ends a connection after a panic on its reader goroutine.
var errInternal = &syntax.ConnectionError{Code: syntax.InternalError, Reason: "internal error"}

// failStreams fails the streams in flight because the connection ends, and waits for expire. The
// reader calls it after its last read.
func (w *muxConn) failStreams(why error, b *batch) {
	var fx effects
	w.mu.Lock()
	if w.lostErr == nil {
		w.lostErr = why
		w.timer.Stop()
		for s := range w.state.Streams() {
			if l := muxStreamOf(s); l != nil {
				l.owner.fail(why, &fx)
			}
		}
	}
	w.mu.Unlock()
	fx.apply(b)
	b.flush()
	w.timer.Wait()
}

// enqueueBatched queues frames, which are flushed with b. mu is held.
func (w *muxConn) enqueueBatched(frames []byte, b *batch) {
	if w.enqueue(frames) {
		b.scheduleFlush(w.writeQueue)
	}
}
