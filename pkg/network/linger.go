package network

import "time"

// GoAwayHandler is a Handler whose protocol can announce the end of a parked connection.
type GoAwayHandler interface {
	Handler
	// SendGoAway announces the end. The listener calls it, instead of ServeConn, when the
	// connection must end while it is parked, and closes the connection after a short
	// linger. SendGoAway must neither wait nor read.
	SendGoAway()
}

const (
	// lingerTimeout bounds how long linger waits for the peer to close the connection.
	lingerTimeout = 500 * time.Millisecond
	// maxLingerBytes bounds how much linger reads and discards, in bytes.
	maxLingerBytes = 256 << 10
)

// linger ends our direction and waits until the peer has closed its own, so that bytes that
// the peer still sends do not make the kernel discard what was written. It runs on a small
// stack, which does not grow while nothing arrives.
func linger(c *Conn) {
	_ = c.SetIdle(false) // never fails
	if c.CloseWrite() != nil {
		return
	}
	c.SetReadDeadline(time.Now().Add(lingerTimeout))
	for dropped := 0; dropped < maxLingerBytes && c.AwaitReadable() == nil; {
		n := discardRead(c)
		if n == 0 {
			return
		}
		dropped += n
	}
}

// discardRead reads and discards what has arrived, and returns the number of bytes; 0 at the end.
func discardRead(c *Conn) int {
	var rest [512]byte
	n, _ := c.Read(rest[:]) // an error is an end as well
	return n
}
