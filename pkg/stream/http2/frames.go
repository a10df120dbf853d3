package http2

import (
	"errors"

	"github.com/weft-proxy/weft/pkg/buffer"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// hasPartialFrame reports whether a part of a frame is buffered. The caller has processed the
// complete frames.
func (mc *muxConn) hasPartialFrame() bool { return mc.read.Buf != nil }

// processFrames processes every complete frame in the buffer. The error is nil or a
// *syntax.ConnectionError.
func (mc *muxConn) processFrames(b *batch) error {
	if mc.effects == nil {
		mc.effects = new(effects)
	}
	err := mc.parseFrames(b)
	mc.event = syntax.Event{} // the event may refer to the buffer
	switch {
	case mc.read.Buf == nil || mc.read.HasBytes():
	case len(b.borrowers) > 0:
		b.holdBuffer(mc.read.Buf)
		mc.read.Buf = nil
	default:
		mc.read.Release()
	}
	return err
}

// parseFrames does the work of processFrames, except for releasing the buffer.
func (mc *muxConn) parseFrames(b *batch) error {
	limit := mc.state.MaxFrameSize() // immutable
	for mc.read.HasBytes() {
		f, n, err := syntax.ParseFrame(mc.read.Buf.Bytes(), limit)
		if err != nil {
			return err
		}
		if n == 0 {
			return mc.processPartialData(b)
		}
		if err := mc.processFrame(f, b); err != nil {
			return err
		}
		mc.read.Buf.Discard(n)
	}
	return nil
}

// processPartialData processes the received part of an incomplete DATA frame, so that it need not
// be copied to a buffer with space for the complete frame. It reserves that space for other frames,
// and while fewer than minPartialData bytes have arrived.
func (mc *muxConn) processPartialData(b *batch) error {
	buffered := mc.read.Buf.Bytes()
	if len(buffered) < syntax.FrameHeaderLen {
		return nil
	}
	missing := frameLen(buffered) - len(buffered)
	f, rest := syntax.ParsePartialData(buffered, minPartialData)
	if len(f.Payload) == 0 {
		mc.reserveRead(missing, b)
		return nil
	}
	if err := mc.processFrame(f, b); err != nil {
		return err
	}
	mc.replaceReadBuf(rest[:], missing, b)
	return nil
}

// reserveNextRead reserves space for the next read. Fill alone would move borrowed bytes.
func (mc *muxConn) reserveNextRead(b *batch) {
	if mc.read.Buf != nil {
		mc.reserveRead(mc.read.Room(), b)
	}
}

// reserveRead reserves space for n bytes after the unprocessed ones.
func (mc *muxConn) reserveRead(n int, b *batch) {
	switch {
	case len(b.borrowers) == 0:
		mc.read.Buf.Reserve(n)
	case len(mc.read.Buf.Tail()) < n: // Reserve would move the borrowed bytes
		mc.replaceReadBuf(mc.read.Buf.Bytes(), n, b)
	}
}

// replaceReadBuf is like reserveRead, but replaces the unprocessed bytes with unprocessed, which
// may point into the buffer only if parts of the buffer are borrowed.
func (mc *muxConn) replaceReadBuf(unprocessed []byte, n int, b *batch) {
	if len(b.borrowers) == 0 {
		mc.read.Buf.Reset()
		_, _ = mc.read.Buf.Write(unprocessed) // never fails
		mc.read.Buf.Reserve(n)
		return
	}
	old := mc.read.Buf
	mc.read.Buf = buffer.Get(max(old.Cap(), len(unprocessed)+n))
	_, _ = mc.read.Buf.Write(unprocessed) // never fails
	b.holdBuffer(old)
}

// frameLen returns the length of the frame that begins with the frame header b.
func frameLen(b []byte) int {
	return syntax.FrameHeaderLen + int(b[0])<<16 + int(b[1])<<8 + int(b[2])
}

// processFrame processes one frame and its effects.
func (mc *muxConn) processFrame(f syntax.Frame, b *batch) error {
	err := mc.handleFrame(f, b, mc.effects)
	mc.effects.apply(b)
	return err
}

// handleFrame is the part of processFrame that holds mu. A panic in the decoder leaves the
// compression table in an unknown state (RFC 9113 4.3), so the reader recovers and closes the
// connection.
func (mc *muxConn) handleFrame(f syntax.Frame, b *batch, fx *effects) (err error) {
	mc.mu.Lock()
	defer mc.mu.Unlock()
	charges := mc.state.Charges()
	event := &mc.event
	out, err := mc.state.Handle(mc.scratch[:0], f, b.now, event)
	if err != nil {
		out, err = mc.handleStreamError(out, err, b, fx)
	}
	mc.enqueueBatched(out, b)
	switch {
	case err != nil || event.Kind == syntax.NoEvent: // Kind is NoEvent after a StreamError
	case event.Kind == syntax.DataArrived:
		mc.handleData(event, b, fx)
	default:
		mc.handleEvent(event, b, fx)
	}
	// Charge after the event was handled, which may have ended a stream.
	if err == nil && mc.state.Charges() > charges {
		if n := mc.state.TakeCharges(mc.side.chargeThreshold(b.now)); n > 0 {
			err = mc.side.charge(n, b.now)
		}
	}
	return err
}

// handleStreamError ends the stream on which the peer violated the protocol. It returns errors of
// other types, and the error of Session.Fail. The caller holds mu.
func (mc *muxConn) handleStreamError(out []byte, err error, b *batch, fx *effects) ([]byte, error) {
	var streamErr *syntax.StreamError
	if !errors.As(err, &streamErr) {
		return out, err
	}
	ms := muxStreamOf(mc.state.Stream(streamErr.ID))
	out, err = mc.state.Fail(out, streamErr, b.now)
	if ms != nil && err == nil {
		ms.owner.fail(mc.side.protocolFault(streamErr), fx)
	}
	return out, err
}

// handleData adds received DATA to its stream. The caller holds mu.
func (mc *muxConn) handleData(event *syntax.Event, b *batch, fx *effects) {
	ms := muxStreamOf(event.Stream)
	if ms == nil {
		return
	}
	if ms.dropsData {
		mc.enqueueBatched(mc.state.ReportConsumed(mc.scratch[:0], event.Stream, len(event.Data)), b)
		if event.End {
			ms.owner.(*lingeringStream).releaseStream(b) //nolint:forcetypeassert // only a lingeringStream drops data
		}
		return
	}
	ms.touch(b.now)
	kick, borrows, discarded := ms.in.add(event.Data, mc.dataFrame(event.Data), b)
	if borrows {
		fx.borrower = &ms.in
	}
	if discarded > 0 {
		mc.enqueueBatched(mc.state.ReportConsumed(mc.scratch[:0], event.Stream, discarded), b)
	}
	if event.End {
		kick = ms.in.markComplete()
	}
	fx.kickReceived(kick)
}

// dataFrame returns the frame that the reader is processing, if its payload is data without
// padding. Otherwise it returns nil.
func (mc *muxConn) dataFrame(data []byte) []byte {
	buffered := mc.read.Buf.Bytes()
	end := syntax.FrameHeaderLen + len(data)
	if len(data) == 0 || end > len(buffered) || &buffered[syntax.FrameHeaderLen] != &data[0] {
		return nil
	}
	return buffered[:end]
}

// handleEvent handles events other than DataArrived. The caller holds mu.
func (mc *muxConn) handleEvent(event *syntax.Event, b *batch, fx *effects) {
	switch event.Kind {
	case syntax.TrailersArrived:
		if ms := muxStreamOf(event.Stream); ms != nil {
			if ms.dropsData {
				ms.owner.fail(nil, fx)
				return
			}
			fx.kickReceived(ms.in.markCompleteWithTrailer(mc.state))
		}
	case syntax.StreamReset:
		if ms := muxStreamOf(event.Stream); ms != nil {
			ms.owner.fail(mc.side.resetFault(ms, event.Code, b.now), fx)
		}
	case syntax.WindowGrew:
		switch {
		case event.Stream != nil:
			mc.onWindowUpdate(muxStreamOf(event.Stream), fx)
		case !mc.blockedStreams.empty():
			fx.windowOpened = mc
		}
	case syntax.SettingsArrived:
		mc.side.handleSideEvent(event, b, fx)
		mc.unblockAll(fx)
	default:
		mc.side.handleSideEvent(event, b, fx)
	}
}
