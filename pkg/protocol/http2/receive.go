package http2

import (
	"encoding/binary"
	"time"
)

// headerBlock is a header block that is arriving.
type headerBlock struct {
	streamID        uint32 // 0: no block is arriving
	endStream       bool   // the HEADERS frame had END_STREAM
	dependsOnItself bool   // the priority in the HEADERS frame makes the stream depend on itself
	continuations   int    // number of CONTINUATION frames so far
	fragments       []byte // the fragments so far
}

// Handle processes the next frame of the peer. It appends to dst the frames that the protocol
// requires in return: acknowledgements, window updates, and resets of streams that it refuses
// without a StreamError. now comes from any clock that does not go backwards.
//
// Handle stores the meaning of the frame in e, which borrows f's payload. The error is nil, a
// *StreamError or a *ConnectionError. With an error, e is empty.
func (s *Session) Handle(dst []byte, f Frame, now time.Time, e *Event) ([]byte, error) {
	*e = Event{}
	if !s.settingsReceived && (f.Type != FrameSettings || f.Flags.Has(FlagAck)) {
		return dst, connectionError(ProtocolError, "the first frame is not SETTINGS (RFC 9113 3.4)")
	}
	if s.block.streamID != 0 && (f.Type != FrameContinuation || f.Stream != s.block.streamID) {
		return dst, connectionError(ProtocolError, "a header block is interrupted by another frame (RFC 9113 4.3)")
	}
	switch f.Type {
	case FrameData:
		return s.handleData(dst, f, now, e)
	case FrameHeaders:
		return s.handleHeaders(dst, f, now, e)
	case FrameContinuation:
		return s.handleContinuation(dst, f, now, e)
	case FrameRSTStream:
		return s.handleReset(dst, f, now, e)
	case FrameSettings:
		return s.handleSettings(dst, f, now, e)
	case FramePing:
		return s.handlePing(dst, f, now, e)
	case FrameGoAway:
		return s.handleGoAway(dst, f, now, e)
	case FrameWindowUpdate:
		return s.handleWindowUpdate(dst, f, now, e)
	case FramePushPromise:
		return dst, connectionError(ProtocolError, "PUSH_PROMISE although push is disabled (RFC 9113 8.4)")
	case FramePriority:
		return dst, s.checkPriority(f, now)
	default: // PRIORITY_UPDATE too (RFC 9113 4.1)
		return dst, s.takeToken(FloodPriority, now, "too many frames of types without effect")
	}
}

// takeToken takes one token of f's bucket. The error is nil or a *ConnectionError.
func (s *Session) takeToken(f Flood, now time.Time, reason string) error {
	if f == FloodRapidReset || f == FloodMadeYouReset {
		s.charges++
	}
	if !s.floodBuckets.take(f, s.cfg.FloodLimits.rateLimit(f), now) {
		return floodError(f, reason)
	}
	return nil
}

// isIdle reports whether stream id is idle: the side that may open it has neither opened nor
// skipped it, or neither side may open it (RFC 9113 5.1.1).
func (s *Session) isIdle(id uint32) bool {
	odd := id%2 == 1
	if s.cfg.Role == Server {
		return !odd || id > s.lastPeerStreamID
	}
	return !odd || id >= s.nextStreamID
}

func unpad(f Frame) ([]byte, *ConnectionError) {
	b := f.Payload
	if !f.Flags.Has(FlagPadded) {
		return b, nil
	}
	if len(b) == 0 {
		return nil, connectionError(FrameSizeError, "padded frame without the length of its padding (RFC 9113 6.1)")
	}
	pad := int(b[0])
	b = b[1:]
	if pad > len(b) {
		return nil, connectionError(ProtocolError, "more padding than payload (RFC 9113 6.1)")
	}
	return b[:len(b)-pad], nil
}

