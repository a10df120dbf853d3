package http2

import (
	"errors"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

const (
	// minReadSize and maxReadSize are the sizes of one read, in bytes. maxReadSize is used after a read
	// that filled its buffer, until a read returns no more than minReadSize.
	minReadSize = 4 << 10
	maxReadSize = 64 << 10
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
	state            *syntax.Session // guarded by mu; appended frames are queued with mu held
	lostErr          error           // guarded by mu; a Fault: why the connection ended
	blockedStreams   fifo[muxStream] // guarded by mu; streams blocked by the connection's window
	waitingPumps     fifo[pump]      // guarded by mu; pumps that wait for space in outbox
	awaitingCapacity bool            // guarded by mu; kickWhenWritable is running
	scratch          []byte          // guarded by mu; storage for frames that state appends
	timer            connTimer

	// The reader goroutine owns these fields.
	readBuf        *buffer.IoBuffer // nil: no unprocessed bytes
	event          syntax.Event     // meaning of the last frame
	effects        *effects         // of the last frame; nil: none since the connection was parked
	usesLargeReads bool             // the next read uses maxReadSize
	unflushedRead  int              // bytes read since the last flush
}

// connSide is the side that embeds a muxConn: a downstreamConn or an UpstreamConn.
type connSide interface {
	// handleSideEvent handles the events that concern only one side: heads, settings, PING
	// acknowledgements, GOAWAY. muxConn.mu is held.
	handleSideEvent(e *syntax.Event, b *batch, fx *effects)
	// resetFault and broken return the Fault of a stream that the peer has reset, or on which it
	// violated the protocol.
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
	w.writeQueue = network.NewWriteQueue(conn, e.start)
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

// enqueueFrames queues frames that state has appended to scratch. It returns an error if the connection is
// lost. mu is held.
func (w *muxConn) enqueueFrames(frames []byte) error {
	w.scratch = frames[:0]
	if cap(frames) > maxScratch {
		w.scratch = nil
	}
	return w.writeQueue.EndFrame(append(w.writeQueue.BeginFrame(len(frames)), frames...))
}

// startHead returns scratch for the frames of a header section, which the caller passes to endHead. If
// appending panics, nothing is sent: the caller recovers and resets the stream, and the connection
// continues. The error is ErrWriteQueueFull. startHead checks the queue before anything is encoded,
// because the peer has to receive each section that was encoded (RFC 9113 4.3). mu is held.
func (w *muxConn) startHead() ([]byte, error) {
	if w.writeQueue.Full() {
		return nil, network.ErrWriteQueueFull
	}
	if w.scratch == nil {
		w.scratch = make([]byte, 0, minReadSize/8)
	}
	return w.scratch[:0], nil
}

// endHead queues the frames that were appended to startHead's scratch. err is the error of appending
// them, which put returns as a Fault. mu is held.
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
// may be thousands, which each update would wake in vain.
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

// fill reads once. It calls wait before it blocks.
func (w *muxConn) fill(wait func(), b *batch) error {
	size := minReadSize
	if w.usesLargeReads {
		size = maxReadSize
	}
	if w.readBuf != nil {
		// Without this, the buffer of an incomplete frame might have room only for the rest of that
		// frame.
		w.reserveRead(max(size, w.readBuf.Cap())-w.readBuf.Len(), b)
	}
	n, err := w.conn.FillOnWait(&w.readBuf, size, wait)
	if err != nil {
		if w.readBuf != nil && w.readBuf.Len() == 0 {
			w.releaseReadBuf()
		}
		return err
	}
	w.usesLargeReads = len(w.readBuf.Tail()) == 0 || w.usesLargeReads && n > minReadSize
	w.unflushedRead += n
	return nil
}

// hasPartialFrame reports whether an incomplete frame is buffered.
func (w *muxConn) hasPartialFrame() bool { return w.readBuf != nil }

func (w *muxConn) releaseReadBuf() {
	if w.readBuf != nil {
		w.readBuf.Release()
		w.readBuf = nil
	}
}

// processFrames processes every complete frame in the buffer. The error is nil or a
// *syntax.ConnectionError.
func (w *muxConn) processFrames(b *batch) error {
	if w.effects == nil {
		w.effects = new(effects)
	}
	err := w.parseFrames(b)
	w.event = syntax.Event{} // it would refer to the buffer
	switch {
	case w.readBuf == nil || w.readBuf.Len() > 0:
	case len(b.borrowers) > 0:
		b.holdBuffer(w.readBuf)
		w.readBuf = nil
	default:
		w.releaseReadBuf()
	}
	return err
}

// parseFrames is frames without the release of the buffer.
func (w *muxConn) parseFrames(b *batch) error {
	limit := w.state.MaxFrameSize() // immutable
	for w.readBuf != nil && w.readBuf.Len() > 0 {
		f, n, err := syntax.ParseFrame(w.readBuf.Bytes(), limit)
		if err != nil {
			return err
		}
		if n == 0 {
			return w.processPartialData(b)
		}
		if err := w.processFrame(f, b); err != nil {
			return err
		}
		w.readBuf.Discard(n)
	}
	return nil
}

// processPartialData processes the received part of an incomplete DATA frame, so that it need not be copied to a
// buffer with room for the complete frame. For other frames it reserves that room.
func (w *muxConn) processPartialData(b *batch) error {
	all := w.readBuf.Bytes()
	if len(all) < syntax.FrameHeaderLen {
		return nil
	}
	left := frameLen(all) - len(all)
	f, rest := syntax.ParsePartialData(all, minPartialData)
	if len(f.Payload) == 0 {
		w.reserveRead(left, b)
		return nil
	}
	if err := w.processFrame(f, b); err != nil {
		return err
	}
	w.replaceReadBuf(rest[:], left, b)
	return nil
}

// reserveRead makes room for n bytes after the unprocessed ones.
func (w *muxConn) reserveRead(n int, b *batch) {
	switch {
	case len(b.borrowers) == 0:
		w.readBuf.Reserve(n)
	case len(w.readBuf.Tail()) < n: // borrowed bytes are not moved
		w.replaceReadBuf(w.readBuf.Bytes(), n, b)
	}
}

// replaceReadBuf is like reserve, but keeps only rest as the unprocessed bytes. rest may point into the
// buffer only if parts of the buffer are borrowed.
func (w *muxConn) replaceReadBuf(rest []byte, n int, b *batch) {
	if len(b.borrowers) == 0 {
		w.readBuf.Reset()
		_, _ = w.readBuf.Write(rest) // never fails
		w.readBuf.Reserve(n)
		return
	}
	old := w.readBuf
	w.readBuf = buffer.Get(max(old.Cap(), len(rest)+n))
	_, _ = w.readBuf.Write(rest) // never fails
	b.holdBuffer(old)
}

// frameLen returns the length of the frame whose header b begins with.
func frameLen(b []byte) int {
	return syntax.FrameHeaderLen + int(b[0])<<16 + int(b[1])<<8 + int(b[2])
}

// processFrame processes one frame and its effects.
func (w *muxConn) processFrame(f syntax.Frame, b *batch) error {
	err := w.handleFrame(f, b, w.effects)
	w.effects.apply(b)
	return err
}

// handleFrame is the part of processFrame with mu held. A panic in the decoder leaves the
// compression table in an unknown state (RFC 9113 4.3), so the reader recovers and closes the
// connection.
func (w *muxConn) handleFrame(f syntax.Frame, b *batch, fx *effects) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	charged := w.state.Charges()
	e := &w.event
	out, err := w.state.Handle(w.scratch[:0], f, b.now, e)
	if err != nil {
		out, err = w.handleStreamError(out, err, b, fx)
	}
	w.enqueueBatched(out, b)
	switch {
	case err != nil || e.Kind == syntax.NoEvent: // also after a StreamError
	case e.Kind == syntax.DataArrived:
		w.handleData(e, b, fx)
	default:
		w.handleEvent(e, b, fx)
	}
	// Charge after the event was handled, which may have ended a stream.
	if err == nil && w.state.Charges() > charged {
		if n := w.state.TakeCharges(w.side.chargeThreshold(b.now)); n > 0 {
			err = w.side.charge(n, b.now)
		}
	}
	return err
}

// errInternal ends a connection after a panic on its reader goroutine.
var errInternal = &syntax.ConnectionError{Code: syntax.InternalError, Reason: "internal error"}

// handleStreamError ends the stream on which the peer violated the protocol. It returns other
// errors, and that of Session.Fail. mu is held.
func (w *muxConn) handleStreamError(out []byte, err error, b *batch, fx *effects) ([]byte, error) {
	var e *syntax.StreamError
	if !errors.As(err, &e) {
		return out, err
	}
	l := muxStreamOf(w.state.Stream(e.ID))
	out, err = w.state.Fail(out, e, b.now)
	if l != nil && err == nil {
		l.owner.fail(w.side.protocolFault(e), fx)
	}
	return out, err
}

// failStreams fails the streams in flight because the connection ends, and waits for expire. The reader
// calls it after its last read.
func (w *muxConn) failStreams(why error, b *batch) {
	var fx effects
	w.mu.Lock()
	if w.lostErr == nil {
		w.lostErr = why
		if w.timer.timer != nil {
			w.timer.timer.Stop()
		}
		for s := range w.state.Streams() {
			if l := muxStreamOf(s); l != nil {
				l.owner.fail(why, &fx)
			}
		}
	}
	w.mu.Unlock()
	fx.apply(b)
	b.flush()
	w.timer.firing.Wait()
}

// enqueueBatched queues frames, which are flushed with b. mu is held.
func (w *muxConn) enqueueBatched(frames []byte, b *batch) {
	if w.enqueue(frames) {
		b.scheduleFlush(w.writeQueue)
	}
}

// handleData adds received DATA to its stream. mu is held.
func (w *muxConn) handleData(e *syntax.Event, b *batch, fx *effects) {
	l := muxStreamOf(e.Stream)
	if l == nil {
		return
	}
	if l.dropsData {
		w.enqueueBatched(w.state.ReportConsumed(w.scratch[:0], e.Stream, len(e.Data)), b)
		if e.End {
			l.owner.(*lingeringStream).releaseStream(b) //nolint:forcetypeassert // only a remainder drops
		}
		return
	}
	l.touch(b.now)
	kick, borrows, unwanted := l.in.add(e.Data, w.dataFrame(e.Data), b)
	if borrows {
		fx.borrower = &l.in
	}
	if unwanted > 0 {
		w.enqueueBatched(w.state.ReportConsumed(w.scratch[:0], e.Stream, unwanted), b)
	}
	if e.End {
		kick = l.in.markComplete()
	}
	fx.kickReceived(kick)
}

// dataFrame returns the frame that the reader processes, if its payload is data without padding.
// Otherwise it returns nil.
func (w *muxConn) dataFrame(data []byte) []byte {
	all := w.readBuf.Bytes()
	end := syntax.FrameHeaderLen + len(data)
	if len(data) == 0 || end > len(all) || &all[syntax.FrameHeaderLen] != &data[0] {
		return nil
	}
	return all[:end]
}

// handleEvent handles events other than DataArrived. mu is held.
func (w *muxConn) handleEvent(e *syntax.Event, b *batch, fx *effects) {
	switch e.Kind {
	case syntax.TrailersArrived:
		if l := muxStreamOf(e.Stream); l != nil {
			if l.dropsData {
				l.owner.fail(nil, fx)
				return
			}
			fx.kickReceived(l.in.markCompleteWithTrailer(w.state))
		}
	case syntax.StreamReset:
		if l := muxStreamOf(e.Stream); l != nil {
			l.owner.fail(w.side.resetFault(e.Code), fx)
		}
	case syntax.WindowGrew:
		switch {
		case e.Stream != nil:
			w.onWindowUpdate(muxStreamOf(e.Stream), fx)
		case !w.blockedStreams.empty():
			fx.windowOpened = w
		}
	case syntax.SettingsArrived:
		w.side.handleSideEvent(e, b, fx)
		w.unblockAll(fx)
	default:
		w.side.handleSideEvent(e, b, fx)
	}
}
