package bolt

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"unicode/utf8"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// keyFault is the header entry of an answer of Weft's own that has the text for
// people. The usual client makes an exception of the status alone, but hands the
// header to who asks for it.
const keyFault = "weft-fault"

// maxFault is how much of the text is sent at most, in bytes.
const maxFault = 4 << 10

// heartbeatTimeout is what peers declare with a heartbeat, in ms.
const heartbeatTimeout = 3000

// hessian2 is the serialization that frames without content declare.
const hessian2 = 1

// AppendFault is xprotocol.Signals's.
func (c Codec) AppendFault(dst, frame []byte, reason protocol.Reason, text string) []byte {
	if len(text) > maxFault || !utf8.ValidString(text) {
		text = legible(text)
	}
	start := len(dst)
	dst = c.appendAnswerHead(dst, frame, commandResponse, reason.Traits().Bolt, 4+len(keyFault)+4+len(text))
	dst = appendEntry(dst, keyFault, text)
	return c.finish(dst, start)
}

// legible returns what of a text is UTF-8 and has room.
func legible(text string) string {
	text = strings.ToValidUTF8(text, "")
	for n := maxFault; n < len(text); n-- {
		if utf8.RuneStart(text[n]) {
			return text[:n]
		}
	}
	return text
}

// AppendPong is xprotocol.Signals's.
func (c Codec) AppendPong(dst, ping []byte) []byte {
	return c.finish(c.appendAnswerHead(dst, ping, commandHeartbeat, statusSuccess, 0), len(dst))
}

// appendAnswerHead appends the head of an answer in the manner of the request,
// whose head is enough, with a header of so many bytes and no class and content.
func (c Codec) appendAnswerHead(dst, request []byte, command byte, status uint16, header int) []byte {
	dst = append(dst, request[:c.typeAt]...)
	dst = append(dst, typeResponse, 0, command)
	dst = append(dst, request[c.commandAt+2:c.timeoutAt]...) // version of the command, id, serialization, switches
	dst = binary.BigEndian.AppendUint16(dst, status)
	dst = append(dst, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(header))
	return append(dst, 0, 0, 0, 0)
}

// AppendPing is xprotocol.Signals's.
func (c Codec) AppendPing(dst []byte, id uint64) []byte {
	return c.appendSignal(dst, commandHeartbeat, typeRequest, id)
}

// AppendGoAway is xprotocol.Signals's.
func (c Codec) AppendGoAway(dst []byte, id uint64) []byte {
	return c.appendSignal(dst, commandGoAway, typeOneWay, id)
}

// appendSignal appends a request without class, header and content.
func (c Codec) appendSignal(dst []byte, command, kind byte, id uint64) []byte {
	start := len(dst)
	dst = append(dst, c.version)
	if c.typeAt > 1 {
		dst = append(dst, 1)
	}
	dst = append(dst, kind, 0, command, 1)
	dst = binary.BigEndian.AppendUint32(dst, uint32(id))
	dst = append(dst, hessian2)
	if c.switchesAt > 0 {
		dst = append(dst, 0)
	}
	dst = binary.BigEndian.AppendUint32(dst, heartbeatTimeout)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	return c.finish(dst, start)
}

// finish appends the checksum of the frame that begins at start, if it has one.
func (c Codec) finish(dst []byte, start int) []byte {
	if c.checksumSize(dst[start:]) > 0 {
		dst = binary.BigEndian.AppendUint32(dst, crc32.ChecksumIEEE(dst[start:]))
	}
	return dst
}
