package http2

import (
	"github.com/weft-proxy/weft/pkg/protocol"
)

// parseRequest checks a request's header section (RFC 9113 8.3.1; RFC 8441 4). It returns "" or the
// violated rule. allowExtendedConnect: the server supports extended CONNECT. If the section is too
// large, parseRequest checks only the fields that the decoder kept.
func (h *head) parseRequest(d *decoder, allowExtendedConnect bool) string {
	*h = head{length: -1}
	for i := range d.fields {
		f := &d.fields[i]
		if rule := h.addField(f); rule != "" {
			return rule
		}
		if rule := h.addRequestField(f); rule != "" {
			return rule
		}
	}
	if d.tooLarge {
		return "" // TakeRequest returns the error
	}
	return h.checkTarget(allowExtendedConnect)
}

func (h *head) addRequestField(f *field) string {
	valid := true
	switch f.kind {
	case pseudoMethod:
		valid = h.recordPseudo(sawMethod)
		h.method = *f
	case pseudoScheme:
		valid = h.recordPseudo(sawScheme)
		h.scheme = *f
	case pseudoAuthority:
		valid = h.recordPseudo(sawAuthority)
		h.authority = *f
	case pseudoPath:
		valid = h.recordPseudo(sawPath)
		h.path = *f
	case pseudoProtocol:
		valid = h.recordPseudo(sawProtocol)
		h.protocol = *f
	case pseudoStatus, pseudoUnknown:
		valid = false
	case hostField:
		if h.host != nil {
			return "more than one Host (RFC 9110 7.2)"
		}
		h.host = f
	case expectField:
		if protocol.EqualFold(f.value, "100-continue") {
			h.seen |= sawContinue
		} else {
			h.seen |= sawExpectation
		}
	default:
	}
	if !valid {
		return rulePseudo
	}
	return ""
}

// checkTarget checks that method, scheme, authority and path are consistent, and sets h.kind. It
// returns "" or the violated rule.
func (h *head) checkTarget(allowExtendedConnect bool) string {
	method := h.method.value
	if !isToken(method) {
		return ":method is missing or not a token (RFC 9113 8.3.1)"
	}
	switch {
	case method == "HEAD":
		h.kind = headExchange
	case method != "CONNECT":
	case h.seen&sawProtocol != 0:
		h.kind = extendedExchange
	default:
		h.kind = connectExchange
	}
	if h.seen&sawProtocol != 0 && (h.kind != extendedExchange || !allowExtendedConnect || !isToken(h.protocol.value)) {
		return ":protocol is not allowed in this request (RFC 8441 4)"
	}
	if h.kind >= connectExchange {
		h.length = -1 // bytes of a tunnel follow, not a body (RFC 9110 9.3.6)
	}
	if h.kind == connectExchange {
		if h.seen&(sawScheme|sawPath) != 0 || !protocol.IsTunnelTarget(h.authority.value) {
			return "CONNECT with :scheme or :path, or without a host and port (RFC 9113 8.5)"
		}
		return h.checkHost()
	}
	if h.scheme.value != "http" && h.scheme.value != "https" {
		return ":scheme is neither http nor https (RFC 9113 8.3.1)"
	}
	if path := h.path.value; !isPath(path) && (path != "*" || method != "OPTIONS") {
		return ":path is missing, or neither a path nor the asterisk of OPTIONS (RFC 9113 8.3.1)"
	}
	return h.checkHost()
}

// checkHost checks that :authority is valid, and equal to Host if the request has both. Host
// replaces a missing :authority. It returns "" or the violated rule.
func (h *head) checkHost() string {
	if h.seen&sawAuthority == 0 {
		if h.host == nil {
			return "neither :authority nor Host (RFC 9113 8.3.1)"
		}
		h.authority = *h.host
	} else if h.host != nil && !protocol.EqualFold(h.host.value, h.authority.value) {
		return "Host differs from :authority (RFC 9113 8.3.1)"
	}
	if !protocol.IsAuthority(h.authority.value) {
		return ":authority is not a host with an optional port (RFC 9113 8.3.1)"
	}
	return ""
}

// isPath reports whether s is an absolute path with an optional query and no fragment.
func isPath(s string) bool { return s != "" && s[0] == '/' && allInClass(s, targetByte) }

// TakeRequest fills req with the request of the last HeadersArrived event, except for Body and
// Trailer. It appends copies of strings that borrow the decoder's memory to text, and returns the
// extended slice, which the caller keeps as long as the exchange (docs/ownership.md).
//
// Extended CONNECT becomes GET with Upgrade, as in HTTP/1.1. CONNECT has no Path and no Scheme.
// Cookies are joined. If the request has te: trailers, the field occurs once and last (RFC 9113
// 8.2.2). The error is nil or a Fault that the engine responds to on the stream: HeaderTooLarge,
// ExpectationFailed or NotImplemented. With an error, req is as complete as possible.
func (s *Session) TakeRequest(req *protocol.Request, text []byte) ([]byte, error) {
	h := s.head
	text, req.Method = retainValue(text, &h.method)
	text, req.Scheme = retainValue(text, &h.scheme)
	text, req.Authority = retainValue(text, &h.authority)
	text, req.Path = retainValue(text, &h.path)
	if h.kind == extendedExchange {
		req.Method = "GET"
		text, req.Upgrade = retainValue(text, &h.protocol)
	}
	text = s.appendHeader(text, &req.Header, h.cookies)
	if h.seen&sawTrailers != 0 {
		req.Header.Add("te", "trailers")
	}
	req.ContentLength = h.length
	req.ExpectContinue = h.seen&sawContinue != 0
	switch {
	case s.dec.tooLarge:
		return text, protocol.Faultf(protocol.HeaderTooLarge,
			"header list of %d bytes; the limits are %d bytes and %d fields", s.dec.size, s.dec.maxListSize, s.dec.maxFields)
	case h.kind == extendedExchange && protocol.CarriesHTTP(h.protocol.value):
		return text, protocol.Faultf(protocol.NotImplemented, "upgrade to a protocol that carries HTTP requests")
	case h.seen&sawExpectation != 0:
		return text, protocol.Faultf(protocol.ExpectationFailed, "expectation other than 100-continue (RFC 9110 10.1.1)")
	}
	return text, nil
}

// AcceptsTrailers reports whether the request of the last HeadersArrived event had TE: trailers
// (RFC 9110 10.1.4), which gRPC requires.
func (s *Session) AcceptsTrailers() bool { return s.head.seen&sawTrailers != 0 }
