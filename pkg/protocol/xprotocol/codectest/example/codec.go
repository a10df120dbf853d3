// Package example is the codec of Memo, a protocol that exists only as an example. It implements
// the codec contract in as little code as possible. Read or copy it to add a protocol: see
// docs/add-a-protocol.md.
package example

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Codec implements xprotocol.Codec for Memo.
type Codec struct{}

var _ xprotocol.Codec = Codec{}

// The head of a frame; integers are big-endian.
//
//	0  magic
//	2  kind: one of the kinds below
//	3  gRPC status code of a response
//	4  request ID
//	8  timeout of the client in ms; 0: none
//	12 length of the fields in bytes
//	16 length of the body in bytes
//	20 fields: each a name and a value, each a length of 4 bytes and text; then the body
const (
	magic    = 0xe55e
	headSize = 20
)

// Kinds of frames on the wire.
const (
	kindRequest      = '?'
	kindOneWay       = '!'
	kindResponse     = '='
	kindHeartbeat    = 'p'
	kindHeartbeatAck = 'P'
	kindGoAway       = 'G'
)

//nolint:gochecknoglobals // a constant
var traits = xprotocol.Traits{Name: "memo", Version: "memo/1", MaxID: math.MaxUint32, FrameHeaderLen: headSize}

var (
	errMagic  = errors.New("memo: invalid magic number")
	errFields = errors.New("memo: a field extends past the end of the fields")
	errNoName = errors.New("memo: missing service or method")
)

// Traits implements xprotocol.Framing.
func (Codec) Traits() *xprotocol.Traits { return &traits }

// Match implements xprotocol.Framing.
func (Codec) Match(b []byte) xprotocol.MatchResult {
	switch {
	case len(b) > 0 && b[0] != magic>>8, len(b) > 1 && b[1] != magic&0xff:
		return xprotocol.MatchNo
	case len(b) < 2:
		return xprotocol.MatchNeedMore
	}
	return xprotocol.MatchYes
}

// ParseFrame implements xprotocol.Framing.
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

func kindOf(kind byte) xprotocol.Kind {
	switch kind {
	case kindRequest:
		return xprotocol.Request
	case kindOneWay:
		return xprotocol.OneWay
	case kindResponse:
		return xprotocol.Response
	case kindHeartbeat:
		return xprotocol.Heartbeat
	case kindHeartbeatAck:
		return xprotocol.HeartbeatAck
	case kindGoAway:
		return xprotocol.GoAway
	}
	return xprotocol.Ignored
}

// SetID implements xprotocol.Framing.
func (Codec) SetID(frame []byte, id uint64) { binary.BigEndian.PutUint32(frame[4:], uint32(id)) }

// ReadRequest implements xprotocol.Messages.
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
	r.Authority, r.Path = service, unsafeString(v.Text)
	r.OneWay = frame[2] == kindOneWay
	r.ContentLength = int64(len(frame) - v.ContentOffset)
	return nil
}

// AppendRequest implements xprotocol.Messages.
func (Codec) AppendRequest(dst, frame []byte, r *protocol.Request, v *xprotocol.FrameView, remaining time.Duration) ([]byte, error) {
	start := len(dst)
	dst, err := appendMessage(dst, frame, &r.Header, v)
	if err == nil && remaining > 0 && remaining < v.Timeout {
		binary.BigEndian.PutUint32(dst[start+8:], uint32(max(1, remaining.Milliseconds())))
	}
	return dst, err
}

// ReadResponse implements xprotocol.Messages.
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

// AppendResponse implements xprotocol.Messages.
func (Codec) AppendResponse(dst, frame []byte, r *protocol.Response, v *xprotocol.FrameView) ([]byte, error) {
	return appendMessage(dst, frame, &r.Header, v)
}

// AppendErrorResponse implements xprotocol.ControlFrames. The body of the response is text.
func (Codec) AppendErrorResponse(dst, frame []byte, reason protocol.Reason, text string) []byte {
	dst = appendHead(dst, kindResponse, byte(reason.Spec().GRPC), binary.BigEndian.Uint32(frame[4:]), len(text))
	return append(dst, text...)
}

// AppendHeartbeat implements xprotocol.ControlFrames.
func (Codec) AppendHeartbeat(dst []byte, id uint64) []byte {
	return appendHead(dst, kindHeartbeat, 0, uint32(id), 0)
}

// AppendHeartbeatAck implements xprotocol.ControlFrames.
func (Codec) AppendHeartbeatAck(dst, heartbeat []byte) []byte {
	return appendHead(dst, kindHeartbeatAck, 0, binary.BigEndian.Uint32(heartbeat[4:]), 0)
}

// AppendGoAway implements xprotocol.ControlFrames.
func (Codec) AppendGoAway(dst []byte, id uint64) []byte {
	return appendHead(dst, kindGoAway, 0, uint32(id), 0)
}

func appendHead(dst []byte, kind, status byte, id uint32, bodyLength int) []byte {
	dst = append(binary.BigEndian.AppendUint16(dst, magic), kind, status)
	dst = binary.BigEndian.AppendUint32(dst, id)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0) // no timeout, no fields
	return binary.BigEndian.AppendUint32(dst, uint32(bodyLength))
}
