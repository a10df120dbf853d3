package http1

// Scanner tells cheaply whether an incomplete head may now be complete or exceed a limit.
// ParseRequest and ParseResponse start over with each call. A peer that sends a head of 16 KiB byte
// by byte would make them read all of it each time: about 7 µs per byte, as much as receiving it
// takes. A Scanner reads every byte once. The zero value is ready; each head needs its own.
//
// Use it only after a parse has returned 0.
type Scanner struct {
	seen  int
	feed  int  // offset after the last LF; 0: none yet
	begun bool // a nonempty line has ended
}

// Ready reports whether the caller should parse b, which starts with the bytes of the previous
// calls: b has an empty line or a bare LF, or reaches a limit. The parser finds other errors when
// the head is complete.
func (s *Scanner) Ready(b []byte, lim Limits) bool {
	for ; s.seen < len(b); s.seen++ {
		if b[s.seen] != '\n' {
			continue
		}
		bare := s.seen == 0 || b[s.seen-1] != '\r'
		empty := s.seen == s.feed+1 // ignored before the head begins (RFC 9112 2.2)
		if bare || empty && (s.begun || s.feed >= 2*maxEmptyLines) {
			return true
		}
		s.feed = s.seen + 1
		s.begun = s.begun || !empty
	}
	return lim.Head > 0 && len(b) >= lim.Head || lim.Line > 0 && !s.begun && len(b) >= s.feed+lim.Line+2
}

// Reset makes s ready for the next head.
func (s *Scanner) Reset() { *s = Scanner{} }
