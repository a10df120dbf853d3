package http1

// Scanner determines cheaply whether an incomplete head may now be complete or exceed a limit.
// ParseRequest and ParseResponse parse from the start in each call. If a peer sends a head of 16
// KiB byte by byte, parsing at each byte would take about 7 µs per byte, as much as receiving it. A
// Scanner reads every byte once. The zero value is ready to use. Each head needs a new or reset
// Scanner.
//
// Use a Scanner only after ParseRequest or ParseResponse has returned 0.
type Scanner struct {
	scanned   int  // number of bytes that were read
	lineStart int  // offset after the last LF; 0: none yet
	started   bool // a nonempty line has ended
}

// Ready reports whether the caller should parse b, which starts with the bytes of the previous
// calls: b has an empty line or a bare LF, or reaches a limit. The parser finds other errors when
// the head is complete.
func (s *Scanner) Ready(b []byte, lim Limits) bool {
	for ; s.scanned < len(b); s.scanned++ {
		if b[s.scanned] != '\n' {
			continue
		}
		bare := s.scanned == 0 || b[s.scanned-1] != '\r'
		empty := s.scanned == s.lineStart+1 // ignored before the head begins (RFC 9112 2.2)
		if bare || empty && (s.started || s.lineStart >= 2*maxEmptyLines) {
			return true
		}
		s.lineStart = s.scanned + 1
		s.started = s.started || !empty
	}
	return lim.Head > 0 && len(b) >= lim.Head || lim.Line > 0 && !s.started && len(b) >= s.lineStart+lim.Line+2
}

// Reset makes s ready for the next head.
func (s *Scanner) Reset() { *s = Scanner{} }
