// Package frame builds and reads the RPC frames of a measurement: Dubbo 2 and
// SOFA Bolt v1 and v2, as Java peers send them. It knows what the load generator
// and the origin need and nothing more, and shares no code with what is measured.
//
// A request calls one method with one string of Size bytes; its answer returns
// that string. The string carries what tells requests apart, so that an answer
// is known to be that of its request and not only to have its id.
package frame

import "fmt"

// Protocol is a framed RPC protocol. It is immutable: several goroutines may use
// one.
type Protocol struct {
	name      string
	largestID uint64
	wire      wire
	// Frames with id 0, of which the functions below write copies.
	request, answer, ping, pong []byte
	// Where the string begins in request and answer.
	requestAt, answerAt int
}

// wire is what sets one protocol apart from another.
type wire interface {
	// parse is Protocol.Parse.
	parse(b []byte) (n int, f Frame, err error)
	// seal sets the id of a frame and what depends on the frame's bytes.
	seal(b []byte, id uint64)
}

// Kind is what a frame is for.
type Kind uint8

// The kinds.
const (
	Request Kind = iota // a call that wants an answer
	Answer              // of a call, with success
	Ping                // a heartbeat that wants a Pong
	Pong                // the answer of a heartbeat
	Notice              // wants no answer and is none: that a peer is going away
)

// Frame is what was read of one frame.
type Frame struct {
	Kind Kind
	ID   uint64
	Text []byte // of Request and Answer: the string; a part of what was parsed
}

// maxFrame is the largest frame that is understood, in bytes.
const maxFrame = 16 << 10

// Names returns the names that Find knows.
func Names() []string { return []string{"dubbo", "bolt", "boltv2"} }

// Find returns the protocol with the name, which is that of configurations.
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
	var all []*Protocol
	for _, name := range Names() {
		p, err := Find(name)
		if err != nil {
			panic("frame: " + err.Error())
		}
		all = append(all, p)
	}
	return all
}

// Name returns the protocol's name, of nil "".
func (p *Protocol) Name() string {
	if p == nil {
		return ""
	}
	return p.name
}

// Starts tells whether a connection whose first byte is b speaks the protocol.
func (p *Protocol) Starts(b byte) bool { return p.request[0] == b }

// Parse reads the frame that b begins with. n is its length, 0 if it is not all
// there. An answer that tells of a failure is an error, as is all that no peer of
// a measurement sends.
func (p *Protocol) Parse(b []byte) (n int, f Frame, err error) {
	n, f, err = p.wire.parse(b)
	if err != nil {
		err = fmt.Errorf("%s: %w", p.name, err)
	}
	return n, f, err
}

// AppendRequest appends a request whose string is that of t.
func (p *Protocol) AppendRequest(dst []byte, id uint64, t Text) []byte {
	at := len(dst)
	dst = append(dst, p.request...)
	t.put(dst[at+p.requestAt:])
	p.wire.seal(dst[at:], id)
	return dst
}

// AppendAnswer appends an answer with the string, which has Size bytes.
func (p *Protocol) AppendAnswer(dst []byte, id uint64, text []byte) []byte {
	at := len(dst)
	dst = append(dst, p.answer...)
	copy(dst[at+p.answerAt:][:Size], text)
	p.wire.seal(dst[at:], id)
	return dst
}

// AppendPing appends a heartbeat.
func (p *Protocol) AppendPing(dst []byte, id uint64) []byte {
	return p.appendSealed(dst, p.ping, id)
}

// AppendPong appends the answer of a heartbeat.
func (p *Protocol) AppendPong(dst []byte, id uint64) []byte {
	return p.appendSealed(dst, p.pong, id)
}

func (p *Protocol) appendSealed(dst, frame []byte, id uint64) []byte {
	at := len(dst)
	dst = append(dst, frame...)
	p.wire.seal(dst[at:], id)
	return dst
}

// LargestID returns the largest id that the protocol's frames can have.
func (p *Protocol) LargestID() uint64 { return p.largestID }

// pair is a key with its value.
type pair struct{ key, value string }
