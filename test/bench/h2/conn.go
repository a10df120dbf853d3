// Package h2 is the HTTP/2 implementation of the benchmark: one side of a connection without its
// socket, for the single-threaded load generator and origin. It implements only what the benchmark
// needs, trusts its input to be well formed, and shares no code with Weft except x/net's hpack.
package h2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/net/http2/hpack"
)

// Preface is the client connection preface.
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Limits of both sides, in bytes except for maxStreams.
const (
	Window          = 4 << 20  // receive window of each stream
	maxStreams      = 100_000  // maximum number of concurrent streams that the server allows
	connWindow      = 1 << 30  // receive window of the connection
	maxFrame        = 16 << 10 // maximum payload of a frame, in both directions
	frameHeaderSize = 9
)

// Frame types, flags and settings of RFC 9113.
const (
	typeData         = 0x0
	typeHeaders      = 0x1
	typeReset        = 0x3
	typeSettings     = 0x4
	typePing         = 0x6
	typeGoAway       = 0x7
	typeWindowUpdate = 0x8
	typeContinuation = 0x9

	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20

	settingTableSize     = 0x1
	settingPush          = 0x2
	settingMaxStreams    = 0x3
	settingInitialWindow = 0x4

	defaultWindow = 1<<16 - 1
)

// Fields holds the decoded fields of a header or trailer section; an absent field is "".
type Fields struct {
	Path       string // :path
	Status     string // :status
	GRPCStatus string // grpc-status
}

// Handler receives the events of a connection. If a method returns an error, Receive returns it.
type Handler interface {
	// OnFields is called for the headers of a stream, and for the trailers if s.HeadersReceived is
	// already true. end is true if the section ends the stream.
	OnFields(s *Stream, f Fields, end bool) error
	// OnData is called for a part of the body. b is valid only during the call.
	OnData(s *Stream, b []byte, end bool) error
}

// Stream is an open stream. The Handler owns Path and Slot. Conn sets HeadersReceived and adds to
// Received.
type Stream struct {
	Path            string
	Slot            int // used by the load generator: the slot of the request
	Received        int // bytes of the body
	HeadersReceived bool

	id          uint32
	window      int64 // bytes that may be sent
	consumed    int   // bytes received since the last window update
	pendingData []byte
	trailers    []byte // encoded trailers; nil: the last DATA frame ends the stream
	endStream   bool   // the stream ends after pendingData
	blocked     bool   // the stream is in Conn.blockedStreams
}

// Conn is one side of a connection. It appends its output to Out; the owner writes Out to the
// socket and clears it.
type Conn struct {
	Out     []byte
	Ready   bool // the SETTINGS of the other side have arrived
	Streams map[uint32]*Stream

	handler        Handler
	server         bool
	nextID         uint32 // the id of the client's next stream
	window         int64  // bytes that may be sent
	initialWindow  int64  // initial send window of new streams
	consumed       int    // bytes received since the last window update
	blockedStreams []*Stream
	freeStreams    []*Stream
	block          []byte // field block that CONTINUATION frames complete
	blockEnd       bool   // END_STREAM was set on the HEADERS frame of block
	blockID        uint32

	decoder *hpack.Decoder
	fields  Fields
	encoder *hpack.Encoder
	encoded bytes.Buffer
}

// NewClient returns the client side.
func NewClient(h Handler) *Conn {
	c := newConn(h)
	c.nextID = 1
	c.Out = append(c.Out, Preface...)
	c.sendSettings(settingPush, 0)
	return c
}

// NewServer returns the server side. Its caller removes the Preface from the input.
func NewServer(h Handler) *Conn {
	c := newConn(h)
	c.server = true
	c.sendSettings(settingMaxStreams, maxStreams)
	return c
}

func newConn(h Handler) *Conn {
	c := &Conn{handler: h, window: defaultWindow, initialWindow: defaultWindow, Streams: map[uint32]*Stream{}}
	c.decoder = hpack.NewDecoder(4096, c.storeField)
	c.encoder = hpack.NewEncoder(&c.encoded)
	return c
}

// storeField stores a field that the decoder emits.
func (c *Conn) storeField(f hpack.HeaderField) {
	switch f.Name {
	case ":path":
		c.fields.Path = f.Value
	case ":status":
		c.fields.Status = f.Value
	case "grpc-status":
		c.fields.GRPCStatus = f.Value
	}
}

