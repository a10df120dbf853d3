package http1

import (
	"bytes"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// ParseRequest reads one request head from the start of b (RFC 9112 2, 3). It returns the size of
// the head, including its empty line and any CRLFs before the request line (RFC 9112 2.2; it
// rejects more than 16).
//
// If n is 0 and err is nil, the head is incomplete: call again with more bytes after the same ones.
// Each call parses from the start: see Scanner for heads that arrive in many pieces. Limits apply
// to an incomplete head too.
//
// Strings in req borrow b. ParseRequest sets only Method, Scheme, Authority, Path, Header,
// ContentLength, Upgrade and ExpectContinue. These fields and f are valid only if n > 0.
//
//   - Scheme is the scheme of an absolute-form target in lower case, or "" (the connection decides).
//   - Authority is the authority of the target if it has one, or Host; "" only for HTTP/1.0.
//   - Path is the path and query of an absolute-form target ("/" for an empty path; "*" for OPTIONS
//     without path and query, RFC 9112 3.2.4), "" for CONNECT, or otherwise the target unchanged.
//   - Upgrade is set if Connection lists it too, the header occurs once, the request has no body,
//     is HTTP/1.1 and not a CONNECT, and none of the protocols carries HTTP (h2c does).
//   - ExpectContinue is set only if the request has a body.
//   - Header contains none of Host, Expect, the framing and connection headers, and the headers
//     that Connection names; naming Host or a framing header has no effect. A TE that lists
//     trailers becomes one header "TE: trailers" at the end, which AppendRequest omits; any other
//     TE is dropped, because it concerns only the connection (RFC 9110 10.1.4).
//
// Errors are Faults: MalformedRequest, TargetTooLong, HeaderTooLarge, NotImplemented,
// VersionNotSupported or ExpectationFailed. Their texts name the rule and the offset and quote
// nothing of b. The connection cannot be reused after an error.
func ParseRequest(b []byte, lim Limits, req *protocol.Request, f *Framing) (n int, err error) {
	n, v := parseRequest(b, lim, req, f)
	if v != nil {
		return 0, v.requestFault()
	}
	return n, nil
}

func parseRequest(b []byte, lim Limits, req *protocol.Request, f *Framing) (int, *syntaxError) {
	start, v := skipEmptyLines(b)
	if v != nil {
		return 0, v
	}
	window, truncated := clip(b, start, lim.Line+2, lim.Line)
	l, v := readRequestLine(window, start)
	if v != nil {
		return 0, v
	}
	if l.next == 0 {
		if truncated {
			return 0, lineTooLong(window, start)
		}
		return 0, checkHeadLimit(b, lim)
	}
	window, truncated = clip(b, 0, lim.Head, lim.Head)
	req.Header.Reset()
	m := head{minor: l.minor}
	n := 0
	if l.next <= len(window) {
		if n, v = readFields(window, l.next, lim.Fields, &req.Header, &m); v != nil {
			return 0, v
		}
	}
	if n == 0 {
		if truncated {
			return 0, headTooLarge(len(window))
		}
		return 0, nil
	}
	req.Method = l.method
	if v := readTarget(req, &m, &l); v != nil {
		return 0, v
	}
	if v := frameRequest(req, &m, f); v != nil {
		return 0, v
	}
	if m.has(flagNominated) {
		if v := dropConnectionOptions(b[:n], l.next, &req.Header, f); v != nil {
			return 0, v
		}
	}
	if f.AcceptsTrailers {
		req.Header.Add("TE", "trailers")
	}
	return n, nil
}

// maxEmptyLines is the maximum number of CRLFs before a request line. RFC 9112 2.2 recommends at
// least one; the maximum stops a client that sends CRLFs forever.
const maxEmptyLines = 16

// skipEmptyLines returns the start of the request line, after the CRLFs that some clients send
// after the previous request (RFC 9112 2.2). It skips a CR at the end of b: its LF may still
// arrive. The result is then the end of b.
func skipEmptyLines(b []byte) (int, *syntaxError) {
	for i := 0; ; i += 2 {
		switch {
		case len(b) == i || b[i] != '\r' && b[i] != '\n':
			return i, nil
		case b[i] == '\n':
			return 0, malformed(i, "bare LF (RFC 9112 2.2)")
		case i == 2*maxEmptyLines:
			return 0, malformed(i, "too many empty lines before the request line (RFC 9112 2.2)")
		case len(b) == i+1:
			return i + 1, nil
		case b[i+1] != '\n':
			return 0, malformed(i, "bare CR (RFC 9112 2.2)")
		}
	}
}

// clip returns b without the bytes that are more than size bytes after start. truncated reports
// whether b has at least size bytes after start. If limit is not positive, clip returns b.
func clip(b []byte, start, size, limit int) (window []byte, truncated bool) {
	if limit <= 0 || len(b)-start < size {
		return b, false
	}
	return b[:start+size], true
}

func checkHeadLimit(b []byte, lim Limits) *syntaxError {
	if lim.Head > 0 && len(b) >= lim.Head {
		return headTooLarge(lim.Head)
	}
	return nil
}

func headTooLarge(offset int) *syntaxError {
	return &syntaxError{protocol.HeaderTooLarge, offset, "head exceeds its limit", nil}
}

// lineTooLong returns the error for a request line that exceeds its limit (RFC 9112 3).
func lineTooLong(window []byte, start int) *syntaxError {
	if bytes.IndexByte(window[start:], ' ') < 0 {
		return &syntaxError{protocol.NotImplemented, start, "method is too long (RFC 9112 3)", nil}
	}
	return &syntaxError{protocol.TargetTooLong, len(window), "request line exceeds its limit", nil}
}

// requestLine is the parsed request line.
type requestLine struct {
	method, target string
	targetOffset   int
	minor          int
	next           int // offset of the field lines; 0: the line is incomplete
}

// readRequestLine reads the line that starts at b[i] (RFC 9112 3). It requires exactly one space
// between the parts and none around them.
func readRequestLine(b []byte, i int) (l requestLine, v *syntaxError) {
	space := i + tokenLen(b[i:])
	if space == len(b) {
		return l, nil
	}
	if b[space] != ' ' || space == i {
		return l, malformed(space, "method is not a token followed by one space (RFC 9112 3.1)")
	}
	target := space + 1
	end := target + targetLen(b[target:])
	if end == len(b) {
		return l, nil
	}
	if b[end] != ' ' || end == target {
		return l, targetError(b, target, end)
	}
	minor, next, v := readVersion(b, end+1)
	if v != nil || next == 0 {
		return l, v
	}
	if next, v = readLineEnd(b, next); v != nil || next == 0 {
		return l, v
	}
	return requestLine{unsafeString(b[i:space]), unsafeString(b[target:end]), target, minor, next}, nil
}

func targetError(b []byte, start, i int) *syntaxError {
	switch c := b[i]; {
	case c == '\n':
		return malformed(i, "bare LF (RFC 9112 2.2)")
	case c == '\r':
		return malformed(i, "request line without a version (RFC 9112 3)").asEnvoy(lowVersion)
	case i == start:
		return malformed(i, "empty request target, or more than one space before it (RFC 9112 3)")
	case c == '#':
		return malformed(i, "fragment in the request target (RFC 9112 3.2)").asEnvoy(fragmentInPath)
	default:
		return malformed(i, "request target is not visible ASCII (RFC 9112 3.2)")
	}
}

const versionLen = len("HTTP/1.1")

// readVersion reads HTTP-version at b[i] (RFC 9112 2.3). next is its end, or 0 if it is incomplete.
// It returns 1, the highest defined minor version, for minor versions above 1 (RFC 9110 2.5), and
// rejects other major versions.
func readVersion(b []byte, i int) (minor, next int, v *syntaxError) {
	if len(b)-i >= versionLen && string(b[i:i+versionLen-1]) == "HTTP/1." && isDigit(b[i+versionLen-1]) {
		return min(int(b[i+versionLen-1]-'0'), 1), i + versionLen, nil
	}
	const pattern = "HTTP/0.0" // 0 for any digit
	for k := range len(pattern) {
		if i+k >= len(b) {
			return 0, 0, nil
		}
		if c := b[i+k]; c != pattern[k] && (pattern[k] != '0' || !isDigit(c)) {
			return 0, 0, malformed(i+k, "not an HTTP version (RFC 9112 2.3)")
		}
	}
	return 0, 0, &syntaxError{protocol.VersionNotSupported, i, "HTTP version other than 1.x (RFC 9110 15.6.6)", nil}
}

// readLineEnd reads CRLF at b[i]. next is the start of the next line, or 0 if the CRLF is
// incomplete.
func readLineEnd(b []byte, i int) (next int, v *syntaxError) {
	switch {
	case i < len(b) && b[i] == '\n':
		return 0, malformed(i, "bare LF (RFC 9112 2.2)")
	case i < len(b) && b[i] != '\r':
		return 0, malformed(i, "bytes between the version and the end of the line (RFC 9112 3)")
	case i+1 >= len(b):
		return 0, nil
	case b[i+1] != '\n':
		return 0, malformed(i, "bare CR (RFC 9112 2.2)")
	}
	return i + 2, nil
}

// readTarget sets Scheme, Authority and Path from the request target and Host (RFC 9112 3.2, 3.3).
func readTarget(req *protocol.Request, m *head, l *requestLine) *syntaxError {
	if m.minor == 1 && !m.has(flagHost) {
		return malformed(0, "missing Host (RFC 9112 3.2)").asEnvoy(missingHost)
	}
	target := l.target
	req.Scheme, req.Authority, req.Path = "", m.host, target
	switch {
	case l.method == "CONNECT":
		if !protocol.IsTunnelTarget(target) {
			return malformed(l.targetOffset, "target of CONNECT is not a host with a port (RFC 9112 3.2.3)")
		}
		req.Authority, req.Path = target, ""
	case target[0] == '/':
	case target == "*":
		if l.method != "OPTIONS" {
			return malformed(l.targetOffset, "target * with a method other than OPTIONS (RFC 9112 3.2.4)")
		}
	default:
		return readAbsolute(req, l)
	}
	return nil
}

// readAbsolute reads a target in absolute-form (RFC 9112 3.2.2).
func readAbsolute(req *protocol.Request, l *requestLine) *syntaxError {
	scheme, remainder, ok := strings.Cut(l.target, "://")
	switch {
	case ok && protocol.EqualFold(scheme, "http"):
		req.Scheme = "http"
	case ok && protocol.EqualFold(scheme, "https"):
		req.Scheme = "https"
	default:
		return malformed(l.targetOffset, "request target has an unknown form (RFC 9112 3.2)")
	}
	end := strings.IndexAny(remainder, "/?")
	if end < 0 {
		end = len(remainder)
	}
	if !protocol.IsAuthority(remainder[:end]) {
		return malformed(l.targetOffset, "authority of the target is not a host with an optional port (RFC 9110 4.2)")
	}
	req.Authority, req.Path = remainder[:end], remainder[end:]
	switch {
	case req.Path == "" && l.method == "OPTIONS":
		req.Path = "*"
	case req.Path == "":
		req.Path = "/"
	case req.Path[0] == '?':
		req.Path = "/" + req.Path // allocates; rarely needed
	}
	return nil
}

// frameRequest sets the framing of the body and whether the connection persists (RFC 9112 6.3,
// 9.3).
func frameRequest(req *protocol.Request, m *head, f *Framing) *syntaxError {
	*f = Framing{KeepAlive: m.persists(), Minor: m.minor, AcceptsTrailers: m.minor == 1 && m.has(flagTrailers)}
	chunked, v := m.isChunked()
	if v != nil {
		return v
	}
	req.ContentLength = -1
	switch {
	case chunked:
		f.Body = Chunked
	case m.has(flagLength):
		req.ContentLength = m.length
		if m.length > 0 {
			f.Body, f.Length = Length, m.length
		}
	}
	if req.Method == "CONNECT" && f.Body != NoBody {
		return malformed(0, "CONNECT with a body (RFC 9110 9.3.6)")
	}
	req.ExpectContinue = m.has(flagContinue) && f.Body != NoBody
	req.Upgrade = ""
	const required = flagUpgrade | flagConnectionUpgrade
	if m.flags&(required|flagUpgradeIgnored) == required && m.minor == 1 && f.Body == NoBody && req.Method != "CONNECT" {
		req.Upgrade = m.upgrade
	}
	if m.switchesToHTTP2() && req.Method != "CONNECT" {
		f.HTTP2Settings = m.settings
	}
	return nil
}
