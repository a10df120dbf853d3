// Package xprotocol defines the interface of codecs for framed RPC protocols. Frames declare their
// length and contain a request id, so one connection can have many requests in flight. Each codec
// is a package below this one. Codecs are pure: they have no state and do no I/O.
//
// How the engine, pkg/stream/xprotocol, uses a codec:
//
//	Match           detects the protocol by its first bytes
//	ParseFrame      finds the end and the kind of the first frame
//	ReadRequest     reads the routing fields and attachments of a request
//	AppendRequest   writes the frame for the host; SetID sets the new id
//	ReadResponse    reads the status and attachments of a response
//	AppendResponse  writes the frame for the client; SetID sets the old id
//	AppendErrorResponse …   write the frames that Weft generates
package xprotocol

import (
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Codec implements one protocol for the engine. Codecs are values without state: every method is
// safe for concurrent use, keeps no part of its arguments, and allocates nothing for ordinary
// frames.
type Codec interface {
	Framing
	Messages
	ControlFrames
}

// Framing finds frames in bytes and sets their ids.
type Framing interface {
	// Traits returns the properties of the protocol; always the same pointer.
	Traits() *Traits

	// Match reports whether a connection that begins with b speaks the protocol. More bytes may
	// change the result only if it is MatchNeedMore.
	Match(b []byte) MatchResult

	// ParseFrame parses the head of the frame that b begins with. Size 0 means that b is too short;
	// a Size above len(b) means that the frame is incomplete. Size is the declared size, without a
	// limit. An error means that b is not a frame of the protocol: the engine closes the
	// connection, because the start of the next frame is unknown.
	ParseFrame(b []byte) (Frame, error)

	// SetID changes the id of a complete frame in place, and updates its checksum if it has one.
	SetID(frame []byte, id uint64)
}

// Messages reads requests and responses and writes them after changes.
type Messages interface {
	// ReadRequest fills r, which is empty, from a complete frame of kind Request or OneWay. It sets
	// Authority, Path, OneWay, Serialization and ContentLength, as protocol.Request describes.
	// Header begins with the fields "service", "method", "version" and "group", in this order and
	// without the ones that the request lacks; the attachments follow in wire order. Header.Changed
	// then returns false. Strings borrow the frame. ReadRequest skips the arguments. A body with an
	// unknown serialization is not an error: r then holds only the values of the frame header.
	// Errors are Faults of MalformedRequest.
	ReadRequest(frame []byte, r *protocol.Request, v *FrameView) error

	// AppendRequest appends the request with the changes in r. If r.Header is unchanged
	// (protocol.Header.Changed), it appends the frame byte for byte. Otherwise it keeps the
	// arguments and encodes the rest of the frame again. The attachments come from r.Header, and
	// service, method, version and group are written where the protocol has them. remaining, if not
	// 0, is the client's remaining time, to which AppendRequest lowers the timeout in the frame.
	// The caller calls SetID next, which may compute the checksum. Errors are Faults: the frame
	// cannot contain a change, for example because its serialization is unknown or a length would
	// overflow. With an error dst is returned unchanged.
	AppendRequest(dst, frame []byte, r *protocol.Request, v *FrameView, remaining time.Duration) ([]byte, error)

	// ReadResponse fills r, which is empty, from a complete frame of kind Response: Status (the
	// HTTP equivalent of the code), Code, Header with the attachments, marked unchanged, and
	// ContentLength. Strings borrow the frame. It may defer reading attachments that are expensive
	// to find: see protocol.Header.SetLoader. An unknown serialization is not an error, as for
	// ReadRequest. Errors are Faults of UpstreamMalformed.
	ReadResponse(frame []byte, r *protocol.Response, v *FrameView) error

	// AppendResponse does for responses what AppendRequest does for requests.
	AppendResponse(dst, frame []byte, r *protocol.Response, v *FrameView) ([]byte, error)
}

// ControlFrames appends the frames that Weft generates. If the protocol has no such frame, the
// method returns dst unchanged.
type ControlFrames interface {
	// AppendErrorResponse appends an error response that expresses reason in the protocol's terms.
	// frame is the request; its head is enough. text is a message for developers.
	AppendErrorResponse(dst, frame []byte, reason protocol.Reason, text string) []byte

	// AppendHeartbeat appends a heartbeat request.
	AppendHeartbeat(dst []byte, id uint64) []byte

	// AppendHeartbeatAck appends the response to heartbeat, a complete frame of kind Heartbeat.
	AppendHeartbeatAck(dst, heartbeat []byte) []byte

	// AppendGoAway appends a notice that asks the peer to send no more requests.
	AppendGoAway(dst []byte, id uint64) []byte
}

// Traits are the properties of a protocol.
type Traits struct {
	Name  string // name in config.json
	MaxID uint64 // the largest request id
	// Version is the protocol and its version for access logs: "dubbo/2".
	Version string
	// OptInGoAway: many peers do not know the frame of AppendGoAway, so Weft sends it only if the
	// configuration enables it.
	OptInGoAway bool
	// FrameHeaderLen is the maximum number of bytes that ParseFrame needs to determine a frame's
	// size.
	FrameHeaderLen int
}

// Names of the routing fields, which ReadRequest adds to the header of a request.
const (
	FieldService = "service"
	FieldMethod  = "method"
	FieldVersion = "version"
	FieldGroup   = "group"
)

// MatchResult is the result of Match.
type MatchResult uint8

// Results of Match.
const (
	MatchNeedMore MatchResult = iota // more bytes are needed
	MatchYes
	MatchNo
)

// Kind is the kind of a frame.
type Kind uint8

// Kinds of frames.
const (
	Request      Kind = iota + 1 // expects a response
	OneWay                       // a request that expects no response
	Response                     // the response to a request
	Heartbeat                    // a heartbeat that expects a response
	HeartbeatAck                 // the response to a heartbeat, even an unsolicited one
	GoAway                       // the sender accepts no new requests
	Ignored                      // well-formed, but not relevant to a proxy
)

// Frame is the parsed head of a frame.
type Frame struct {
	Kind Kind
	ID   uint64
	Size int // declared size of the frame in bytes
}

// FrameView holds values of a frame that are not part of the request or the response. The codec
// uses them when it appends the frame, and the engine reads some of them.
type FrameView struct {
	// Timeout is how long the client waits, as the frame declares; 0: not declared.
	Timeout time.Duration
	// ContentOffset is the offset of the body in the frame.
	ContentOffset int
	// Offsets are positions in the frame that only the codec uses.
	Offsets [6]int32
	// TrailerLen is the number of bytes after the body: a checksum.
	TrailerLen int32
	// Ambiguous: the host may interpret the request as a call of another service or method than the
	// fields of the header describe.
	Ambiguous bool
	// DeferredFields is the part of the frame that the codec reads when the header is used: see
	// protocol.Header.SetLoader.
	DeferredFields []byte
	// Text is storage for strings that are not contiguous in the frame, such as Path. ReadRequest
	// and ReadResponse may overwrite it. A reused FrameView keeps it to save the allocation.
	Text []byte
}
