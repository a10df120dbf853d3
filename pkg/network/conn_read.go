package network

import (
	"errors"
	"os"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// unreadBytes holds bytes that reads return before the bytes of the socket. The reading goroutine
// owns it.
type unreadBytes struct {
	buf *buffer.IoBuffer // not empty; nil: there are no unread bytes
}

// take returns the buffer, which the caller owns from now on; nil: there are no unread bytes.
func (u *unreadBytes) take() *buffer.IoBuffer {
	b := u.buf
	u.buf = nil
	return b
}

// fill appends all unread bytes to *buf and returns their number; *buf may be nil.
func (u *unreadBytes) fill(buf **buffer.IoBuffer) int {
	b := u.take()
	if *buf == nil {
		*buf = b
		return b.Len()
	}
	n, _ := (*buf).Write(b.Bytes()) // never fails
	b.Release()
	return n
}

// read moves unread bytes to p and returns their number.
func (u *unreadBytes) read(p []byte) int {
	n, _ := u.buf.Read(p) // never fails: buf is not empty
	if u.buf.Len() == 0 {
		u.release()
	}
	return n
}

// release discards the unread bytes.
func (u *unreadBytes) release() {
	if b := u.take(); b != nil {
		b.Release()
	}
}

// readState returns the read state, and creates it if there is none.
func (c *Conn) readState() *readState {
	if c.reader.state == nil {
		r := &readState{secure: c.secure.Load()}
		r.try, r.writeAndRead, r.peek = r.tryRead, r.tryWriteAndRead, r.tryPeek
		c.reader.state = r
	}
	return c.reader.state
}

// Fill waits until there are bytes and appends the bytes of one read to *buf. If *buf is nil, Fill
// takes a buffer of the given size only once there is something to read, so that a waiting socket
// holds no buffer. Fill may set *buf and still return an error: the caller always releases *buf.
// Fill grows a full *buf.
//
// Errors: io.EOF, os.ErrDeadlineExceeded (see SetReadDeadline), ErrInterrupted, ErrDraining (only
// while idle), or the error of the connection.
func (c *Conn) Fill(buf **buffer.IoBuffer, size int) (int, error) {
	for {
		if c.reader.unread.buf != nil { // over TLS, handleReadError may have read ahead
			return c.reader.unread.fill(buf), nil
		}
		if *buf != nil && len((*buf).Tail()) == 0 {
			(*buf).Reserve(max(size, (*buf).Len()))
		}
		n, err := c.fillOnce(buf, size)
		if err == nil {
			return n, nil
		}
		if err = c.handleReadError(err); err != nil {
			return 0, err
		}
	}
}

// FillOnWait is like Fill, but calls wait, on the same goroutine, each time before it waits because
// there is nothing to read. wait can flush frames that the caller has gathered to write them
// together. On connections that are not sockets, it calls wait once, before it reads. wait must not
// read.
func (c *Conn) FillOnWait(buf **buffer.IoBuffer, size int, wait func()) (int, error) {
	if c.raw == nil {
		wait()
		return c.Fill(buf, size)
	}
	r := c.readState()
	r.onWait = wait
	n, err := c.Fill(buf, size)
	r.onWait = nil
	return n, err
}

func (c *Conn) fillOnce(buf **buffer.IoBuffer, size int) (int, error) {
	if c.raw == nil {
		if *buf == nil {
			*buf = buffer.Get(size)
		}
		n, err := c.readOnce((*buf).Tail())
		(*buf).Extend(n)
		if n > 0 {
			err = nil // the next read returns the error again
		}
		return n, err
	}
	r := c.readState()
	r.buf, r.size = *buf, size
	err := c.raw.Read(r.try)
	*buf, r.buf = r.buf, nil
	if err == nil {
		err = r.err
	}
	r.err = nil
	return r.n, err
}

// Unread makes the next reads return the bytes of b before the bytes of the socket. b must not be
// empty, and there must be no other unread bytes. The connection owns b from now on.
func (c *Conn) Unread(b *buffer.IoBuffer) { c.reader.unread.buf = b }

// WriteAndFill writes out and then reads as Fill does. It saves the read attempt with which Fill
// begins. Use it only if the peer sends nothing but responses and all of them were read, so that
// there is nothing to read before the write. sent is how many bytes of out were written: less than
// all only if writing failed. The read deadline does not bound the write.
func (c *Conn) WriteAndFill(out []byte, buf **buffer.IoBuffer, size int) (sent, n int, err error) {
	if c.raw == nil || c.secure.Load() != nil || c.reader.unread.buf != nil || *buf != nil {
		if sent, err = c.Write(out); err != nil {
			return sent, 0, err
		}
		n, err = c.Fill(buf, size)
		return sent, n, err
	}
	r := c.readState()
	err = c.writeAndFillOnce(out, buf, size)
	sent = len(out) - len(r.out)
	rest := r.out
	r.out = nil
	switch {
	case err == nil && len(rest) == 0:
		return sent, r.n, nil
	case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
		return sent, 0, err
	}
	// The socket is full, or the read timer has fired: Write sends the rest.
	if len(rest) > 0 {
		m, err := c.Write(rest)
		sent += m
		if err != nil {
			return sent, 0, err
		}
	}
	n, err = c.Fill(buf, size)
	return sent, n, err
}

func (c *Conn) writeAndFillOnce(out []byte, buf **buffer.IoBuffer, size int) error {
	r := c.readState()
	r.buf, r.size, r.out = nil, size, out
	err := c.raw.Read(r.writeAndRead)
	*buf, r.buf = r.buf, nil
	if err == nil {
		err = r.err
	}
	r.err = nil
	return err
}

// Read reads as net.Conn does, under the deadline of SetReadDeadline.
func (c *Conn) Read(p []byte) (int, error) {
	for {
		if c.reader.unread.buf != nil { // see Fill
			return c.reader.unread.read(p), nil
		}
		n, err := c.readOnce(p)
		if n > 0 || err == nil {
			return n, nil
		}
		if err = c.handleReadError(err); err != nil {
			return 0, err
		}
	}
}

// readOnce waits for bytes and reads once.
func (c *Conn) readOnce(p []byte) (int, error) {
	s := c.secure.Load()
	if s == nil {
		return c.nc.Read(p)
	}
	if c.raw == nil {
		return s.read(p)
	}
	n, result := 0, error(nil)
	err := c.raw.Read(func(fd uintptr) bool {
		n, result = s.poll(fd, p)
		return !errors.Is(result, errNoData)
	})
	if err == nil {
		err = result
	}
	return n, err
}
