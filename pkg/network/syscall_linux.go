package network

import (
	"syscall"
	"unsafe"
)

// The sockets are non-blocking, so these calls return at once: they may skip
// the scheduler hand-shake that syscall.Read and syscall.Write pay for. They are
// recv and send, not read and write, which pass through the file system's layer
// on their way to the socket: 80 ns a call.

// readFD reads what is there into p, which is not empty.
func readFD(fd uintptr, p []byte) (int, syscall.Errno) {
	return socketCall(syscall.SYS_RECVFROM, fd, p, 0)
}

// writeFD writes what the socket takes of p. A peer that is gone is EPIPE, not a
// signal.
func writeFD(fd uintptr, p []byte) (int, syscall.Errno) {
	return socketCall(syscall.SYS_SENDTO, fd, p, syscall.MSG_NOSIGNAL)
}

func socketCall(trap, fd uintptr, p []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
			flags|syscall.MSG_DONTWAIT, 0, 0)
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
	return socketCall(syscall.SYS_RECVFROM, fd, b[:], syscall.MSG_PEEK)
}
