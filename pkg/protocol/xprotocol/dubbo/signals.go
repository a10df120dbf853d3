package dubbo

import (
	"encoding/binary"
	"strconv"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/hessian"
)

// AppendErrorResponse is xprotocol.ControlFrames's. The body is text behind the reason's HTTP
// status, "502|text", so that a program can tell apart what has one status in
// Dubbo. It is in Hessian 2 whatever the request is in: a reader goes by what the
// answer says, and every Dubbo has Hessian 2.
func (Codec) AppendErrorResponse(dst, frame []byte, reason protocol.Reason, text string) []byte {
	t := reason.Traits()
	start := len(dst)
	dst = appendHead(dst, serializationHessian, t.Dubbo, binary.BigEndian.Uint64(frame[idAt:]))
	dst = hessian.AppendString(dst, strconv.Itoa(t.HTTP)+"|"+text)
	return patchBodyLength(dst, start)
}

// AppendHeartbeat is xprotocol.ControlFrames's.
func (Codec) AppendHeartbeat(dst []byte, id uint64) []byte {
	start := len(dst)
	dst = appendHead(dst, flagRequest|flagTwoWay|flagEvent|serializationHessian, 0, id)
	return patchBodyLength(hessian.AppendNull(dst), start)
}

// AppendHeartbeatAck is xprotocol.ControlFrames's. The body is a null in the serialization of
// the ping: its own body, where Weft does not know the serialization.
func (Codec) AppendHeartbeatAck(dst, ping []byte) []byte {
	start := len(dst)
	id := binary.BigEndian.Uint64(ping[idAt:])
	body := ping[headSize:]
	if isHessian(ping) || len(body) == 0 || len(body) > maxEvent {
		dst = appendHead(dst, flagEvent|serializationHessian, statusOK, id)
		return patchBodyLength(hessian.AppendNull(dst), start)
	}
	dst = appendHead(dst, flagEvent|ping[flagsAt]&maskSerialization, statusOK, id)
	return patchBodyLength(append(dst, body...), start)
}

// AppendGoAway is xprotocol.ControlFrames's: the event "R", as a provider sends it that
// is about to stop. It wants no answer.
func (Codec) AppendGoAway(dst []byte, id uint64) []byte {
	start := len(dst)
	dst = appendHead(dst, flagRequest|flagEvent|serializationHessian, 0, id)
	return patchBodyLength(hessian.AppendString(dst, readOnly), start)
}

// appendHead appends the head of a frame whose body is still to come.
func appendHead(dst []byte, flags, status byte, id uint64) []byte {
	dst = binary.BigEndian.AppendUint16(dst, magic)
	dst = append(dst, flags, status)
	dst = binary.BigEndian.AppendUint64(dst, id)
	return append(dst, 0, 0, 0, 0)
}

// patchBodyLength writes the length of the body into the frame that begins at start
// and ends with dst.
func patchBodyLength(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start+lengthAt:], uint32(len(dst)-start-headSize))
	return dst
}
