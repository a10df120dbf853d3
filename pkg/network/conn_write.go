package network

import (
	"errors"
	"os"
)

// writeState returns the write state, and creates it if there is none.
func (c *Conn) writeState() *writeState {
	w := c.writer.state.Load()
	if w == nil {
		w = new(writeState)
		w.try = w.tryWrite
		c.writer.state.Store(w)
	}
	return w
}

// Write writes all of p. It fails with os.ErrDeadlineExceeded at the deadline of SetWriteDeadline,
// or if it makes no progress for the timeout of SetWriteTimeout. It detects a lack of progress
// after at most twice the timeout.
func (c *Conn) Write(p []byte) (int, error) {
	if s := c.secure.Load(); s != nil {
		return s.write(p)
	}
	return c.writePlain(p)
}

// writePlain writes all of p to the socket.
func (c *Conn) writePlain(p []byte) (int, error) {
	c.writer.timer.start(c.nc)
	written, rearmed := 0, false // rearmed: the timer has fired during this call and was armed again
	for {
		n, err := c.writeOnce(p[written:])
		written += n
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || c.writer.timer.timedOut(c.nc, rearmed && n == 0) {
			return written, err
		}
		rearmed = true
	}
}

// writeOnce writes until everything is written or an error occurs.
func (c *Conn) writeOnce(p []byte) (int, error) {
	if c.raw == nil {
		return c.nc.Write(p)
	}
	w := c.writeState()
	w.out = p
	err := c.raw.Write(w.try)
	n := len(p) - len(w.out)
	w.out = nil
	if err == nil {
		err = w.err
	}
	w.err = nil
	return n, err
}

// CloseWrite closes the write direction of the connection; the peer reads EOF. Over TLS it sends
// the alert close_notify (RFC 8446 6.1) and keeps the socket open. It does nothing on connections
// that cannot be half-closed.
func (c *Conn) CloseWrite() error {
	if s := c.secure.Load(); s != nil {
		if err := s.tls.CloseWrite(); err != nil {
			return err
		}
		return s.flush()
	}
	if halfCloser, ok := c.nc.(interface{ CloseWrite() error }); ok {
		return halfCloser.CloseWrite()
	}
	return nil
}
