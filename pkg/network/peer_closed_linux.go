package network

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// peerCloseError returns why the peer of fd has closed the connection; nil if it has not. With
// allowHalfClose, a half-close by the peer does not count.
func peerCloseError(fd uintptr, allowHalfClose bool) error {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	for {
		_, err := unix.Poll(fds[:], 0)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) { // an error is final; only EINTR is retried
			return os.NewSyscallError("poll", err)
		}
	}
	switch events := fds[0].Revents; {
	case events&unix.POLLERR != 0:
		return os.NewSyscallError("poll", unix.ECONNRESET)
	case events&(unix.POLLHUP|unix.POLLRDHUP) == 0:
		return nil
	case events&unix.POLLHUP == 0 && allowHalfClose:
		return nil
	}
	return io.EOF
}
