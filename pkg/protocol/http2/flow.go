package http2

// initialRecvWindow returns how many bytes the peer may send on a new stream. Until the peer has
// acknowledged our SETTINGS, it may still use the default window.
func (s *Session) initialRecvWindow() int64 {
	if s.settingsAcked {
		return int64(s.cfg.StreamWindow)
	}
	return max(DefaultWindow, int64(s.cfg.StreamWindow))
}

// ReportConsumed records that the engine has consumed or dropped n bytes of a stream's body. The
// stream's window opens again only then, so that a slow reader slows its sender down.
// ReportConsumed appends a WINDOW_UPDATE once half of a window was consumed; ReserveData may append
// one earlier. It panics if the engine consumes more bytes than events delivered.
func (s *Session) ReportConsumed(dst []byte, st *Stream, n int) []byte {
	st.unconsumed -= int64(n)
	if st.unconsumed < 0 {
		panic("http2: more body bytes consumed than received")
	}
	dst = s.creditConnection(dst, int64(n))
	if st.state != Open && st.state != HalfClosedLocal {
		return dst // the peer sends no more DATA
	}
	st.pendingCredit += int64(n)
	if st.pendingCredit < int64(s.cfg.StreamWindow+1)/2 {
		return dst
	}
	return st.appendCredit(dst)
}

// appendCredit appends a WINDOW_UPDATE for all bytes that were consumed since the last one.
func (st *Stream) appendCredit(dst []byte) []byte {
	credit := st.pendingCredit
	st.pendingCredit = 0
	st.recvWindow += credit
	return AppendWindowUpdate(dst, st.ID, uint32(credit))
}

// creditConnection records n consumed bytes for the connection's window. It appends a WINDOW_UPDATE
// once half of the window was consumed.
func (s *Session) creditConnection(dst []byte, n int64) []byte {
	s.pendingCredit += n
	if s.pendingCredit < int64(s.cfg.ConnectionWindow)/2 {
		return dst
	}
	credit := s.pendingCredit
	s.pendingCredit = 0
	s.recvWindow += credit
	return AppendWindowUpdate(dst, 0, uint32(credit))
}

// SendWindow returns how many bytes of DATA may be sent on all streams together.
func (s *Session) SendWindow() int64 { return s.sendWindow }

// minWindowUpdate is the minimum increment of a WINDOW_UPDATE, in bytes, that takes no token.
// Smaller increments are also regular if a peer reads a body in small pieces, so DATA frames refund
// tokens. A DATA frame below this size refunds none if the window is the reason for its size: then
// small increments slow the session down.
const minWindowUpdate = 1 << 8

// Writable returns how many bytes of the body may be sent on st now.
func (s *Session) Writable(st *Stream) int {
	if !st.CanSend() {
		return 0
	}
	return int(max(0, min(s.sendWindow, st.sendWindow)))
}

// ReserveData appends the header of a DATA frame for as many of want bytes as the windows and the
// frame size allow, and returns that number. The engine must append or write exactly that many
// bytes next. If ReserveData returns 0 although want is positive, it has appended nothing; the
// engine tries again after a WindowGrew or SettingsArrived event. end sets END_STREAM if all of
// want fits. If want is 0 and end is not set, nothing is appended. ErrNotOpen: the stream was
// reset, our side has ended it, or its head was not sent.
//
// A WINDOW_UPDATE of the same stream may precede the header: when data flows in both directions,
// the credit is sent with frames that are written anyway.
func (s *Session) ReserveData(dst []byte, st *Stream, want int, end bool) ([]byte, int, error) {
	if !st.CanSend() {
		return dst, 0, ErrNotOpen
	}
	n := int(max(0, min(s.sendWindow, st.sendWindow, int64(s.peerSettings.MaxFrameSize), int64(want))))
	if n == 0 && (want > 0 || !end) {
		return dst, 0, nil
	}
	if n == want || n >= minWindowUpdate {
		s.refundTokens(FloodWindowUpdate, 2)
	}
	if n > 0 {
		s.refundTokens(FloodPing, 1) // gRPC peers send PING during a transfer to estimate the bandwidth
	}
	s.sendWindow -= int64(n)
	st.sendWindow -= int64(n)
	// A smaller credit does not justify a frame.
	if st.state == Open && st.pendingCredit > int64(s.cfg.StreamWindow)/5 {
		dst = st.appendCredit(dst)
	}
	end = end && n == want
	dst = AppendFrameHeader(dst, n, FrameData, endFlag(end), st.ID)
	if end && st.endLocal() {
		s.closeCompleted(st)
	}
	return dst, n, nil
}

// AppendData appends as much of data as the windows allow, in as many frames as needed, and returns
// that number of bytes. end and the errors are as in ReserveData.
func (s *Session) AppendData(dst []byte, st *Stream, data []byte, end bool) ([]byte, int, error) {
	sent := 0
	for {
		var n int
		var err error
		if dst, n, err = s.ReserveData(dst, st, len(data)-sent, end); err != nil {
			return dst, sent, err
		}
		dst = append(dst, data[sent:sent+n]...)
		sent += n
		if n == 0 || sent == len(data) {
			return dst, sent, nil
		}
	}
}

// closeCompleted closes a stream that both sides have ended, and refunds tokens and charges for it.
func (s *Session) closeCompleted(st *Stream) {
	s.closeStream(st)
	s.resetSlots.release(s.cfg.MaxConcurrentStreams)
	s.refundTokens(FloodRapidReset, 1)
	s.refundTokens(FloodMadeYouReset, 1)
	s.charges = max(0, s.charges-1)
	s.completedStream = true
}

// refundTokens returns n tokens to f's bucket. It does nothing for most peers, which never take a
// token.
func (s *Session) refundTokens(f Flood, n int) {
	if s.floodBuckets.fullAt[f] > 0 {
		s.floodBuckets.refund(f, s.cfg.FloodLimits.rateLimit(f), n)
	}
}
