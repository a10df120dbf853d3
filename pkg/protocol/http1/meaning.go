package http1

import (
	"math"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// seen is a set of facts that a head's headers declare.
type seen uint32

const (
	saidHost seen = 1 << iota
	saidLength
	saidCoding       // Transfer-Encoding
	saidChunked      // chunked is among the codings
	saidChunkedFinal // and it is the last
	saidOtherCoding
	saidClose     // Connection: close
	saidKeepAlive // Connection: keep-alive
	saidConnectionUpgrade
	saidNominated // Connection names a header that could be end to end
	saidUpgrade
	saidUpgradeUnfit // Upgrade is to be ignored
	saidH2C          // Upgrade names h2c and nothing else
	saidSettings     // HTTP2-Settings
	saidSettingsUnfit
	saidConnectionSettings // Connection names HTTP2-Settings
	saidContinue
	saidTrailers
)

// head collects the facts of the headers that are not ordinary.
type head struct {
	response bool
	minor    int
	status   int // of a response
	said     seen
	length   int64 // valid with saidLength
	host     string
	upgrade  string
	settings string // valid with saidSettings
}

func (m *head) has(s seen) bool { return m.said&s != 0 }

// take records a header of the given kind. at is the offset of its line. keep reports that the
// header also belongs in Header.
func (m *head) take(kind fieldKind, value string, at int) (keep bool, v *syntaxError) {
	switch kind {
	case contentLengthField:
		return false, m.takeLength(value, at)
	case transferEncodingField:
		return false, m.takeCodings(value, at)
	case connectionField:
		return false, m.takeConnection(value, at)
	case upgradeField:
		if m.response {
			m.said |= saidUpgrade
			return keepsUpgrade(m.status), nil
		}
		return false, m.takeUpgrade(value, at)
	case settingsField:
		m.takeSettings(value)
		return false, nil
	case hostField:
		return false, m.takeHost(value, at)
	case expectField:
		return false, m.takeExpect(value, at)
	case teField:
		if hasMember(value, "trailers") {
			m.said |= saidTrailers
		}
		return false, nil
	case droppedField:
		return false, nil
	default:
		return true, nil
	}
}

// keepsUpgrade reports whether a response with this status keeps its Upgrade header for the client:
// it names the new protocol (101) or the required one (426). For other statuses it concerns only
// the upstream's connection.
func keepsUpgrade(status int) bool { return status == 101 || status == 426 }

// takeLength reads a Content-Length (RFC 9110 8.6). It rejects a second one even with the same
// value: RFC 9112 6.3 allows that, and only a broken or hostile peer sends two.
func (m *head) takeLength(value string, at int) *syntaxError {
	if m.has(saidLength) {
		return malformed(at, "more than one Content-Length (RFC 9112 6.3)")
	}
	m.said |= saidLength
	if value == "" {
		return malformed(at, "Content-Length is not a number (RFC 9110 8.6)")
	}
	var n int64
	for i := range len(value) {
		c := value[i]
		if !isDigit(c) {
			return malformed(at, "Content-Length is not a number (RFC 9110 8.6)")
		}
		digit := int64(c - '0')
		if n > (math.MaxInt64-digit)/10 {
			return malformed(at, "Content-Length overflows (RFC 9110 8.6)")
		}
		n = n*10 + digit
	}
	m.length = n
	return nil
}

// takeCodings reads a Transfer-Encoding (RFC 9112 6.1). Several headers form one list. It rejects
// empty members, which RFC 9110 5.6.1.2 ignores, because peers disagree on them.
func (m *head) takeCodings(value string, at int) *syntaxError {
	m.said |= saidCoding
	for more := true; more; {
		var coding string
		coding, value, more = strings.Cut(value, ",")
		coding = trim(coding)
		n := tokenLen(bytesOf(coding))
		if n == 0 || n < len(coding) && coding[n] != ';' && !isBlank(coding[n]) {
			return malformed(at, "Transfer-Encoding is not a list of codings (RFC 9112 6.1)")
		}
		if !protocol.EqualFold(coding, "chunked") {
			m.said |= saidOtherCoding
			m.said &^= saidChunkedFinal
			continue
		}
		if m.has(saidChunked) {
			return malformed(at, "chunked is applied twice (RFC 9112 6.1)")
		}
		m.said |= saidChunked | saidChunkedFinal
	}
	return nil
}

// takeConnection reads a Connection header (RFC 9110 7.6.1). Naming a framing or routing header
// does not change that header's meaning.
func (m *head) takeConnection(value string, at int) *syntaxError {
	for more := true; more; {
		var option string
		option, value, more = strings.Cut(value, ",")
		option = trim(option)
		switch {
		case option == "": // RFC 9110 5.6.1.2
		case protocol.EqualFold(option, "close"):
			m.said |= saidClose
		case protocol.EqualFold(option, "keep-alive"):
			m.said |= saidKeepAlive
		case protocol.EqualFold(option, "upgrade"):
			m.said |= saidConnectionUpgrade
		case protocol.EqualFold(option, "http2-settings"):
			m.said |= saidConnectionSettings
		case !isToken(option):
			return malformed(at, "connection option is not a token (RFC 9110 7.6.1)")
		case kindOf(option).forwarded():
			m.said |= saidNominated
		}
	}
	return nil
}

// maxNominated bounds the connection options of one head that remove headers.
const maxNominated = 32

// dropConnectionOptions removes the headers that the Connection headers of head name. If the body
// is chunked, it also records the names in f for the trailer section. It reads the field lines,
// which begin at start, a second time; few heads need it.
func dropConnectionOptions(head []byte, start int, h *protocol.Header, f *Framing) *syntaxError {
	count := 0
	for i := start; ; {
		l, _ := fieldLine(head, i, true) // readFields validated it
		if l.name == "" {
			return nil
		}
		if kindOf(l.name) == connectionField {
			for option := range strings.SplitSeq(l.value, ",") {
				option = trim(option)
				if option == "" || !kindOf(option).forwarded() {
					continue
				}
				if count++; count > maxNominated {
					return malformed(i, "too many connection options (RFC 9110 7.6.1)")
				}
				h.Del(option)
				if f.Body == Chunked {
					f.ConnectionOptions = append(f.ConnectionOptions, option)
				}
			}
		}
		i = l.next
	}
}

// takeUpgrade reads a request's Upgrade (RFC 9110 7.8). It marks protocols that carry HTTP requests
// as unfit for a tunnel: the requests would bypass routing and filters. It records h2c if that is
// the only protocol.
func (m *head) takeUpgrade(value string, at int) *syntaxError {
	switch {
	case m.has(saidUpgrade):
		m.said |= saidUpgradeUnfit
		m.said &^= saidH2C
	case protocol.EqualFold(value, "h2c"):
		m.said |= saidH2C
	}
	m.said |= saidUpgrade
	for more, rest := true, value; more; {
		var member string
		member, rest, more = strings.Cut(rest, ",")
		name, version, versioned := strings.Cut(trim(member), "/")
		if !isToken(name) || versioned && !isToken(version) {
			return malformed(at, "Upgrade is not a list of protocols (RFC 9110 7.8)")
		}
		if protocol.CarriesHTTP(name) {
			m.said |= saidUpgradeUnfit
		}
	}
	m.upgrade = value
	return nil
}

// takeSettings reads HTTP2-Settings (RFC 7540 3.2.1), which must occur once. The HTTP/2 engine
// validates the value.
func (m *head) takeSettings(value string) {
	if m.has(saidSettings) || value == "" {
		m.said |= saidSettingsUnfit
	}
	m.said |= saidSettings
	m.settings = value
}

// switchesToHTTP2 reports whether a request asks for HTTP/2 as RFC 7540 3.2 requires. Other
// requests are served as if they had not asked (RFC 9110 7.8).
func (m *head) switchesToHTTP2() bool {
	const asked = saidH2C | saidConnectionUpgrade | saidSettings | saidConnectionSettings
	return m.said&(asked|saidSettingsUnfit) == asked && m.minor == 1
}

// takeHost reads a request's Host (RFC 9112 3.2) and ignores a response's.
func (m *head) takeHost(value string, at int) *syntaxError {
	if m.response {
		return nil
	}
	if m.has(saidHost) {
		return malformed(at, "more than one Host (RFC 9112 3.2)")
	}
	m.said |= saidHost
	if value == "" && m.minor == 0 {
		return nil // same as no Host
	}
	if !protocol.IsAuthority(value) {
		return malformed(at, "Host is not a host with an optional port (RFC 9112 3.2)")
	}
	m.host = value
	return nil
}

// takeExpect reads a request's Expect (RFC 9110 10.1.1). It ignores that of HTTP/1.0, which does
// not define it, and of a response.
func (m *head) takeExpect(value string, at int) *syntaxError {
	if m.minor == 0 || m.response {
		return nil
	}
	for member := range strings.SplitSeq(value, ",") {
		switch member = trim(member); {
		case protocol.EqualFold(member, "100-continue"):
			m.said |= saidContinue
		case member != "":
			return &syntaxError{protocol.ExpectationFailed, at, "expectation other than 100-continue (RFC 9110 10.1.1)"}
		}
	}
	return nil
}

// chunked reports whether the body is chunked, or returns why its end is ambiguous (RFC 9112 6.1,
// 6.3).
func (m *head) chunked() (bool, *syntaxError) {
	switch {
	case !m.has(saidCoding):
		return false, nil
	case m.has(saidLength):
		return false, malformed(0, "both Transfer-Encoding and Content-Length (RFC 9112 6.3)")
	case m.minor == 0:
		return false, malformed(0, "Transfer-Encoding in HTTP/1.0 (RFC 9112 6.1)")
	case !m.has(saidChunkedFinal):
		return false, malformed(0, "chunked is not the final transfer coding (RFC 9112 6.3)")
	case m.has(saidOtherCoding):
		return false, &syntaxError{protocol.NotImplemented, 0, "transfer coding other than chunked (RFC 9112 6.1)"}
	}
	return true, nil
}

// persists reports whether the sender keeps the connection (RFC 9112 9.3).
func (m *head) persists() bool {
	return !m.has(saidClose) && (m.minor == 1 || m.has(saidKeepAlive))
}

// hasMember reports whether a comma-separated list has the member name; it ignores parameters.
func hasMember(list, name string) bool {
	for member := range strings.SplitSeq(list, ",") {
		member, _, _ = strings.Cut(member, ";")
		if protocol.EqualFold(trim(member), name) {
			return true
		}
	}
	return false
}
