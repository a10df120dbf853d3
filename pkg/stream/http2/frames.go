package http2

import (
	"errors"

	"github.com/weft-proxy/weft/pkg/buffer"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// fill reads once. It calls wait before it blocks.
func (w *muxConn) fill(wait func(), b *batch) error {
	if w.read.Buf != nil {
		w.reserveRead(w.read.Room(), b)
	}
	return w.read.Fill(w.conn, wait)
}

// hasPartialFrame reports whether an incomplete frame is buffered.
func (w *muxConn) hasPartialFrame() bool { return w.read.Buf != nil }

// processFrames processes every complete frame in the buffer. The error is nil or a
// *syntax.ConnectionError.
func (w *muxConn) processFrames(b *batch) error {
	if w.effects == nil {
		w.effects = new(effects)
	}
	err := w.parseFrames(b)
	w.event = syntax.Event{} // it would refer to the buffer
	switch {
	case w.read.Buf == nil || w.read.HasBytes():
	case len(b.borrowers) > 0:
		b.holdBuffer(w.read.Buf)
		w.read.Buf = nil
	default:
		w.read.Release()
	}
	return err
}

// parseFrames is processFrames without the release of the buffer.
func (w *muxConn) parseFrames(b *batch) error {
	limit := w.state.MaxFrameSize() // immutable
	for w.read.HasBytes() {
		f, n, err := syntax.ParseFrame(w.read.Buf.Bytes(), limit)
		if err != nil {
			return err
		}
		if n == 0 {
			return w.processPartialData(b)
		}
		if err := w.processFrame(f, b); err != nil {
			return err
		}
		w.read.Buf.Discard(n)
	}
	return nil
}

// processPartialData processes the received part of an incomplete DATA frame, so that it need not
// be copied to a buffer with room for the complete frame. For other frames it reserves that room.
func (w *muxConn) processPartialData(b *batch) error {
	all := w.read.Buf.Bytes()
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
		w.read.Buf.Reserve(n)
	case len(w.read.Buf.Tail()) < n: // borrowed bytes are not moved
		w.replaceReadBuf(w.read.Buf.Bytes(), n, b)
	}
}

// replaceReadBuf is like reserveRead, but keeps only rest as the unprocessed bytes. rest may point
// into the buffer only if parts of the buffer are borrowed.
func (w *muxConn) replaceReadBuf(rest []byte, n int, b *batch) {
	if len(b.borrowers) == 0 {
		w.read.Buf.Reset()
		_, _ = w.read.Buf.Write(rest) // never fails
		w.read.Buf.Reserve(n)
		return
	}
	old := w.read.Buf
	w.read.Buf = buffer.Get(max(old.Cap(), len(rest)+n))
	_, _ = w.read.Buf.Write(rest) // never fails
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
	all := w.read.Buf.Bytes()
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
