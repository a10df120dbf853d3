package http1

import "github.com/weft-proxy/weft/pkg/protocol"

// fieldKind classifies headers by how this package handles them.
type fieldKind uint8

const (
	regularField fieldKind = iota // end to end: kept unchanged
	hostField
	connectionField
	contentLengthField
	transferEncodingField
	teField
	upgradeField
	expectField
	http2SettingsField // HTTP2-Settings (RFC 7540 3.2.1)
	// droppedField concerns one connection and has no effect here: Keep-Alive, Proxy-Connection
	// (RFC 9110 7.6.1).
	droppedField
	dateField
	serverField
)

// isForwarded reports whether filters control the header. Such a header is read into Header and
// written from it.
func (k fieldKind) isForwarded() bool {
	return k == regularField || k == dateField || k == serverField
}

func kindOf(name string) fieldKind {
	if name == "" {
		return regularField
	}
	var canonical string
	var kind fieldKind
	switch uint(len(name))<<8 | uint(name[0]|0x20) {
	case 2<<8 | 't':
		canonical, kind = "TE", teField
	case 4<<8 | 'd':
		canonical, kind = "Date", dateField
	case 4<<8 | 'h':
		canonical, kind = "Host", hostField
	case 6<<8 | 'e':
		canonical, kind = "Expect", expectField
	case 6<<8 | 's':
		canonical, kind = "Server", serverField
	case 7<<8 | 'u':
		canonical, kind = "Upgrade", upgradeField
	case 10<<8 | 'c':
		canonical, kind = "Connection", connectionField
	case 10<<8 | 'k':
		canonical, kind = "Keep-Alive", droppedField
	case 14<<8 | 'c':
		canonical, kind = "Content-Length", contentLengthField
	case 14<<8 | 'h':
		canonical, kind = "HTTP2-Settings", http2SettingsField
	case 16<<8 | 'p':
		canonical, kind = "Proxy-Connection", droppedField
	case 17<<8 | 't':
		canonical, kind = "Transfer-Encoding", transferEncodingField
	default:
		return regularField
	}
	if name == canonical || protocol.EqualFold(name, canonical) {
		return kind
	}
	return regularField
}

// readFields reads the field lines from b[i] to the empty line. It adds end-to-end fields to h, and
// records the other fields in m. It returns the offset after the empty line, or 0 without an error
// if the section is incomplete.
func readFields(b []byte, i, limit int, h *protocol.Header, m *head) (int, *syntaxError) {
	for count := 1; ; count++ {
		l, v := readFieldLine(b, i, m.isResponse)
		if v != nil || l.next == 0 {
			return 0, v
		}
		if l.name == "" {
			return l.next, nil
		}
		if limit > 0 && count > limit {
			return 0, &syntaxError{protocol.HeaderTooLarge, i, "too many field lines", &tooManyFields}
		}
		keep := true
		if kind := kindOf(l.name); kind != regularField {
			if keep, v = m.addField(kind, l.value, i); v != nil {
				return 0, v
			}
		}
		if keep {
			h.Add(l.name, l.value)
		}
		i = l.next
	}
}

type line struct {
	name, value string
	next        int // offset of the next line
}

// readFieldLine reads the field line that starts at b[i]. If the line is incomplete, next is 0 and
// v is nil. The empty line that ends the section has an empty name. If lenient is true,
// readFieldLine drops whitespace between name and colon, as a proxy must do in a response.
// Otherwise it returns an error, as a server must do for a request (RFC 9112 5.1).
func readFieldLine(b []byte, i int, lenient bool) (l line, v *syntaxError) {
	nameEnd := i + tokenLen(b[i:])
	colon := nameEnd
	if lenient && nameEnd > i {
		for colon < len(b) && isBlank(b[colon]) {
			colon++
		}
	}
	if colon == len(b) {
		return line{}, nil
	}
	if b[colon] != ':' || colon == i {
		return readSectionEnd(b, i, nameEnd)
	}
	start := colon + 1
	for start < len(b) && isBlank(b[start]) {
		start++
	}
	cr := start + valueLen(b[start:])
	if cr+1 >= len(b) || b[cr] != '\r' || b[cr+1] != '\n' {
		return line{}, valueError(b, cr)
	}
	end := cr
	for end > start && isBlank(b[end-1]) {
		end--
	}
	return line{unsafeString(b[i:nameEnd]), unsafeString(b[start:end]), cr + 2}, nil
}

// readSectionEnd reads the line that starts at b[i]. The byte b[offset] shows that it is not a
// field line: it ends the section or is malformed.
func readSectionEnd(b []byte, i, offset int) (line, *syntaxError) {
	switch c := b[offset]; {
	case c == '\r' && offset == i:
		if offset+1 == len(b) {
			return line{}, nil
		}
		if b[offset+1] == '\n' {
			return line{next: offset + 2}, nil
		}
		return line{}, malformed(offset, "bare CR (RFC 9112 2.2)")
	case c == '\n':
		return line{}, malformed(offset, "bare LF (RFC 9112 2.2)")
	case c == ':':
		return line{}, malformed(offset, "empty field name (RFC 9112 5.1)")
	case isBlank(c) && offset == i:
		return line{}, malformed(offset, "line folding, or whitespace before the first field (RFC 9112 5.2, 2.2)")
	case isBlank(c):
		return line{}, malformed(offset, "whitespace in a field name or before its colon (RFC 9112 5.1)")
	case c == '\r':
		return line{}, malformed(offset, "field line without a colon (RFC 9112 5)")
	default:
		return line{}, malformed(offset, "field name is not a token (RFC 9110 5.1)")
	}
}

// valueError returns the error of a field value that stops at b[i] without CR LF, or nil if more
// bytes can complete the line.
func valueError(b []byte, i int) *syntaxError {
	switch {
	case i == len(b), b[i] == '\r' && i+1 == len(b):
		return nil
	case b[i] == '\r':
		return malformed(i, "bare CR (RFC 9112 2.2)")
	case b[i] == '\n':
		return malformed(i, "bare LF (RFC 9112 2.2)")
	default:
		return malformed(i, "control character in a field value (RFC 9110 5.5)")
	}
}
