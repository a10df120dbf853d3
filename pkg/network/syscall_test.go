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

// BenchmarkCall is what telling the scheduler of a system call costs: recv that finds
// nothing, hidden and told.
func BenchmarkCall(b *testing.B) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer syscall.Close(fds[0])
	defer syscall.Close(fds[1])
	var p [1]byte
	b.Run("hidden", func(b *testing.B) {
		for b.Loop() {
			_, _, _ = syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fds[0]), uintptr(unsafe.Pointer(&p)), 1, syscall.MSG_DONTWAIT, 0, 0)
		}
	})
	b.Run("told", func(b *testing.B) {
		for b.Loop() {
			_, _, _ = syscall.Syscall6(syscall.SYS_RECVFROM, uintptr(fds[0]), uintptr(unsafe.Pointer(&p)), 1, syscall.MSG_DONTWAIT, 0, 0)
		}
	})
}

// BenchmarkGather is how long one call takes that sends so many bytes on loopback.
func BenchmarkGather(b *testing.B) {
	for _, pieces := range []int{1, 2, 4, mostPieces} {
		b.Run(fmt.Sprintf("%dKiB", pieces*outboxPiece>>10), func(b *testing.B) {
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
			var all []*buffer.IoBuffer
			for range pieces {
				all = append(all, buffer.Borrow(make([]byte, outboxPiece)))
			}
			calls := 0
			for b.Loop() {
				for left := pieces * outboxPiece; left > 0; {
					err := c.raw.Write(func(fd uintptr) bool {
						n, errno := writePieces(fd, all)
						if errno == syscall.EAGAIN {
							return false
						}
						calls++
						left -= n
						return true
					})
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(calls)/float64(b.N), "calls/op")
		})
	}
}
