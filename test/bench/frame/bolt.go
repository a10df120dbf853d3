package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// bolt is SOFA Bolt, version 1 or 2. The fields of a frame header are: protocol, (v2: version,)
// type, command u16, command version, id u32, codec, (v2: switches,) timeout i32 of a request or
// status u16 of a response, and the lengths class u16, header u16 and content u32. Class, header
// and content follow. Frames of version 2 end with a CRC32 checksum if the switch is set.
type bolt struct{ version byte }

const (
	boltResponse = 0 // types
	boltRequest  = 1
	boltOneWay   = 2

	boltHeartbeat = 0 // commands
	boltCall      = 1
	boltReturn    = 2

	boltHessian  = 1 // codec
	boltChecksum = 1 // switch: the frame has a checksum
)

// boltTrailer follows the string in the content of a response: it is a null for the last field. The
// content of a request ends with the string.
const boltTrailer = "N"

func newBolt(name string, v bolt) *Protocol {
	const service = "com.example.bench.EchoService:1.0"
	text := filler()
	call := boltMessage{
		kind: boltRequest, command: boltCall, timeout: 30000,
		class:   boltRequestClass,
		header:  boltHeader(pair{"sofa_head_target_service", service}, pair{"sofa_head_method_name", "echo"}, pair{"service", service}),
		content: boltArguments(service, "echo", "", text),
	}
	response := boltMessage{kind: boltResponse, command: boltReturn, class: boltResponseClass, content: boltValue(text)}
	p := &Protocol{
		name: name, largestID: 1<<32 - 1,
		encoding: v,
		request:  v.frame(call),
		response: v.frame(response),
		ping:     v.frame(boltMessage{kind: boltRequest, command: boltHeartbeat, timeout: 3000}),
		pong:     v.frame(boltMessage{kind: boltResponse, command: boltHeartbeat}),
	}
	p.requestTextOffset = bytes.Index(p.request, []byte(text))
	p.responseTextOffset = bytes.Index(p.response, []byte(text))
	return p
}

// boltMessage holds the fields of a frame except its id.
type boltMessage struct {
	kind    byte
	command uint16
	timeout uint32 // ms; only of a request
	class   string
	header  []byte
	content []byte
}

// frame encodes the message with id 0.
func (v bolt) frame(m boltMessage) []byte {
	b := []byte{v.version}
	if v.version == 2 {
		b = append(b, 2) // version of the v2 header; the switches apply only in version 2
	}
	b = append(b, m.kind)
	b = binary.BigEndian.AppendUint16(b, m.command)
	b = append(b, 1)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = append(b, boltHessian)
	if v.version == 2 {
		b = append(b, boltChecksum)
	}
	if m.kind == boltRequest {
		b = binary.BigEndian.AppendUint32(b, m.timeout)
	} else {
		b = binary.BigEndian.AppendUint16(b, 0)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.class)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.header)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.content)))
	b = append(append(append(b, m.class...), m.header...), m.content...)
	if v.version == 2 {
		b = append(b, 0, 0, 0, 0)
		v.setID(b, 0)
	}
	return b
}

// idOffset returns the offset of the id.
func (v bolt) idOffset() int { return 4 + int(v.version) }

func (v bolt) setID(b []byte, id uint64) {
	binary.BigEndian.PutUint32(b[v.idOffset():], uint32(id))
	if v.version == 2 {
		end := len(b) - crc32.Size
		binary.BigEndian.PutUint32(b[end:], crc32.ChecksumIEEE(b[:end]))
	}
}

// boltLengths holds the lengths of the parts of a frame, in bytes.
type boltLengths struct {
	head     int
	body     int // class, header and content
	checksum int
	total    int
}

// measure reads the lengths from the frame header; complete is false if the header is incomplete.
func (v bolt) measure(b []byte) (l boltLengths, complete bool, err error) {
	if len(b) > 0 && b[0] != v.version {
		return boltLengths{}, false, fmt.Errorf("a frame begins with %#x", b[0])
	}
	typeOffset := int(v.version)
	if len(b) <= typeOffset {
		return boltLengths{}, false, nil
	}
	l.head = 18 + 2*int(v.version)
	switch b[typeOffset] {
	case boltRequest, boltOneWay:
		l.head += 2
	case boltResponse:
	default:
		return boltLengths{}, false, fmt.Errorf("frame type %d", b[typeOffset])
	}
	if len(b) < l.head {
		return boltLengths{}, false, nil
	}
	if v.version == 2 && b[v.idOffset()+5]&boltChecksum != 0 {
		l.checksum = crc32.Size
	}
	class, header := binary.BigEndian.Uint16(b[l.head-8:]), binary.BigEndian.Uint16(b[l.head-6:])
	body := binary.BigEndian.Uint32(b[l.head-4:])
	if body > maxFrame {
		return boltLengths{}, false, fmt.Errorf("content of %d bytes", body)
	}
	l.body = int(class) + int(header) + int(body)
	l.total = l.head + l.body + l.checksum
	return l, true, nil
}

func (v bolt) parse(b []byte) (n int, f Frame, err error) {
	l, complete, err := v.measure(b)
	if err != nil || !complete || len(b) < l.total {
		return 0, Frame{}, err
	}
	b = b[:l.total]
	if end := l.head + l.body; l.checksum > 0 && binary.BigEndian.Uint32(b[end:]) != crc32.ChecksumIEEE(b[:end]) {
		return 0, Frame{}, errors.New("the checksum does not match")
	}
	f.ID = uint64(binary.BigEndian.Uint32(b[v.idOffset():]))
	typeOffset := int(v.version)
	frameType, command := b[typeOffset], binary.BigEndian.Uint16(b[typeOffset+1:])
	body := b[l.head : l.head+l.body]
	switch {
	case frameType == boltOneWay:
		f.Kind = OneWay
		return l.total, f, nil
	case frameType == boltRequest && command == boltHeartbeat:
		f.Kind = Ping
		return l.total, f, nil
	case frameType == boltRequest:
		f.Kind = Request
		f.Text, err = textBefore(body, "")
	case command == boltHeartbeat:
		f.Kind = Pong
		return l.total, f, nil
	default:
		f.Kind = Response
		if status := binary.BigEndian.Uint16(b[l.head-10:]); status != 0 {
			return 0, Frame{}, fmt.Errorf("a response with status %d: %.300q", status, body)
		}
		f.Text, err = textBefore(body, boltTrailer)
	}
	if err != nil {
		return 0, Frame{}, err
	}
	return l.total, f, nil
}

// textBefore returns the Size bytes before the trailer.
func textBefore(body []byte, trailer string) ([]byte, error) {
	text, found := bytes.CutSuffix(body, []byte(trailer))
	if !found || len(text) < Size {
		return nil, fmt.Errorf("a body that does not end with a string of %d bytes: %.300q", Size, body)
	}
	return text[len(text)-Size:], nil
}
