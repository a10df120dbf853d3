package http2

import "time"

func (s *Session) handleHeaders(dst []byte, f Frame, now time.Time, e *Event) ([]byte, error) {
	if f.Stream == 0 || s.cfg.Role == Client && s.isIdle(f.Stream) || f.Stream%2 == 0 {
		return dst, connectionError(ProtocolError, "HEADERS on a stream that its sender cannot open (RFC 9113 5.1.1)")
	}
	fragment, cerr := unpad(f)
	if cerr != nil {
		return dst, cerr
	}
	block := &s.block
	block.streamID, block.endStream, block.dependsOnItself, block.continuations = f.Stream, f.Flags.Has(FlagEndStream), false, 0
	block.fragments = block.fragments[:0]
	if f.Flags.Has(FlagPriority) {
		if len(fragment) < priorityLen {
			return dst, connectionError(FrameSizeError, "HEADERS is too short for its priority (RFC 9113 6.2)")
		}
		block.dependsOnItself = dependency(fragment) == f.Stream
		fragment = fragment[priorityLen:]
	}
	if !f.Flags.Has(FlagEndHeaders) {
		return dst, s.appendFragment(fragment)
	}
	if err := s.checkBlockSize(len(fragment)); err != nil {
		return dst, err
	}
	return s.handleBlock(dst, fragment, now, e)
}

func (s *Session) handleContinuation(dst []byte, f Frame, now time.Time, e *Event) ([]byte, error) {
	block := &s.block
	if block.streamID == 0 {
		return dst, connectionError(ProtocolError, "CONTINUATION without HEADERS (RFC 9113 6.10)")
	}
	if block.continuations++; block.continuations > s.cfg.FloodLimits.ContinuationFrames {
		return dst, floodError(FloodContinuation, "too many CONTINUATION frames")
	}
	s.charges++
	if err := s.appendFragment(f.Payload); err != nil {
		return dst, err
	}
	if !f.Flags.Has(FlagEndHeaders) {
		return dst, nil
	}
	dst, err := s.handleBlock(dst, block.fragments, now, e)
	if cap(block.fragments) > maxKeptText {
		block.fragments = nil
	}
	return dst, err
}

// appendFragment stores a fragment of a block. The error is nil or a *ConnectionError.
func (s *Session) appendFragment(fragment []byte) error {
	if err := s.checkBlockSize(len(s.block.fragments) + len(fragment)); err != nil {
		return err
	}
	s.block.fragments = append(s.block.fragments, fragment...)
	return nil
}

// checkBlockSize checks the encoded size of a block in bytes. The error is nil or a
// *ConnectionError.
func (s *Session) checkBlockSize(size int) error {
	if size > s.cfg.FloodLimits.BlockBytes {
		return floodError(FloodContinuation, "header block too large")
	}
	return nil
}

// handleBlock processes a complete header block. It decodes even blocks of streams that it ignores
// or refuses, because all streams share the compression state.
func (s *Session) handleBlock(dst []byte, b []byte, now time.Time, e *Event) ([]byte, error) {
	block := s.block
	s.block.streamID = 0
	s.refundTokens(FloodPing, 1)
	s.refundTokens(FloodWindowUpdate, 2)
	s.refundTokens(FloodPriority, 2)
	s.dec.releaseOversized()
	if err := s.dec.decode(b); err != nil {
		return dst, connectionError(CompressionError, err.Error())
	}
	if s.head == nil {
		s.head = new(head)
	}
	st := s.streams[block.streamID]
	switch {
	case st == nil && s.isIdle(block.streamID):
		return s.handleRequest(dst, block, now, e)
	case st == nil && s.skippedIDs.contains(block.streamID):
		return dst, connectionError(ProtocolError, "HEADERS with a stream identifier below the last one (RFC 9113 5.1.1)")
	case st == nil:
		return dst, s.closedError(block.streamID)
	case st.state == HalfClosedRemote:
		return dst, streamError(st.ID, StreamClosed, "HEADERS after END_STREAM (RFC 9113 5.1)")
	case block.dependsOnItself:
		return dst, streamError(st.ID, ProtocolError, "a stream depends on itself (RFC 7540 5.3.1)")
	case st.inTunnel:
		return dst, streamError(st.ID, ProtocolError, "HEADERS in a tunnel (RFC 9113 8.5)")
	case st.part == partHead:
		return s.handleTrailer(dst, st, block.endStream, e)
	}
	return s.handleResponse(dst, st, block.endStream, e)
}

