package load

import (
	"fmt"

	"golang.org/x/net/http2/hpack"

	"github.com/weft-proxy/weft/test/bench/h2"
)

// Values of Job.Protocol for HTTP/2.
const (
	HTTP2      = "h2"          // GET; each response has Body bytes
	GRPC       = "grpc"        // unary calls with messages of Body bytes
	GRPCStream = "grpc-stream" // one stream per connection, with Depth messages of Body bytes in flight
)

// http2 implements protocolConn for HTTP/2 on one connection, and h2.Handler.
type http2 struct {
	*muxConn
	conn    *h2.Conn
	job     *Job
	request []hpack.HeaderField
	message []byte     // of gRPC
	stream  *h2.Stream // of GRPCStream
}

func newHTTP2(job Job, m *meter) (*multiplexed, error) {
	path := fmt.Sprintf("/b/%d", job.Body)
	switch job.Protocol {
	case GRPC:
		path = h2.Unary
	case GRPCStream:
		path = h2.Echo
	}
	request, message := h2.Request(path), h2.Message(job.Body)
	return newMultiplexed(job, m, func(mc *muxConn, _ int) protocolConn {
		c := &http2{muxConn: mc, job: &job, request: request, message: message}
		c.conn = h2.NewClient(c)
		return c
	})
}

// ready reports whether the server's settings, and so its limits, have arrived.
func (c *http2) ready() bool { return c.conn.Ready }

func (c *http2) out() *[]byte { return &c.conn.Out }

// send sends a request, or the next message of a stream.
func (c *http2) send(slot int) {
	switch c.job.Protocol {
	case HTTP2:
		c.conn.Open(c.conn.Encode(c.request...), true).Slot = slot
	case GRPC:
		s := c.conn.Open(c.conn.Encode(c.request...), false)
		s.Slot = slot
		c.conn.SendData(s, c.message, true, nil)
	default:
		if c.stream == nil {
			c.stream = c.conn.Open(c.conn.Encode(c.request...), false)
		}
		// The origin returns the messages in order, so a response belongs to the oldest slot.
		c.conn.SendData(c.stream, c.message, false, nil)
	}
}

func (c *http2) receive(data []byte) (rest []byte, err error) { return c.conn.Receive(data) }

// OnFields implements h2.Handler.
func (c *http2) OnFields(s *h2.Stream, f h2.Fields, end bool) error {
	grpc := c.job.Protocol != HTTP2
	if err := h2.Check(s, f, grpc, end); err != nil {
		return err
	}
	if !end {
		return nil
	}
	if want := len(c.message); c.stream != nil || !grpc || s.Received != want {
		return fmt.Errorf("the response ends after %d bytes", s.Received)
	}
	c.finish(s.Slot)
	return nil
}

// OnData implements h2.Handler.
func (c *http2) OnData(s *h2.Stream, _ []byte, end bool) error {
	if c.stream == nil {
		if !end {
			return nil
		}
		if c.job.Protocol != HTTP2 || s.Received != c.job.Body {
			return fmt.Errorf("the response ends after %d bytes", s.Received)
		}
		c.finish(s.Slot)
		return nil
	}
	for size := len(c.message); s.Received >= size; {
		s.Received -= size
		c.finish(c.oldest())
	}
	return nil
}

// oldest returns the slot of the message that was sent first.
func (c *http2) oldest() int {
	first := -1
	for slot, start := range c.startTimes {
		if start > 0 && (first < 0 || start < c.startTimes[first]) {
			first = slot
		}
	}
	return first
}
