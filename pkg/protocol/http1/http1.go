// Package http1 owns the syntax of HTTP/1.0 and HTTP/1.1 messages: heads, their
// framing and the chunked coding, read strictly and written canonically (RFC
// 9112, RFC 9110). It is pure: it sees bytes, never a connection.
//
// What is read is what an intermediary may act on. Fields that belong to one
// connection (RFC 9110 7.6.1) and those that frame the content become Framing
// and the message's own members; Header keeps the end-to-end fields, in order
// and case. What two readers could understand in two ways is refused.
//
// A request head passes through the files in this order: request.go (the line
// and its target), field.go (field lines), meaning.go (what framing and
// connection fields say); a response head likewise from response.go. append.go
// is the way back.
package http1

import "github.com/weft-proxy/weft/pkg/protocol"

// Limits bound a head and a trailer section. A limit of zero or less is none.
type Limits struct {
	Line   int // bytes of a request or status line without its CRLF
	Head   int // bytes of a whole head, or of a whole trailer section
	Fields int // field lines of a head or trailer section
}

// BodyKind is how the end of a message's content is found (RFC 9112 6.3).
type BodyKind uint8

// The kinds.
const (
	// NoBody: the message has no content, or content of zero bytes.
	NoBody BodyKind = iota
	// Length: exactly Framing.Length bytes, more than zero.
	Length
	// Chunked: the chunked coding, to be read with a ChunkReader.
	Chunked
	// UntilClose: everything until the connection ends; responses only.
	UntilClose
)

// Framing is what a head says of the message's content and of the connection.
type Framing struct {
	Body   BodyKind
	Length int64 // bytes of content if Body is Length, else 0
	// KeepAlive: the sender lets the connection persist after this message
	// (RFC 9112 9.3).
	KeepAlive bool
	Minor     int // the sender's version is HTTP/1.Minor: 0 or 1
	// Interim: a response that another one follows, 1xx other than 101.
	Interim bool
	// Upgrade: a response after which the connection is a tunnel: 101, or 2xx to
	// CONNECT.
	Upgrade bool
	// ConnectionOptions lists, if Body is Chunked, the fields that Connection names and
	// that could be end to end: views of the head. Header lacks them, and so must
	// the trailer section (RFC 9110 7.6.1): see ChunkReader. Almost always nil.
	ConnectionOptions []string
	// Trailers: a request whose sender wants trailer fields (TE: trailers, RFC
	// 9110 10.1.4).
	Trailers bool
	// HTTP2Settings is what a request says that asks to go on in HTTP/2 in clear
	// text (Upgrade: h2c, RFC 7540 3.2): its HTTP2-Settings as it was sent, a view of
	// the head. "": it does not ask, or not in the way that it has to.
	HTTP2Settings string
}

// syntaxError is a rule that the bytes break. Its text is the rule's, never the
// bytes': field values may be secrets.
type syntaxError struct {
	reason protocol.Reason
	offset int // bytes from the start of the head or trailer section
	rule   string
}

func malformed(offset int, rule string) *syntaxError {
	return &syntaxError{protocol.MalformedRequest, offset, rule}
}

// requestFault is the violation as a request's reader reports it.
func (v *syntaxError) requestFault() error {
	return protocol.Faultf(v.reason, "at byte %d: %s", v.offset, v.rule)
}

// responseFault is the violation as a response's reader reports it: whatever is
// wrong with it, the upstream is to blame.
func (v *syntaxError) responseFault() error {
	return protocol.Faultf(protocol.UpstreamMalformed, "at byte %d: %s", v.offset, v.rule)
}
