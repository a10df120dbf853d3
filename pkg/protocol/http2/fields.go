package http2

// fieldKind is how this package treats a field.
type fieldKind uint8

const (
	ordinary fieldKind = iota // end-to-end: kept unchanged
	badName                   // not a lowercase token (RFC 9113 8.2.1)
	pseudoMethod
	pseudoScheme
	pseudoAuthority
	pseudoPath
	pseudoProtocol
	pseudoStatus
	pseudoUnknown
	hostField
	teField
	contentLengthField
	cookieField
	expectField
	// forbiddenField is a connection-specific field of HTTP/1.1 (RFC 9113 8.2.2).
	forbiddenField
	// droppedField has a meaning only in HTTP/1.1: HTTP2-Settings, Sec-WebSocket-Key and
	// Sec-WebSocket-Accept (RFC 8441 5).
	droppedField
	serverField
	dateField
	// secretField must not be guessable through compression (RFC 7541 7.1.3).
	secretField
)

func (k fieldKind) pseudo() bool { return k >= pseudoMethod && k <= pseudoUnknown }

// kept reports whether a received field is added to the message's Header, and whether a field of a
// Header is sent.
func (k fieldKind) kept() bool {
	switch k {
	case ordinary, cookieField, serverField, dateField, secretField:
		return true
	default:
		return false
	}
}

// kindOf classifies a field by its name, which is in lowercase.
func kindOf(name string) fieldKind {
	switch name {
	case ":method":
		return pseudoMethod
	case ":scheme":
		return pseudoScheme
	case ":authority":
		return pseudoAuthority
	case ":path":
		return pseudoPath
	case ":protocol":
		return pseudoProtocol
	case ":status":
		return pseudoStatus
	case "host":
		return hostField
	case "te":
		return teField
	case "content-length":
		return contentLengthField
	case "cookie":
		return cookieField
	case "expect":
		return expectField
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		return forbiddenField
	case "http2-settings", "sec-websocket-key", "sec-websocket-accept":
		return droppedField
	case "server":
		return serverField
	case "date":
		return dateField
	case "authorization", "proxy-authorization", "set-cookie":
		return secretField
	}
	return ordinary
}

// The flags of a field.
const (
	ownName  = 1 << iota // name is not a view of the decoder's text
	ownValue             // value is not a view of the decoder's text
	badValue             // value holds forbidden bytes (RFC 9113 8.2.1)
)

// field is one field of a header block. The decoder classifies a name once: table entries keep
// their kind.
type field struct {
	name, value string
	kind        fieldKind
	marks       uint8
}

func newField(name, value string, marks uint8) field {
	f := field{name: name, value: value, marks: marks}
	f.kind = classify(name)
	if !isValue(value) {
		f.marks |= badValue
	}
	return f
}

// classify is kindOf for a name that was not validated.
func classify(name string) fieldKind {
	if k := kindOf(name); k != ordinary {
		return k
	}
	switch {
	case name == "":
		return badName
	case name[0] == ':':
		return pseudoUnknown
	case !all(name, nameByte):
		return badName
	}
	return ordinary
}

// size returns the size of the field in tables and limits, in bytes (RFC 7541 4.1).
func (f *field) size() uint32 { return fieldSize(f.name, f.value) }

func fieldSize(name, value string) uint32 { return uint32(len(name) + len(value) + 32) }
