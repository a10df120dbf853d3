package network

import (
	"io"
	"os"
	"syscall"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// IsReusable reports whether the connection is open and its peer has sent nothing, as a pool
// requires before it reuses a connection. It costs a system call and never waits. It returns true
// for connections that are not sockets.
func (c *Conn) IsReusable() bool {
	if c.raw == nil {
		return true
	}
	r := c.readState()
	return c.raw.Control(r.peek) == nil && r.peeked < 0
}

// hasBytes reports whether there are bytes to read. It returns false for connections that are not
// sockets.
func (c *Conn) hasBytes() bool {
	if c.raw == nil {
		return false
	}
	r := c.readState()
	return c.raw.Control(r.peek) == nil && r.peeked > 0
}

// AwaitReadable waits, without a buffer, until a read would not block, under the deadline of
// SetReadDeadline. io.EOF means that the peer has closed its direction. It leaves bytes unread;
// over TLS it reads them and keeps them for the next read. On a connection that is not a socket it
// returns immediately.
func (c *Conn) AwaitReadable() error {
	if c.raw == nil || c.reader.unread.buf != nil {
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
		if err = c.handleReadError(err); err != nil {
			return err
		}
	}
}

// readAhead waits until there is plaintext and keeps it for the next read: only reading shows
// whether the socket holds a complete record.
func (c *Conn) readAhead() error {
	var b *buffer.IoBuffer
	_, err := c.Fill(&b, readAheadSize)
	switch {
	case b == nil:
	case err == nil:
		c.Unread(b)
	default:
		b.Release()
	}
	return err
}

// AwaitPeerClose waits until the peer has closed, reset or half-closed the connection. It then
// returns io.EOF or the error of the socket. Interrupt (ErrInterrupted) and the read deadline
// (os.ErrDeadlineExceeded) also end the wait. Bytes that arrive meanwhile stay unread. With
// allowHalfClose, a half-close by the peer does not end the wait. A connection that is not a socket
// cannot be watched without reading: AwaitPeerClose returns ErrInterrupted immediately.
func (c *Conn) AwaitPeerClose(allowHalfClose bool) error {
	if c.raw == nil {
		return ErrInterrupted
	}
	for {
		var result error
		err := c.raw.Read(func(fd uintptr) bool {
			result = peerCloseError(fd, allowHalfClose)
			return result != nil
		})
		if err == nil {
			return result
		}
		if err = c.handleReadError(err); err != nil {
			return err
		}
	}
}
