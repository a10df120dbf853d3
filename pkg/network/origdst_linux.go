package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// queryOriginalDst asks the kernel for the destination of a connection before the NAT redirect
// (REDIRECT or DNAT). ipv4 says that the connection is IPv4, on a socket of either family. ok is
// false if the kernel does not know the connection.
func queryOriginalDst(c *Conn, ipv4 bool) (dst netip.AddrPort, ok bool) {
	if c.raw == nil {
		return dst, false
	}
	err := c.raw.Control(func(fd uintptr) {
		if ipv4 {
			dst, ok = queryOriginalDst4(int(fd))
		} else {
			dst, ok = queryOriginalDst6(int(fd))
		}
	})
	return dst, ok && err == nil
}

// queryOriginalDst4 reads a struct sockaddr_in: family, port, address. Of the getters in package
// unix, it calls the one whose struct is nearest in size.
func queryOriginalDst4(fd int) (netip.AddrPort, bool) {
	m, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, false
	}
	b := m.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:4])), true
}

// queryOriginalDst6 reads a struct sockaddr_in6. IP6T_SO_ORIGINAL_DST has the number of
// SO_ORIGINAL_DST.
func queryOriginalDst6(fd int) (netip.AddrPort, bool) {
	m, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, false
	}
	var port [2]byte
	binary.NativeEndian.PutUint16(port[:], m.Addr.Port) // it is in network byte order
	return netip.AddrPortFrom(netip.AddrFrom16(m.Addr.Addr).Unmap(), binary.BigEndian.Uint16(port[:])), true
}

// setTransparent lets a listening socket accept connections to addresses of other machines. The
// options of both families set the same flag of a socket.
func setTransparent(raw syscall.RawConn, addr net.Addr) error {
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.To4() == nil {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	var sockErr error
	err := raw.Control(func(fd uintptr) {
		sockErr = unix.SetsockoptInt(int(fd), level, option, 1)
	})
	return errors.Join(err, sockErr)
}

// setMark sets the mark of a socket (SO_MARK) that kernel rules match; 0: none.
func setMark(raw syscall.RawConn, value uint32) error {
	if value == 0 {
		return nil
	}
	var sockErr error
	err := raw.Control(func(fd uintptr) {
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(value)); err != nil {
			sockErr = fmt.Errorf("setting SO_MARK %d on the socket: %w", value, err)
		}
	})
	return errors.Join(err, sockErr)
}
