package http2

import "time"

func (s *Session) handleHeaders(dst []byte, f Frame, now time.Time, e *Event) ([]byte, error) {
	if f.Stream == 0 || s.cfg.Role == Client && s.idle(f.Stream) || f.Stream%2 == 0 {
		return dst, connectionError(ProtocolError, "HEADERS on a stream that its sender cannot open (RFC 9113 5.1.1)")
	}
	fragment, cerr := unpad(f)
	if cerr != nil {
		return dst, cerr
	}
	bl := &s.block
	bl.stream, bl.end, bl.selfDep, bl.frames = f.Stream, f.Flags.Has(FlagEndStream), false, 0
	bl.b = bl.b[:0]
	if f.Flags.Has(FlagPriority) {
		if len(fragment) < priorityLen {
			return dst, connectionError(FrameSizeError, "HEADERS is too short for its priority (RFC 9113 6.2)")
		}
		bl.selfDep = dependsOn(fragment) == f.Stream
		fragment = fragment[priorityLen:]
	}
	if !f.Flags.Has(FlagEndHeaders) {
		return dst, s.appendFragment(fragment)
	}
	if err := s.checkBlock(len(fragment)); err != nil {
		return dst, err
	}
	return s.handleBlock(dst, fragment, now, e)
}

func (s *Session) handleContinuation(dst []byte, f Frame, now time.Time, e *Event) ([]byte, error) {
	bl := &s.block
	if bl.stream == 0 {
		return dst, connectionError(ProtocolError, "CONTINUATION without HEADERS (RFC 9113 6.10)")
	}
	if bl.frames++; bl.frames > s.cfg.Budgets.ContinuationFrames {
		return dst, flooded(FloodContinuation, "too many CONTINUATION frames")
	}
	s.charges++
	if err := s.appendFragment(f.Payload); err != nil {
		return dst, err
	}
	if !f.Flags.Has(FlagEndHeaders) {
		return dst, nil
	}
	dst, err := s.handleBlock(dst, bl.b, now, e)
	if cap(bl.b) > keptText {
		bl.b = nil
	}
	return dst, err
}

// appendFragment stores a fragment of a block. The error is nil or a *ConnectionError.
func (s *Session) appendFragment(fragment []byte) error {
	if err := s.checkBlock(len(s.block.b) + len(fragment)); err != nil {
		return err
	}
	s.block.b = append(s.block.b, fragment...)
	return nil
}

// checkBlock checks the encoded size of a block in bytes. The error is nil or a *ConnectionError.
func (s *Session) checkBlock(size int) error {
	if size > s.cfg.Budgets.BlockBytes {
		return flooded(FloodContinuation, "header block too large")
	}
	return nil
}

// handleBlock processes a complete header block. It decodes even blocks of streams that it ignores
// or refuses, because all streams share the compression state.
func (s *Session) handleBlock(dst []byte, b []byte, now time.Time, e *Event) ([]byte, error) {
	bl := s.block
	s.block.stream = 0
	s.earn(FloodPing, 1)
	s.earn(FloodWindowUpdate, 2)
	s.earn(FloodPriority, 2)
	s.dec.trim()
	if err := s.dec.decode(b); err != nil {
		return dst, connectionError(CompressionError, err.Error())
	}
	if s.head == nil {
		s.head = new(head)
	}
	st := s.streams[bl.stream]
	switch {
	case st == nil && s.idle(bl.stream):
		return s.handleNew(dst, bl, now, e)
	case st == nil && s.skips.has(bl.stream):
		return dst, connectionError(ProtocolError, "HEADERS with a stream identifier below the last one (RFC 9113 5.1.1)")
	case st == nil:
		return dst, s.closedError(bl.stream)
	case st.state == HalfClosedRemote:
		return dst, streamError(st.ID, StreamClosed, "HEADERS after END_STREAM (RFC 9113 5.1)")
	case bl.selfDep:
		return dst, streamError(st.ID, ProtocolError, "a stream depends on itself (RFC 7540 5.3.1)")
	case st.tunnel:
		return dst, streamError(st.ID, ProtocolError, "HEADERS in a tunnel (RFC 9113 8.5)")
	case st.part == partHead:
		return s.handleTrailer(dst, st, bl.end, e)
	}
	return s.handleResponse(dst, st, bl.end, e)
}

