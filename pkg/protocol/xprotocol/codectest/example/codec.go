// Package example owns the frames of Memo, a protocol that nobody speaks. It is
// the shortest codec that does all that the contract asks for, to be read, and
// copied, by who adds a protocol: see docs/add-a-protocol.md.
package example

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Codec is the xprotocol.Codec of Memo.
type Codec struct{}

var _ xprotocol.Codec = Codec{}

// The head of a frame; integers are big-endian.
//
//	0  magic
//	2  kind: one of the letters below
//	3  status of an answer, in the numbers of gRPC
//	4  request id
//	8  how long the caller waits, in ms; 0: for ever
//	12 length of the fields in bytes
//	16 length of the content in bytes
//	20 fields, each a name and a value, each a length of 4 bytes and text; content
const (
	magic    = 0xe55e
	headSize = 20
)

// What Memo's kinds are called on the wire.
const (
	ask    = '?'
	tell   = '!'
	answer = '='
	ping   = 'p'
	pong   = 'P'
	goAway = 'G'
)

//nolint:gochecknoglobals // a constant
var traits = xprotocol.Traits{Name: "memo", Version: "memo/1", MaxID: math.MaxUint32, FrameHeaderLen: headSize}

var (
	errMagic  = errors.New("memo: not the beginning of a frame")
	errFields = errors.New("memo: a field extends past the end of the fields")
	errNoName = errors.New("memo: missing service or method")
)

// Traits is xprotocol.Framing's.
func (Codec) Traits() *xprotocol.Traits { return &traits }

// Match is xprotocol.Framing's.
func (Codec) Match(b []byte) xprotocol.MatchResult {
	switch {
	case len(b) > 0 && b[0] != magic>>8, len(b) > 1 && b[1] != magic&0xff:
		return xprotocol.MatchNo
	case len(b) < 2:
		return xprotocol.MatchNeedMore
	}
	return xprotocol.MatchYes
}

// ParseFrame is xprotocol.Framing's.
func (c Codec) ParseFrame(b []byte) (xprotocol.Frame, error) {
	if c.Match(b) == xprotocol.MatchNo {
		return xprotocol.Frame{}, errMagic
	}
	if len(b) < headSize {
		return xprotocol.Frame{}, nil
	}
	size := headSize + int(binary.BigEndian.Uint32(b[12:])) + int(binary.BigEndian.Uint32(b[16:]))
	return xprotocol.Frame{Kind: kindOf(b[2]), ID: uint64(binary.BigEndian.Uint32(b[4:])), Size: size}, nil
}

func kindOf(letter byte) xprotocol.Kind {
	switch letter {
	case ask:
		return xprotocol.Request
	case tell:
		return xprotocol.OneWay
	case answer:
		return xprotocol.Response
	case ping:
		return xprotocol.Heartbeat
	case pong:
		return xprotocol.HeartbeatAck
	case goAway:
		return xprotocol.GoAway
	}
	return xprotocol.Ignored
}

// SetID is xprotocol.Framing's.
func (Codec) SetID(frame []byte, id uint64) { binary.BigEndian.PutUint32(frame[4:], uint32(id)) }

// ReadRequest is xprotocol.Messages's.
func (Codec) ReadRequest(frame []byte, r *protocol.Request, v *xprotocol.FrameView) error {
	if err := readFields(frame, &r.Header, v); err != nil {
		return protocol.NewFault(protocol.MalformedRequest, err)
	}
	service, method := r.Header.Get(xprotocol.FieldService), r.Header.Get(xprotocol.FieldMethod)
	if service == "" || method == "" {
		return protocol.NewFault(protocol.MalformedRequest, errNoName)
	}
	v.Timeout = time.Duration(binary.BigEndian.Uint32(frame[8:])) * time.Millisecond
	v.Text = append(append(append(append(v.Text[:0], '/'), service...), '/'), method...)
	r.Authority, r.Path = service, view(v.Text)
	r.OneWay = frame[2] == tell
	r.ContentLength = int64(len(frame) - v.ContentOffset)
	return nil
}

// AppendRequest is xprotocol.Messages's.
func (Codec) AppendRequest(dst, frame []byte, r *protocol.Request, v *xprotocol.FrameView, left time.Duration) ([]byte, error) {
	start := len(dst)
	dst, err := appendMessage(dst, frame, &r.Header, v)
	if err == nil && left > 0 && left < v.Timeout {
		binary.BigEndian.PutUint32(dst[start+8:], uint32(max(1, left.Milliseconds())))
	}
	return dst, err
}

// ReadResponse is xprotocol.Messages's.
func (Codec) ReadResponse(frame []byte, r *protocol.Response, v *xprotocol.FrameView) error {
	if err := readFields(frame, &r.Header, v); err != nil {
		return protocol.NewFault(protocol.UpstreamMalformed, err)
	}
	r.Code, r.Status = int(frame[3]), 200
	if r.Code != 0 {
		r.Status = 500
	}
	r.ContentLength = int64(len(frame) - v.ContentOffset)
	return nil
}

// AppendResponse is xprotocol.Messages's.
func (Codec) AppendResponse(dst, frame []byte, r *protocol.Response, v *xprotocol.FrameView) ([]byte, error) {
	return appendMessage(dst, frame, &r.Header, v)
}

// AppendErrorResponse is xprotocol.ControlFrames's: an answer whose content is the text.
func (Codec) AppendErrorResponse(dst, frame []byte, reason protocol.Reason, text string) []byte {
	dst = appendHead(dst, answer, byte(reason.Spec().GRPC), binary.BigEndian.Uint32(frame[4:]), len(text))
	return append(dst, text...)
}

// AppendHeartbeat is xprotocol.ControlFrames's.
func (Codec) AppendHeartbeat(dst []byte, id uint64) []byte {
	return appendHead(dst, ping, 0, uint32(id), 0)
}

// AppendHeartbeatAck is xprotocol.ControlFrames's.
func (Codec) AppendHeartbeatAck(dst, ping []byte) []byte {
	return appendHead(dst, pong, 0, binary.BigEndian.Uint32(ping[4:]), 0)
}

// AppendGoAway is xprotocol.ControlFrames's.
func (Codec) AppendGoAway(dst []byte, id uint64) []byte {
	return appendHead(dst, goAway, 0, uint32(id), 0)
}

func appendHead(dst []byte, letter, status byte, id uint32, content int) []byte {
	dst = append(binary.BigEndian.AppendUint16(dst, magic), letter, status)
	dst = binary.BigEndian.AppendUint32(dst, id)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0) // no timeout, no fields
	return binary.BigEndian.AppendUint32(dst, uint32(content))
}
