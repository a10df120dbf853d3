// Package xprotocol owns the contract of framed RPC protocols: those whose
// frames tell their own length and carry a request id, so that one connection
// has many requests in flight. Each protocol is a folder below it: codec.go,
// a README, tests. It is pure: codecs have no state and do no I/O.
//
// What one engine, pkg/stream/xprotocol, does with a codec:
//
//	Match           are these the first bytes of the protocol     detection
//	Next            where does the first frame end, what is it    reading
//	ReadRequest     the frame as a routing view                   serving
//	AppendRequest   the frame as it leaves, SetID the new id      forwarding
//	ReadResponse    the answer's view                             answering
//	AppendResponse  the answer as it leaves, SetID the old id
//	AppendErrorResponse …   what Weft has to say itself
package xprotocol

import (
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Codec is what the engine needs of a protocol. Codecs are values without
// state: every method is safe for concurrent use, keeps nothing of its
// arguments, and allocates nothing for ordinary frames.
type Codec interface {
	Framing
	Messages
	ControlFrames
}

// Framing finds frames in bytes and gives them ids.
type Framing interface {
	// Traits returns what is true of the protocol as a whole; always the same
	// pointer.
	Traits() *Traits

	// Match says whether a connection that begins with b speaks the protocol.
	// The answer to a longer b is the same, unless it was Unsure.
	Match(b []byte) MatchResult

	// ParseFrame says what frame b begins with. Size 0 means that b is too short to
	// tell; a Size beyond len(b), that the rest is still to come. The size is as
	// declared, however large. An error means that b cannot be the protocol's:
	// the connection is lost, because nobody knows where the next frame begins.
	ParseFrame(b []byte) (Frame, error)

	// SetID changes a whole frame's id in place, and its checksum if it has one.
	SetID(frame []byte, id uint64)
}

// Messages reads requests and answers, and writes what became of them.
type Messages interface {
	// ReadRequest fills r, which is empty, from a whole frame of kind Request or OneWay: Authority
	// and Path as protocol.Request says, Header with "service", "method",
	// "version" and "group" (those that the request has, in this order, before
	// everything else), then the attachments in wire order; OneWay, Serialization
	// and ContentLength; it seals Header. Strings are views of the frame. Arguments are skipped.
	// A body that cannot be read, because its serialization is foreign, is no
	// error: r holds what the head tells. Errors are Faults of MalformedRequest.
	ReadRequest(frame []byte, r *protocol.Request, v *FrameView) error

	// AppendRequest appends the request that r became: the frame byte for byte
	// if r.Header was not changed (protocol.Header.Changed), else encoded anew
	// around the same arguments: attachments as the fields now say, and service,
	// method, version and group where the protocol has them. left, if not 0, is the
	// caller's remaining time: the timeout that the frame declares is lowered to it.
	// SetID is called next, and may be left a checksum to make. Errors are Faults: a change that the frame cannot
	// carry, because its serialization is foreign or a length would overflow.
	AppendRequest(dst, frame []byte, r *protocol.Request, v *FrameView, left time.Duration) ([]byte, error)

	// ReadResponse fills r, which is empty, from a whole frame of kind Response:
	// Status (the HTTP view of the code), Code, Header with the attachments, sealed,
	// and ContentLength. Strings are views of the frame. Attachments that cost
	// something to find may be left to protocol.Header.Later. A body that cannot be
	// read is no error, as for ReadRequest. Errors are Faults of UpstreamMalformed.
	ReadResponse(frame []byte, r *protocol.Response, v *FrameView) error

	// AppendResponse is AppendRequest for answers.
	AppendResponse(dst, frame []byte, r *protocol.Response, v *FrameView) ([]byte, error)
}

// ControlFrames makes the frames that Weft sends on its own account. A protocol that
// lacks one returns dst as it is.
type ControlFrames interface {
	// AppendErrorResponse appends the answer to a request that tells of reason in the
	// protocol's own terms. frame is the request's; its head is enough. text is
	// for people.
	AppendErrorResponse(dst, frame []byte, reason protocol.Reason, text string) []byte

	// AppendHeartbeat appends a heartbeat request.
	AppendHeartbeat(dst []byte, id uint64) []byte

	// AppendHeartbeatAck appends the answer to a whole frame of kind Ping.
	AppendHeartbeatAck(dst, ping []byte) []byte

	// AppendGoAway appends the announcement that no new request should come.
	AppendGoAway(dst []byte, id uint64) []byte
}

// Traits is what is true of a protocol as a whole.
type Traits struct {
	Name  string // as config.json names it
	MaxID uint64 // the largest request id
	// Version is the protocol and its version as in an access log: "dubbo/2".
	Version string
	// OptInGoAway: many peers do not know the frame that AppendGoAway makes, so it is
	// sent only if the configuration asks for it.
	OptInGoAway bool
	// FrameHeaderLen is how many bytes Next needs at most to know a frame's size.
	FrameHeaderLen int
}

// Names of the fields of the routing view.
const (
	FieldService = "service"
	FieldMethod  = "method"
	FieldVersion = "version"
	FieldGroup   = "group"
)

// MatchResult is what Match found.
type MatchResult uint8

// The verdicts.
const (
	MatchNeedMore MatchResult = iota // more bytes are needed
	MatchYes
	MatchNo
)

// Kind is what a frame is for.
type Kind uint8

// The kinds.
const (
	Request      Kind = iota + 1 // wants an answer
	OneWay                       // a request that wants none
	Response                     // the answer to a request
	Heartbeat                    // a heartbeat that wants an answer
	HeartbeatAck                 // the answer to a heartbeat; also one that nobody asked for
	GoAway                       // the sender takes no new requests
	Ignored                      // well-formed and of no consequence to a proxy
)

// Frame is what a frame's head tells.
type Frame struct {
	Kind Kind
	ID   uint64
	Size int // of the whole frame in bytes, as declared
}

// FrameView is what reading a frame found beside the request: for the codec itself
// when the frame is appended, and for the engine.
type FrameView struct {
	// Timeout is how long the caller waits, by its own account; 0: not said.
	Timeout time.Duration
	// ContentOffset is where the frame's content begins.
	ContentOffset int
	// Offsets are the codec's own: places in the frame.
	Offsets [6]int32
	// TrailerLen is how many bytes are behind the content: a checksum.
	TrailerLen int32
	// Ambiguous: who serves the request may take it for a call of another service or
	// method than the fields say.
	Ambiguous bool
	// LazyFields is a part of the frame that the codec reads when it is asked for: see
	// protocol.Header.Later.
	LazyFields []byte
	// Text is memory for strings that the frame has not in one piece, such as
	// Path. Reading overwrites it; a View that is used again keeps it, so that this
	// costs nothing.
	Text []byte
}
