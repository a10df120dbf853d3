// Package http2 owns what HTTP/2 means: frames, header compression, the states
// of streams, flow control and the budgets that keep a hostile peer cheap (RFC
// 9113, RFC 7541, RFC 8441). It is pure: it sees bytes and the time it is given,
// never a connection.
//
// A Session is one side of one connection. What the peer sent goes in as frames
// (Next, Session.Handle) and comes out as events; what is to be sent is appended
// to bytes (Session.Append…). Reading, writing, waiting and memory of contents
// are the engine's (pkg/stream/http2). The split in short:
//
//	engine                               Session
//	reads bytes, cuts them with Next  →  Handle: what does it mean here?
//	makes exchanges of events         ←  Event, *StreamError or *ConnectionError
//	hands on contents, says what was
//	consumed                          →  Consumed: when the windows open again
//	wants to send                     →  AppendRequest, AppendData, …: may it, how much
//	writes what was appended          ←  bytes
//
// Everything a Session appends must be written in that order: header compression
// has a memory on both sides. Nothing here is safe for concurrent use.
//
// The files, in the order that a frame passes them: frame.go (syntax in and out),
// receive.go (which frame may come when), stream.go (states), flow.go (windows),
// hpack_*.go (header compression), fields.go, request.go, response.go (what header
// blocks say), budget.go (what a peer may cost); send.go is the way back.
package http2
