package http2

// fieldKind classifies fields by how this package treats them.
type fieldKind uint8

const (
	regularField fieldKind = iota // end-to-end: kept unchanged
	invalidName                   // not a lowercase token (RFC 9113 8.2.1)
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
	// connectionField is a connection-specific field of HTTP/1.1 (RFC 9113 8.2.2).
	connectionField
	// http1OnlyField has a meaning only in HTTP/1.1: HTTP2-Settings, Sec-WebSocket-Key and
	// Sec-WebSocket-Accept (RFC 8441 5).
	http1OnlyField
	serverField
	dateField
	// sensitiveField is sent in the form that is never added to a table, so that an attacker cannot
	// guess its value through compression (RFC 7541 7.1.3).
	sensitiveField
)

func (k fieldKind) isPseudo() bool { return k >= pseudoMethod && k <= pseudoUnknown }

// isForwarded reports whether a field of kind k is added to Header when it is received, and sent if
// Header contains it.
func (k fieldKind) isForwarded() bool {
	switch k {
	case regularField, cookieField, serverField, dateField, sensitiveField:
		return true
	default:
		return false
	}
}

// knownFieldKind classifies a field by its name, which is in lowercase.
func knownFieldKind(name string) fieldKind {
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
		return connectionField
	case "http2-settings", "sec-websocket-key", "sec-websocket-accept":
		return http1OnlyField
	case "server":
		return serverField
	case "date":
		return dateField
	case "authorization", "proxy-authorization", "set-cookie":
		return sensitiveField
	}
	return regularField
}

// The flags of a field.
const (
	nameOwned    = 1 << iota // name does not borrow the decoder's text
	valueOwned               // value does not borrow the decoder's text
	invalidValue             // value holds forbidden bytes (RFC 9113 8.2.1)
)

// field is one field of a header block. Table entries keep their kind, so the decoder does not
// classify an indexed name again.
type field struct {
	name, value string
	kind        fieldKind
	flags       uint8
}

func newField(name, value string, flags uint8) field {
	f := field{name: name, value: value, flags: flags}
	f.kind = classifyName(name)
	if !isFieldValue(value) {
		f.flags |= invalidValue
	}
	return f
}

// classifyName classifies a field by its name, which may be invalid.
func classifyName(name string) fieldKind {
	if k := knownFieldKind(name); k != regularField {
		return k
	}
	switch {
	case name == "":
		return invalidName
	case name[0] == ':':
		return pseudoUnknown
	case !allInClass(name, nameByte):
		return invalidName
	}
	return regularField
}

// size returns the size of the field in tables and limits, in bytes (RFC 7541 4.1).
func (f *field) size() uint32 { return fieldSize(f.name, f.value) }

func fieldSize(name, value string) uint32 { return uint32(len(name) + len(value) + 32) }
