package http1

import "github.com/weft-proxy/weft/pkg/protocol"

// ParseResponse reads one response head from the start of b (RFC 9112 2, 4). method is the
// request's method: HEAD and CONNECT change the meaning of the response. The result, borrowed
// strings, incomplete heads and limits are as in ParseRequest; Limits.Line bounds the status line.
//
// ParseResponse sets only Status, Header and ContentLength of resp, and drops the reason phrase.
// ContentLength is the declared length, even of a response to HEAD and of a 304. It is -1 for a
// 1xx, a 204 and a tunnel.
//
// Header contains none of the framing and connection headers, the headers that only requests have
// (Host, TE, Expect), and the headers that Connection names. Only a 101 or 426 keeps its Upgrade,
// which names the new or the required protocol for the client. The caller checks whether the
// request asked for the upgrade that a 101 announces.
//
// A response to HEAD, a 204 and a 304 have no body, whatever their headers declare (RFC 9112 6.3).
// After a 204 that declares a body, KeepAlive is false; a 1xx that declares a body is an error.
// Other responses that are not chunked and declare no length last until the connection closes.
//
// Errors are Faults of reason UpstreamMalformed. A status below 100 is an error (RFC 9110 15); a
// status above 599 is accepted, although its class is unknown. The connection cannot be reused
// after an error.
func ParseResponse(b []byte, lim Limits, method string, resp *protocol.Response, f *Framing) (n int, err error) {
	n, v := parseResponse(b, lim, method, resp, f)
	if v != nil {
		return 0, v.responseFault()
	}
	return n, nil
}

func parseResponse(b []byte, lim Limits, method string, resp *protocol.Response, f *Framing) (int, *syntaxError) {
	window, truncated := clip(b, 0, lim.Line+2, lim.Line)
	m := head{isResponse: true}
	start, v := readStatusLine(window, &m)
	if v != nil {
		return 0, v
	}
	if start == 0 {
		if truncated {
			return 0, malformed(len(window), "status line exceeds its limit")
		}
		return 0, checkHeadLimit(b, lim)
	}
	window, truncated = clip(b, 0, lim.Head, lim.Head)
	resp.Header.Reset()
	n := 0
	if start <= len(window) {
		if n, v = readFields(window, start, lim.Fields, &resp.Header, &m); v != nil {
			return 0, v
		}
	}
	if n == 0 {
		if truncated {
			return 0, headTooLarge(len(window))
		}
		return 0, nil
	}
	resp.Status = m.status
	if v := frameResponse(resp, &m, method, f); v != nil {
		return 0, v
	}
	if m.has(flagNominated) {
		if v := dropConnectionOptions(b[:n], start, &resp.Header, f); v != nil {
			return 0, v
		}
	}
	return n, nil
}

// readStatusLine reads the first line of b (RFC 9112 4). next is the offset of the field lines, or
// 0 if the line is incomplete. It accepts a status line without the phrase and the space before it,
// which some servers send.
func readStatusLine(b []byte, m *head) (next int, v *syntaxError) {
	minor, i, v := readVersion(b, 0)
	if v != nil || i == 0 {
		return 0, v
	}
	m.minor = minor
	if i == len(b) {
		return 0, nil
	}
	if b[i] != ' ' {
		return 0, malformed(i, "version is not followed by one space (RFC 9112 4)")
	}
	i++
	status := 0
	for end := i + 3; i < end; i++ {
		if i == len(b) {
			return 0, nil
		}
		if !isDigit(b[i]) {
			return 0, malformed(i, "status is not three digits (RFC 9112 4)")
		}
		status = status*10 + int(b[i]-'0')
	}
	if status < 100 {
		return 0, malformed(i-3, "status is not from 100 to 999 (RFC 9110 15)")
	}
	m.status = status
	if i < len(b) && b[i] == ' ' {
		i += valueLen(b[i:])
	}
	if i < len(b) && b[i] != '\r' && b[i] != '\n' {
		return 0, malformed(i, "status line is not version, status and phrase (RFC 9112 4)")
	}
	return readLineEnd(b, i)
}

// frameResponse sets the framing of the body and whether the connection persists (RFC 9112 6.3,
// 9.3).
func frameResponse(resp *protocol.Response, m *head, method string, f *Framing) *syntaxError {
	*f = Framing{KeepAlive: m.persists(), Minor: m.minor}
	resp.ContentLength = -1
	status := m.status
	if method == "CONNECT" && status/100 == 2 {
		f.BecomesTunnel = true // framing headers have no effect (RFC 9110 9.3.6)
		return nil
	}
	chunked, v := m.isChunked()
	if v != nil {
		return v
	}
	if m.has(flagLength) {
		resp.ContentLength = m.length
	}
	switch {
	case status/100 == 1:
		return frameInterim(resp, m, f)
	case status == 204:
		if chunked || resp.ContentLength > 0 {
			f.KeepAlive = false
		}
		resp.ContentLength = -1
	case status == 304, method == "HEAD":
	case chunked:
		f.Body = Chunked
	case resp.ContentLength > 0:
		f.Body, f.Length = Length, resp.ContentLength
	case resp.ContentLength < 0:
		f.Body, f.KeepAlive = UntilClose, false
	}
	return nil
}

// frameInterim is frameResponse for a 1xx, which has no body and no framing headers (RFC 9110 8.6,
// RFC 9112 6.1).
func frameInterim(resp *protocol.Response, m *head, f *Framing) *syntaxError {
	if m.has(flagCoding) || resp.ContentLength > 0 {
		return malformed(0, "interim response that declares a body (RFC 9112 6.3)")
	}
	resp.ContentLength = -1
	if m.status != 101 {
		f.Interim = true
		return nil
	}
	if !m.has(flagUpgrade) {
		return malformed(0, "101 without Upgrade (RFC 9110 15.2.2)")
	}
	f.BecomesTunnel = true
	return nil
}
