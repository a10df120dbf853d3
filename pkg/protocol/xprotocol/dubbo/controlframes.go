package dubbo

import (
	"encoding/binary"
	"strconv"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/hessian"
)

// AppendErrorResponse implements xprotocol.ControlFrames. The body is the reason's HTTP status and
// the text, "502|text", so that programs can distinguish reasons with the same Dubbo status. The
// body is in Hessian 2, whatever the serialization of the request: readers use the serialization of
// the response, and every Dubbo implementation supports Hessian 2.
func (Codec) AppendErrorResponse(dst, frame []byte, reason protocol.Reason, text string) []byte {
	spec := reason.Spec()
	start := len(dst)
	dst = appendHead(dst, serializationHessian, spec.Dubbo, binary.BigEndian.Uint64(frame[idOffset:]))
	dst = hessian.AppendString(dst, strconv.Itoa(spec.HTTP)+"|"+text)
	return patchBodyLength(dst, start)
}

// AppendHeartbeat implements xprotocol.ControlFrames.
func (Codec) AppendHeartbeat(dst []byte, id uint64) []byte {
	start := len(dst)
	dst = appendHead(dst, flagRequest|flagTwoWay|flagEvent|serializationHessian, 0, id)
	return patchBodyLength(hessian.AppendNull(dst), start)
}

// AppendHeartbeatAck implements xprotocol.ControlFrames. The body is a null in Hessian 2. If the
// heartbeat has a body of at most maxEvent bytes in another serialization, the acknowledgement
// repeats that body.
func (Codec) AppendHeartbeatAck(dst, heartbeat []byte) []byte {
	start := len(dst)
	id := binary.BigEndian.Uint64(heartbeat[idOffset:])
	body := heartbeat[headSize:]
	if isHessian(heartbeat) || len(body) == 0 || len(body) > maxEvent {
		dst = appendHead(dst, flagEvent|serializationHessian, statusOK, id)
		return patchBodyLength(hessian.AppendNull(dst), start)
	}
	dst = appendHead(dst, flagEvent|heartbeat[flagsOffset]&maskSerialization, statusOK, id)
	return patchBodyLength(append(dst, body...), start)
}

// AppendGoAway implements xprotocol.ControlFrames. It appends the event "R", which a provider sends
// before it stops. The event expects no response.
func (Codec) AppendGoAway(dst []byte, id uint64) []byte {
	start := len(dst)
	dst = appendHead(dst, flagRequest|flagEvent|serializationHessian, 0, id)
	return patchBodyLength(hessian.AppendString(dst, readOnly), start)
}

// appendHead appends the head of a frame; the body follows.
func appendHead(dst []byte, flags, status byte, id uint64) []byte {
	dst = binary.BigEndian.AppendUint16(dst, magic)
	dst = append(dst, flags, status)
	dst = binary.BigEndian.AppendUint64(dst, id)
	return append(dst, 0, 0, 0, 0)
}

// patchBodyLength writes the body length of the frame dst[start:].
func patchBodyLength(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start+lengthOffset:], uint32(len(dst)-start-headSize))
	return dst
}
