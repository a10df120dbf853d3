package network

import (
	"syscall"
	"unsafe"
)

// The sockets are non-blocking, so these calls do not wait for the peer: they skip the
// scheduler's bookkeeping that syscall.Read and syscall.Write do, which costs 0.15 to
// 0.45 µs a call (BenchmarkSystemCall). They are recv and send, not read and write, which pass
// through the file system's layer on their way to the socket: 80 ns a call.

// Maximum number of bytes that one call moves. During a call that bypasses the scheduler, no other
// goroutine runs on the processor and the garbage collector cannot start, for as long as the kernel
// copies and, on loopback, does the receiver's work: up to 4 ms for 1 MiB. A call through the
// scheduler loses its processor after 20 µs, and the goroutine that runs there instead competes
// with it. For messages of 1 MB, this causes three times as many context switches and 15 % more CPU
// time than several short calls. A call that fits into one segment of 64 KiB, headers included,
// costs 10 µs; one KiB more costs 30 µs (BenchmarkSend).
const (
	maxSend = 63 << 10
	maxRecv = 64 << 10 // the buffer of a busy reader; usually fewer bytes are available
)

// readFD reads at most maxRecv available bytes into p, which is not empty.
func readFD(fd uintptr, p []byte) (int, syscall.Errno) {
	return socketCall(syscall.SYS_RECVFROM, fd, p[:min(len(p), maxRecv)], 0)
}

// writeFD writes as much of p as the socket takes, at most maxSend bytes. A closed peer
// causes EPIPE, not a signal.
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

// peek reports what a read would find, without consuming it: n > 0 bytes, n ==
// 0 for the end, or an error (EAGAIN: nothing).
func peek(fd uintptr) (int, syscall.Errno) {
	var b [1]byte
	return socketCall(syscall.SYS_RECVFROM, fd, b[:], syscall.MSG_PEEK)
}