func (s *Session) handleData(dst []byte, f Frame, now time.Time, e *Event) ([]byte, error) {
	if f.Stream == 0 || s.isIdle(f.Stream) {
		return dst, connectionError(ProtocolError, "DATA on stream 0 or an idle stream (RFC 9113 6.1, 5.1)")
	}
	size := int64(len(f.Payload))
	data, cerr := unpad(f)
	if cerr != nil {
		return dst, cerr
	}
	if size > s.recvWindow {
		return dst, connectionError(FlowControlError, "DATA exceeds the connection window (RFC 9113 6.9.1)")
	}
	end := f.Flags.Has(FlagEndStream)
	if len(data) > 0 {
		s.refundTokens(FloodPing, 1)
		s.refundTokens(FloodEmptyData, 1)
	} else if !end {
		if err := s.takeToken(FloodEmptyData, now, "too many empty DATA frames"); err != nil {
			return dst, err
		}
	}
	s.recvWindow -= size
	st, err := s.checkData(f.Stream, size, int64(len(data)), end)
	if st == nil || err != nil {
		return s.creditConnection(dst, size), err
	}
	st.recvWindow -= size
	st.received += int64(len(data))
	st.unconsumed += size
	if end && st.endRemote() {
		s.closeCompleted(st)
	}
	if padding := len(f.Payload) - len(data); padding > 0 {
		dst = s.ReportConsumed(dst, st, padding)
	}
	if len(data) == 0 && !end {
		return dst, nil
	}
	e.Kind, e.Stream, e.Data, e.End = DataArrived, st, data, end
	return dst, nil
}

// checkData returns the stream of a DATA frame; nil without an error means that the frame is
// ignored.
func (s *Session) checkData(id uint32, size, content int64, end bool) (*Stream, error) {
	st := s.streams[id]
	if st == nil {
		return nil, s.closedError(id)
	}
	total := st.received + content
	switch {
	case st.state == HalfClosedRemote:
		return nil, streamError(id, StreamClosed, "DATA after END_STREAM (RFC 9113 5.1)")
	case size > max(0, st.recvWindow): // empty DATA is always allowed (RFC 9113 6.9.1)
		return nil, streamError(id, FlowControlError, "DATA exceeds the stream window (RFC 9113 6.9.1)")
	case st.part != partHead:
		return nil, streamError(id, ProtocolError, "DATA before HEADERS (RFC 9113 8.1)")
	case st.contentLength >= 0 && (total > st.contentLength || end && total < st.contentLength):
		return nil, streamError(id, ProtocolError, "length of DATA differs from content-length (RFC 9113 8.1.1)")
	}
	return st, nil
}

// closedError returns the error of DATA or HEADERS on a closed stream; nil means that they are
// ignored (RFC 9113 5.1).
func (s *Session) closedError(id uint32) error {
	if s.cfg.Role == Server && id > s.goAwaySentID {
		return nil // ignored after our GOAWAY (RFC 9113 6.8)
	}
	switch s.recentResets.closedBy(id) {
	case byUs:
		return nil
	case byPeer:
		return streamError(id, StreamClosed, "frame on a stream that its sender has reset (RFC 9113 5.1)")
	default:
		return connectionError(StreamClosed, "frame on a stream that its sender has closed (RFC 9113 5.1)")
	}
}

func (s *Session) handleReset(dst []byte, f Frame, now time.Time, e *Event) ([]byte, error) {
	if len(f.Payload) != 4 {
		return dst, connectionError(FrameSizeError, "RST_STREAM payload is not 4 bytes (RFC 9113 6.4)")
	}
	if f.Stream == 0 || s.isIdle(f.Stream) {
		return dst, connectionError(ProtocolError, "RST_STREAM on stream 0 or an idle stream (RFC 9113 6.4)")
	}
	st := s.streams[f.Stream]
	// Resets of open streams that the session opened are free, because the session decides how many
	// it opens.
	if st == nil || !st.openedByUs && now.Sub(st.openedAt) < rapidResetWindow {
		if err := s.takeToken(FloodRapidReset, now, "too many streams reset"); err != nil {
			return dst, err
		}
	}
	if st == nil {
		return dst, nil
	}
	if !st.openedByUs && st.state != HalfClosedLocal {
		s.resetSlots.acquire(s.cfg.MaxConcurrentStreams, now)
	}
	s.closeStream(st)
	s.recentResets.add(st.ID, byPeer)
	e.Kind, e.Stream, e.Code = StreamReset, st, Code(binary.BigEndian.Uint32(f.Payload))
	return dst, nil
}

