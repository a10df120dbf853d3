// Package dubbo owns the frames of Dubbo 2: a head of 16 bytes and a body, which
// is read and changed if it is in Hessian 2 and passed on if it is not. See
// README.md for what filters see of it.
//
// The files in the order that data passes through them: codec.go (where a frame
// ends, what it is), request.go and response.go (what it says), attachments.go
// and timeout.go (the part of it that both have), append.go (how it leaves),
// signals.go (what Weft says itself).
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
//	3  status, of an answer
//	4  request id
//	12 length of the body in bytes
//	16 body
const (
	magic = 0xdabb

	flagsAt  = 2
	statusAt = 3
	idAt     = 4
	lengthAt = 12
	headSize = 16

	flagRequest       = 0x80
	flagTwoWay        = 0x40
	flagEvent         = 0x20
	maskSerialization = 0x1f
)

//nolint:gochecknoglobals // a constant
var traits = xprotocol.Traits{
	Name:           "dubbo",
	MaxID:          math.MaxInt64, // Java's ids are longs; nobody need see one below 0
	Version:        "dubbo/2",
	FrameHeaderLen: headSize,
}

// Traits is xprotocol.Framing's.
func (Codec) Traits() *xprotocol.Traits { return &traits }

// Match is xprotocol.Framing's: the magic decides.
func (Codec) Match(b []byte) xprotocol.MatchResult {
	switch {
	case !hasMagic(b):
		return xprotocol.MatchNo
	case len(b) < flagsAt:
		return xprotocol.MatchNeedMore
	default:
		return xprotocol.MatchYes
	}
}

// hasMagic reports whether a frame may begin with b, which may be short.
func hasMagic(b []byte) bool {
	return (len(b) < 1 || b[0] == magic>>8) && (len(b) < 2 || b[1] == magic&0xff)
}

// ParseFrame is xprotocol.Framing's. Of an event the Kind is that of the frame as far
// as it is there: that the event is the one that says goodbye is in the body.
func (Codec) ParseFrame(b []byte) (xprotocol.Frame, error) {
	if !hasMagic(b) {
		return xprotocol.Frame{}, fmt.Errorf("dubbo: a frame begins with % x, not with %x", b[:min(len(b), flagsAt)], magic)
	}
	if len(b) < headSize {
		return xprotocol.Frame{}, nil
	}
	size := headSize + int(binary.BigEndian.Uint32(b[lengthAt:]))
	return xprotocol.Frame{
		Kind: kindOf(b[:min(size, len(b))]),
		ID:   binary.BigEndian.Uint64(b[idAt:]),
		Size: size,
	}, nil
}

// kindOf returns what frame is; its head is there.
func kindOf(frame []byte) xprotocol.Kind {
	flags := frame[flagsAt]
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
	// readOnly is the event by which a provider asks for no new requests. The
	// others are null, which is a heartbeat, and "W", which takes it back.
	readOnly = "R"
	// maxEvent is how long the body of an event is at most, in bytes, if it is
	// one of these in any serialization.
	maxEvent = 64
)

// isReadOnly reports whether an event is readOnly. All serializations write the
// letter as it is, and for the other events nothing that looks like it.
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

// SetID is xprotocol.Framing's.
func (Codec) SetID(frame []byte, id uint64) { binary.BigEndian.PutUint64(frame[idAt:], id) }

// serializationHessian is the id of the only serialization that is read.
const serializationHessian = 2

// isHessian reports whether a frame's body is in Hessian 2.
func isHessian(frame []byte) bool {
	return frame[flagsAt]&maskSerialization == serializationHessian
}

// serializations are the names of the serializations by id, as a provider's
// configuration has them; a number where there is none.
//
//nolint:gochecknoglobals // a constant table
var serializations = [maskSerialization + 1]string{
	"0", "1", "hessian2", "java", "compactedjava", "5", "fastjson", "nativejava",
	"kryo", "fst", "native-hessian", "avro", "protostuff", "13", "14", "15",
	"gson", "17", "jackson", "19", "20", "protobuf-json", "protobuf", "fastjson2",
	"24", "kryo2", "26", "msgpack", "fury", "29", "30", "31",
}

// serialization returns the name of a frame's serialization.
func serialization(frame []byte) string {
	return serializations[frame[flagsAt]&maskSerialization]
}
