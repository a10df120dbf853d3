package http2

// streamWindow returns how many bytes a new stream's peer may send: until it has acknowledged the
// SETTINGS it may know only the default.
func (s *Session) streamWindow() int64 {
	if s.acked {
		return int64(s.cfg.StreamWindow)
	}
	return max(DefaultWindow, int64(s.cfg.StreamWindow))
}

// Consumed records that the engine has consumed or dropped n bytes of a stream's content. This
// opens windows again, so that a slow reader slows its sender down. It appends a WINDOW_UPDATE when
// half of a window was consumed and ReserveData did not report it before. The sum of n never
// exceeds the bytes of the events.
func (s *Session) Consumed(dst []byte, st *Stream, n int) []byte {
	st.held -= int64(n)
	if st.held < 0 {
		panic("http2: more content consumed than received")
	}
	dst = s.discard(dst, int64(n))
	if st.state != Open && st.state != HalfClosedLocal {
		return dst // the peer sends nothing more
	}
	st.pendingCredit += int64(n)
	if st.pendingCredit < int64(s.cfg.StreamWindow+1)/2 {
		return dst
	}
	return st.reopen(dst)
}

// reopen appends a WINDOW_UPDATE for all consumed bytes.
func (st *Stream) reopen(dst []byte) []byte {
	freed := st.pendingCredit
	st.pendingCredit = 0
	st.recvWindow += freed
	return AppendWindowUpdate(dst, st.ID, uint32(freed))
}

// discard opens the connection's window by n bytes.
func (s *Session) discard(dst []byte, n int64) []byte {
	s.freed += n
	if s.freed < int64(s.cfg.ConnectionWindow)/2 {
		return dst
	}
	freed := s.freed
	s.freed = 0
	s.recvWindow += freed
	return AppendWindowUpdate(dst, 0, uint32(freed))
}

// SendWindow returns how many bytes the peer accepts on all streams together.
func (s *Session) SendWindow() int64 { return s.sendWindow }

// minWindowUpdate is the smallest WINDOW_UPDATE, in bytes, that costs nothing: peers that read
// large content in small pieces open the window by these. A DATA frame of less, with more to send,
// is small because of the windows.
const minWindowUpdate = 1 << 8

// Writable returns how many bytes of content may be sent on st now.
func (s *Session) Writable(st *Stream) int {
	if !st.CanSend() {
		return 0
	}
	return int(max(0, min(s.sendWindow, st.sendWindow)))
}

// ReserveData appends the header of a DATA frame for at most want bytes of content, and returns how
// many the windows and the frame size let through: the engine appends, or writes next, exactly
// these. If it returns 0 with want above 0, nothing was appended; a WindowGrew event tells when to
// try again. end marks the end of the message if all of want fits; without it, a want of 0 appends
// nothing. ErrNotOpen: the stream was reset or is ended.
//
// A WINDOW_UPDATE of the same stream may precede it: when content flows both ways, the credit is
// sent with frames that are written anyway.
func (s *Session) ReserveData(dst []byte, st *Stream, want int, end bool) ([]byte, int, error) {
	if !st.CanSend() {
		return dst, 0, ErrNotOpen
	}
	n := int(max(0, min(s.sendWindow, st.sendWindow, int64(s.peer.MaxFrameSize), int64(want))))
	if n == 0 && (want > 0 || !end) {
		return dst, 0, nil
	}
	if n == want || n >= minWindowUpdate {
		s.earn(FloodWindowUpdate, 2)
	}
	if n > 0 {
		s.earn(FloodPing, 1) // gRPC estimates its bandwidth with PING
	}
	s.sendWindow -= int64(n)
	st.sendWindow -= int64(n)
	if st.state == Open && st.pendingCredit > int64(s.cfg.StreamWindow)/5 { // less is not worth a frame
		dst = st.reopen(dst)
	}
	end = end && n == want
	dst = AppendFrameHeader(dst, n, FrameData, endFlag(end), st.ID)
	if end && st.endLocal() {
		s.finish(st)
	}
	return dst, n, nil
}

// AppendData appends as much of data as the windows let through, in as many frames as needed, and
// returns that number of bytes. Otherwise it is like ReserveData.
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

// finish closes a stream that both sides have ended.
func (s *Session) finish(st *Stream) {
	s.close(st)
	s.cancelled.earn(s.cfg.MaxConcurrentStreams)
	s.earn(FloodRapidReset, 1)
	s.earn(FloodMadeYouReset, 1)
	s.charges = max(0, s.charges-1)
	s.answered = true
}

// earn refunds n of f's budget. Most peers never spend any.
func (s *Session) earn(f Flood, n int) {
	if s.meters.paid[f] > 0 {
		s.meters.earn(f, s.cfg.Budgets.of(f), n)
	}
}
