package http2

import "encoding/binary"

// Preface is the first sequence of bytes that a client sends (RFC 9113 3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Sizes, limits and defaults of the protocol; sizes are in bytes (RFC 9113 4.1, 4.2, 6.5.2).
const (
	FrameHeaderLen   = 9
	MinFrameSize     = 1 << 14   // the minimum of SETTINGS_MAX_FRAME_SIZE, and its default
	MaxFrameSize     = 1<<24 - 1 // the maximum of SETTINGS_MAX_FRAME_SIZE
	DefaultWindow    = 1<<16 - 1 // the window of a connection, and of streams before SETTINGS
	MaxWindow        = 1<<31 - 1
	MaxStreamID      = 1<<31 - 1
	DefaultTableSize = 4096 // of the dynamic table of header compression
)

// FrameType is the type of a frame (RFC 9113 6). Frames of unknown types are ignored.
type FrameType uint8

// The frame types.
const (
	FrameData           FrameType = 0x0
	FrameHeaders        FrameType = 0x1
	FramePriority       FrameType = 0x2
	FrameRSTStream      FrameType = 0x3
	FrameSettings       FrameType = 0x4
	FramePushPromise    FrameType = 0x5
	FramePing           FrameType = 0x6
	FrameGoAway         FrameType = 0x7
	FrameWindowUpdate   FrameType = 0x8
	FrameContinuation   FrameType = 0x9
	FramePriorityUpdate FrameType = 0x10 // RFC 9218 7.1
)

// String returns the type's name in the RFC, or UNKNOWN.
func (t FrameType) String() string {
	switch t {
	case FrameData:
		return "DATA"
	case FrameHeaders:
		return "HEADERS"
	case FramePriority:
		return "PRIORITY"
	case FrameRSTStream:
		return "RST_STREAM"
	case FrameSettings:
		return "SETTINGS"
	case FramePushPromise:
		return "PUSH_PROMISE"
	case FramePing:
		return "PING"
	case FrameGoAway:
		return "GOAWAY"
	case FrameWindowUpdate:
		return "WINDOW_UPDATE"
	case FrameContinuation:
		return "CONTINUATION"
	case FramePriorityUpdate:
		return "PRIORITY_UPDATE"
	}
	return "UNKNOWN"
}

// Flags are the flags of a frame. The meaning of a bit depends on the type.
type Flags uint8

// The flags.
const (
	FlagEndStream  Flags = 0x1 // DATA, HEADERS
	FlagAck        Flags = 0x1 // SETTINGS, PING
	FlagEndHeaders Flags = 0x4 // HEADERS, CONTINUATION
	FlagPadded     Flags = 0x8 // DATA, HEADERS
	FlagPriority   Flags = 0x20
)

// Has reports whether all of flags are set.
func (f Flags) Has(flags Flags) bool { return f&flags == flags }

// Frame is a parsed frame.
type Frame struct {
	Type    FrameType
	Flags   Flags
	Stream  uint32 // without the reserved bit; 0: the connection
	Payload []byte // borrows ParseFrame's input; includes padding
}

// ParseFrame parses the frame that b starts with. n is its length in bytes, or 0 if it is
// incomplete. limit is our SETTINGS_MAX_FRAME_SIZE: a longer payload is a *ConnectionError as soon
// as the frame's header has arrived (RFC 9113 4.2).
func ParseFrame(b []byte, limit uint32) (f Frame, n int, err error) {
	if len(b) < FrameHeaderLen {
		return Frame{}, 0, nil
	}
	length := binary.BigEndian.Uint32(b) >> 8
	if length > limit {
		return Frame{}, 0, connectionError(FrameSizeError, "frame longer than SETTINGS_MAX_FRAME_SIZE (RFC 9113 4.2)")
	}
	end := FrameHeaderLen + int(length)
	if len(b) < end {
		return Frame{}, 0, nil
	}
	return Frame{
		Type:    FrameType(b[3]),
		Flags:   Flags(b[4]),
		Stream:  binary.BigEndian.Uint32(b[5:]) & MaxStreamID,
		Payload: b[FrameHeaderLen:end:end],
	}, end, nil
}

