package http1

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// RequestOptions describes the body and the connection for a request head.
type RequestOptions struct {
	// Chunked: the body has no known length and uses the chunked coding; ContentLength is ignored.
	Chunked bool
	// Close: the connection ends after the response.
	Close bool
	// WebSocketKey is the value of a Sec-WebSocket-Key to add for a client that sent none; "" adds
	// none.
	WebSocketKey string
	// AcceptsTrailers: the sender wants trailer fields (RFC 9110 10.1.4). AppendRequest ignores
	// AcceptsTrailers if the request has an Upgrade.
	AcceptsTrailers bool
	// ZeroLength adds "Content-Length: 0" to requests without a body, as Envoy does, unless the method
	// is GET, HEAD, DELETE, TRACE or CONNECT.
	ZeroLength bool
}

// AppendRequest appends a request head with its empty line: the request line with the target in
// origin-form (authority-form for CONNECT), Host, Header in its order, framing, Expect, the
// connection headers, and last opts.WebSocketKey.
//
// A ContentLength of -1 writes no Content-Length, except 0 for POST, PUT and PATCH (RFC 9110 8.6), and
// for other methods with opts.ZeroLength.
// An Authority of "" is written as an empty Host (RFC 9112 3.2). AppendRequest omits Host, Expect
// and the framing and connection headers in Header: filters do not control them.
//
// A filter cannot inject a line. If the method, target, authority, Upgrade, or a name or value in
// Header is invalid, AppendRequest returns dst unchanged and a Fault of reason Internal that names
// the part.
func AppendRequest(dst []byte, req *protocol.Request, opts RequestOptions) ([]byte, error) {
	start := len(dst)
	target := req.Path
	if req.Method == "CONNECT" {
		target = req.Authority
	}
	if part := invalidRequestPart(req, target); part != "" {
		return dst, protocol.Faultf(protocol.Internal, "the request %s contains invalid bytes", part)
	}
	dst = slices.Grow(dst, len(req.Method)+len(target)+len(req.Authority)+len("  HTTP/1.1\r\nHost: \r\n"))
	dst = append(dst, req.Method...)
	dst = append(dst, ' ')
	dst = append(dst, target...)
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	dst = append(dst, req.Authority...)
	dst = append(dst, '\r', '\n')
	h := &req.Header
	for i := range h.Len() {
		f := h.At(i)
		if !kindOf(f.Name).isForwarded() {
			continue
		}
		if !isValidField(f) {
			return dst[:start], protocol.Faultf(protocol.Internal, "the request header %s contains invalid bytes", quoteName(f.Name))
		}
		dst = appendField(dst, f.Name, f.Value)
	}
	dst = appendRequestFraming(dst, req, opts)
	switch {
	case req.Upgrade != "" && opts.Close:
		dst = append(dst, "Connection: upgrade, close\r\n"...)
	case req.Upgrade != "":
		dst = append(dst, "Connection: upgrade\r\n"...)
	case opts.AcceptsTrailers && opts.Close:
		dst = append(dst, "TE: trailers\r\nConnection: TE, close\r\n"...)
	case opts.AcceptsTrailers:
		dst = append(dst, "TE: trailers\r\nConnection: TE\r\n"...)
	case opts.Close:
		dst = append(dst, "Connection: close\r\n"...)
	}
	if req.Upgrade != "" {
		dst = appendField(dst, "Upgrade", req.Upgrade)
	}
	if opts.WebSocketKey != "" {
		dst = appendField(dst, WebSocketKeyField, opts.WebSocketKey)
	}
	return append(dst, '\r', '\n'), nil
}

// invalidRequestPart returns the name of an invalid part of the request outside Header, or "" if
// all parts are valid.
func invalidRequestPart(req *protocol.Request, target string) string {
	switch {
	case !isToken(req.Method):
		return "method"
	case !isValidTarget(req.Method, target):
		return "target"
	case req.Authority != "" && !protocol.IsAuthority(req.Authority):
		return "authority"
	case req.Upgrade != "" && valueLen(bytesOf(req.Upgrade)) < len(req.Upgrade):
		return "upgrade"
	}
	return ""
}

// isValidTarget reports whether a request to an origin server or a proxy may combine method and
// target (RFC 9112 3.2).
func isValidTarget(method, target string) bool {
	switch {
	case method == "CONNECT":
		return protocol.IsTunnelTarget(target)
	case target == "*":
		return method == "OPTIONS"
	}
	return target != "" && target[0] == '/' && targetLen(bytesOf(target)) == len(target)
}

func appendRequestFraming(dst []byte, req *protocol.Request, opts RequestOptions) []byte {
	switch {
	case opts.Chunked:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	case req.ContentLength >= 0:
		dst = appendLength(dst, req.ContentLength)
	case req.Method == "POST", req.Method == "PUT", req.Method == "PATCH", opts.ZeroLength && !hasNoBody(req.Method):
		dst = appendLength(dst, 0)
	}
	if req.ExpectContinue && (opts.Chunked || req.ContentLength > 0) {
		dst = append(dst, "Expect: 100-continue\r\n"...)
	}
	return dst
}

// hasNoBody reports whether requests with the method usually have no body.
func hasNoBody(method string) bool {
	switch method {
	case "GET", "HEAD", "DELETE", "TRACE", "CONNECT":
		return true
	}
	return false
}

