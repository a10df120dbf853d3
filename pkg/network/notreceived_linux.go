package network

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// NotReceived reports whether the peer is known to have closed the connection before it received
// all written bytes, so that its application cannot have read all of them. err is the error of the
// failed read. NotReceived costs a system call.
//
// After a FIN, the TCP counters of the local kernel show this, because a FIN acknowledges
// everything that its sender had received. The counters stay valid if a reset follows the FIN. A
// reset alone acknowledges nothing, and may come from an application that has read the bytes.
// NotReceived returns false for connections that are not TCP, and on kernels without these counters
// (before Linux 4.19).
func (c *Conn) NotReceived(err error) bool {
	if c.raw == nil || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	unacknowledged := false
	_ = c.raw.Control(func(fd uintptr) { // fails only on a closed socket
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		// On a dialed connection, Bytes_acked includes the SYN: one missing byte stays undetected.
		unacknowledged = err == nil && info.Bytes_sent > info.Bytes_retrans+info.Bytes_acked
	})
	return unacknowledged
}
