package network

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// NotReceived reports whether the peer is known to have closed the connection before it
// received all that was written: then the application there has not read it. err is what
// reading has failed with. It costs a system call.
//
// It is known from a FIN, which acknowledges everything that its sender had received. A reset
// acknowledges nothing, and may come from an application that has read the bytes. The kernel
// keeps its counters after the reset that answers bytes to a closed socket. False for what is
// no TCP socket, and where the kernel does not count (before Linux 4.19).
func (c *Conn) NotReceived(err error) bool {
	if c.raw == nil || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	unacknowledged := false
	_ = c.raw.Control(func(fd uintptr) { // a closed socket tells nothing
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		// The SYN counts among the bytes acknowledged.
		unacknowledged = err == nil && info.Bytes_sent > info.Bytes_retrans+info.Bytes_acked
	})
	return unacknowledged
}
