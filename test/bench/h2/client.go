package h2

import (
	"fmt"
	"net"
)

// Client asks on one connection, and waits.
type Client struct {
	conn   net.Conn
	http2  *Conn
	in     []byte // part of a frame, then room
	answer int    // bytes of content
	done   bool
}

// Connect greets the server on a connection that is new, and waits for its
// settings.
func Connect(conn net.Conn) (*Client, error) {
	c := &Client{conn: conn}
	c.http2 = NewClient(c)
	return c, c.until(func() bool { return c.http2.Ready })
}

// Get asks for a path, with one message of size bytes if it is Unary, and returns
// how many bytes the answer had.
func (c *Client) Get(path string, size int) (n int, err error) {
	c.done, c.answer = false, 0
	grpc := IsGRPC(path)
	s := c.http2.Open(c.http2.Encode(Request(path)...), !grpc)
	if grpc {
		c.http2.Send(s, Message(size), true, nil)
	}
	err = c.until(func() bool { return c.done })
	return c.answer, err
}

// Hold opens n streams that are not answered.
func (c *Client) Hold(n int) error {
	for range n {
		c.http2.Open(c.http2.Encode(Request(Hold)...), false)
	}
	return c.flush()
}

func (c *Client) flush() error {
	_, err := c.conn.Write(c.http2.Out)
	c.http2.Out = c.http2.Out[:0]
	return err
}

// until writes and reads until something is so.
func (c *Client) until(is func() bool) error {
	buffer := make([]byte, 32<<10)
	for {
		if err := c.flush(); err != nil {
			return err
		}
		if is() {
			return nil
		}
		n, err := c.conn.Read(buffer)
		if err != nil {
			return err
		}
		c.in = append(c.in, buffer[:n]...)
		rest, err := c.http2.Receive(c.in)
		if err != nil {
			return err
		}
		c.in = append([]byte(nil), rest...)
	}
}

// Fields implements Handler.
func (c *Client) Fields(s *Stream, f Fields, end bool) error {
	c.done = c.done || end
	return Check(s, f, f.GRPCStatus != "", end)
}

// Data implements Handler.
func (c *Client) Data(_ *Stream, b []byte, end bool) error {
	c.answer += len(b)
	c.done = c.done || end
	return nil
}

// Ask greets, gets a path and returns an error unless the answer has so many
// bytes.
func Ask(conn net.Conn, path string, message, want int) error {
	c, err := Connect(conn)
	if err != nil {
		return err
	}
	return c.Expect(path, message, want)
}

// Expect gets a path and returns an error unless the answer has so many bytes.
func (c *Client) Expect(path string, message, want int) error {
	n, err := c.Get(path, message)
	if err == nil && n != want {
		err = fmt.Errorf("%s is answered with %d bytes, want %d", path, n, want)
	}
	return err
}
