package bolt

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// keyErrorText is the name of the header entry with the error text, in error responses that Weft
// generates.
const keyErrorText = "weft-fault"

// maxErrorText is the maximum size of the error text, in bytes.
const maxErrorText = 4 << 10

// heartbeatTimeout is the timeout of heartbeats and GOAWAY frames, in ms.
const heartbeatTimeout = 3000

// hessian2 is the serialization of heartbeats and GOAWAY frames.
const hessian2 = 1

// AppendErrorResponse implements xprotocol.ControlFrames. It puts the text into the header. For a
// request in Hessian 2, the content is the exception that servers of the SOFA library send. Java
// clients use the exception only if the status is a server exception; Node clients show it with any
// status.
func (c Codec) AppendErrorResponse(dst, frame []byte, reason protocol.Reason, text string) []byte {
	if len(text) > maxErrorText || !utf8.ValidString(text) {
		text = truncateUTF8(text)
	}
	start := len(dst)
	dst = c.appendResponseHead(dst, frame, commandResponse, reason.Spec().Bolt, 4+len(keyErrorText)+4+len(text))
	if frame[c.serializationOffset] != hessian2 {
		return c.appendChecksum(appendEntry(dst, keyErrorText, text), start)
	}
	c.setClassLength(dst[start:], len(exceptionClass))
	dst = appendEntry(append(dst, exceptionClass...), keyErrorText, text)
	content := len(dst)
	dst = appendException(dst, text)
	c.setContentLength(dst[start:], len(dst)-content)
	return c.appendChecksum(dst, start)
}

// exceptionClass is the exception that servers send in error responses.
const exceptionClass = "com.alipay.remoting.rpc.exception.RpcServerException"

// appendException appends an exceptionClass with a message in the Hessian of SOFA's peers, a draft
// of Hessian 2: 'O' defines a class, 'o' creates an object of it. The message is UTF-8 and shorter
// than 65,536 code units. Clients initialize the fields that are not written. An empty stack trace
// is written, so that clients do not show their own stack trace.
func appendException(dst []byte, message string) []byte {
	dst = append(dst, "O\xc8\x34"+exceptionClass+"\x92\x0ddetailMessage\x0astackTrace"+"o\x90"+"S\x00\x00"...)
	lengthOffset, units := len(dst)-2, 0
	for _, r := range message {
		if r > '\uffff' { // two units of UTF-16, each written like a rune
			high, low := utf16.EncodeRune(r)
			dst = appendUnit(appendUnit(dst, high), low)
			units += 2
			continue
		}
		dst = utf8.AppendRune(dst, r)
		units++
	}
	binary.BigEndian.PutUint16(dst[lengthOffset:], uint16(units))
	return append(dst, "Vt\x00\x1c[java.lang.StackTraceElement"+"l\x00\x00\x00\x00"+"z"...)
}

// appendUnit appends one unit of a surrogate pair, which standard UTF-8 cannot encode.
func appendUnit(dst []byte, u rune) []byte {
	return append(dst, 0xe0|byte(u>>12), 0x80|byte(u>>6)&0x3f, 0x80|byte(u)&0x3f)
}

// truncateUTF8 returns the valid UTF-8 in text, truncated to maxErrorText bytes.
func truncateUTF8(text string) string {
	text = strings.ToValidUTF8(text, "")
	for n := maxErrorText; n < len(text); n-- {
		if utf8.RuneStart(text[n]) {
			return text[:n]
		}
	}
	return text
}

// AppendHeartbeatAck implements xprotocol.ControlFrames.
func (c Codec) AppendHeartbeatAck(dst, heartbeat []byte) []byte {
	return c.appendChecksum(c.appendResponseHead(dst, heartbeat, commandHeartbeat, statusSuccess, 0), len(dst))
}

// appendResponseHead appends the head of a response in the version and serialization of request, of
// which only the head is read. header is the length of the response's header in bytes. Class and
// content are empty.
func (c Codec) appendResponseHead(dst, request []byte, command byte, status uint16, header int) []byte {
	dst = append(dst, request[:c.typeOffset]...)
	dst = append(dst, typeResponse, 0, command)
	dst = append(dst, request[c.commandOffset+2:c.timeoutOffset]...) // version of the command, id, serialization, switches
	dst = binary.BigEndian.AppendUint16(dst, status)
	dst = append(dst, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(header))
	return append(dst, 0, 0, 0, 0)
}

// AppendHeartbeat implements xprotocol.ControlFrames.
func (c Codec) AppendHeartbeat(dst []byte, id uint64) []byte {
	return c.appendControlFrame(dst, commandHeartbeat, typeRequest, id)
}

// AppendGoAway implements xprotocol.ControlFrames.
func (c Codec) AppendGoAway(dst []byte, id uint64) []byte {
	return c.appendControlFrame(dst, commandGoAway, typeOneWay, id)
}

// appendControlFrame appends a request without class, header and content.
func (c Codec) appendControlFrame(dst []byte, command, frameType byte, id uint64) []byte {
	start := len(dst)
	dst = append(dst, c.version)
	if c.typeOffset > 1 {
		dst = append(dst, 1)
	}
	dst = append(dst, frameType, 0, command, 1)
	dst = binary.BigEndian.AppendUint32(dst, uint32(id))
	dst = append(dst, hessian2)
	if c.switchesOffset > 0 {
		dst = append(dst, 0)
	}
	dst = binary.BigEndian.AppendUint32(dst, heartbeatTimeout)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	return c.appendChecksum(dst, start)
}

// appendChecksum appends the checksum of the frame that begins at start, if it has one.
func (c Codec) appendChecksum(dst []byte, start int) []byte {
	if c.checksumSize(dst[start:]) > 0 {
		dst = binary.BigEndian.AppendUint32(dst, crc32.ChecksumIEEE(dst[start:]))
	}
	return dst
}
