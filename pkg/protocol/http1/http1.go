// Package http1 implements the syntax of HTTP/1.0 and HTTP/1.1 messages: heads, their framing and
// the chunked coding. It parses strictly and writes canonically (RFC 9112, RFC 9110). It does no
// I/O.
//
// Parsers convert connection headers (RFC 9110 7.6.1) and framing headers to Framing and fields of
// the message. Header keeps the end-to-end headers in their order and case. Parsers reject input
// that two recipients could interpret differently.
//
// A request head passes through the files in this order: request.go (the line and its target),
// field.go (field lines), head.go (framing and connection headers). A response head starts in
// response.go. append.go writes heads.
package http1

import "github.com/weft-proxy/weft/pkg/protocol"

// Limits bound a head and a trailer section. A limit of zero or less means no limit.
type Limits struct {
	Line   int // bytes of a request or status line without its CRLF
	Head   int // bytes of a head, or of a trailer section
	Fields int // field lines of a head or trailer section
}

// BodyKind defines how a message's body ends (RFC 9112 6.3).
type BodyKind uint8

// Kinds of bodies.
const (
	// NoBody: the message has no body, or a body of zero bytes.
	NoBody BodyKind = iota
	// Length: exactly Framing.Length bytes, more than zero.
	Length
	// Chunked: the chunked coding, for a ChunkReader.
	Chunked
	// UntilClose: everything until the connection ends; responses only.
	UntilClose
)

// Framing describes the message's body and the connection, as the head declares them.
type Framing struct {
	Body   BodyKind
	Length int64 // bytes of the body if Body is Length, otherwise 0
	// KeepAlive: the sender lets the connection persist after this message (RFC 9112 9.3).
	KeepAlive bool
	Minor     int // minor version of the sender: 0, or 1 for HTTP/1.1 and later
	// Interim: 1xx other than 101; another response follows.
	Interim bool
	// BecomesTunnel: the connection is a tunnel after this response: 101, or 2xx to CONNECT.
	BecomesTunnel bool
	// ConnectionOptions lists, if Body is Chunked, the headers that Connection names and that could
	// be end to end. The strings borrow the head. Header does not contain them, and a ChunkReader
	// drops them from the trailer section (RFC 9110 7.6.1). Almost always nil.
	ConnectionOptions []string
	// AcceptsTrailers: a request whose sender wants trailer fields (TE: trailers, RFC 9110 10.1.4).
	AcceptsTrailers bool
	// HTTP2Settings is the HTTP2-Settings of a request that asks for HTTP/2 in clear text (Upgrade:
	// h2c, RFC 7540 3.2); it borrows the head. It is "" if the request does not ask for HTTP/2 as
	// the RFC requires.
	HTTP2Settings string
}

// syntaxError names a rule that the input violates. Its text never quotes the input: field values
// may be secrets.
type syntaxError struct {
	reason protocol.Reason
	offset int // bytes from the start of the head, or of a chunked body
	rule   string
	envoy  *protocol.EnvoyReply // nil: that of reason
}

func malformed(offset int, rule string) *syntaxError {
	return &syntaxError{reason: protocol.MalformedRequest, offset: offset, rule: rule}
}

// asEnvoy sets how Envoy expresses v, and returns v.
func (v *syntaxError) asEnvoy(r protocol.EnvoyReply) *syntaxError {
	v.envoy = &r
	return v
}

// Replies to requests that Envoy rejects for other reasons than its parser's.
//
//nolint:gochecknoglobals // constants
var (
	missingHost           = protocol.EnvoyReply{Status: 400, Details: "missing_host_header", Flag: protocol.NoEnvoyFlag}
	fragmentInPath        = protocol.EnvoyReply{Status: 400, Details: "path_normalization_failed", Flag: protocol.NoEnvoyFlag}
	tooManyFields         = protocol.EnvoyReply{Status: 431, Body: "Request Header Fields Too Large", Details: "http1.too_many_headers"}
	lowVersion            = protocol.EnvoyReply{Status: 426, Body: "Upgrade Required", Details: "low_version"}
	invalidTransferCoding = protocol.EnvoyReply{Status: 501, Body: "Not Implemented", Details: "http1.invalid_transfer_encoding"}
)

func (v *syntaxError) requestFault() error {
	fault := protocol.Faultf(v.reason, "at byte %d: %s", v.offset, v.rule)
	if v.envoy != nil {
		return fault.WithEnvoyReply(*v.envoy)
	}
	return fault
}

// responseFault returns the error of ParseResponse for v. Its reason is always UpstreamMalformed.
func (v *syntaxError) responseFault() error {
	return protocol.Faultf(protocol.UpstreamMalformed, "at byte %d: %s", v.offset, v.rule)
}
