// Package bolt implements the frames of SOFA Bolt, versions 1 and 2. Version 2 has more fields in
// the head and an optional checksum, so the common fields have other positions. One codec has two
// layouts, V1 and V2, which config.json names bolt and boltv2. README.md describes the requests and
// responses that filters see.
//
// The files in the order of the data flow: codec.go (size and kind of a frame), layout.go
// (positions in the head), read.go (reading), append.go (writing), controlframes.go (frames that
// Weft generates).
package bolt

import (
	"errors"
	"fmt"
	"math"

	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Codec is the xprotocol.Codec of one version: V1 or V2.
type Codec struct{ *layout }

var _ xprotocol.Codec = Codec{}

// V1 returns the codec of version 1.
func V1() Codec { return Codec{&v1} }

// V2 returns the codec of version 2.
func V2() Codec { return Codec{&v2} }

// Types of frames.
const (
	typeResponse = 0
	typeRequest  = 1
	typeOneWay   = 2
)

// Command codes.
const (
	commandHeartbeat = 0
	commandRequest   = 1
	commandResponse  = 2
	commandGoAway    = 100 // MOSN's GOAWAY
)

var (
	errType   = errors.New("bolt: a frame is neither a request nor a response")
	errLength = errors.New("bolt: negative length: the lengths of class and header are signed 16-bit integers, and the length of the content is a signed 32-bit integer")
)

// Traits implements xprotocol.Framing.
func (c Codec) Traits() *xprotocol.Traits { return &c.traits }

// Match implements xprotocol.Framing: it checks the version, the type and the command.
func (c Codec) Match(b []byte) xprotocol.MatchResult {
	switch {
	case !c.mayBegin(b):
		return xprotocol.MatchNo
	case len(b) < c.commandOffset+2:
		return xprotocol.MatchNeedMore
	}
	switch command := c.command(b); {
	case command == commandHeartbeat,
		command == commandRequest && b[c.typeOffset] != typeResponse,
		command == commandResponse && b[c.typeOffset] == typeResponse,
		command == commandGoAway:
		return xprotocol.MatchYes
	}
	return xprotocol.MatchNo
}

// mayBegin reports whether a frame may begin with b, which may be short.
func (c Codec) mayBegin(b []byte) bool {
	switch {
	case len(b) > 0 && b[0] != c.version,
		c.typeOffset > 1 && len(b) > 1 && b[1] != 1 && b[1] != withChecksums,
		len(b) > c.typeOffset && b[c.typeOffset] > typeOneWay:
		return false
	}
	return true
}

// ParseFrame implements xprotocol.Framing. Lengths that peers read as negative numbers are errors.
func (c Codec) ParseFrame(b []byte) (xprotocol.Frame, error) {
	if !c.mayBegin(b) {
		if len(b) > c.typeOffset && b[c.typeOffset] > typeOneWay {
			return xprotocol.Frame{}, errType
		}
		return xprotocol.Frame{}, fmt.Errorf("bolt: a frame of version %d does not begin with % x", c.version, b[:min(len(b), 2)])
	}
	if len(b) <= c.typeOffset || len(b) < c.headSize(b) {
		return xprotocol.Frame{}, nil
	}
	class, header, content := c.lengths(b)
	if class > math.MaxInt16 || header > math.MaxInt16 || content > math.MaxInt32 {
		return xprotocol.Frame{}, errLength
	}
	return xprotocol.Frame{
		Kind: c.kind(b),
		ID:   uint64(c.id(b)),
		Size: c.headSize(b) + class + header + content + c.checksumSize(b),
	}, nil
}

// kind returns the kind of a frame, which has at least its head.
func (c Codec) kind(frame []byte) xprotocol.Kind {
	command, frameType := c.command(frame), frame[c.typeOffset]
	switch {
	case frameType == typeResponse && command == commandResponse:
		return xprotocol.Response
	case frameType == typeResponse && command == commandHeartbeat:
		return xprotocol.HeartbeatAck
	case frameType == typeRequest && command == commandRequest:
		return xprotocol.Request
	case frameType == typeOneWay && command == commandRequest:
		return xprotocol.OneWay
	case frameType == typeRequest && command == commandHeartbeat:
		return xprotocol.Heartbeat
	case frameType != typeResponse && command == commandGoAway:
		return xprotocol.GoAway
	}
	return xprotocol.Ignored
}

// SetID implements xprotocol.Framing.
func (c Codec) SetID(frame []byte, id uint64) {
	c.setID(frame, uint32(id))
	c.updateChecksum(frame)
}
