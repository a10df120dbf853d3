package network

import (
	"syscall"
	"unsafe"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// mostPieces is how many pieces of an outbox leave in one system call.
const mostPieces = 16

// writePieces writes what the socket takes of the first mostPieces pieces, of which
// there is one at least, and returns how many bytes that is.
func writePieces(fd uintptr, pieces []*buffer.IoBuffer) (int, syscall.Errno) {
	if len(pieces) == 1 {
		return writeFD(fd, pieces[0].Bytes())
	}
	var parts [mostPieces]syscall.Iovec
	n := min(len(pieces), mostPieces)
	size := 0
	for i := range n {
		p := pieces[i].Bytes()
		size += len(p)
		parts[i].Base = unsafe.SliceData(p)
		parts[i].SetLen(len(p))
	}
	message := syscall.Msghdr{Iov: &parts[0], Iovlen: uint64(n)}
	for {
		const flags = syscall.MSG_NOSIGNAL | syscall.MSG_DONTWAIT
		var written uintptr
		var errno syscall.Errno
		if size <= maxHiddenWrite {
			written, _, errno = syscall.RawSyscall6(syscall.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&message)), flags, 0, 0, 0)
		} else {
			written, _, errno = syscall.Syscall6(syscall.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&message)), flags, 0, 0, 0)
		}
		if errno == syscall.EINTR {
			continue
		}
		return int(written), errno
	}
}