// handleRequest opens a stream for a request, unless the request is ignored, refused or malformed.
func (s *Session) handleRequest(dst []byte, block headerBlock, now time.Time, e *Event) ([]byte, error) {
	s.skippedIDs.add(s.lastPeerStreamID, block.streamID)
	s.lastPeerStreamID = block.streamID
	if block.streamID > s.goAwaySentID {
		return dst, nil // ignored (RFC 9113 6.8)
	}
	if block.dependsOnItself {
		return dst, streamError(block.streamID, ProtocolError, "a stream depends on itself (RFC 7540 5.3.1)")
	}
	maxStreams := s.cfg.MaxConcurrentStreams
	if uint32(len(s.streams)) >= maxStreams || s.unreleased/2 >= maxStreams {
		return dst, streamError(block.streamID, RefusedStream, "more streams than SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113 5.1.2)")
	}
	if s.resetSlots.exhausted(maxStreams, now) {
		s.charges++
		s.recentResets.add(block.streamID, byUs) // not Fail, which takes a token: the peer has violated no rule
		return AppendRSTStream(dst, block.streamID, RefusedStream), nil
	}
	if rule := s.head.parseRequest(&s.dec, s.cfg.EnableConnect); rule != "" {
		return dst, streamError(block.streamID, ProtocolError, rule)
	}
	if block.endStream && s.head.length > 0 {
		return dst, streamError(block.streamID, ProtocolError, "content-length in a request without a body (RFC 9113 8.1.1)")
	}
	st := s.newStream(block.streamID)
	s.unreleased++
	st.part, st.kind, st.contentLength = partHead, s.head.kind, s.head.length
	st.inTunnel = st.IsConnect()
	st.openedAt = now
	if block.endStream {
		st.endRemote()
	}
	e.Kind, e.Stream, e.End = HeadersArrived, st, block.endStream
	return dst, nil
}

func (s *Session) handleResponse(dst []byte, st *Stream, end bool, e *Event) ([]byte, error) {
	rule := s.head.parseResponse(&s.dec)
	final := s.head.status >= 200
	if rule == "" && !final && end {
		rule = "interim response that ends the stream (RFC 9113 8.1)"
	}
	if rule == "" && s.dec.tooLarge {
		rule = "response header larger than SETTINGS_MAX_HEADER_LIST_SIZE"
	}
	if rule != "" {
		return dst, streamError(st.ID, ProtocolError, rule)
	}
	if !final || s.head.status == 204 {
		s.head.length = -1 // RFC 9110 8.6
	}
	if final {
		if st.IsConnect() && s.head.status < 300 {
			st.inTunnel, s.head.length = true, -1 // RFC 9110 9.3.6
		}
		st.part, st.contentLength = partHead, s.head.length
		if st.kind == headExchange || s.head.status == 204 || s.head.status == 304 {
			st.contentLength = 0
		}
	}
	if end && st.contentLength > 0 {
		return dst, streamError(st.ID, ProtocolError, "content-length in a response without a body (RFC 9113 8.1.1)")
	}
	if end && st.endRemote() {
		s.closeCompleted(st)
	}
	e.Kind, e.Stream, e.End = HeadersArrived, st, end
	return dst, nil
}

func (s *Session) handleTrailer(dst []byte, st *Stream, end bool, e *Event) ([]byte, error) {
	rule := checkTrailer(&s.dec)
	switch {
	case !end:
		rule = "a second head, or a trailer section that does not end the stream (RFC 9113 8.1)"
	case rule == "" && s.dec.tooLarge:
		rule = "trailer section larger than SETTINGS_MAX_HEADER_LIST_SIZE"
	case rule == "" && st.contentLength >= 0 && st.received < st.contentLength:
		rule = "length of DATA differs from content-length (RFC 9113 8.1.1)"
	}
	if rule != "" {
		return dst, streamError(st.ID, ProtocolError, rule)
	}
	st.part = partTrailer
	if st.endRemote() {
		s.closeCompleted(st)
	}
	e.Kind, e.Stream, e.End = TrailersArrived, st, true
	return dst, nil
}
