package dubbo

import (
	"encoding/binary"
	"strconv"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/hessian"
)

// AppendFault is xprotocol.Signals's. The body is text behind the reason's HTTP
// status, "502|text", so that a program can tell apart what has one status in
// Dubbo. It is in Hessian 2 whatever the request is in: a reader goes by what the
// answer says, and every Dubbo has Hessian 2.
func (Codec) AppendFault(dst, frame []byte, reason protocol.Reason, text string) []byte {
	t := reason.Traits()
	start := len(dst)
	dst = appendHead(dst, serializationHessian, t.Dubbo, binary.BigEndian.Uint64(frame[idAt:]))
	dst = hessian.AppendString(dst, strconv.Itoa(t.HTTP)+"|"+text)
	return closeFrame(dst, start)
}

// AppendPing is xprotocol.Signals's.
func (Codec) AppendPing(dst []byte, id uint64) []byte {
	start := len(dst)
	dst = appendHead(dst, flagRequest|flagTwoWay|flagEvent|serializationHessian, 0, id)
	return closeFrame(hessian.AppendNull(dst), start)
}

// AppendPong is xprotocol.Signals's. The body is a null in the serialization of
// the ping: its own body, where Weft does not know the serialization.
func (Codec) AppendPong(dst, ping []byte) []byte {
	start := len(dst)
	id := binary.BigEndian.Uint64(ping[idAt:])
	body := ping[headSize:]
	if isHessian(ping) || len(body) == 0 || len(body) > maxEvent {
		dst = appendHead(dst, flagEvent|serializationHessian, statusOK, id)
		return closeFrame(hessian.AppendNull(dst), start)
	}
	dst = appendHead(dst, flagEvent|ping[flagsAt]&maskSerialization, statusOK, id)
	return closeFrame(append(dst, body...), start)
}

// AppendGoAway is xprotocol.Signals's: the event "R", as a provider sends it that
// is about to stop. It wants no answer.
func (Codec) AppendGoAway(dst []byte, id uint64) []byte {
	start := len(dst)
	dst = appendHead(dst, flagRequest|flagEvent|serializationHessian, 0, id)
	return closeFrame(hessian.AppendString(dst, readOnly), start)
}

// appendHead appends the head of a frame whose body is still to come.
func appendHead(dst []byte, flags, status byte, id uint64) []byte {
	dst = binary.BigEndian.AppendUint16(dst, magic)
	dst = append(dst, flags, status)
	dst = binary.BigEndian.AppendUint64(dst, id)
	return append(dst, 0, 0, 0, 0)
}

// closeFrame writes the length of the body into the frame that begins at start
// and ends with dst.
func closeFrame(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start+lengthAt:], uint32(len(dst)-start-headSize))
	return dst
}
