package xprotocol

import (
	"io"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Message is a whole frame as the Body of a request or an answer: what filters
// see of it is its content, what engines pass on is the frame. A service that
// puts another Body in its place makes the exchange one that RPC cannot carry.
//
// Whoever made it owns the frame; Close does nothing here, engines embed it.
type Message struct {
	Codec  Codec
	Traits *Traits // Codec's
	Frame  []byte
	View   FrameView
	read   int
}

// Set makes m the message of a frame whose content is unread. What was read of
// the frame before is no longer valid.
func (m *Message) Set(c Codec, frame []byte) {
	text := m.View.Text[:0]
	m.View = FrameView{}
	m.View.Text = text
	m.Codec, m.Traits, m.Frame, m.read = c, c.Traits(), frame, 0
}

// Reset makes m refer to nothing. What it is Set to next finds the memory that View
// has.
func (m *Message) Reset() { m.Codec, m.Traits, m.Frame, m.View.LazyFields = nil, nil, nil, nil }

// MessageOf returns the message that body is, nil if it is something else.
func MessageOf(body protocol.Body) *Message {
	if c, ok := body.(interface{ message() *Message }); ok {
		return c.message()
	}
	return nil
}

func (m *Message) message() *Message { return m }

// Content returns the content, which stays unread: a part of Frame.
func (m *Message) Content() []byte {
	return m.Frame[m.View.ContentOffset : len(m.Frame)-int(m.View.TrailerLen)]
}

// Read is protocol.Body's.
func (m *Message) Read(p []byte) (int, error) {
	content := m.Content()
	if m.read == len(content) {
		return 0, io.EOF
	}
	n := copy(p, content[m.read:])
	m.read += n
	return n, nil
}

// Buffered is protocol.Body's: all of it is at hand.
func (m *Message) Buffered() int { return len(m.Content()) - m.read }

// Rewind is protocol.Rewinder's.
func (m *Message) Rewind() bool { m.read = 0; return true }

// Argument is protocol.Arguments's, of codecs that read arguments.
func (m *Message) Argument(i int) (text string, ok bool) {
	if c, reads := m.Codec.(ArgumentReader); reads {
		return c.Argument(m.Frame, i)
	}
	return "", false
}

// ArgumentReader is a Codec that can read arguments of a request, if it is asked to.
type ArgumentReader interface {
	// Argument is protocol.Arguments's, of a frame that ReadRequest has read without an
	// error. It keeps nothing of the frame.
	Argument(frame []byte, i int) (text string, ok bool)
}

// Close is protocol.Body's.
func (m *Message) Close() error { return nil }
