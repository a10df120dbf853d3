package network

import (
	"syscall"
	"unsafe"
)

// readFD, writeFD and peek bypass the scheduler, whose bookkeeping in syscall.Read and
// syscall.Write costs 0.15 to 0.45 µs per call (BenchmarkSystemCall). They may do so because the
// sockets are non-blocking. They call recv and send instead of read and write, which pass through
// the kernel's file system layer and cost 80 ns more per call.

// maxSend and maxRecv bound the bytes that one call moves. During a call that bypasses the
// scheduler, no other goroutine runs on the processor and the garbage collector cannot start. With
// 1 MiB, a call takes up to 4 ms, because on loopback it also does the receiver's work. A call
// through the scheduler is no alternative: it loses its processor after 20 µs, and for messages of
// 1 MB this causes three times as many context switches and 15 % more CPU time than several short
// calls. A call that fits into one segment of 64 KiB, headers included, costs 10 µs; one KiB more
// costs 30 µs (BenchmarkSend).
const (
	maxSend = 63 << 10
	maxRecv = 64 << 10 // the buffer of a busy reader; usually fewer bytes are available
)

// readFD reads at most maxRecv available bytes into p, which is not empty.
func readFD(fd uintptr, p []byte) (int, syscall.Errno) {
	return socketCall(syscall.SYS_RECVFROM, fd, p[:min(len(p), maxRecv)], 0)
}

// writeFD writes as much of p as the socket takes, at most maxSend bytes. A closed peer causes
// EPIPE, not a signal.
func writeFD(fd uintptr, p []byte) (int, syscall.Errno) {
	return socketCall(syscall.SYS_SENDTO, fd, p[:min(len(p), maxSend)], syscall.MSG_NOSIGNAL)
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

// peek reports what a read would return, without consuming it: 1 for at least one byte, 0 for the
// end of the stream, or an error (EAGAIN: there is nothing to read).
func peek(fd uintptr) (int, syscall.Errno) {
	var b [1]byte
	return socketCall(syscall.SYS_RECVFROM, fd, b[:], syscall.MSG_PEEK)
}
