package http1

import (
	"math"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// headFlags is a set of facts that a head's headers declare.
type headFlags uint32

const (
	flagHost headFlags = 1 << iota
	flagLength
	flagCoding       // Transfer-Encoding
	flagChunked      // chunked is among the codings
	flagChunkedFinal // chunked is the last coding
	flagOtherCoding
	flagClose     // Connection: close
	flagKeepAlive // Connection: keep-alive
	flagConnectionUpgrade
	flagNominated // Connection names a header that could be end to end
	flagUpgrade
	flagUpgradeIgnored // Upgrade has no effect
	flagH2C            // Upgrade names h2c and nothing else
	flagSettings       // HTTP2-Settings
	flagSettingsInvalid
	flagConnectionSettings // Connection names HTTP2-Settings
	flagContinue
	flagTrailers
)

// head records what the headers that are not regular fields declare.
type head struct {
	isResponse bool
	minor      int
	status     int // status of a response
	flags      headFlags
	length     int64 // valid with flagLength
	host       string
	upgrade    string
	settings   string // valid with flagSettings
}

func (m *head) has(f headFlags) bool { return m.flags&f != 0 }

// addField records a header of the given kind, whose line starts at offset. keep reports whether
// the header also belongs in Header.
func (m *head) addField(kind fieldKind, value string, offset int) (keep bool, v *syntaxError) {
	switch kind {
	case contentLengthField:
		return false, m.parseContentLength(value, offset)
	case transferEncodingField:
		return false, m.parseTransferEncoding(value, offset)
	case connectionField:
		return false, m.parseConnection(value, offset)
	case upgradeField:
		if m.isResponse {
			m.flags |= flagUpgrade
			return keepsUpgrade(m.status), nil
		}
		return false, m.parseUpgrade(value, offset)
	case http2SettingsField:
		m.parseHTTP2Settings(value)
		return false, nil
	case hostField:
		return false, m.parseHost(value, offset)
	case expectField:
		return false, m.parseExpect(value, offset)
	case teField:
		if hasMember(value, "trailers") {
			m.flags |= flagTrailers
		}
		return false, nil
	case droppedField:
		return false, nil
	default:
		return true, nil
	}
}

// keepsUpgrade reports whether a response with this status keeps its Upgrade header for the client:
// a 101 names the new protocol, and a 426 the required one. In other responses, Upgrade concerns
// only the upstream connection.
func keepsUpgrade(status int) bool { return status == 101 || status == 426 }

// parseContentLength reads a Content-Length (RFC 9110 8.6). It rejects a second header even if the
// value is the same, as RFC 9112 6.3 permits: only a broken or hostile peer sends two.
func (m *head) parseContentLength(value string, offset int) *syntaxError {
	if m.has(flagLength) {
		return malformed(offset, "more than one Content-Length (RFC 9112 6.3)")
	}
	m.flags |= flagLength
	if value == "" {
		return malformed(offset, "Content-Length is not a number (RFC 9110 8.6)")
	}
	var n int64
	for i := range len(value) {
		c := value[i]
		if !isDigit(c) {
			return malformed(offset, "Content-Length is not a number (RFC 9110 8.6)")
		}
		digit := int64(c - '0')
		if n > (math.MaxInt64-digit)/10 {
			return malformed(offset, "Content-Length overflows (RFC 9110 8.6)")
		}
		n = n*10 + digit
	}
	m.length = n
	return nil
}

// parseTransferEncoding reads a Transfer-Encoding (RFC 9112 6.1). Several headers form one list. It
// rejects empty list members: RFC 9110 5.6.1.2 ignores them, but some peers do not.
func (m *head) parseTransferEncoding(value string, offset int) *syntaxError {
	m.flags |= flagCoding
	for found := true; found; {
		var coding string
		coding, value, found = strings.Cut(value, ",")
		coding = trimOWS(coding)
		n := tokenLen(bytesOf(coding))
		if n == 0 || n < len(coding) && coding[n] != ';' && !isBlank(coding[n]) {
			return malformed(offset, "Transfer-Encoding is not a list of codings (RFC 9112 6.1)")
		}
		if !protocol.EqualFold(coding, "chunked") {
			m.flags |= flagOtherCoding
			m.flags &^= flagChunkedFinal
			continue
		}
		if m.has(flagChunked) {
			return malformed(offset, "chunked is applied twice (RFC 9112 6.1)").asEnvoy(invalidTransferCoding)
		}
		m.flags |= flagChunked | flagChunkedFinal
	}
	return nil
}

// parseConnection reads a Connection header (RFC 9110 7.6.1). Naming a framing or routing header
// does not change that header's meaning.
func (m *head) parseConnection(value string, offset int) *syntaxError {
	for found := true; found; {
		var option string
		option, value, found = strings.Cut(value, ",")
		option = trimOWS(option)
		switch {
		case option == "": // RFC 9110 5.6.1.2
		case protocol.EqualFold(option, "close"):
			m.flags |= flagClose
		case protocol.EqualFold(option, "keep-alive"):
			m.flags |= flagKeepAlive
		case protocol.EqualFold(option, "upgrade"):
			m.flags |= flagConnectionUpgrade
		case protocol.EqualFold(option, "http2-settings"):
			m.flags |= flagConnectionSettings
		case !isToken(option):
			return malformed(offset, "connection option is not a token (RFC 9110 7.6.1)")
		case kindOf(option).isForwarded():
			m.flags |= flagNominated
		}
	}
	return nil
}

// maxNominated bounds the connection options of one head that name end-to-end headers.
const maxNominated = 32

// dropConnectionOptions removes the headers that the Connection headers of head name. If the body
// is chunked, it also records the names in f for the trailer section. It parses the field lines,
// which begin at start, a second time; few heads need that.
func dropConnectionOptions(head []byte, start int, h *protocol.Header, f *Framing) *syntaxError {
	count := 0
	for i := start; ; {
		l, _ := readFieldLine(head, i, true) // readFields has validated the line
		if l.name == "" {
			return nil
		}
		if kindOf(l.name) == connectionField {
			for option := range strings.SplitSeq(l.value, ",") {
				option = trimOWS(option)
				if option == "" || !kindOf(option).isForwarded() {
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

// parseUpgrade reads a request's Upgrade (RFC 9110 7.8). It ignores an Upgrade to protocols that
// carry HTTP requests: in a tunnel, the requests would bypass routing and filters. If Upgrade
// occurs more than once, parseUpgrade ignores all of them. It sets flagH2C if h2c is the only
// protocol.
func (m *head) parseUpgrade(value string, offset int) *syntaxError {
	switch {
	case m.has(flagUpgrade):
		m.flags |= flagUpgradeIgnored
		m.flags &^= flagH2C
	case protocol.EqualFold(value, "h2c"):
		m.flags |= flagH2C
	}
	m.flags |= flagUpgrade
	for found, rest := true, value; found; {
		var member string
		member, rest, found = strings.Cut(rest, ",")
		name, version, hasVersion := strings.Cut(trimOWS(member), "/")
		if !isToken(name) || hasVersion && !isToken(version) {
			return malformed(offset, "Upgrade is not a list of protocols (RFC 9110 7.8)")
		}
		if protocol.CarriesHTTP(name) {
			m.flags |= flagUpgradeIgnored
		}
	}
	m.upgrade = value
	return nil
}

// parseHTTP2Settings reads HTTP2-Settings (RFC 7540 3.2.1), which must occur once. The HTTP/2
// engine validates the value.
func (m *head) parseHTTP2Settings(value string) {
	if m.has(flagSettings) || value == "" {
		m.flags |= flagSettingsInvalid
	}
	m.flags |= flagSettings
	m.settings = value
}

// switchesToHTTP2 reports whether a request asks for HTTP/2 as RFC 7540 3.2 requires.
func (m *head) switchesToHTTP2() bool {
	const required = flagH2C | flagConnectionUpgrade | flagSettings | flagConnectionSettings
	return m.flags&(required|flagSettingsInvalid) == required && m.minor == 1
}

// parseHost reads a request's Host (RFC 9112 3.2). It ignores a Host in a response.
func (m *head) parseHost(value string, offset int) *syntaxError {
	if m.isResponse {
		return nil
	}
	if m.has(flagHost) {
		return malformed(offset, "more than one Host (RFC 9112 3.2)")
	}
	m.flags |= flagHost
	if value == "" && m.minor == 0 {
		return nil // HTTP/1.0 does not require Host, so an empty one is allowed
	}
	if !protocol.IsAuthority(value) {
		return malformed(offset, "Host is not a host with an optional port (RFC 9112 3.2)")
	}
	m.host = value
	return nil
}

// parseExpect reads a request's Expect (RFC 9110 10.1.1). It ignores an Expect in a response, and
// in HTTP/1.0, which does not define it.
func (m *head) parseExpect(value string, offset int) *syntaxError {
	if m.minor == 0 || m.isResponse {
		return nil
	}
	for member := range strings.SplitSeq(value, ",") {
		switch member = trimOWS(member); {
		case protocol.EqualFold(member, "100-continue"):
			m.flags |= flagContinue
		case member != "":
			return &syntaxError{protocol.ExpectationFailed, offset, "expectation other than 100-continue (RFC 9110 10.1.1)", nil}
		}
	}
	return nil
}

// isChunked reports whether the body is chunked. It returns an error if the end of the body is
// ambiguous, or the body has another transfer coding (RFC 9112 6.1, 6.3).
func (m *head) isChunked() (bool, *syntaxError) {
	switch {
	case !m.has(flagCoding):
		return false, nil
	case m.has(flagLength):
		return false, malformed(0, "both Transfer-Encoding and Content-Length (RFC 9112 6.3)")
	case m.minor == 0:
		return false, malformed(0, "Transfer-Encoding in HTTP/1.0 (RFC 9112 6.1)")
	case !m.has(flagChunkedFinal):
		return false, malformed(0, "chunked is not the final transfer coding (RFC 9112 6.3)").asEnvoy(invalidTransferCoding)
	case m.has(flagOtherCoding):
		return false, &syntaxError{protocol.NotImplemented, 0, "transfer coding other than chunked (RFC 9112 6.1)", nil}
	}
	return true, nil
}

// persists reports whether the sender keeps the connection open after the message (RFC 9112 9.3).
func (m *head) persists() bool {
	return !m.has(flagClose) && (m.minor == 1 || m.has(flagKeepAlive))
}

// hasMember reports whether a comma-separated list has the member name; it ignores parameters.
func hasMember(list, name string) bool {
	for member := range strings.SplitSeq(list, ",") {
		member, _, _ = strings.Cut(member, ";")
		if protocol.EqualFold(trimOWS(member), name) {
			return true
		}
	}
	return false
}