// ResponseOptions describes the body and the connection for a response head.
type ResponseOptions struct {
	// Chunked: the body uses the chunked coding; ContentLength is ignored. Chunked must be false if
	// Minor is 0, because HTTP/1.0 clients cannot read the coding (RFC 9112 6.1).
	Chunked bool
	// Close: the connection ends after this response.
	Close bool
	// BecomesTunnel: the connection is a tunnel after this head; there is no framing.
	BecomesTunnel bool
	// Minor is the client's minor version. An HTTP/1.0 client gets "Connection: keep-alive" if the
	// connection persists.
	Minor int
	// Server and Date are the values of headers to add if the response does not have them (RFC 9110
	// 10.2.4, 6.6.1); "" adds none.
	Server, Date string
}

// AppendResponse appends a response head with its empty line: the status line with the standard
// phrase, Header in its order, the headers that opts adds, framing, and last the connection
// headers. The version is always HTTP/1.1 (RFC 9112 2.3).
//
// A ContentLength of -1 writes no Content-Length. 204 and 1xx never have one. A 304 has one only if
// ContentLength is positive: 0 would claim an empty representation, which few senders mean (RFC
// 9110 8.6). In a response to HEAD, ContentLength is written unchanged.
//
// AppendResponse omits Host, Expect and the framing and connection headers in Header, except the
// Upgrade of 101 and 426. It writes control characters in a value as spaces (RFC 9110 5.5) and
// omits a header whose name is not a token, so a filter cannot inject a line. It panics on a status
// outside 100 to 999, which parsers and configuration reject.
func AppendResponse(dst []byte, resp *protocol.Response, opts ResponseOptions) []byte {
	dst = appendStatusLine(dst, resp.Status)
	h := &resp.Header
	var upgrade, server, date bool
	for i := range h.Len() {
		f := h.At(i)
		switch kindOf(f.Name) {
		case regularField:
		case serverField:
			server = true
		case dateField:
			date = true
		case upgradeField:
			if !keepsUpgrade(resp.Status) {
				continue
			}
			upgrade = true
		default:
			continue
		}
		dst = appendSanitized(dst, f)
	}
	if opts.Server != "" && !server {
		dst = appendField(dst, "Server", opts.Server)
	}
	if opts.Date != "" && !date {
		dst = appendField(dst, "Date", opts.Date)
	}
	if !opts.BecomesTunnel {
		dst = appendResponseFraming(dst, resp, opts)
	}
	switch {
	case upgrade && opts.Close && !opts.BecomesTunnel:
		dst = append(dst, "Connection: upgrade, close\r\n"...)
	case upgrade:
		dst = append(dst, "Connection: upgrade\r\n"...)
	case opts.Close:
		dst = append(dst, "Connection: close\r\n"...)
	case opts.Minor == 0 && !opts.BecomesTunnel:
		dst = append(dst, "Connection: keep-alive\r\n"...)
	}
	return append(dst, '\r', '\n')
}

func appendResponseFraming(dst []byte, resp *protocol.Response, opts ResponseOptions) []byte {
	switch {
	case resp.Status < 200, resp.Status == 204:
	case opts.Chunked:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	case resp.ContentLength > 0, resp.ContentLength == 0 && resp.Status != 304:
		dst = appendLength(dst, resp.ContentLength)
	}
	return dst
}

// AppendInterim appends an interim response, 1xx other than 101 (RFC 9110 15.2): a status line and
// headers, written as in AppendResponse. header may be nil.
func AppendInterim(dst []byte, status int, header *protocol.Header) []byte {
	dst = appendStatusLine(dst, status)
	if header != nil {
		for i := range header.Len() {
			if f := header.At(i); kindOf(f.Name).isForwarded() {
				dst = appendSanitized(dst, f)
			}
		}
	}
	return append(dst, '\r', '\n')
}

func appendStatusLine(dst []byte, status int) []byte {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("http1: invalid response status %d", status))
	}
	dst = append(dst, "HTTP/1.1 "...)
	dst = append(dst, byte('0'+status/100), byte('0'+status/10%10), byte('0'+status%10), ' ')
	dst = append(dst, reasonPhrase(status)...)
	return append(dst, '\r', '\n')
}

func appendLength(dst []byte, n int64) []byte {
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '\r', '\n')
}

func appendField(dst []byte, name, value string) []byte {
	n := len(dst)
	dst = slices.Grow(dst, len(name)+len(value)+len(": \r\n"))
	dst = dst[:n+len(name)+len(value)+len(": \r\n")]
	line := dst[n:]
	copy(line, name)
	line[len(name)], line[len(name)+1] = ':', ' '
	line = line[len(name)+2:]
	copy(line, value)
	line[len(value)], line[len(value)+1] = '\r', '\n'
	return dst
}

// appendSanitized appends a field line with spaces in place of control characters. It appends
// nothing if the name is not a token.
func appendSanitized(dst []byte, f *protocol.Field) []byte {
	if !isToken(f.Name) {
		return dst
	}
	n := len(dst)
	dst = appendField(dst, f.Name, f.Value)
	if valueLen(bytesOf(f.Value)) == len(f.Value) {
		return dst
	}
	value := dst[n+len(f.Name)+2 : len(dst)-2]
	for i, c := range value {
		if byteClasses[c]&valueByte == 0 {
			value[i] = ' '
		}
	}
	return dst
}

// isValidField reports whether f can be written as a field line unchanged.
func isValidField(f *protocol.Field) bool {
	return isToken(f.Name) && valueLen(bytesOf(f.Value)) == len(f.Value)
}

// quoteName returns a header name for an error text, quoted and truncated to 64 bytes.
func quoteName(name string) string {
	const maxLen = 64
	return strconv.Quote(name[:min(len(name), maxLen)])
}
