package network

import (
	"io"
	"os"
	"syscall"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// IsReusable reports whether the connection is open and its peer has sent nothing:
// what a pooled connection must be before it is used again. It costs a system
// call and never waits. Connections that are not plain sockets are taken at
// their word.
func (c *Conn) IsReusable() bool {
	if c.raw == nil {
		return true
	}
	r := c.reads()
	return c.raw.Control(r.peek) == nil && r.found < 0
}

// hasBytes reports whether there are bytes to be read. Connections that are not
// plain sockets cannot be asked and have none.
func (c *Conn) hasBytes() bool {
	if c.raw == nil {
		return false
	}
	r := c.reads()
	return c.raw.Control(r.peek) == nil && r.found > 0
}

// AwaitReadable waits, without a buffer, until a read would not block, under
// the deadline of SetReadDeadline. io.EOF means that the peer has ended its
// direction; bytes are left unread, or over TLS, read and kept for the next read. On a connection that is not a plain socket
// it returns at once.
func (c *Conn) AwaitReadable() error {
	if c.raw == nil || c.reader.unread != nil {
		return nil
	}
	if c.secure.Load() != nil {
		return c.readAhead()
	}
	for {
		var result error
		err := c.raw.Read(func(fd uintptr) bool {
			n, errno := peek(fd)
			switch {
			case errno == syscall.EAGAIN:
				return false
			case errno != 0:
				result = os.NewSyscallError("recv", errno)
			case n == 0:
				result = io.EOF
			}
			return true
		})
		if err == nil {
			return result
		}
		if err = c.readFailed(err); err != nil {
			return err
		}
	}
}

// readAhead waits until there is plaintext, and keeps it for the next read: only
// reading tells whether what the socket brought is more than half a record.
func (c *Conn) readAhead() error {
	var b *buffer.IoBuffer
	_, err := c.Fill(&b, aheadSize)
	switch {
	case b == nil:
	case err == nil:
		c.Unread(b)
	default:
		b.Release()
	}
	return err
}

// AwaitPeerClose waits until the peer has closed, reset or half-closed the
// connection, or the wait is ended by Interrupt (ErrInterrupted). Bytes that
// arrive meanwhile are left unread. halfClose says that the end of the peer's
// direction alone is not the end. A connection that is not a plain socket cannot
// be watched without reading: ErrInterrupted at once.
func (c *Conn) AwaitPeerClose(halfClose bool) error {
	if c.raw == nil {
		return ErrInterrupted
	}
	for {
		var result error
		err := c.raw.Read(func(fd uintptr) bool {
			result = peerClosed(fd, halfClose)
			return result != nil
		})
		if err == nil {
			return result
		}
		if err = c.readFailed(err); err != nil {
			return err
		}
	}
}