func (c *Conn) sendSettings(setting uint16, value uint32) {
	c.appendFrameHeader(12, typeSettings, 0, 0)
	c.Out = binary.BigEndian.AppendUint16(c.Out, setting)
	c.Out = binary.BigEndian.AppendUint32(c.Out, value)
	c.Out = binary.BigEndian.AppendUint16(c.Out, settingInitialWindow)
	c.Out = binary.BigEndian.AppendUint32(c.Out, Window)
	c.windowUpdate(0, connWindow-defaultWindow)
}

// appendFrameHeader appends a frame header.
func (c *Conn) appendFrameHeader(length int, frameType, flags byte, stream uint32) {
	c.Out = append(c.Out, byte(length>>16), byte(length>>8), byte(length), frameType, flags)
	c.Out = binary.BigEndian.AppendUint32(c.Out, stream)
}

func (c *Conn) windowUpdate(stream uint32, n int) {
	c.appendFrameHeader(4, typeWindowUpdate, 0, stream)
	c.Out = binary.BigEndian.AppendUint32(c.Out, uint32(n))
}

// Encode returns the encoded fields. The result is valid until the next call, and the caller sends
// it before that call.
func (c *Conn) Encode(fields ...hpack.HeaderField) []byte {
	c.encoded.Reset()
	for _, f := range fields {
		_ = c.encoder.WriteField(f) // writes to memory: no error
	}
	return c.encoded.Bytes()
}

// Open opens a stream with an encoded field block. end is true if the request has no body.
func (c *Conn) Open(block []byte, end bool) *Stream {
	s := c.newStream(c.nextID)
	c.nextID += 2
	c.SendHeaders(s, block, end)
	return s
}

// SendHeaders sends an encoded field block, which must fit into one frame.
func (c *Conn) SendHeaders(s *Stream, block []byte, end bool) {
	flags := byte(flagEndHeaders)
	if end {
		flags |= flagEndStream
	}
	c.appendFrameHeader(len(block), typeHeaders, flags, s.id)
	c.Out = append(c.Out, block...)
}

// SendData sends a part of the body: now as far as the windows allow, the rest when window updates
// arrive. The caller must not change b until it is sent. end is true for the last part; trailers,
// if any, follow it. Trailers must not use the dynamic table, because other blocks may be sent
// before them.
func (c *Conn) SendData(s *Stream, b []byte, end bool, trailers []byte) {
	if len(s.pendingData) > 0 {
		s.pendingData = append(s.pendingData, b...)
	} else {
		s.pendingData = b
	}
	s.endStream, s.trailers = end, trailers
	c.flushStream(s)
}

// Blocked reports whether a part of the stream waits for a window update.
func (s *Stream) Blocked() bool { return len(s.pendingData) > 0 }

// flushStream sends as much as the windows allow.
func (c *Conn) flushStream(s *Stream) {
	for len(s.pendingData) > 0 {
		n := int(min(int64(len(s.pendingData)), maxFrame, c.window, s.window))
		if n <= 0 {
			if !s.blocked {
				s.blocked = true
				c.blockedStreams = append(c.blockedStreams, s)
			}
			return
		}
		flags := byte(0)
		if s.endStream && s.trailers == nil && n == len(s.pendingData) {
			flags = flagEndStream
		}
		c.appendFrameHeader(n, typeData, flags, s.id)
		c.Out = append(c.Out, s.pendingData[:n]...)
		s.pendingData = s.pendingData[n:]
		c.window -= int64(n)
		s.window -= int64(n)
	}
	if s.endStream && s.trailers != nil {
		c.SendHeaders(s, s.trailers, true)
	}
	if s.endStream && c.server {
		c.removeStream(s)
	}
}

// flushBlocked resumes the blocked streams.
func (c *Conn) flushBlocked() {
	blocked := c.blockedStreams
	c.blockedStreams = nil
	for _, s := range blocked {
		s.blocked = false
		c.flushStream(s)
	}
}

func (c *Conn) newStream(id uint32) *Stream {
	var s *Stream
	if n := len(c.freeStreams); n > 0 {
		s, c.freeStreams = c.freeStreams[n-1], c.freeStreams[:n-1]
		*s = Stream{}
	} else {
		s = &Stream{}
	}
	s.id, s.window = id, c.initialWindow
	c.Streams[id] = s
	return s
}

// removeStream removes a stream that has ended or was reset.
func (c *Conn) removeStream(s *Stream) {
	delete(c.Streams, s.id)
	s.pendingData = nil
	if !s.blocked {
		c.freeStreams = append(c.freeStreams, s)
	}
}

// ErrGoAway reports that the server accepts no more streams.
var ErrGoAway = errors.New("the server has sent GOAWAY")