func (s *Session) handleSettings(dst []byte, f Frame, now time.Time, e *Event) ([]byte, error) {
	if f.Stream != 0 {
		return dst, connectionError(ProtocolError, "SETTINGS on a stream (RFC 9113 6.5)")
	}
	if err := s.takeToken(FloodSettings, now, "too many SETTINGS"); err != nil {
		return dst, err
	}
	if f.Flags.Has(FlagAck) {
		if err := s.applySettingsAck(f); err != nil {
			return dst, err
		}
		e.Kind = SettingsAcked
		return dst, nil
	}
	if err := s.applySettings(f.Payload); err != nil {
		return dst, err
	}
	s.settingsReceived = true
	e.Kind = SettingsArrived
	return AppendSettingsAck(dst), nil
}

// applySettings applies the peer's settings; the error is nil or a *ConnectionError.
func (s *Session) applySettings(payload []byte) error {
	if len(payload)%settingLen != 0 {
		return connectionError(FrameSizeError, "SETTINGS payload is not a multiple of 6 bytes (RFC 9113 6.5)")
	}
	for ; len(payload) > 0; payload = payload[settingLen:] {
		id := SettingID(binary.BigEndian.Uint16(payload))
		value := binary.BigEndian.Uint32(payload[2:])
		oldWindow := int64(s.peerSettings.InitialWindowSize)
		if err := s.peerSettings.set(id, value, s.cfg.Role.opposite()); err != nil {
			return err
		}
		switch id {
		case SettingHeaderTableSize: // apply each value, not only the last (RFC 7541 4.2)
			s.enc.setMaxSize(value)
		case SettingInitialWindowSize:
			if err := s.resizeWindows(int64(value) - oldWindow); err != nil {
				return err
			}
		default:
		}
	}
	return nil
}