// handleNew opens a stream for a request, unless the request is ignored, refused or malformed.
func (s *Session) handleNew(dst []byte, bl block, now time.Time, e *Event) ([]byte, error) {
	s.skips.add(s.lastPeer, bl.stream)
	s.lastPeer = bl.stream
	if bl.stream > s.goAwaySentID {
		return dst, nil // ignored (RFC 9113 6.8)
	}
	if bl.selfDep {
		return dst, streamError(bl.stream, ProtocolError, "a stream depends on itself (RFC 7540 5.3.1)")
	}
	most := s.cfg.MaxConcurrentStreams
	if uint32(len(s.streams)) >= most || s.unreleased/2 >= most {
		return dst, streamError(bl.stream, RefusedStream, "more streams than SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113 5.1.2)")
	}
	if s.cancelled.full(most, now) {
		s.charges++
		s.resets.add(bl.stream, byUs) // not Fail: the peer has violated no rule
		return AppendRSTStream(dst, bl.stream, RefusedStream), nil
	}
	if rule := s.head.readRequest(&s.dec, s.cfg.EnableConnect); rule != "" {
		return dst, streamError(bl.stream, ProtocolError, rule)
	}
	if bl.end && s.head.length > 0 {
		return dst, streamError(bl.stream, ProtocolError, "content-length in a request without a body (RFC 9113 8.1.1)")
	}
	st := s.newStream(bl.stream)
	s.unreleased++
	st.part, st.kind, st.declared = partHead, s.head.kind, s.head.length
	st.tunnel = st.Tunnel()
	st.opened = now
	if bl.end {
		st.endRemote()
	}
	e.Kind, e.Stream, e.End = HeadersArrived, st, bl.end
	return dst, nil
}

// handleResponse processes the head of a response.
func (s *Session) handleResponse(dst []byte, st *Stream, end bool, e *Event) ([]byte, error) {
	rule := s.head.readResponse(&s.dec)
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
		if st.Tunnel() && s.head.status < 300 {
			st.tunnel, s.head.length = true, -1 // RFC 9110 9.3.6
		}
		st.part, st.declared = partHead, s.head.length
		if st.kind == headExchange || s.head.status == 204 || s.head.status == 304 {
			st.declared = 0
		}
	}
	if end && st.declared > 0 {
		return dst, streamError(st.ID, ProtocolError, "content-length in a response without a body (RFC 9113 8.1.1)")
	}
	if end && st.endRemote() {
		s.finish(st)
	}
	e.Kind, e.Stream, e.End = HeadersArrived, st, end
	return dst, nil
}

// handleTrailer processes the trailer section.
func (s *Session) handleTrailer(dst []byte, st *Stream, end bool, e *Event) ([]byte, error) {
	rule := readTrailer(&s.dec)
	switch {
	case !end:
		rule = "a second head, or a trailer section that does not end the stream (RFC 9113 8.1)"
	case rule == "" && s.dec.tooLarge:
		rule = "trailer section larger than SETTINGS_MAX_HEADER_LIST_SIZE"
	case rule == "" && st.declared >= 0 && st.received < st.declared:
		rule = "length of DATA differs from content-length (RFC 9113 8.1.1)"
	}
	if rule != "" {
		return dst, streamError(st.ID, ProtocolError, rule)
	}
	st.part = partTrailer
	if st.endRemote() {
		s.finish(st)
	}
	e.Kind, e.Stream, e.End = TrailersArrived, st, true
	return dst, nil
}
