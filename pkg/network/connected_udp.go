package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ConnectedUDP is a UDP socket that is connected to one address: it sends only there and receives
// only from there. It holds a descriptor, but no goroutine and no buffer: a Poller reports when
// there is something to receive. Safe for concurrent use.
type ConnectedUDP struct {
	mu      sync.Mutex
	fd      int         // guarded by mu; -1: closed
	handler ReadHandler // set by Poller.Add, before Poller.Run can read it
	poller  *Poller     // guarded by mu; nil: none
}

// ReadHandler handles the event that a ConnectedUDP has a datagram or an error to receive.
type ReadHandler interface {
	// Readable receives the datagram or the error. Poller.Run makes one call at a time. Readable
	// may use buffer until it returns.
	Readable(buffer []byte)
}

// DialPacket connects a UDP socket to ip:port. It ignores KeepAlive, Port4 and Port6 of d.
func (d Dialer) DialPacket(address string) (*ConnectedUDP, error) {
	dst, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("UDP: %w", err)
	}
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	family, source := unix.AF_INET6, d.Source6
	if dst.Addr().Is4() {
		family, source = unix.AF_INET, d.Source4
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := d.connectPacket(fd, source, dst); err != nil {
		_ = unix.Close(fd) // closes an unused descriptor
		return nil, err
	}
	return &ConnectedUDP{fd: fd}, nil
}

func (d *Dialer) connectPacket(fd int, source netip.Addr, dst netip.AddrPort) error {
	if d.Mark != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(d.Mark)); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if source.IsValid() {
		if err := unix.Bind(fd, socketAddress(netip.AddrPortFrom(source, 0))); err != nil {
			return os.NewSyscallError("bind", err)
		}
	}
	return os.NewSyscallError("connect", unix.Connect(fd, socketAddress(dst)))
}

// socketAddress converts a into a unix.Sockaddr. The zone of a is the name of an interface.
func socketAddress(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	sa := &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if zone := a.Addr().Zone(); zone != "" {
		if i, err := net.InterfaceByName(zone); err == nil {
			sa.ZoneId = uint32(i.Index)
		}
	}
	return sa
}

// Send sends b as one datagram, without blocking. Errors: ErrSendBufferFull, ErrConnRefused for an
// earlier datagram, net.ErrClosed, and errors of the system call.
func (u *ConnectedUDP) Send(b []byte) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fd < 0 {
		return net.ErrClosed
	}
	_, errno := socketCall(syscall.SYS_SENDTO, uintptr(u.fd), b, syscall.MSG_NOSIGNAL) // writeFD could split the datagram
	return packetError("send", errno)
}

// Receive copies the next datagram to b, without blocking. Errors: ErrWouldBlock, ErrConnRefused,
// net.ErrClosed, and errors of the system call.
func (u *ConnectedUDP) Receive(b []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fd < 0 {
		return 0, net.ErrClosed
	}
	n, errno := socketCall(syscall.SYS_RECVFROM, uintptr(u.fd), b, 0)
	if errno == syscall.EAGAIN {
		return 0, ErrWouldBlock
	}
	if err := packetError("recv", errno); err != nil {
		return 0, err
	}
	return n, nil
}

// Errors of ConnectedUDP.
var (
	// ErrSendBufferFull means that the kernel has no space for the datagram, which was not sent.
	ErrSendBufferFull = errors.New("the send buffer of the socket is full")
	// ErrWouldBlock means that there is nothing to receive.
	ErrWouldBlock = errors.New("nothing to receive")
	// ErrConnRefused means that the peer's machine reports that no socket receives at the address.
	ErrConnRefused = errors.New("connection refused: nothing receives at the address")
)

func packetError(call string, errno syscall.Errno) error {
	switch errno {
	case 0:
		return nil
	case syscall.EAGAIN, syscall.ENOBUFS:
		return ErrSendBufferFull
	case syscall.ECONNREFUSED:
		return ErrConnRefused
	default:
		return os.NewSyscallError(call, errno)
	}
}

// LocalAddr returns the source address of the datagrams; the zero AddrPort after Close.
func (u *ConnectedUDP) LocalAddr() netip.AddrPort {
	u.mu.Lock()
	defer u.mu.Unlock()
	name, err := unix.Getsockname(u.fd)
	if err != nil {
		return netip.AddrPort{}
	}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// Close frees the socket. Poller.Run may still call Readable once. A second Close does nothing.
func (u *ConnectedUDP) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fd < 0 {
		return
	}
	if u.poller != nil {
		u.poller.remove(u.fd)
	}
	_ = unix.Close(u.fd) // closing also removes the descriptor from epoll
	u.fd = -1
}
