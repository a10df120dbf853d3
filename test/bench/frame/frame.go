// Package frame encodes and decodes the RPC frames of a measurement: Dubbo 2 and SOFA Bolt v1 and
// v2, in the form that Java applications send. It implements only what the load generator and the
// origin need, and shares no code with Weft.
//
// A request calls one method with one string of Size bytes; the response returns that string. The
// string identifies the request, so the generator detects a response that has the right id but
// belongs to another request.
package frame

import "fmt"

// Protocol is a framed RPC protocol. It is immutable and safe for concurrent use.
type Protocol struct {
	name      string
	largestID uint64
	encoding  encoding
	// Frames with id 0, the templates of the Append methods.
	request, response, ping, pong []byte
	// Offsets of the string in requests and responses.
	requestTextOffset, responseTextOffset int
}

// encoding implements the encoding of one protocol.
type encoding interface {
	// parse implements Protocol.Parse.
	parse(b []byte) (n int, f Frame, err error)
	// setID sets the id of a frame and the checksum, if the protocol has one.
	setID(b []byte, id uint64)
}

// Kind is the purpose of a frame.
type Kind uint8

// Kinds of frames.
const (
	Request  Kind = iota // a call that expects a response
	Response             // a successful response to a call
	Ping                 // a heartbeat that expects a Pong
	Pong                 // the response to a heartbeat
	OneWay               // a one-way message, such as the announcement of a shutdown
)

// Frame is a decoded frame.
type Frame struct {
	Kind Kind
	ID   uint64
	Text []byte // of Request and Response: the string, which aliases the parsed bytes
}

// maxFrame is the largest accepted body or content, in bytes.
const maxFrame = 16 << 10

// Names returns the names that Find accepts.
func Names() []string { return []string{"dubbo", "bolt", "boltv2"} }

// Find returns the protocol with the name that Weft's configuration uses.
func Find(name string) (*Protocol, error) {
	switch name {
	case "dubbo":
		return newDubbo(), nil
	case "bolt":
		return newBolt(name, bolt{version: 1}), nil
	case "boltv2":
		return newBolt(name, bolt{version: 2}), nil
	}
	return nil, fmt.Errorf("protocol %q, want one of %v", name, Names())
}

// All returns every protocol, in the order of Names.
func All() []*Protocol {
	var protocols []*Protocol
	for _, name := range Names() {
		p, err := Find(name)
		if err != nil {
			panic("frame: " + err.Error())
		}
		protocols = append(protocols, p)
	}
	return protocols
}

// Name returns the protocol's name, or "" if p is nil.
func (p *Protocol) Name() string {
	if p == nil {
		return ""
	}
	return p.name
}

// StartsWith reports whether b is the first byte of a frame of the protocol.
func (p *Protocol) StartsWith(b byte) bool { return p.request[0] == b }

// Parse decodes the frame at the start of b. n is its length, or 0 if the frame is incomplete.
// Parse returns an error for a failed response and for any frame that a measurement does not
// produce.
func (p *Protocol) Parse(b []byte) (n int, f Frame, err error) {
	n, f, err = p.encoding.parse(b)
	if err != nil {
		err = fmt.Errorf("%s: %w", p.name, err)
	}
	return n, f, err
}

// AppendRequest appends a request whose string encodes t.
func (p *Protocol) AppendRequest(dst []byte, id uint64, t Text) []byte {
	i := len(dst)
	dst = append(dst, p.request...)
	t.put(dst[i+p.requestTextOffset:])
	p.encoding.setID(dst[i:], id)
	return dst
}

// AppendResponse appends a response with text, which must have Size bytes.
func (p *Protocol) AppendResponse(dst []byte, id uint64, text []byte) []byte {
	i := len(dst)
	dst = append(dst, p.response...)
	copy(dst[i+p.responseTextOffset:][:Size], text)
	p.encoding.setID(dst[i:], id)
	return dst
}

// AppendPing appends a heartbeat.
func (p *Protocol) AppendPing(dst []byte, id uint64) []byte {
	return p.appendWithID(dst, p.ping, id)
}

// AppendPong appends the response to a heartbeat.
func (p *Protocol) AppendPong(dst []byte, id uint64) []byte {
	return p.appendWithID(dst, p.pong, id)
}

func (p *Protocol) appendWithID(dst, frame []byte, id uint64) []byte {
	i := len(dst)
	dst = append(dst, frame...)
	p.encoding.setID(dst[i:], id)
	return dst
}

// LargestID returns the largest id of the protocol's frames.
func (p *Protocol) LargestID() uint64 { return p.largestID }

// pair is a key and its value.
type pair struct{ key, value string }
