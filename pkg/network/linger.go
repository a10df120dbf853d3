package network

import "time"

// GoAwayHandler is a Handler whose protocol can announce the end of a parked connection.
type GoAwayHandler interface {
	Handler
	// SendGoAway announces the end. The listener calls it, instead of ServeConn, when a parked
	// connection drains. The listener then writes the pending bytes of the connection's WriteQueue,
	// and closes the connection after a short linger. SendGoAway must neither wait nor read.
	SendGoAway()
}

const (
	// lingerTimeout bounds how long linger waits for the peer to close the connection.
	lingerTimeout = 500 * time.Millisecond
	// maxLingerBytes bounds how much linger reads and discards, in bytes.
	maxLingerBytes = 256 << 10
)

// linger closes the write direction and waits until the peer has closed its own. Without this,
// bytes that the peer still sends could make the kernel reset the connection and discard the
// written bytes. It needs little stack, so that a parked goroutine keeps its small stack.
func linger(c *Conn) {
	_ = c.SetIdle(false) // never fails
	if c.CloseWrite() != nil {
		return
	}
	c.SetReadDeadline(time.Now().Add(lingerTimeout))
	for discarded := 0; discarded < maxLingerBytes && c.AwaitReadable() == nil; {
		n := discardRead(c)
		if n == 0 {
			return
		}
		discarded += n
	}
}

// discardRead reads and discards up to 512 bytes, and returns their number; 0: the peer has closed
// its direction, or the read failed.
func discardRead(c *Conn) int {
	var buf [512]byte
	n, _ := c.Read(buf[:]) // n is 0 after an error
	return n
}
