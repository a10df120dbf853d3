package http2

import (
	"fmt"
	"strconv"
)

// Code is an error code: the reason why a stream or a connection ends (RFC 9113 7). A peer may send
// codes that this package does not name; they have no special meaning.
type Code uint32

// The error codes.
const (
	NoError            Code = 0x0
	ProtocolError      Code = 0x1
	InternalError      Code = 0x2
	FlowControlError   Code = 0x3
	SettingsTimeout    Code = 0x4
	StreamClosed       Code = 0x5
	FrameSizeError     Code = 0x6
	RefusedStream      Code = 0x7
	Cancel             Code = 0x8
	CompressionError   Code = 0x9
	ConnectError       Code = 0xa
	EnhanceYourCalm    Code = 0xb
	InadequateSecurity Code = 0xc
	HTTP11Required     Code = 0xd
)

// String returns the code's name in the RFC.
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "0x" + strconv.FormatUint(uint64(c), 16)
}

//nolint:gochecknoglobals // a constant table
var codeNames = [...]string{
	NoError:            "NO_ERROR",
	ProtocolError:      "PROTOCOL_ERROR",
	InternalError:      "INTERNAL_ERROR",
	FlowControlError:   "FLOW_CONTROL_ERROR",
	SettingsTimeout:    "SETTINGS_TIMEOUT",
	StreamClosed:       "STREAM_CLOSED",
	FrameSizeError:     "FRAME_SIZE_ERROR",
	RefusedStream:      "REFUSED_STREAM",
	Cancel:             "CANCEL",
	CompressionError:   "COMPRESSION_ERROR",
	ConnectError:       "CONNECT_ERROR",
	EnhanceYourCalm:    "ENHANCE_YOUR_CALM",
	InadequateSecurity: "INADEQUATE_SECURITY",
	HTTP11Required:     "HTTP_1_1_REQUIRED",
}

// ConnectionError ends the connection: the engine sends GOAWAY with Code (Session.AppendGoAway) and
// closes the connection (RFC 9113 5.4.1). Its text names the violated rule and never contains bytes
// that the peer sent.
type ConnectionError struct {
	Code   Code
	Reason string
	// Flood names the exceeded flood limit; NoFlood for other errors.
	Flood Flood
}

func (e *ConnectionError) Error() string {
	return fmt.Sprintf("connection error %v: %s", e.Code, e.Reason)
}

// StreamError ends one stream: the engine passes it to Session.Fail and ends the exchange (RFC 9113
// 5.4.2). Its text names the violated rule.
type StreamError struct {
	ID     uint32
	Code   Code
	Reason string
}

func (e *StreamError) Error() string {
	return fmt.Sprintf("stream %d error %v: %s", e.ID, e.Code, e.Reason)
}

func connectionError(code Code, reason string) *ConnectionError {
	return &ConnectionError{Code: code, Reason: reason}
}

func streamError(id uint32, code Code, reason string) *StreamError {
	return &StreamError{ID: id, Code: code, Reason: reason}
}
