package network

import (
	"syscall"
	"unsafe"
)

// The sockets are non-blocking, so these calls do not wait for the peer: small ones may
// skip the scheduler hand-shake that syscall.Read and syscall.Write pay for. They are
// recv and send, not read and write, which pass through the file system's layer
// on their way to the socket: 80 ns a call.

// How many bytes a call may move without the scheduler being told. A hidden call keeps its
// processor from the other goroutines, and the garbage collector from starting, for as
// long as the kernel copies and, on loopback, does the receiver's work: 130 µs for 64 KiB
// and 2 to 4 ms for 1 MiB where telling costs 0.45 µs (BenchmarkGather, BenchmarkCall). A
// read mostly finds less than it has room for, so it is hidden up to a busy reader's buffer.
const (
	maxHiddenWrite = 16 << 10
	maxHiddenRead  = 64 << 10
)

// readFD reads what is there into p, which is not empty.
func readFD(fd uintptr, p []byte) (int, syscall.Errno) {
	return socketCall(syscall.SYS_RECVFROM, fd, p, 0, maxHiddenRead)
}

// writeFD writes what the socket takes of p. A peer that is gone is EPIPE, not a
// signal.
func writeFD(fd uintptr, p []byte) (int, syscall.Errno) {
	return socketCall(syscall.SYS_SENDTO, fd, p, syscall.MSG_NOSIGNAL, maxHiddenWrite)
}

func socketCall(trap, fd uintptr, p []byte, flags uintptr, maxHidden int) (int, syscall.Errno) {
	flags |= syscall.MSG_DONTWAIT
	for {
		var n uintptr
		var errno syscall.Errno
		if len(p) <= maxHidden {
			n, _, errno = syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0)
		} else {
			n, _, errno = syscall.Syscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0)
		}
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
	return socketCall(syscall.SYS_RECVFROM, fd, b[:], syscall.MSG_PEEK, maxHiddenRead)
}
