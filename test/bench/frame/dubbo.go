package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// dubbo is Dubbo 2 with Hessian 2. A frame begins with a header of 16 bytes: magic, flags, status,
// id, body length.
type dubbo struct{}

const (
	dubboMagic   = 0xdabb
	dubboHead    = 16
	dubboRequest = 0x80
	dubboTwoWay  = 0x40
	dubboEvent   = 0x20
	dubboHessian = 2 // serialization id, in the low bits of the flags
	dubboOK      = 20
)

// Types of a response body: a value without attachments, and a value with attachments.
const (
	dubboValue         = 1
	dubboValueAttached = 4
)

// dubboCall holds the content of a request.
type dubboCall struct {
	service, version, method, argument string
	attachments                        []pair
}

func newDubbo() *Protocol {
	const service = "com.example.bench.EchoService"
	text := filler()
	call := dubboCall{
		service: service, version: "1.0.0", method: "echo", argument: text,
		attachments: []pair{
			{"path", service}, {"remote.application", "bench"}, {"interface", service},
			{"version", "1.0.0"}, {"group", "bench"}, {"timeout", "30000"},
		},
	}
	p := &Protocol{
		name:      "dubbo",
		largestID: 1<<64 - 1,
		encoding:  dubbo{},
		request:   call.frame(),
		response:  dubboResponse(text, pair{"dubbo", "2.0.2"}),
		ping:      dubboFrame(dubboRequest|dubboTwoWay|dubboEvent, 0, []byte("N")),
		pong:      dubboFrame(dubboEvent, dubboOK, []byte("N")),
	}
	p.requestTextOffset = bytes.Index(p.request, []byte(text))
	p.responseTextOffset = bytes.Index(p.response, []byte(text))
	return p
}

func (c dubboCall) frame() []byte {
	var body []byte
	for _, s := range []string{"2.0.2", c.service, c.version, c.method, "Ljava/lang/String;", c.argument} {
		body = appendString(body, s)
	}
	return dubboFrame(dubboRequest|dubboTwoWay, 0, appendMap(body, c.attachments))
}

// dubboResponse encodes a response that returns the value.
func dubboResponse(value string, attachments ...pair) []byte {
	body := appendString([]byte{hessianZero + dubboValueAttached}, value)
	return dubboFrame(0, dubboOK, appendMap(body, attachments))
}

// dubboFrame encodes a frame with id 0.
func dubboFrame(flags, status byte, body []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, dubboMagic)
	b = append(b, flags|dubboHessian, status)
	b = binary.BigEndian.AppendUint64(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

func (dubbo) setID(b []byte, id uint64) { binary.BigEndian.PutUint64(b[4:], id) }

func (dubbo) parse(b []byte) (n int, f Frame, err error) {
	if len(b) >= 2 && binary.BigEndian.Uint16(b) != dubboMagic {
		return 0, Frame{}, fmt.Errorf("a frame begins with %x", b[:2])
	}
	if len(b) < dubboHead {
		return 0, Frame{}, nil
	}
	length := binary.BigEndian.Uint32(b[12:])
	if length > maxFrame {
		return 0, Frame{}, fmt.Errorf("a body of %d bytes", length)
	}
	n = dubboHead + int(length)
	if len(b) < n {
		return 0, Frame{}, nil
	}
	flags, status, body := b[2], b[3], b[dubboHead:n]
	f.ID = binary.BigEndian.Uint64(b[4:])
	switch {
	case flags&dubboEvent != 0:
		f.Kind = dubboEventKind(flags)
		return n, f, nil
	case flags&dubboRequest == 0 && status != dubboOK:
		return 0, Frame{}, fmt.Errorf("a response with status %d: %.300q", status, body)
	case flags&dubboRequest == 0:
		f.Kind = Response
		f.Text, err = readDubboValue(body)
	case flags&dubboTwoWay == 0:
		return 0, Frame{}, errors.New("one-way request")
	default:
		f.Kind = Request
		f.Text, err = readDubboArgument(body)
	}
	if err != nil {
		return 0, Frame{}, err
	}
	return n, f, nil
}

func dubboEventKind(flags byte) Kind {
	switch flags & (dubboRequest | dubboTwoWay) {
	case dubboRequest | dubboTwoWay:
		return Ping
	case dubboRequest:
		return OneWay
	}
	return Pong
}

// readDubboArgument returns the only argument of a request.
func readDubboArgument(body []byte) (text []byte, err error) {
	// Protocol version, service, service version, method, argument types.
	for range 5 {
		if _, body, err = readString(body); err != nil {
			return nil, err
		}
	}
	text, _, err = readString(body)
	return text, err
}

// readDubboValue returns the value of a response.
func readDubboValue(body []byte) ([]byte, error) {
	if len(body) == 0 || body[0] != hessianZero+dubboValue && body[0] != hessianZero+dubboValueAttached {
		return nil, fmt.Errorf("a response without a value: %.300q", body)
	}
	text, _, err := readString(body[1:])
	return text, err
}
