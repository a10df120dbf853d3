package xprotocol

import (
	"io"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Message is a complete frame as the Body of a request or a response. Filters read its body;
// engines forward the frame. An RPC engine cannot send an exchange in which a service replaced the
// Message with another Body.
//
// The creator of the Message owns the frame, so Close does nothing. An engine that must release the
// frame embeds Message and replaces Close.
type Message struct {
	Codec  Codec
	Traits *Traits // Codec.Traits()
	Frame  []byte
	View   FrameView
	offset int // offset in Content of the next byte that Read returns
}

// Set makes m the message of a frame whose body is unread. Values read from the previous frame are
// no longer valid.
func (m *Message) Set(c Codec, frame []byte) {
	text := m.View.Text[:0]
	m.View = FrameView{}
	m.View.Text = text
	m.Codec, m.Traits, m.Frame, m.offset = c, c.Traits(), frame, 0
}

// Reset drops the references to the frame and the codec. It keeps View.Text for the next Set.
func (m *Message) Reset() { m.Codec, m.Traits, m.Frame, m.View.DeferredFields = nil, nil, nil, nil }

// MessageOf returns body as a Message, or nil if it is another type.
func MessageOf(body protocol.Body) *Message {
	if m, ok := body.(interface{ message() *Message }); ok {
		return m.message()
	}
	return nil
}

func (m *Message) message() *Message { return m }

// Content returns the body, a part of Frame. The bytes do not count as read.
func (m *Message) Content() []byte {
	return m.Frame[m.View.ContentOffset : len(m.Frame)-int(m.View.TrailerLen)]
}

// Read implements protocol.Body.
func (m *Message) Read(p []byte) (int, error) {
	content := m.Content()
	if m.offset == len(content) {
		return 0, io.EOF
	}
	n := copy(p, content[m.offset:])
	m.offset += n
	return n, nil
}

// Buffered implements protocol.Body: the complete body is buffered.
func (m *Message) Buffered() int { return len(m.Content()) - m.offset }

// Rewind implements protocol.Rewinder.
func (m *Message) Rewind() bool { m.offset = 0; return true }

// Argument implements protocol.Arguments for codecs that read arguments.
func (m *Message) Argument(i int) (text string, ok bool) {
	if reader, reads := m.Codec.(ArgumentReader); reads {
		return reader.Argument(m.Frame, i)
	}
	return "", false
}

// ArgumentReader is a Codec that reads arguments of a request on demand.
type ArgumentReader interface {
	// Argument implements protocol.Arguments for a frame that ReadRequest has read without an
	// error. It keeps no part of the frame.
	Argument(frame []byte, i int) (text string, ok bool)
}

// Close implements protocol.Body.
func (m *Message) Close() error { return nil }
