package network

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"unsafe"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// socketPair returns two connected sockets. The end of the test closes them.
func socketPair(tb testing.TB) [2]int {
	tb.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = syscall.Close(fds[0])
		_ = syscall.Close(fds[1])
	})
	return fds
}

// BenchmarkSystemCall compares system calls that bypass the scheduler with system calls that do
// not. It calls recv on an empty socket.
func BenchmarkSystemCall(b *testing.B) {
	fds := socketPair(b)
	var p [1]byte
	b.Run("raw", func(b *testing.B) {
		for b.Loop() {
			_, _, _ = syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fds[0]), uintptr(unsafe.Pointer(&p)), 1, syscall.MSG_DONTWAIT, 0, 0)
		}
	})
	b.Run("scheduler", func(b *testing.B) {
		for b.Loop() {
			_, _, _ = syscall.Syscall6(syscall.SYS_RECVFROM, uintptr(fds[0]), uintptr(unsafe.Pointer(&p)), 1, syscall.MSG_DONTWAIT, 0, 0)
		}
	})
}

// TestSystemCallsAreBounded verifies that one call moves at most maxSend or maxRecv bytes: the
// scheduler does not know of these calls, so each must be short.
func TestSystemCallsAreBounded(t *testing.T) {
	fds := socketPair(t)
	for _, fd := range fds {
		if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 4<<20); err != nil {
			t.Fatal(err)
		}
	}
	var pieces []*buffer.IoBuffer
	for range maxIovecs {
		pieces = append(pieces, buffer.Borrow(make([]byte, maxPieceSize)))
	}
	smallPieces := []*buffer.IoBuffer{buffer.Borrow(make([]byte, 5)), buffer.Borrow(make([]byte, 7))}
	p := make([]byte, 1<<20)
	for _, test := range []struct {
		name string
		call func() (int, syscall.Errno)
		want int
	}{
		{"send", func() (int, syscall.Errno) { return writeFD(uintptr(fds[0]), p) }, maxSend},
		{"send one piece", func() (int, syscall.Errno) { return writev(uintptr(fds[0]), pieces[:1]) }, maxSend},
		{"send pieces", func() (int, syscall.Errno) { return writev(uintptr(fds[0]), pieces) }, maxSend},
		{"send small pieces and a part of a large one", func() (int, syscall.Errno) {
			return writev(uintptr(fds[0]), append(smallPieces, pieces...))
		}, maxSend},
		{"receive", func() (int, syscall.Errno) { return readFD(uintptr(fds[1]), p) }, maxRecv},
	} {
		if n, errno := test.call(); n != test.want || errno != 0 {
			t.Errorf("%s: %d bytes, errno %d, want %d bytes", test.name, n, errno, test.want)
		}
	}
}

// BenchmarkSend measures one call that sends the given number of bytes on loopback.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{16 << 10, 32 << 10, maxSend, 64 << 10, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer ln.Close()
			go func() {
				nc, err := ln.Accept()
				if err == nil {
					_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{nc}, make([]byte, 1<<20))
				}
			}()
			nc, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			_ = nc.(*net.TCPConn).SetWriteBuffer(8 << 20)
			c := NewConn(nc)
			p := make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				for remaining := size; remaining > 0; {
					err := c.raw.Write(func(fd uintptr) bool {
						n, errno := socketCall(syscall.SYS_SENDTO, fd, p[:remaining], syscall.MSG_NOSIGNAL)
						if errno == syscall.EAGAIN {
							return false
						}
						remaining -= n
						return true
					})
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
