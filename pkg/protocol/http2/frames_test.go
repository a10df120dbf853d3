package http2

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// makeFrame returns the frame that text describes, as a peer would send it. Header blocks do not
// use the dynamic table, so that frames do not depend on each other.
//
//	DATA 1 end pad=3 5                 five bytes
//	HEADERS 1 end more | name: value   "more": END_HEADERS is not set
//	CONTINUATION 1 more | name: value
//	HEADERS 1 priority=3 GET           GET, POST, 200, 100 and TRAILER are blocks
//	RST_STREAM 1 CANCEL
//	SETTINGS MAX_FRAME_SIZE=16384      or SETTINGS ack
//	PING 7                             or PING ack 7
//	GOAWAY 1 NO_ERROR
//	WINDOW_UPDATE 0 100
//	PRIORITY 3 1                       stream 3 depends on 1
//	PUSH_PROMISE 1 2
//	PRIORITY_UPDATE 0
//	RAW 4 1 0 00                       type, flags, stream, payload in hex
func makeFrame(text string) (Frame, error) {
	spec, block, _ := strings.Cut(text, "|")
	words := strings.Fields(spec)
	if len(words) == 0 {
		return Frame{}, fmt.Errorf("no frame in %q", text)
	}
	if words[0] == "RAW" {
		return makeRaw(words[1:])
	}
	f := Frame{Type: frameType(words[0])}
	words = words[1:]
	if f.Type != FrameSettings && f.Type != FramePing && f.Type != FrameGoAway {
		f.Stream = uint32(number(words[0]))
		words = words[1:]
	}
	pad := -1
	var priority []byte
	var fields []string
	if block != "" {
		fields = strings.Split(block, "|")
	}
	if f.Type == FrameHeaders || f.Type == FrameContinuation {
		f.Flags |= FlagEndHeaders
	}
	var args []string
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch {
		case w == "end":
			f.Flags |= FlagEndStream
		case w == "ack":
			f.Flags |= FlagAck
		case w == "more":
			f.Flags &^= FlagEndHeaders
		case key == "pad":
			pad = number(value)
			f.Flags |= FlagPadded
		case key == "priority":
			priority = binary.BigEndian.AppendUint32(nil, uint32(number(value)))
			priority = append(priority, 15)
			f.Flags |= FlagPriority
		case blocks()[w] != nil:
			fields = append(fields, blocks()[w]...)
		default:
			args = append(args, w)
		}
	}
	f.Payload = append(priority, payload(f.Type, args, fields)...)
	if pad >= 0 {
		f.Payload = slices.Concat([]byte{byte(pad)}, f.Payload, make([]byte, pad))
	}
	return f, nil
}

func blocks() map[string][]string {
	return map[string][]string{
		"GET":     {":method: GET", ":scheme: http", ":authority: a", ":path: /"},
		"POST":    {":method: POST", ":scheme: http", ":authority: a", ":path: /"},
		"200":     {":status: 200"},
		"100":     {":status: 100"},
		"TRAILER": {"grpc-status: 0"},
	}
}

func makeRaw(words []string) (Frame, error) {
	f := Frame{Type: FrameType(number(words[0])), Flags: Flags(number(words[1])), Stream: uint32(number(words[2]))}
	var err error
	if len(words) > 3 {
		f.Payload, err = hex.DecodeString(words[3])
	}
	return f, err
}

func payload(t FrameType, words, fields []string) []byte {
	var b []byte
	switch t {
	case FrameData:
		return bytes.Repeat([]byte{'x'}, number(words[0]))
	case FrameHeaders, FrameContinuation:
		for _, f := range fields {
			f = strings.TrimPrefix(strings.TrimSuffix(f, " "), " ")
			i := strings.Index(f[1:], ":") + 1
			b = append(b, 0)
			b = appendText(b, f[:i])
			b = appendText(b, unquote(strings.TrimPrefix(f[i+1:], " ")))
		}
	case FrameSettings:
		for _, w := range words {
			name, value, _ := strings.Cut(w, "=")
			b = binary.BigEndian.AppendUint16(b, uint16(setting(name)))
			b = binary.BigEndian.AppendUint32(b, uint32(number(value)))
		}
	case FrameRSTStream:
		b = binary.BigEndian.AppendUint32(b, uint32(code(words[0])))
	case FramePing:
		b = binary.BigEndian.AppendUint64(b, uint64(number(words[0])))
	case FrameGoAway:
		b = binary.BigEndian.AppendUint32(b, uint32(number(words[0])))
		b = binary.BigEndian.AppendUint32(b, uint32(code(words[1])))
	case FrameWindowUpdate, FramePushPromise:
		b = binary.BigEndian.AppendUint32(b, uint32(number(words[0])))
	case FramePriority:
		b = append(binary.BigEndian.AppendUint32(b, uint32(number(words[0]))), 15)
	case FramePriorityUpdate:
		b = append(b, 0, 0, 0, 1)
	}
	return b
}