// ParsePartialData splits the incomplete DATA frame that b starts with, because frame boundaries
// have no meaning for a body. f is a frame with the received part, and remainder is the header of a
// frame for the missing bytes. f has no payload if it would have less than minPayload bytes, or if
// the frame in b is padded or not DATA. The caller has checked with ParseFrame that b starts with a
// valid, incomplete frame.
func ParsePartialData(b []byte, minPayload int) (f Frame, remainder [FrameHeaderLen]byte) {
	if len(b) < FrameHeaderLen+max(minPayload, 1) || FrameType(b[3]) != FrameData || Flags(b[4]).Has(FlagPadded) {
		return Frame{}, remainder
	}
	remainder = [FrameHeaderLen]byte(b)
	remaining := int(binary.BigEndian.Uint32(b)>>8) - (len(b) - FrameHeaderLen)
	remainder[0], remainder[1], remainder[2] = byte(remaining>>16), byte(remaining>>8), byte(remaining)
	return Frame{
		Type:    FrameData,
		Flags:   Flags(b[4]) &^ FlagEndStream, // remainder has the flag
		Stream:  binary.BigEndian.Uint32(b[5:]) & MaxStreamID,
		Payload: b[FrameHeaderLen:len(b):len(b)],
	}, remainder
}

// AppendFrameHeader appends the header of a frame. The caller appends the payload of length bytes.
func AppendFrameHeader(dst []byte, length int, t FrameType, flags Flags, stream uint32) []byte {
	return append(dst,
		byte(length>>16), byte(length>>8), byte(length), byte(t), byte(flags),
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

// AppendData appends a DATA frame. Session.AppendData also observes the windows.
func AppendData(dst []byte, stream uint32, data []byte, end bool) []byte {
	dst = AppendFrameHeader(dst, len(data), FrameData, endFlag(end), stream)
	return append(dst, data...)
}

func endFlag(end bool) Flags {
	if end {
		return FlagEndStream
	}
	return 0
}

// AppendHeaders appends a header block as one HEADERS frame and as many CONTINUATION frames as
// needed, with at most limit bytes each.
func AppendHeaders(dst []byte, stream uint32, block []byte, end bool, limit uint32) []byte {
	t, flags := FrameHeaders, endFlag(end)
	for len(block) > int(limit) {
		dst = AppendFrameHeader(dst, int(limit), t, flags, stream)
		dst = append(dst, block[:limit]...)
		block = block[limit:]
		t, flags = FrameContinuation, 0
	}
	dst = AppendFrameHeader(dst, len(block), t, flags|FlagEndHeaders, stream)
	return append(dst, block...)
}

// AppendRSTStream appends a RST_STREAM frame. Session.Reset also tracks the stream's state.
func AppendRSTStream(dst []byte, stream uint32, code Code) []byte {
	dst = AppendFrameHeader(dst, 4, FrameRSTStream, 0, stream)
	return binary.BigEndian.AppendUint32(dst, uint32(code))
}

// AppendSettings appends a SETTINGS frame with settings.
func AppendSettings(dst []byte, settings ...Setting) []byte {
	dst = AppendFrameHeader(dst, settingLen*len(settings), FrameSettings, 0, 0)
	for _, s := range settings {
		dst = binary.BigEndian.AppendUint16(dst, uint16(s.ID))
		dst = binary.BigEndian.AppendUint32(dst, s.Value)
	}
	return dst
}

// AppendSettingsAck appends the acknowledgement of SETTINGS.
func AppendSettingsAck(dst []byte) []byte {
	return AppendFrameHeader(dst, 0, FrameSettings, FlagAck, 0)
}

// AppendPing appends a PING frame, or its acknowledgement.
func AppendPing(dst []byte, ack bool, data [8]byte) []byte {
	var flags Flags
	if ack {
		flags = FlagAck
	}
	dst = AppendFrameHeader(dst, len(data), FramePing, flags, 0)
	return append(dst, data[:]...)
}

// AppendGoAway appends a GOAWAY frame. debug is a text that the peer may log.
func AppendGoAway(dst []byte, lastStreamID uint32, code Code, debug string) []byte {
	dst = AppendFrameHeader(dst, 8+len(debug), FrameGoAway, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, lastStreamID)
	dst = binary.BigEndian.AppendUint32(dst, uint32(code))
	return append(dst, debug...)
}

// AppendWindowUpdate appends a WINDOW_UPDATE frame; increment is from 1 to MaxWindow bytes.
func AppendWindowUpdate(dst []byte, stream, increment uint32) []byte {
	dst = AppendFrameHeader(dst, 4, FrameWindowUpdate, 0, stream)
	return binary.BigEndian.AppendUint32(dst, increment)
}
