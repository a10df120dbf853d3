package xprotocol

import (
	"encoding/binary"
	"errors"
	"strings"
	"time"
	"unsafe"

	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// toyCodec is a minimal codec with every feature that the engine uses. A frame has a header of 16
// bytes ('T', kind, code, 0, size of the rest, id), the timeout in ms as 4 bytes, "service method"
// and, after a zero byte, the body.
type toyCodec struct{}

var toyTraits = codec.Traits{Name: "toy", Version: "toy/1", MaxID: 1<<63 - 1, FrameHeaderLen: toyHead}

const (
	toyHead = 16
	toyBody = toyHead + 4
)

func (toyCodec) Traits() *codec.Traits { return &toyTraits }

func (toyCodec) Match(b []byte) codec.MatchResult {
	switch {
	case len(b) == 0:
		return codec.MatchNeedMore
	case b[0] == 'T':
		return codec.MatchYes
	}
	return codec.MatchNo
}

func (toyCodec) ParseFrame(b []byte) (codec.Frame, error) {
	if len(b) > 0 && b[0] != 'T' {
		return codec.Frame{}, errors.New("toy: invalid first byte")
	}
	if len(b) < toyHead {
		return codec.Frame{}, nil
	}
	return codec.Frame{
		Kind: codec.Kind(b[1]),
		ID:   binary.BigEndian.Uint64(b[8:]),
		Size: toyHead + int(binary.BigEndian.Uint32(b[4:])),
	}, nil
}

func (toyCodec) SetID(frame []byte, id uint64) { binary.BigEndian.PutUint64(frame[8:], id) }

func (toyCodec) ReadRequest(frame []byte, r *protocol.Request, v *codec.FrameView) error {
	if len(frame) <= toyBody {
		return protocol.Faultf(protocol.MalformedRequest, "toy: no body")
	}
	target, _, hasBody := strings.Cut(unsafe.String(&frame[toyBody], len(frame)-toyBody), "\x00")
	service, method, hasMethod := strings.Cut(target, " ")
	if !hasBody || !hasMethod {
		return protocol.Faultf(protocol.MalformedRequest, "toy: no target")
	}
	v.Timeout = time.Duration(binary.BigEndian.Uint32(frame[toyHead:])) * time.Millisecond
	v.ContentOffset = toyBody + len(target) + 1
	r.Authority, r.Path = service, target
	r.Header.Add(codec.FieldService, service)
	r.Header.Add(codec.FieldMethod, method)
	r.Header.MarkUnchanged()
	r.ContentLength = int64(len(frame) - v.ContentOffset)
	return nil
}

func (toyCodec) AppendRequest(dst, frame []byte, r *protocol.Request, v *codec.FrameView, remaining time.Duration) ([]byte, error) {
	start := len(dst)
	if !r.Header.Changed() {
		dst = append(dst, frame...)
	} else {
		dst = appendToy(dst, codec.Kind(frame[1]), 0, v.Timeout,
			r.Header.Get(codec.FieldService)+" "+r.Header.Get(codec.FieldMethod)+"\x00"+string(frame[v.ContentOffset:]))
	}
	if ms := uint32(remaining.Milliseconds()); remaining > 0 && ms < binary.BigEndian.Uint32(dst[start+toyHead:]) {
		binary.BigEndian.PutUint32(dst[start+toyHead:], ms)
	}
	return dst, nil
}

func (toyCodec) ReadResponse(frame []byte, r *protocol.Response, v *codec.FrameView) error {
	if len(frame) < toyBody {
		return protocol.Faultf(protocol.UpstreamMalformed, "toy: no body")
	}
	r.Code = int(frame[2])
	r.Status = 200
	if r.Code != 0 {
		r.Status = 500
	}
	r.Header.MarkUnchanged()
	v.ContentOffset = toyBody
	r.ContentLength = int64(len(frame) - toyBody)
	return nil
}

func (toyCodec) AppendResponse(dst, frame []byte, _ *protocol.Response, _ *codec.FrameView) ([]byte, error) {
	return append(dst, frame...), nil
}

func (toyCodec) AppendErrorResponse(dst, frame []byte, reason protocol.Reason, text string) []byte {
	start := len(dst)
	dst = appendToy(dst, codec.Response, byte(reason), 0, text)
	copy(dst[start+8:start+16], frame[8:16])
	return dst
}

func (toyCodec) AppendHeartbeat(dst []byte, id uint64) []byte {
	return appendToyID(dst, codec.Heartbeat, id, "")
}

func (toyCodec) AppendHeartbeatAck(dst, heartbeat []byte) []byte {
	return appendToyID(dst, codec.HeartbeatAck, binary.BigEndian.Uint64(heartbeat[8:]), "")
}

func (toyCodec) AppendGoAway(dst []byte, id uint64) []byte {
	return appendToyID(dst, codec.GoAway, id, "")
}

func appendToy(dst []byte, kind codec.Kind, code byte, timeout time.Duration, text string) []byte {
	dst = append(dst, 'T', byte(kind), code, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(4+len(text)))
	dst = binary.BigEndian.AppendUint64(dst, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(timeout.Milliseconds()))
	dst = append(dst, text...)
	return dst
}

func appendToyID(dst []byte, kind codec.Kind, id uint64, text string) []byte {
	start := len(dst)
	dst = appendToy(dst, kind, 0, 0, text)
	toyCodec{}.SetID(dst[start:], id)
	return dst
}
