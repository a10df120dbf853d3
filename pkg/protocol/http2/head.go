package http2

import "github.com/weft-proxy/weft/pkg/protocol"

// head holds the pseudo-header fields of a message and the other fields that this package acts on.
// Its strings borrow the decoder's text, or belong to the static or dynamic table.
type head struct {
	method, scheme, authority, path, protocol field
	host                                      *field
	status                                    int
	length                                    int64 // content-length; -1: none
	kind                                      exchangeKind
	cookies                                   int
	seen                                      fieldSet
}

type fieldSet uint16

const (
	sawMethod fieldSet = 1 << iota
	sawScheme
	sawAuthority
	sawPath
	sawProtocol
	sawStatus
	sawRegular     // any field that is not a pseudo-header field
	sawTrailers    // TE: trailers
	sawContinue    // Expect: 100-continue
	sawExpectation // any other Expect
)

// Rules that several functions check.
const (
	ruleName            = "field name is not a lowercase token (RFC 9113 8.2.1)"
	ruleValue           = "field value has control characters, or whitespace around it (RFC 9113 8.2.1)"
	ruleConnectionField = "connection-specific field (RFC 9113 8.2.2)"
	ruleTE              = "TE other than trailers (RFC 9113 8.2.2)"
	rulePseudo          = "pseudo-header field that is unknown, repeated or misplaced (RFC 9113 8.3)"
	ruleLength          = "content-length is not a number, or is repeated (RFC 9110 8.6)"
)

// addField checks f by the rules that requests and responses have in common, and records it. It
// returns "" or the violated rule.
func (h *head) addField(f *field) string {
	if f.flags&invalidValue != 0 {
		return ruleValue
	}
	if !f.kind.isPseudo() {
		h.seen |= sawRegular
	}
	switch f.kind {
	case invalidName:
		return ruleName
	case connectionField:
		return ruleConnectionField
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

// recordPseudo records a pseudo-header field. It reports whether the field is the first of its kind
// and precedes all regular fields.
func (h *head) recordPseudo(flag fieldSet) bool {
	valid := h.seen&(flag|sawRegular) == 0
	h.seen |= flag
	return valid
}

// parseLength parses a content-length: digits without a sign.
func parseLength(s string) (int64, bool) {
	const maxLength = 1<<63 - 1
	if s == "" {
		return 0, false
	}
	n := int64(0)
	for i := range len(s) {
		d := int64(s[i]) - '0'
		if d < 0 || d > 9 || n > (maxLength-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// appendHeader adds the forwarded fields of the last header block to h. If cookies is more than 1,
// all Cookie fields become one field (RFC 9113 8.2.3). appendHeader appends copies of strings that
// borrow the decoder's memory to text, and returns the extended slice.
func (s *Session) appendHeader(text []byte, h *protocol.Header, cookies int) []byte {
	for i := range s.dec.fields {
		f := &s.dec.fields[i]
		if !f.kind.isForwarded() {
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
		text, name = retain(text, f.name, f.flags&nameOwned != 0)
		text, value = retain(text, f.value, f.flags&valueOwned != 0)
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
	h.Add("cookie", unsafeString(text[start:]))
	return text
}

// retain returns a string that is valid as long as the exchange: s itself if owned is set, or
// otherwise the copy of s that retain appends to text.
func retain(text []byte, s string, owned bool) ([]byte, string) {
	if owned {
		return text, s
	}
	start := len(text)
	text = append(text, s...)
	return text, unsafeString(text[start:])
}

func retainValue(text []byte, f *field) ([]byte, string) {
	return retain(text, f.value, f.flags&valueOwned != 0)
}

// TakeTrailer adds the forwarded fields of the last TrailersArrived event to h. text is used as in
// TakeRequest.
func (s *Session) TakeTrailer(h *protocol.Header, text []byte) []byte {
	return s.appendHeader(text, h, 1) // 1: Cookie fields are not joined
}

// checkTrailer checks a trailer section (RFC 9113 8.1). It returns "" or the violated rule.
func checkTrailer(d *decoder) string {
	for i := range d.fields {
		switch f := &d.fields[i]; {
		case f.flags&invalidValue != 0:
			return ruleValue
		case f.kind.isPseudo():
			return "pseudo-header field in a trailer section (RFC 9113 8.1)"
		case f.kind == invalidName:
			return ruleName
		case f.kind == connectionField:
			return ruleConnectionField
		}
	}
	return ""
}
