package example

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/codectest"
)

// frame returns a frame with the ID 7. timeout is in ms; fields are alternating names and values.
func frame(kind, status byte, timeout uint32, content string, fields ...string) []byte {
	b := appendHead(nil, kind, status, 7, len(content))
	binary.BigEndian.PutUint32(b[8:], timeout)
	for _, text := range fields {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
	}
	binary.BigEndian.PutUint32(b[12:], uint32(len(b)-headSize))
	return append(b, content...)
}

// frames returns frames of every kind.
func frames() []codectest.Frame {
	return []codectest.Frame{
		{
			Name:  "request",
			Bytes: frame(kindRequest, 0, 3000, "hello", "x-trace", "17", "method", "echo", "service", "org.weft.Memo", "group", "blue", "version", "1.0"),
			View: `request 7 of 123 bytes
				authority org.weft.Memo
				path /org.weft.Memo/echo
				timeout 3s
				content 5 bytes
				service: org.weft.Memo
				method: echo
				version: 1.0
				group: blue
				x-trace: 17`,
		},
		{
			Name:  "minimal request",
			Bytes: frame(kindRequest, 0, 0, "", "service", "S", "method", "m"),
			View: `request 7 of 51 bytes
				authority S
				path /S/m
				content 0 bytes
				service: S
				method: m`,
		},
		{
			Name:  "one-way request",
			Bytes: frame(kindOneWay, 0, 0, "hello", "service", "S", "method", "m"),
			View: `one-way request 7 of 56 bytes
				authority S
				path /S/m
				content 5 bytes
				service: S
				method: m`,
		},
		{
			Name:  "response",
			Bytes: frame(kindResponse, 0, 0, "world", "x-trace", "17"),
			View: `response 7 of 42 bytes
				status 200, code 0
				content 5 bytes
				x-trace: 17`,
		},
		{
			Name:  "error response",
			Bytes: frame(kindResponse, 9, 0, "no"),
			View: `response 7 of 22 bytes
				status 500, code 9
				content 2 bytes`,
		},
		{Name: "heartbeat", Bytes: frame(kindHeartbeat, 0, 0, ""), View: "heartbeat 7 of 20 bytes"},
		{Name: "heartbeat ack", Bytes: frame(kindHeartbeatAck, 0, 0, ""), View: "heartbeat ack 7 of 20 bytes"},
		{Name: "GOAWAY", Bytes: frame(kindGoAway, 0, 0, ""), View: "GOAWAY 7 of 20 bytes"},
		{Name: "unknown kind", Bytes: frame('x', 0, 0, ""), View: "ignored frame 7 of 20 bytes"},
	}
}

func TestCodec(t *testing.T) {
	huge := frame(kindRequest, 0, 0, "")
	binary.BigEndian.PutUint32(huge[16:], math.MaxUint32)
	codectest.Run(t, Codec{}, codectest.Suite{
		Frames:        frames(),
		OversizeHeads: []codectest.Head{{Bytes: huge, Size: headSize + math.MaxUint32}},
		Code:          func(t *protocol.ReasonSpec) int { return t.GRPC },
	})
}

func FuzzCodec(f *testing.F) {
	var seeds [][]byte
	for _, golden := range frames() {
		seeds = append(seeds, golden.Bytes)
	}
	codectest.Fuzz(f, Codec{}, seeds)
}
