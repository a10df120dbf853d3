package http2

import "github.com/weft-proxy/weft/pkg/protocol"

// parseResponse checks a response's header section (RFC 9113 8.3.2). It returns "" or the violated
// rule.
func (h *head) parseResponse(d *decoder) string {
	*h = head{length: -1}
	for i := range d.fields {
		f := &d.fields[i]
		if rule := h.addField(f); rule != "" {
			return rule
		}
		if !f.kind.isPseudo() {
			continue
		}
		if f.kind != pseudoStatus || !h.recordPseudo(sawStatus) {
			return rulePseudo
		}
		if h.status = parseStatus(f.value); h.status == 0 {
			return ":status is not a number from 100 to 999 (RFC 9113 8.3.2)"
		}
	}
	switch {
	case h.seen&sawStatus == 0:
		return "no :status (RFC 9113 8.3.2)"
	case h.status == 101:
		return "status 101 in HTTP/2 (RFC 9113 8.6)"
	}
	return ""
}

// parseStatus parses a status of three digits, the first not 0. It returns 0 for anything else.
func parseStatus(s string) int {
	if len(s) != 3 || s[0] == '0' || !isDigit(s[0]) || !isDigit(s[1]) || !isDigit(s[2]) {
		return 0
	}
	return int(s[0]-'0')*100 + int(s[1]-'0')*10 + int(s[2]-'0')
}

// TakeResponse fills Status, Header and ContentLength of resp from the last HeadersArrived event,
// which was on st. A Status below 200 is interim, except 101, which replaces a 2xx response to an
// extended CONNECT. text is used as in TakeRequest.
func (s *Session) TakeResponse(st *Stream, resp *protocol.Response, text []byte) []byte {
	resp.Status = s.head.status
	if st.kind == extendedExchange && resp.Status/100 == 2 {
		resp.Status = 101
	}
	resp.ContentLength = s.head.length
	return s.appendHeader(text, &resp.Header, 1) // 1: Cookie fields are not joined
}
