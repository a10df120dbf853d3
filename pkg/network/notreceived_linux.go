package network

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// NotReceived reports whether the peer is known to have closed the connection before it
// received all written bytes: then its application has not read them. err is the error of
// the failed read. It costs a system call.
//
// A FIN shows this, because it acknowledges everything that its sender had received. A reset
// acknowledges nothing, and may come from an application that has read the bytes. The kernel
// keeps its counters after the reset that answers bytes to a closed socket. NotReceived
// returns false for connections that are not TCP, and where the kernel does not count
// (before Linux 4.19).
func (c *Conn) NotReceived(err error) bool {
	if c.raw == nil || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	unacknowledged := false
	_ = c.raw.Control(func(fd uintptr) { // fails only on a closed socket
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		// The SYN counts among the bytes acknowledged.
		unacknowledged = err == nil && info.Bytes_sent > info.Bytes_retrans+info.Bytes_acked
	})
	return unacknowledged
}
