package http2

import "time"

// State is the state of a stream (RFC 9113 5.1). The reserved states do not occur: the session
// rejects push and never uses it.
type State uint8

// The states of a stream. Local is the side of the session, remote the side of the peer.
const (
	Idle State = iota
	Open
	HalfClosedLocal  // we have sent everything
	HalfClosedRemote // the peer has sent everything
	Closed
)

//nolint:gochecknoglobals // a constant table
var stateNames = [...]string{"idle", "open", "half-closed (local)", "half-closed (remote)", "closed"}

// String returns the state's name in the RFC.
func (s State) String() string { return stateNames[s] }

// Stream is one stream of a session: one request and its response. The session creates it, and the
// engine releases it with Session.Release. The engine accesses only ID and Owner directly.
type Stream struct {
	ID uint32 // immutable
	// Owner is the engine's value for the stream. The session only clears it.
	Owner any

	state State
	part  messagePart // of the peer's message
	kind  exchangeKind
	// inTunnel: the peer's DATA frames carry bytes of a tunnel, not a body.
	inTunnel   bool
	openedByUs bool
	// headSent: the head of our final response, or of our request, was sent.
	headSent bool

	openedAt time.Time // when the peer opened the stream

	contentLength int64 // length of the peer's body; 0 if it cannot have one; -1: unknown
	received      int64 // bytes of the body received

	sendWindow    int64 // bytes we may send; may be negative after SETTINGS reduced it
	recvWindow    int64 // bytes the peer may send
	unconsumed    int64 // bytes received that the engine has not consumed
	pendingCredit int64 // bytes consumed that no WINDOW_UPDATE has reported
}

// messagePart is the part of the peer's message that has arrived.
type messagePart uint8

const (
	partNone    messagePart = iota // nothing, or interim responses
	partHead                       // the head; a body may follow
	partTrailer                    // the complete message
)

// exchangeKind is the kind of a request.
type exchangeKind uint8

const (
	plainExchange exchangeKind = iota
	headExchange               // HEAD: the response has no body, but may declare its length
	connectExchange
	extendedExchange // extended CONNECT (RFC 8441)
)

// State returns the stream's state.
func (st *Stream) State() State { return st.state }

// CanSend reports whether DATA may be sent: the head was sent, END_STREAM was not, and the stream
// was not reset.
func (st *Stream) CanSend() bool {
	return st.headSent && (st.state == Open || st.state == HalfClosedRemote)
}

// OpenedRecently reports whether the peer opened the stream within the last 50 ms. A reset of such
// a stream by the peer is charged (Session.TakeCharges).
func (st *Stream) OpenedRecently(now time.Time) bool {
	return !st.openedByUs && now.Sub(st.openedAt) < rapidResetWindow
}

// HeadSent reports whether the head of our final response, or of our request, was sent.
func (st *Stream) HeadSent() bool { return st.headSent }

// RemoteEnded reports whether the peer has sent everything, or the stream is closed.
func (st *Stream) RemoteEnded() bool { return st.state == HalfClosedRemote || st.state == Closed }

// IsConnect reports whether the request was CONNECT, extended or not.
func (st *Stream) IsConnect() bool { return st.kind >= connectExchange }

// SendWindow returns how many bytes the peer accepts on the stream, regardless of the connection's
// window. It may be negative after SETTINGS reduced it (RFC 9113 6.9.2).
func (st *Stream) SendWindow() int64 { return st.sendWindow }

// Unconsumed returns how many received bytes of the body the engine has not consumed.
func (st *Stream) Unconsumed() int64 { return st.unconsumed }

// endLocal records the END_STREAM of our side, and reports whether both sides have ended the
// stream.
func (st *Stream) endLocal() bool {
	if st.state == Open {
		st.state = HalfClosedLocal
		return false
	}
	return true
}

// endRemote records the END_STREAM of the peer, and reports whether both sides have ended the
// stream.
func (st *Stream) endRemote() bool {
	if st.state == Open {
		st.state = HalfClosedRemote
		return false
	}
	return true
}
