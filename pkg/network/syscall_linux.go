package network

import (
	"syscall"
	"unsafe"
)

// The sockets are non-blocking, so these calls return at once: they may skip
// the scheduler hand-shake that syscall.Read and syscall.Write pay for.

func readFD(fd uintptr, p []byte) (int, syscall.Errno) { return rw(syscall.SYS_READ, fd, p) }

func writeFD(fd uintptr, p []byte) (int, syscall.Errno) { return rw(syscall.SYS_WRITE, fd, p) }

func rw(trap, fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		if errno == syscall.EINTR {
			continue
		}
		return int(n), errno
	}
}

// peek reports what a read would find, without consuming it: n > 0 bytes, n ==
// 0 for the end, or an error (EAGAIN: nothing).
func peek(fd uintptr) (int, syscall.Errno) {
	var b [1]byte
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), 1,
			syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		return int(n), errno
	}
}