// unquote returns the value of a Go string literal. It returns any other s unchanged.
func unquote(s string) string {
	if !strings.HasPrefix(s, `"`) {
		return s
	}
	s, err := strconv.Unquote(s)
	if err != nil {
		panic(err)
	}
	return s
}

func number(s string) int {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		panic(err)
	}
	return int(n)
}

func frameType(name string) FrameType {
	for t := range FrameType(32) {
		if t.String() == name {
			return t
		}
	}
	panic("no frame type " + name)
}

func code(name string) Code {
	i := slices.Index(codeNames[:], name)
	if i < 0 {
		panic("no code " + name)
	}
	return Code(i)
}

// settingNames are the names of settings in scripts.
var settingNames = map[SettingID]string{
	SettingHeaderTableSize:       "HEADER_TABLE_SIZE",
	SettingEnablePush:            "ENABLE_PUSH",
	SettingMaxConcurrentStreams:  "MAX_CONCURRENT_STREAMS",
	SettingInitialWindowSize:     "INITIAL_WINDOW_SIZE",
	SettingMaxFrameSize:          "MAX_FRAME_SIZE",
	SettingMaxHeaderListSize:     "MAX_HEADER_LIST_SIZE",
	SettingEnableConnectProtocol: "ENABLE_CONNECT_PROTOCOL",
	SettingNoRFC7540Priorities:   "NO_RFC7540_PRIORITIES",
}

func setting(name string) SettingID {
	for id, n := range settingNames {
		if n == name {
			return id
		}
	}
	return SettingID(number(name))
}

// frameDescriber describes the frames that a session sends. It holds the state of header
// compression in a decoder of x/net.
type frameDescriber struct{ decoder *hpack.Decoder }

func newFrameDescriber() *frameDescriber {
	return &frameDescriber{hpack.NewDecoder(DefaultTableSize, nil)}
}

// describe returns one line for each frame of b.
func (d *frameDescriber) describe(b []byte) []string {
	var lines []string
	if rest, ok := bytes.CutPrefix(b, []byte(Preface)); ok {
		lines, b = append(lines, "preface"), rest
	}
	for len(b) > 0 {
		f, n, err := ParseFrame(b, MaxFrameSize)
		if n == 0 || err != nil {
			return append(lines, fmt.Sprintf("not a frame: %x %v", b, err))
		}
		lines = append(lines, d.describeFrame(f))
		b = b[n:]
	}
	return lines
}

func (d *frameDescriber) describeFrame(f Frame) string {
	s := f.Type.String()
	if f.Type != FrameSettings && f.Type != FramePing && f.Type != FrameGoAway {
		s += fmt.Sprintf(" %d", f.Stream)
	}
	p := f.Payload
	switch f.Type {
	case FrameData:
		s += flagText(f, "end", FlagEndStream) + fmt.Sprintf(" %d", len(p))
	case FrameHeaders:
		s += flagText(f, "end", FlagEndStream)
		if !f.Flags.Has(FlagEndHeaders) {
			return s + " more"
		}
		fields, err := d.decoder.DecodeFull(p)
		if err != nil {
			return s + " " + err.Error()
		}
		for _, f := range fields {
			s += fmt.Sprintf(" | %s: %s", f.Name, f.Value)
		}
	case FrameSettings:
		s += flagText(f, "ack", FlagAck)
		for ; len(p) >= settingLen; p = p[settingLen:] {
			s += fmt.Sprintf(" %s=%d", settingNames[SettingID(binary.BigEndian.Uint16(p))], binary.BigEndian.Uint32(p[2:]))
		}
	case FrameRSTStream:
		s += " " + Code(binary.BigEndian.Uint32(p)).String()
	case FramePing:
		s += flagText(f, "ack", FlagAck) + fmt.Sprintf(" %d", binary.BigEndian.Uint64(p))
	case FrameGoAway:
		s += fmt.Sprintf(" %d %v %s", binary.BigEndian.Uint32(p), Code(binary.BigEndian.Uint32(p[4:])), p[8:])
	case FrameWindowUpdate:
		s += fmt.Sprintf(" %d", binary.BigEndian.Uint32(p))
	}
	return strings.TrimSuffix(s, " ")
}

func flagText(f Frame, text string, flag Flags) string {
	if f.Flags.Has(flag) {
		return " " + text
	}
	return ""
}
