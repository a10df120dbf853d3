// Package dubbo implements the frames of Dubbo 2: a head of 16 bytes and a body. It reads and
// changes bodies in Hessian 2, and forwards others unchanged. README.md describes the requests and
// responses that filters see.
//
// The files in the order of the data flow: codec.go (size and kind of a frame), request.go,
// argument.go and response.go (reading), attachments.go and timeout.go (shared code), append.go
// (writing), controlframes.go (frames that Weft generates).
package dubbo

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/weft-proxy/weft/pkg/protocol/hessian"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Codec is the xprotocol.Codec of Dubbo 2.
type Codec struct{}

var _ xprotocol.Codec = Codec{}

// The head of a frame; integers are big-endian.
//
//	0  magic
//	2  flags: request, two-way, event, and five bits of serialization
//	3  status of a response
//	4  request id
//	12 length of the body in bytes
//	16 body
const (
	magic = 0xdabb

	flagsOffset  = 2
	statusOffset = 3
	idOffset     = 4
	lengthOffset = 12
	headSize     = 16

	flagRequest       = 0x80
	flagTwoWay        = 0x40
	flagEvent         = 0x20
	maskSerialization = 0x1f
)

//nolint:gochecknoglobals // a constant
var traits = xprotocol.Traits{
	Name:           "dubbo",
	MaxID:          math.MaxInt64, // Java's ids are longs; Weft uses no negative ones
	Version:        "dubbo/2",
	FrameHeaderLen: headSize,
}

// Traits implements xprotocol.Framing.
func (Codec) Traits() *xprotocol.Traits { return &traits }

// Match implements xprotocol.Framing: it checks the magic.
func (Codec) Match(b []byte) xprotocol.MatchResult {
	switch {
	case !hasMagic(b):
		return xprotocol.MatchNo
	case len(b) < flagsOffset:
		return xprotocol.MatchNeedMore
	default:
		return xprotocol.MatchYes
	}
}

// hasMagic reports whether a frame may begin with b, which may be short.
func hasMagic(b []byte) bool {
	return (len(b) < 1 || b[0] == magic>>8) && (len(b) < 2 || b[1] == magic&0xff)
}

// ParseFrame implements xprotocol.Framing. The Kind of an incomplete event may change, because only
// the body shows whether the event is a GOAWAY.
func (Codec) ParseFrame(b []byte) (xprotocol.Frame, error) {
	if !hasMagic(b) {
		return xprotocol.Frame{}, fmt.Errorf("dubbo: a frame begins with % x, not with %x", b[:min(len(b), flagsOffset)], magic)
	}
	if len(b) < headSize {
		return xprotocol.Frame{}, nil
	}
	size := headSize + int(binary.BigEndian.Uint32(b[lengthOffset:]))
	return xprotocol.Frame{
		Kind: kindOf(b[:min(size, len(b))]),
		ID:   binary.BigEndian.Uint64(b[idOffset:]),
		Size: size,
	}, nil
}

// kindOf returns the kind of a frame, which has at least its head.
func kindOf(frame []byte) xprotocol.Kind {
	flags := frame[flagsOffset]
	switch {
	case flags&flagRequest == 0 && flags&flagEvent != 0:
		return xprotocol.HeartbeatAck
	case flags&flagRequest == 0:
		return xprotocol.Response
	case flags&flagEvent == 0 && flags&flagTwoWay != 0:
		return xprotocol.Request
	case flags&flagEvent == 0:
		return xprotocol.OneWay
	case isReadOnly(frame):
		return xprotocol.GoAway
	case flags&flagTwoWay != 0:
		return xprotocol.Heartbeat
	default:
		return xprotocol.Ignored
	}
}

const (
	// readOnly is the event that asks clients to send no new requests. The other events are
	// null, a heartbeat, and "W", which revokes readOnly.
	readOnly = "R"
	// maxEvent is the maximum size of the body of a known event, in bytes, in any serialization.
	maxEvent = 64
)

// isReadOnly reports whether an event is readOnly. All serializations write the letter unchanged,
// and no other event contains it.
func isReadOnly(frame []byte) bool {
	body := frame[headSize:]
	if len(body) == 0 || len(body) > maxEvent {
		return false
	}
	if !isHessian(frame) {
		return bytes.Contains(body, []byte(readOnly))
	}
	var d hessian.Decoder
	d.Reset(body)
	text, err := d.Text()
	return err == nil && string(text) == readOnly
}

// SetID implements xprotocol.Framing.
func (Codec) SetID(frame []byte, id uint64) { binary.BigEndian.PutUint64(frame[idOffset:], id) }

// serializationHessian is the id of Hessian 2, the only serialization that Weft reads.
const serializationHessian = 2

// isHessian reports whether a frame's body is in Hessian 2.
func isHessian(frame []byte) bool {
	return frame[flagsOffset]&maskSerialization == serializationHessian
}

// serializations are the names of the serializations by id, as in a provider's configuration, or
// the id if there is no name.
//
//nolint:gochecknoglobals // a constant table
var serializations = [maskSerialization + 1]string{
	"0", "1", "hessian2", "java", "compactedjava", "5", "fastjson", "nativejava",
	"kryo", "fst", "native-hessian", "avro", "protostuff", "13", "14", "15",
	"gson", "17", "jackson", "19", "20", "protobuf-json", "protobuf", "fastjson2",
	"24", "kryo2", "26", "msgpack", "fury", "29", "30", "31",
}

func serialization(frame []byte) string {
	return serializations[frame[flagsOffset]&maskSerialization]
}
