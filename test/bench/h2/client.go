package h2

import (
	"fmt"
	"net"
)

// Client is a blocking HTTP/2 client on one connection.
type Client struct {
	conn     net.Conn
	http2    *Conn
	in       []byte // an incomplete frame
	bodySize int    // bytes of the response body
	done     bool
}

// Connect starts HTTP/2 on a new connection and waits for the settings of the server.
func Connect(conn net.Conn) (*Client, error) {
	c := &Client{conn: conn}
	c.http2 = NewClient(c)
	return c, c.runUntil(func() bool { return c.http2.Ready })
}

// Get sends a request for a path, with one message of size bytes if it is a gRPC path, and returns
// the size of the response body.
func (c *Client) Get(path string, size int) (n int, err error) {
	c.done, c.bodySize = false, 0
	grpc := IsGRPC(path)
	s := c.http2.Open(c.http2.Encode(Request(path)...), !grpc)
	if grpc {
		c.http2.SendData(s, Message(size), true, nil)
	}
	err = c.runUntil(func() bool { return c.done })
	return c.bodySize, err
}

// Hold opens n streams that the origin does not respond to.
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

// runUntil writes and reads until the condition is true.
func (c *Client) runUntil(done func() bool) error {
	buffer := make([]byte, 32<<10)
	for {
		if err := c.flush(); err != nil {
			return err
		}
		if done() {
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

// OnFields implements Handler.
func (c *Client) OnFields(s *Stream, f Fields, end bool) error {
	c.done = c.done || end
	return Check(s, f, f.GRPCStatus != "", end)
}

// OnData implements Handler.
func (c *Client) OnData(_ *Stream, b []byte, end bool) error {
	c.bodySize += len(b)
	c.done = c.done || end
	return nil
}

// RequestOnce starts HTTP/2 on a new connection, requests a path like Get and returns an error
// unless the response body has want bytes.
func RequestOnce(conn net.Conn, path string, size, want int) error {
	c, err := Connect(conn)
	if err != nil {
		return err
	}
	return c.Expect(path, size, want)
}

// Expect calls Get and returns an error unless the response body has want bytes.
func (c *Client) Expect(path string, size, want int) error {
	n, err := c.Get(path, size)
	if err == nil && n != want {
		err = fmt.Errorf("%s: a response of %d bytes, want %d", path, n, want)
	}
	return err
}
