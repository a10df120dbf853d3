package http2

import "github.com/weft-proxy/weft/pkg/protocol"

// head is what the pseudo-header fields and those that this package acts on say of
// a message. Its texts are views of the decoder's, or of its table's.
type head struct {
	method, scheme, authority, path, protocol field
	host                                      *field
	status                                    int
	length                                    int64 // content-length; -1: none
	kind                                      exchangeKind
	cookies                                   int
	seen                                      seen
}

// seen says which fields a header section had.
type seen uint16

const (
	sawMethod seen = 1 << iota
	sawScheme
	sawAuthority
	sawPath
	sawProtocol
	sawStatus
	sawOrdinary    // any that is no pseudo-header field
	sawTrailers    // TE: trailers
	sawContinue    // Expect: 100-continue
	sawExpectation // another
)

// Rules that several readers have.
const (
	ruleName      = "field name is no lowercase token (RFC 9113 8.2.1)"
	ruleValue     = "field value has controls, or blanks around it (RFC 9113 8.2.1)"
	ruleForbidden = "field of a connection of HTTP/1.1 (RFC 9113 8.2.2)"
	ruleTE        = "TE other than trailers (RFC 9113 8.2.2)"
	rulePseudo    = "pseudo-header field that is unknown, repeated or misplaced (RFC 9113 8.3)"
	ruleLength    = "content-length is no number, or repeated (RFC 9110 8.6)"
)

// take reads the fields that requests and responses have in common; "" or the rule
// that is broken.
func (h *head) take(f *field) string {
	if f.marks&badValue != 0 {
		return ruleValue
	}
	if !f.kind.pseudo() {
		h.seen |= sawOrdinary
	}
	switch f.kind {
	case badName:
		return ruleName
	case forbiddenField:
		return ruleForbidden
	case teField:
		if !protocol.EqualFold(f.value, "trailers") {
			return ruleTE
		}
		h.seen |= sawTrailers
	case contentLengthField:
		n, ok := parseLength(f.value)
		if !ok || h.length >= 0 {
			return ruleLength
		}
		h.length = n
	case cookieField:
		h.cookies++
	default:
	}
	return ""
}

// once notes that a pseudo-header field is there, which may be once and before all
// others.
func (h *head) once(which seen) bool {
	fits := h.seen&(which|sawOrdinary) == 0
	h.seen |= which
	return fits
}

// parseLength reads a content-length: digits, no sign.
func parseLength(s string) (int64, bool) {
	const most = 1<<63 - 1
	if s == "" {
		return 0, false
	}
	n := int64(0)
	for i := range len(s) {
		d := int64(s[i]) - '0'
		if d < 0 || d > 9 || n > (most-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// takeHeader adds the fields that are kept to h. Cookies become one field, as every
// other version of HTTP has it (RFC 9113 8.2.3). Texts that are views of the
// decoder's are copied behind text, which is returned.
func (s *Session) takeHeader(text []byte, h *protocol.Header, cookies int) []byte {
	for i := range s.dec.fields {
		f := &s.dec.fields[i]
		if !f.kind.kept() {
			continue
		}
		if f.kind == cookieField && cookies != 1 {
			if cookies > 1 {
				text = s.joinCookies(text, h)
				cookies = 0
			}
			continue
		}
		var name, value string
		text, name = take(text, f.name, f.marks&ownName != 0)
		text, value = take(text, f.value, f.marks&ownValue != 0)
		h.Add(name, value)
	}
	return text
}

func (s *Session) joinCookies(text []byte, h *protocol.Header) []byte {
	start := len(text)
	for i := range s.dec.fields {
		f := &s.dec.fields[i]
		if f.kind != cookieField || f.value == "" {
			continue
		}
		if len(text) > start {
			text = append(text, "; "...)
		}
		text = append(text, f.value...)
	}
	h.Add("cookie", view(text[start:]))
	return text
}

// take returns a string as the exchange may have it: itself if it is owned, else a
// view of a copy behind text.
func take(text []byte, s string, owned bool) ([]byte, string) {
	if owned {
		return text, s
	}
	start := len(text)
	text = append(text, s...)
	return text, view(text[start:])
}

func takeValue(text []byte, f *field) ([]byte, string) {
	return take(text, f.value, f.marks&ownValue != 0)
}

// TakeTrailer adds the fields of the trailer section that arrived to h. Otherwise it
// is as TakeRequest.
func (s *Session) TakeTrailer(h *protocol.Header, text []byte) []byte {
	return s.takeHeader(text, h, 1) // a cookie here is a field like others
}

// readTrailer checks a trailer section (RFC 9113 8.1); "" or the rule that is
// broken.
func readTrailer(d *decoder) string {
	for i := range d.fields {
		switch f := &d.fields[i]; {
		case f.marks&badValue != 0:
			return ruleValue
		case f.kind.pseudo():
			return "pseudo-header field in a trailer section (RFC 9113 8.1)"
		case f.kind == badName:
			return ruleName
		case f.kind == forbiddenField:
			return ruleForbidden
		}
	}
	return ""
}
