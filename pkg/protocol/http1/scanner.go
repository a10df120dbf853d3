package http1

// Scanner tells cheaply whether a head that was incomplete may be complete now,
// or may have passed a limit. ParseRequest and ParseResponse start over with
// each call; a peer that sends its head in pieces of one byte would make them
// read all of it for each: about 7 µs a byte for a head of 16 KiB, as much as it
// takes to receive it. A Scanner looks at every byte once. The zero value is
// ready; each head needs one of its own.
//
// It is worth its cost only after a parse has returned 0.
type Scanner struct {
	seen  int
	feed  int  // behind the last LF; 0: there was none
	begun bool // a line that is not empty has ended
}

// Ready reports whether it is time to parse b, which starts with the bytes of the
// calls before: it has an empty line, a bare LF or reaches a limit. What else is
// wrong with the head is found when it is whole.
func (s *Scanner) Ready(b []byte, lim Limits) bool {
	for ; s.seen < len(b); s.seen++ {
		if b[s.seen] != '\n' {
			continue
		}
		bare := s.seen == 0 || b[s.seen-1] != '\r'
		empty := s.seen == s.feed+1 // before the head begins it means nothing (RFC 9112 2.2)
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
