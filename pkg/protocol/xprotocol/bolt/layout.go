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

	typeAt, commandAt, idAt, serializationAt int

	switchesAt  int // 0: there are none
	timeoutAt   int
	statusAt    int
	requestSize int // head of a request, in bytes
	answerSize  int
}

//nolint:gochecknoglobals // a constant
var v1 = layout{
	traits:  xprotocol.Traits{Name: "bolt", Version: "bolt/1", MaxID: math.MaxInt32, OptInGoAway: true, FrameHeaderLen: 22},
	version: 1, typeAt: 1, commandAt: 2, idAt: 5, serializationAt: 9,
	timeoutAt: 10, statusAt: 10, requestSize: 22, answerSize: 20,
}

//nolint:gochecknoglobals // a constant
var v2 = layout{
	traits:  xprotocol.Traits{Name: "boltv2", Version: "bolt/2", MaxID: math.MaxInt32, OptInGoAway: true, FrameHeaderLen: 24},
	version: 2, typeAt: 2, commandAt: 3, idAt: 6, serializationAt: 10,
	switchesAt: 11, timeoutAt: 12, statusAt: 12, requestSize: 24, answerSize: 22,
}

const (
	// withChecksums is the second byte of version 2 if bit 0 of the switches applies. With the
	// other value, 1, frames have the switches but never a checksum.
	withChecksums = 2
	checksumBit   = 1
)

func (l *layout) command(b []byte) int       { return int(binary.BigEndian.Uint16(b[l.commandAt:])) }
func (l *layout) id(b []byte) uint32         { return binary.BigEndian.Uint32(b[l.idAt:]) }
func (l *layout) setID(b []byte, id uint32)  { binary.BigEndian.PutUint32(b[l.idAt:], id) }
func (l *layout) timeout(b []byte) int32     { return int32(binary.BigEndian.Uint32(b[l.timeoutAt:])) }
func (l *layout) setTimeout(b []byte, n int) { binary.BigEndian.PutUint32(b[l.timeoutAt:], uint32(n)) }
func (l *layout) status(b []byte) int        { return int(binary.BigEndian.Uint16(b[l.statusAt:])) }

// head returns the size of a frame's head. b reaches at least to the type.
func (l *layout) head(b []byte) int {
	if b[l.typeAt] == typeResponse {
		return l.answerSize
	}
	return l.requestSize
}

// lengths returns the lengths that the head declares.
func (l *layout) lengths(b []byte) (class, header, content int) {
	end := b[l.head(b)-8:]
	return int(binary.BigEndian.Uint16(end)), int(binary.BigEndian.Uint16(end[2:])), int(binary.BigEndian.Uint32(end[4:]))
}

func (l *layout) setClassLength(b []byte, n int) {
	binary.BigEndian.PutUint16(b[l.head(b)-8:], uint16(n))
}

func (l *layout) setContentLength(b []byte, n int) {
	binary.BigEndian.PutUint32(b[l.head(b)-4:], uint32(n))
}

func (l *layout) setHeaderLength(b []byte, n int) {
	binary.BigEndian.PutUint16(b[l.head(b)-6:], uint16(n))
}

// checksumSize returns the size of a frame's checksum, or 0 if it has none.
func (l *layout) checksumSize(b []byte) int {
	if l.switchesAt > 0 && b[1] == withChecksums && b[l.switchesAt]&checksumBit != 0 {
		return crc32.Size
	}
	return 0
}

// intact reports whether the checksum of a complete frame is correct or absent. It is the CRC-32 of
// everything before it (IEEE 802.3).
func (l *layout) intact(frame []byte) bool {
	if l.checksumSize(frame) == 0 {
		return true
	}
	end := len(frame) - crc32.Size
	return binary.BigEndian.Uint32(frame[end:]) == crc32.ChecksumIEEE(frame[:end])
}

// sum updates the checksum of a complete frame, if it has one.
func (l *layout) sum(frame []byte) {
	if l.checksumSize(frame) > 0 {
		end := len(frame) - crc32.Size
		binary.BigEndian.PutUint32(frame[end:], crc32.ChecksumIEEE(frame[:end]))
	}
}
