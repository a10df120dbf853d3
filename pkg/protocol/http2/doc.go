// Package http2 implements the HTTP/2 protocol: frames, header compression, stream states, flow
// control, and limits on the cost that a hostile peer can cause (RFC 9113, RFC 7541, RFC 8441). It
// does no I/O: the caller passes it bytes and the time.
//
// A Session is one side of one connection. The engine passes the peer's frames in (ParseFrame,
// Session.Handle) and gets events; frames to send are appended to byte slices
// (Session.Append…). The engine (pkg/stream/http2) reads, writes, waits and buffers bodies. The
// split in short:
//
//	engine                               Session
//	reads bytes, ParseFrame           →  Handle: what does the frame mean?
//	turns events into exchanges       ←  Event, *StreamError or *ConnectionError
//	forwards bodies and reports
//	the bytes consumed                →  ReportConsumed: windows open again
//	wants to send                     →  AppendRequest, AppendData, …: what may be sent
//	writes the appended bytes         ←  bytes
//
// The engine must write all bytes that a Session appends, in the same order, because header
// compression has state on both sides. A Session is not safe for concurrent use.
//
// The files, in the order in which they process a frame: frame.go (framing), receive*.go (received
// frames), stream.go and resets.go (states), flow.go (windows), hpack_*.go (header compression),
// fields.go, head.go, request.go, response.go (header sections), flood.go (flood limits). send.go
// implements the opposite direction.
package http2
