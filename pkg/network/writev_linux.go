package network

import (
	"syscall"
	"unsafe"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// maxIovecs is the maximum number of pieces of a write queue that one system call writes.
const maxIovecs = 16

// writev writes as much of the first pieces as the socket takes, and returns the number of bytes
// written: at most maxSend, of at most maxIovecs pieces. pieces is not empty.
func writev(fd uintptr, pieces []*buffer.IoBuffer) (int, syscall.Errno) {
	if len(pieces) == 1 {
		return writeFD(fd, pieces[0].Bytes())
	}
	var iov [maxIovecs]syscall.Iovec
	n, size := 0, 0
	for n < min(len(pieces), maxIovecs) && size < maxSend {
		p := pieces[n].Bytes()
		p = p[:min(len(p), maxSend-size)]
		size += len(p)
		iov[n].Base = unsafe.SliceData(p)
		iov[n].SetLen(len(p))
		n++
	}
	msg := syscall.Msghdr{Iov: &iov[0], Iovlen: uint64(n)}
	for {
		written, _, errno := syscall.RawSyscall6(syscall.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&msg)),
			syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT, 0, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		return int(written), errno
	}
}
