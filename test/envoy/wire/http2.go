package wire

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Frame sizes of RFC 9113, section 6.5.2.
const (
	maxFrame      = 16 << 10
	initialWindow = 65535
)

// HTTP2 reads and writes the frames of one HTTP/2 connection. It acknowledges SETTINGS and PING and
// returns the flow-control credit of all data that it reads. It sends any fields, valid or not. One
// goroutine may call Read; the other methods are safe for concurrent use.
type HTTP2 struct {
	framer  *http2.Framer
	decoder *hpack.Decoder // owned by Read

	mu      sync.Mutex
	changed *sync.Cond     // signals more credit, and the end of the connection
	encoder *hpack.Encoder // guarded by mu
	block   *bytes.Buffer  // output of encoder, guarded by mu
	credit  map[uint32]int // of streams, relative to initial; guarded by mu
	total   int            // credit of the connection; guarded by mu
	initial int            // the peer's initial window of streams; guarded by mu
	closed  bool           // guarded by mu
}

// NewHTTP2 returns a connection over rw. The caller has sent or read the client's preface. It calls
// Settings before other frames.
func NewHTTP2(rw io.ReadWriter) *HTTP2 {
	c := &HTTP2{
		framer: http2.NewFramer(rw, rw), block: &bytes.Buffer{},
		credit: map[uint32]int{}, total: initialWindow, initial: initialWindow,
	}
	c.framer.SetMaxReadFrameSize(maxFrame) // so that an HTTP/1.1 response is not an incomplete frame
	c.framer.AllowIllegalReads, c.framer.AllowIllegalWrites = true, true
	c.changed = sync.NewCond(&c.mu)
	c.encoder = hpack.NewEncoder(c.block)
	c.decoder = hpack.NewDecoder(4096, nil)
	return c
}

// Settings sends a SETTINGS frame.
func (c *HTTP2) Settings(settings ...http2.Setting) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.framer.WriteSettings(settings...)
}

// Headers sends fields as HEADERS and CONTINUATION frames.
func (c *HTTP2) Headers(stream uint32, fields []Field, end bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.block.Reset()
	for _, f := range fields {
		if err := c.encoder.WriteField(hpack.HeaderField{Name: f.Name, Value: f.Value}); err != nil {
			return err
		}
	}
	fragment := c.block.Next(maxFrame)
	err := c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: fragment, EndStream: end, EndHeaders: c.block.Len() == 0,
	})
	for err == nil && c.block.Len() > 0 {
		fragment = c.block.Next(maxFrame)
		err = c.framer.WriteContinuation(stream, c.block.Len() == 0, fragment)
	}
	return err
}

// Data sends a body. If the body exceeds the credit from the peer, Data waits until another
// goroutine has read more credit with Read.
func (c *HTTP2) Data(stream uint32, body []byte, end bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(body) > 0 && !c.closed && c.available(stream) <= 0 {
			c.changed.Wait()
		}
		if c.closed {
			return io.ErrClosedPipe
		}
		part := body[:min(len(body), maxFrame, max(c.available(stream), 0))]
		body = body[len(part):]
		c.credit[stream] -= len(part)
		c.total -= len(part)
		if err := c.framer.WriteData(stream, end && len(body) == 0, part); err != nil || len(body) == 0 {
			return err
		}
	}
}

// available returns the number of bytes that the peer accepts on a stream. The caller holds c.mu.
func (c *HTTP2) available(stream uint32) int {
	return min(c.total, c.initial+c.credit[stream])
}

// Reset sends RST_STREAM.
func (c *HTTP2) Reset(stream uint32, code http2.ErrCode) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.framer.WriteRSTStream(stream, code)
}

// Event is a frame that concerns the user of a connection. Exactly one of Fields, Data, Reset and
// GoAway is set, except that Data may be empty.
type Event struct {
	Stream uint32 // 0 for GoAway
	Fields []Field
	Data   []byte
	End    bool // END_STREAM
	Reset  *http2.ErrCode
	GoAway *http2.ErrCode
}

// Read returns the next event. The error is io.EOF or the error of the connection.
func (c *HTTP2) Read() (Event, error) {
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			c.Close()
			return Event{}, err
		}
		switch f := frame.(type) {
		case *http2.HeadersFrame:
			fields, err := c.fields(f.HeaderBlockFragment(), f.HeadersEnded())
			return Event{Stream: f.StreamID, Fields: fields, End: f.StreamEnded()}, err
		case *http2.DataFrame:
			if err := c.returnCredit(f); err != nil {
				return Event{}, err
			}
			return Event{Stream: f.StreamID, Data: slices.Clone(f.Data()), End: f.StreamEnded()}, nil
		case *http2.RSTStreamFrame:
			return Event{Stream: f.StreamID, Reset: &f.ErrCode}, nil
		case *http2.GoAwayFrame:
			return Event{GoAway: &f.ErrCode}, nil
		default:
			if err := c.control(frame); err != nil {
				return Event{}, err
			}
		}
	}
}

// fields decodes a header block, whose end may be in CONTINUATION frames.
func (c *HTTP2) fields(fragment []byte, ended bool) ([]Field, error) {
	block := slices.Clone(fragment)
	for !ended {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			c.Close()
			return nil, err
		}
		f, ok := frame.(*http2.ContinuationFrame)
		if !ok {
			return nil, fmt.Errorf("wire: %v inside a header block", frame.Header())
		}
		block = append(block, f.HeaderBlockFragment()...)
		ended = f.HeadersEnded()
	}
	decoded, err := c.decoder.DecodeFull(block)
	fields := []Field{}
	for _, f := range decoded {
		fields = append(fields, Field{strings.Clone(f.Name), strings.Clone(f.Value)})
	}
	return fields, err
}

// control processes a frame that is not an event.
func (c *HTTP2) control(frame http2.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if size, ok := f.Value(http2.SettingInitialWindowSize); ok {
			c.initial = int(size)
			c.changed.Broadcast()
		}
		if size, ok := f.Value(http2.SettingHeaderTableSize); ok {
			c.encoder.SetMaxDynamicTableSizeLimit(size)
		}
		return c.framer.WriteSettingsAck()
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.framer.WritePing(true, f.Data)
		}
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			c.total += int(f.Increment)
		} else {
			c.credit[f.StreamID] += int(f.Increment)
		}
		c.changed.Broadcast()
	}
	return nil
}

// returnCredit gives the peer new credit for the bytes of a DATA frame.
func (c *HTTP2) returnCredit(f *http2.DataFrame) error {
	if f.Length == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.framer.WriteWindowUpdate(0, f.Length); err != nil || f.StreamEnded() {
		return err
	}
	return c.framer.WriteWindowUpdate(f.StreamID, f.Length)
}

// Close ends calls of Data that wait for credit. It does not close the connection.
func (c *HTTP2) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.changed.Broadcast()
}