// Receive processes the complete frames of data and returns the rest, which the caller prepends to
// the data of the next call.
func (c *Conn) Receive(data []byte) (rest []byte, err error) {
	for len(data) >= frameHeaderSize {
		length := int(data[0])<<16 | int(data[1])<<8 | int(data[2])
		if length > maxFrame {
			return nil, fmt.Errorf("a frame of %d bytes, want at most %d", length, maxFrame)
		}
		if len(data) < frameHeaderSize+length {
			break
		}
		id := binary.BigEndian.Uint32(data[5:]) & (1<<31 - 1)
		if err := c.handleFrame(data[3], data[4], id, data[frameHeaderSize:frameHeaderSize+length]); err != nil {
			return nil, fmt.Errorf("frame of type %d on stream %d: %w", data[3], id, err)
		}
		data = data[frameHeaderSize+length:]
	}
	return data, nil
}

func (c *Conn) handleFrame(frameType, flags byte, id uint32, b []byte) error {
	switch frameType {
	case typeData:
		return c.handleData(flags, id, b)
	case typeHeaders:
		if flags&flagPadded != 0 {
			b = b[1 : len(b)-int(b[0])]
		}
		if flags&flagPriority != 0 {
			b = b[5:]
		}
		c.block, c.blockID, c.blockEnd = append(c.block[:0], b...), id, flags&flagEndStream != 0
		return c.handleHeaders(flags)
	case typeContinuation:
		c.block = append(c.block, b...)
		return c.handleHeaders(flags)
	case typeReset:
		if !c.server {
			return fmt.Errorf("stream reset with code %d", binary.BigEndian.Uint32(b))
		}
		if s := c.Streams[id]; s != nil {
			c.removeStream(s)
		}
	case typeSettings:
		if flags&flagAck == 0 {
			c.handleSettings(b)
		}
	case typePing:
		if flags&flagAck == 0 {
			c.appendFrameHeader(len(b), typePing, flagAck, 0)
			c.Out = append(c.Out, b...)
		}
	case typeGoAway:
		if !c.server {
			return ErrGoAway
		}
	case typeWindowUpdate:
		n := int64(binary.BigEndian.Uint32(b))
		if id == 0 {
			c.window += n
		} else if s := c.Streams[id]; s != nil {
			s.window += n
		}
		c.flushBlocked()
	}
	return nil
}

func (c *Conn) handleSettings(b []byte) {
	for ; len(b) >= 6; b = b[6:] {
		value := binary.BigEndian.Uint32(b[2:])
		switch binary.BigEndian.Uint16(b) {
		case settingTableSize:
			c.encoder.SetMaxDynamicTableSizeLimit(value)
		case settingInitialWindow:
			for _, s := range c.Streams {
				s.window += int64(value) - c.initialWindow
			}
			c.initialWindow = int64(value)
		}
	}
	c.appendFrameHeader(0, typeSettings, flagAck, 0)
	c.Ready = true
	c.flushBlocked()
}

// handleHeaders decodes the field block once it is complete.
func (c *Conn) handleHeaders(flags byte) error {
	if flags&flagEndHeaders == 0 {
		return nil
	}
	c.fields = Fields{}
	if _, err := c.decoder.Write(c.block); err != nil {
		return err
	}
	if err := c.decoder.Close(); err != nil {
		return err
	}
	s := c.Streams[c.blockID]
	switch {
	case s == nil && !c.server:
		return errors.New("a response without a request")
	case s == nil:
		s = c.newStream(c.blockID)
	}
	fields, end := c.fields, c.blockEnd
	err := c.handler.OnFields(s, fields, end)
	s.HeadersReceived = true
	if end && !c.server {
		c.removeStream(s)
	}
	return err
}

func (c *Conn) handleData(flags byte, id uint32, b []byte) error {
	size := len(b)
	if flags&flagPadded != 0 {
		b = b[1 : len(b)-int(b[0])]
	}
	end := flags&flagEndStream != 0
	if c.consumed += size; c.consumed >= connWindow/2 {
		c.windowUpdate(0, c.consumed)
		c.consumed = 0
	}
	s := c.Streams[id]
	if s == nil {
		return nil // the stream was reset
	}
	if s.consumed += size; s.consumed >= Window/2 && !end {
		c.windowUpdate(id, s.consumed)
		s.consumed = 0
	}
	s.Received += len(b)
	err := c.handler.OnData(s, b, end)
	if end && !c.server {
		c.removeStream(s)
	}
	return err
}
