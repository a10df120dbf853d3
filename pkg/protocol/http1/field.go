package http1

import "github.com/weft-proxy/weft/pkg/protocol"

// fieldKind classifies headers by how this package handles them.
type fieldKind uint8

const (
	ordinary fieldKind = iota // end to end: kept unchanged
	hostField
	connectionField
	contentLengthField
	transferEncodingField
	teField
	upgradeField
	expectField
	settingsField // HTTP2-Settings (RFC 7540 3.2.1)
	// droppedField concerns one connection and has no effect here: Keep-Alive, Proxy-Connection
	// (RFC 9110 7.6.1).
	droppedField
	dateField
	serverField
)

// forwarded reports whether filters control the header; it is then written as they leave it.
func (k fieldKind) forwarded() bool {
	return k == ordinary || k == dateField || k == serverField
}

// kindOf classifies a header by its name.
func kindOf(name string) fieldKind {
	if name == "" {
		return ordinary
	}
	var like string
	var kind fieldKind
	switch uint(len(name))<<8 | uint(name[0]|0x20) {
	case 2<<8 | 't':
		like, kind = "TE", teField
	case 4<<8 | 'd':
		like, kind = "Date", dateField
	case 4<<8 | 'h':
		like, kind = "Host", hostField
	case 6<<8 | 'e':
		like, kind = "Expect", expectField
	case 6<<8 | 's':
		like, kind = "Server", serverField
	case 7<<8 | 'u':
		like, kind = "Upgrade", upgradeField
	case 10<<8 | 'c':
		like, kind = "Connection", connectionField
	case 10<<8 | 'k':
		like, kind = "Keep-Alive", droppedField
	case 14<<8 | 'c':
		like, kind = "Content-Length", contentLengthField
	case 14<<8 | 'h':
		like, kind = "HTTP2-Settings", settingsField
	case 16<<8 | 'p':
		like, kind = "Proxy-Connection", droppedField
	case 17<<8 | 't':
		like, kind = "Transfer-Encoding", transferEncodingField
	default:
		return ordinary
	}
	if name == like || protocol.EqualFold(name, like) {
		return kind
	}
	return ordinary
}

// readFields reads the field lines from b[i] to the empty line: ordinary ones into h, the others
// into m. It returns the offset after the empty line. 0 without a violation means that the section
// is incomplete.
func readFields(b []byte, i, limit int, h *protocol.Header, m *head) (int, *syntaxError) {
	for count := 1; ; count++ {
		l, v := fieldLine(b, i, m.response)
		if v != nil || l.next == 0 {
			return 0, v
		}
		if l.name == "" {
			return l.next, nil
		}
		if limit > 0 && count > limit {
			return 0, &syntaxError{protocol.HeaderTooLarge, i, "too many field lines"}
		}
		keep := true
		if kind := kindOf(l.name); kind != ordinary {
			if keep, v = m.take(kind, l.value, i); v != nil {
				return 0, v
			}
		}
		if keep {
			h.Add(l.name, l.value)
		}
		i = l.next
	}
}

// line is one field line of a section.
type line struct {
	name, value string
	next        int // offset of the next line
}

// fieldLine reads the field line that starts at b[i]. A zero next without a violation means that
// the line is incomplete. The empty line that ends the section has an empty name. If lenient,
// fieldLine drops whitespace between name and colon, as a proxy must in a response; it rejects a
// request with it (RFC 9112 5.1).
func fieldLine(b []byte, i int, lenient bool) (l line, v *syntaxError) {
	named := i + tokenLen(b[i:])
	colon := named
	if lenient && named > i {
		for colon < len(b) && isBlank(b[colon]) {
			colon++
		}
	}
	if colon == len(b) {
		return line{}, nil
	}
	if b[colon] != ':' || colon == i {
		return sectionEnd(b, i, named)
	}
	start := colon + 1
	for start < len(b) && isBlank(b[start]) {
		start++
	}
	cr := start + valueLen(b[start:])
	if cr+1 >= len(b) || b[cr] != '\r' || b[cr+1] != '\n' {
		return line{}, badValue(b, cr)
	}
	end := cr
	for end > start && isBlank(b[end-1]) {
		end--
	}
	return line{view(b[i:named]), view(b[start:end]), cr + 2}, nil
}

// sectionEnd reads the line that starts at b[i] and is not a field line because of b[at].
func sectionEnd(b []byte, i, at int) (line, *syntaxError) {
	switch c := b[at]; {
	case c == '\r' && at == i:
		if at+1 == len(b) {
			return line{}, nil
		}
		if b[at+1] == '\n' {
			return line{next: at + 2}, nil
		}
		return line{}, malformed(at, "bare CR (RFC 9112 2.2)")
	case c == '\n':
		return line{}, malformed(at, "bare LF (RFC 9112 2.2)")
	case c == ':':
		return line{}, malformed(at, "empty field name (RFC 9112 5.1)")
	case isBlank(c) && at == i:
		return line{}, malformed(at, "line folding, or whitespace before the first field (RFC 9112 5.2, 2.2)")
	case isBlank(c):
		return line{}, malformed(at, "whitespace in a field name or before its colon (RFC 9112 5.1)")
	case c == '\r':
		return line{}, malformed(at, "field line without a colon (RFC 9112 5)")
	default:
		return line{}, malformed(at, "field name is not a token (RFC 9110 5.1)")
	}
}

// badValue returns the violation of the field value that stops before b[i], nil if the value is
// only incomplete.
func badValue(b []byte, i int) *syntaxError {
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
