package bolt

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// layout holds the positions of the fields in the head of one version. Integers are big-endian.
//
//	version 1     version 2     requests and responses
//	0             0             version
//	              1             1, or 2 if frames may have a checksum
//	1             2             type
//	2             3             command (2 bytes)
//	4             5             version of the command
//	5             6             request id (4 bytes)
//	9             10            serialization
//	              11            switches; bit 0: there is a checksum
//	10            12            of a request: timeout in ms (4 bytes, signed)
//	10            12            of a response: status (2 bytes)
//	14 or 12      16 or 14      lengths of class (2 bytes), header (2), content (4)
//	22 or 20      24 or 22      class, header, content, checksum (4 bytes)
type layout struct {
	traits  xprotocol.Traits
	version byte

	typeOffset, commandOffset, idOffset, serializationOffset int

	switchesOffset   int // 0: the version has no switches
	timeoutOffset    int
	statusOffset     int
	requestHeadSize  int // head of a request, in bytes
	responseHeadSize int
}

//nolint:gochecknoglobals // a constant
var v1 = layout{
	traits:  xprotocol.Traits{Name: "bolt", Version: "bolt/1", MaxID: math.MaxInt32, OptInGoAway: true, FrameHeaderLen: 22},
	version: 1, typeOffset: 1, commandOffset: 2, idOffset: 5, serializationOffset: 9,
	timeoutOffset: 10, statusOffset: 10, requestHeadSize: 22, responseHeadSize: 20,
}

//nolint:gochecknoglobals // a constant
var v2 = layout{
	traits:  xprotocol.Traits{Name: "boltv2", Version: "bolt/2", MaxID: math.MaxInt32, OptInGoAway: true, FrameHeaderLen: 24},
	version: 2, typeOffset: 2, commandOffset: 3, idOffset: 6, serializationOffset: 10,
	switchesOffset: 11, timeoutOffset: 12, statusOffset: 12, requestHeadSize: 24, responseHeadSize: 22,
}

const (
	// withChecksums is the second byte of version 2 if bit 0 of the switches applies. With the
	// other value, 1, frames have the switches but never a checksum.
	withChecksums = 2
	checksumBit   = 1
)

func (l *layout) command(b []byte) int      { return int(binary.BigEndian.Uint16(b[l.commandOffset:])) }
func (l *layout) id(b []byte) uint32        { return binary.BigEndian.Uint32(b[l.idOffset:]) }
func (l *layout) setID(b []byte, id uint32) { binary.BigEndian.PutUint32(b[l.idOffset:], id) }
func (l *layout) timeout(b []byte) int32    { return int32(binary.BigEndian.Uint32(b[l.timeoutOffset:])) }
func (l *layout) setTimeout(b []byte, n int) {
	binary.BigEndian.PutUint32(b[l.timeoutOffset:], uint32(n))
}
func (l *layout) status(b []byte) int { return int(binary.BigEndian.Uint16(b[l.statusOffset:])) }

// headSize returns the size of a frame's head. b contains at least the type.
func (l *layout) headSize(b []byte) int {
	if b[l.typeOffset] == typeResponse {
		return l.responseHeadSize
	}
	return l.requestHeadSize
}

func (l *layout) lengths(b []byte) (class, header, content int) {
	end := b[l.headSize(b)-8:]
	return int(binary.BigEndian.Uint16(end)), int(binary.BigEndian.Uint16(end[2:])), int(binary.BigEndian.Uint32(end[4:]))
}

func (l *layout) setClassLength(b []byte, n int) {
	binary.BigEndian.PutUint16(b[l.headSize(b)-8:], uint16(n))
}

func (l *layout) setContentLength(b []byte, n int) {
	binary.BigEndian.PutUint32(b[l.headSize(b)-4:], uint32(n))
}

func (l *layout) setHeaderLength(b []byte, n int) {
	binary.BigEndian.PutUint16(b[l.headSize(b)-6:], uint16(n))
}

// checksumSize returns the size of a frame's checksum, or 0 if it has none.
func (l *layout) checksumSize(b []byte) int {
	if l.switchesOffset > 0 && b[1] == withChecksums && b[l.switchesOffset]&checksumBit != 0 {
		return crc32.Size
	}
	return 0
}

// checksumValid reports whether the checksum of a complete frame is correct or absent. A checksum
// is the CRC-32 (IEEE 802.3) of all bytes before it.
func (l *layout) checksumValid(frame []byte) bool {
	if l.checksumSize(frame) == 0 {
		return true
	}
	end := len(frame) - crc32.Size
	return binary.BigEndian.Uint32(frame[end:]) == crc32.ChecksumIEEE(frame[:end])
}

func (l *layout) updateChecksum(frame []byte) {
	if l.checksumSize(frame) > 0 {
		end := len(frame) - crc32.Size
		binary.BigEndian.PutUint32(frame[end:], crc32.ChecksumIEEE(frame[:end]))
	}
}
