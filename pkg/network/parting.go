package network

import "time"

// GoAwayHandler is a Handler of a parked connection whose protocol has a word for its end.
type GoAwayHandler interface {
	Handler
	// SendGoAway says it. The listener calls it, instead of ServeConn, when the connection
	// is to end while it is parked, and closes the connection once the peer has had a
	// moment to hear it. It must not wait, nor read.
	SendGoAway()
}

const (
	// lingerTimeout is how long a peer may take to close a connection that was ended.
	lingerTimeout = 500 * time.Millisecond
	// maxLingerBytes is how much it may send meanwhile, in bytes.
	maxLingerBytes = 256 << 10
)

// linger ends our direction and waits until the peer has closed its own, so that what
// it sends meanwhile does not make the kernel take back what was said to it. It is
// called on a small stack, which it does not let grow as long as nothing comes.
func (c *Conn) linger() {
	_ = c.SetIdle(false) // never fails
	if c.CloseWrite() != nil {
		return
	}
	c.SetReadDeadline(time.Now().Add(lingerTimeout))
	for dropped := 0; dropped < maxLingerBytes && c.AwaitReadable() == nil; {
		n := c.drop()
		if n == 0 {
			return
		}
		dropped += n
	}
}

// drop reads what has come and returns how many bytes that were; 0 at the end.
func (c *Conn) drop() int {
	var rest [512]byte
	n, _ := c.Read(rest[:]) // an error is an end as well
	return n
}
