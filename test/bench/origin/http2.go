package origin

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"

	"github.com/weft-proxy/weft/test/bench/h2"
)

// http2 serves one HTTP/2 connection: requests for /b/N get N bytes, and gRPC calls behave as the
// paths of package h2 describe.
type http2 struct {
	*h2.Conn
	server          *server
	prefaceReceived bool
}

func newHTTP2(s *server) *http2 {
	c := &http2{server: s}
	c.Conn = h2.NewServer(c)
	return c
}

// handleHTTP2 processes every complete frame of data and returns the rest.
func handleHTTP2(c *conn, data []byte) (rest []byte, err error) {
	if !c.http2.prefaceReceived {
		if len(data) < len(h2.Preface) {
			return data, nil
		}
		if !bytes.HasPrefix(data, []byte(h2.Preface)) {
			return nil, errors.New("invalid preface")
		}
		c.http2.prefaceReceived = true
		data = data[len(h2.Preface):]
	}
	return c.http2.Receive(data)
}

// flushHTTP2 writes the pending output of the connection.
func (s *server) flushHTTP2(fd int, c *conn) error {
	if len(c.http2.Out) == 0 {
		return nil
	}
	c.out = c.http2.Out
	if err := s.flush(fd, c); err != nil {
		return err
	}
	if len(c.out) > 0 {
		c.http2.Out = nil // c.out still uses its array
	} else {
		c.http2.Out = c.http2.Out[:0]
	}
	return nil
}

// OnFields implements h2.Handler.
func (c *http2) OnFields(s *h2.Stream, f h2.Fields, end bool) error {
	if !s.HeadersReceived {
		s.Path = f.Path
		if s.Path == h2.Echo {
			c.SendHeaders(s, c.Encode(field(":status", "200"), field("content-type", "application/grpc")), false)
		}
	}
	if end {
		return c.respond(s)
	}
	return nil
}

// OnData implements h2.Handler.
func (c *http2) OnData(s *h2.Stream, b []byte, end bool) error {
	if s.Path == h2.Echo && len(b) > 0 {
		c.SendData(s, bytes.Clone(b), false, nil)
	}
	if end {
		return c.respond(s)
	}
	return nil
}

// respond responds to the complete request.
func (c *http2) respond(s *h2.Stream) error {
	switch s.Path {
	case h2.Hold:
	case h2.Echo:
		c.SendData(s, nil, true, h2.Trailers())
	case h2.Unary:
		c.SendHeaders(s, c.Encode(field(":status", "200"), field("content-type", "application/grpc")), false)
		c.SendData(s, c.server.message(s.Received), true, h2.Trailers())
	default:
		digits, found := strings.CutPrefix(s.Path, "/b/")
		if !found {
			return fmt.Errorf("target %q, want /b/N", s.Path)
		}
		size, err := parseNumber([]byte(digits), maxResponse)
		if err != nil {
			return err
		}
		c.SendHeaders(s, c.Encode(field(":status", "200"), field("content-type", "application/octet-stream"),
			field("content-length", strconv.Itoa(size))), size == 0)
		if size > 0 {
			c.SendData(s, c.server.zeroBody(size), true, nil)
		}
	}
	return nil
}

func field(name, value string) hpack.HeaderField { return hpack.HeaderField{Name: name, Value: value} }

// zeroBody returns size bytes of value 0. The caller must not change them.
func (s *server) zeroBody(size int) []byte {
	if size > len(s.zeros) {
		s.zeros = make([]byte, size)
	}
	return s.zeros[:size:size]
}

// message returns the response to a message of size bytes, including the prefix. The caller must
// not change it.
func (s *server) message(size int) []byte {
	if s.responses[-size] == nil { // keys of HTTP/1.1 responses are not negative
		s.responses[-size] = h2.Message(max(size-5, 0))
	}
	return s.responses[-size]
}