// resizeWindows adds delta to the send window of every stream, which may become negative (RFC 9113
// 6.9.2). The error is nil or a *ConnectionError.
func (s *Session) resizeWindows(delta int64) error {
	if delta == 0 {
		return nil
	}
	for _, st := range s.streams {
		if st.sendWindow += delta; st.sendWindow > MaxWindow {
			return connectionError(FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE raises a window above 2^31-1 (RFC 9113 6.9.2)")
		}
	}
	return nil
}

// applySettingsAck enforces our settings that are below the defaults, because the peer has now
// applied them. The error is nil or a *ConnectionError.
func (s *Session) applySettingsAck(f Frame) error {
	if len(f.Payload) != 0 {
		return connectionError(FrameSizeError, "SETTINGS ACK with a payload (RFC 9113 6.5)")
	}
	if s.unackedSettings == 0 {
		return connectionError(ProtocolError, "SETTINGS ACK for SETTINGS that were not sent (RFC 9113 6.5.3)")
	}
	s.unackedSettings--
	before := s.initialRecvWindow()
	s.settingsAcked = true
	if delta := s.initialRecvWindow() - before; delta != 0 {
		for _, st := range s.streams {
			st.recvWindow += delta
		}
	}
	s.dec.setMaxTableSize(s.cfg.HeaderTableSize)
	return nil
}

func (s *Session) handlePing(dst []byte, f Frame, now time.Time, e *Event) ([]byte, error) {
	if len(f.Payload) != 8 {
		return dst, connectionError(FrameSizeError, "PING payload is not 8 bytes (RFC 9113 6.7)")
	}
	if f.Stream != 0 {
		return dst, connectionError(ProtocolError, "PING on a stream (RFC 9113 6.7)")
	}
	if f.Flags.Has(FlagAck) {
		if s.unackedPings == 0 {
			return dst, s.takeToken(FloodPing, now, "too many PING ACKs for PINGs that were not sent")
		}
		s.unackedPings--
		e.Kind, e.Ping = PingAcked, binary.BigEndian.Uint64(f.Payload)
		return dst, nil
	}
	if err := s.takeToken(FloodPing, now, "too many PING"); err != nil {
		return dst, err
	}
	return AppendPing(dst, true, [8]byte(f.Payload)), nil
}

func (s *Session) handleGoAway(dst []byte, f Frame, now time.Time, e *Event) ([]byte, error) {
	if f.Stream != 0 {
		return dst, connectionError(ProtocolError, "GOAWAY on a stream (RFC 9113 6.8)")
	}
	if len(f.Payload) < 8 {
		return dst, connectionError(FrameSizeError, "GOAWAY is shorter than 8 bytes (RFC 9113 6.8)")
	}
	if err := s.takeToken(FloodPriority, now, "too many GOAWAY"); err != nil {
		return dst, err
	}
	lastStreamID := binary.BigEndian.Uint32(f.Payload) & MaxStreamID
	if lastStreamID > s.goAwayReceivedID {
		return dst, connectionError(ProtocolError, "GOAWAY raises the last stream identifier (RFC 9113 6.8)")
	}
	s.goAwayReceivedID = lastStreamID
	s.goingAway = true
	e.Kind, e.LastStreamID, e.Code = GoAwayArrived, lastStreamID, Code(binary.BigEndian.Uint32(f.Payload[4:]))
	e.Data = f.Payload[8:]
	return dst, nil
}

func (s *Session) handleWindowUpdate(dst []byte, f Frame, now time.Time, e *Event) ([]byte, error) {
	if len(f.Payload) != 4 {
		return dst, connectionError(FrameSizeError, "WINDOW_UPDATE payload is not 4 bytes (RFC 9113 6.9)")
	}
	if f.Stream != 0 && s.isIdle(f.Stream) {
		return dst, connectionError(ProtocolError, "WINDOW_UPDATE on an idle stream (RFC 9113 5.1)")
	}
	increment := int64(binary.BigEndian.Uint32(f.Payload) & MaxWindow)
	if increment < minWindowUpdate {
		if err := s.takeToken(FloodWindowUpdate, now, "too many WINDOW_UPDATE with small increments"); err != nil {
			return dst, err
		}
	}
	if f.Stream == 0 {
		if increment == 0 {
			return dst, connectionError(ProtocolError, "WINDOW_UPDATE with an increment of 0 (RFC 9113 6.9)")
		}
		if s.sendWindow += increment; s.sendWindow > MaxWindow {
			return dst, connectionError(FlowControlError, "WINDOW_UPDATE raises the connection window above 2^31-1 (RFC 9113 6.9.1)")
		}
		e.Kind = WindowGrew
		return dst, nil
	}
	st := s.streams[f.Stream]
	if st == nil {
		return dst, nil // the peer may not know yet that the stream has ended (RFC 9113 5.1)
	}
	if increment == 0 {
		return dst, streamError(st.ID, ProtocolError, "WINDOW_UPDATE with an increment of 0 (RFC 9113 6.9)")
	}
	if st.sendWindow += increment; st.sendWindow > MaxWindow {
		return dst, streamError(st.ID, FlowControlError, "WINDOW_UPDATE raises the stream window above 2^31-1 (RFC 9113 6.9.1)")
	}
	e.Kind, e.Stream = WindowGrew, st
	return dst, nil
}

// checkPriority checks a PRIORITY frame; a valid one has no effect. A violation on a stream that is
// not open, and therefore cannot be reset, is a *ConnectionError.
func (s *Session) checkPriority(f Frame, now time.Time) error {
	if f.Stream == 0 {
		return connectionError(ProtocolError, "PRIORITY on stream 0 (RFC 9113 6.3)")
	}
	if err := s.takeToken(FloodPriority, now, "too many PRIORITY"); err != nil {
		return err
	}
	var code Code
	var reason string
	switch {
	case len(f.Payload) != priorityLen:
		code, reason = FrameSizeError, "PRIORITY payload is not 5 bytes (RFC 9113 6.3)"
	case dependency(f.Payload) == f.Stream:
		code, reason = ProtocolError, "a stream depends on itself (RFC 7540 5.3.1)"
	default:
		return nil
	}
	if s.streams[f.Stream] == nil {
		return connectionError(code, reason)
	}
	return streamError(f.Stream, code, reason)
}

const priorityLen = 5

// dependency returns the identifier of the stream on which a stream with this priority depends.
func dependency(priority []byte) uint32 { return binary.BigEndian.Uint32(priority) & MaxStreamID }

// Fail resets the stream of a StreamError. It takes a token of FloodMadeYouReset, except for an
// open stream that the session opened. The error is nil, or a *ConnectionError if the bucket is
// empty. If the stream is open, the engine gets it with Session.Stream before Fail and releases it
// afterwards.
func (s *Session) Fail(dst []byte, e *StreamError, now time.Time) ([]byte, error) {
	st := s.streams[e.ID]
	if st == nil || !st.openedByUs {
		if err := s.takeToken(FloodMadeYouReset, now, "too many streams had to be reset"); err != nil {
			return dst, err
		}
	}
	if st != nil {
		return s.Reset(dst, st, e.Code), nil
	}
	s.recentResets.add(e.ID, byUs)
	return AppendRSTStream(dst, e.ID, e.Code), nil
}
