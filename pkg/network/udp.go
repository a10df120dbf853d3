package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxDatagram bounds the payload of a UDP datagram, in bytes: a buffer of this size loses nothing.
const MaxDatagram = 1<<16 - 1

// PacketOptions describe a UDP socket that clients send to.
type PacketOptions struct {
	Name      string // of the listener, for errors
	Address   string // ip:port
	ReusePort bool   // several sockets may bind the address
	Mark      uint32 // of the socket (SO_MARK); 0: none
}

// PacketConn is a UDP socket that clients send to. Safe for concurrent use.
type PacketConn struct {
	conn *net.UDPConn
	// wildcard: the socket has a wildcard address. The kernel reports the local address of each
	// datagram, and the response is sent from that address.
	wildcard bool
}

// receiveBufferSize is the requested size of the kernel's receive buffer, in bytes. The kernel may
// set a smaller size.
const receiveBufferSize = 2 << 20

// ListenPacket binds an address. Datagrams wait in the kernel until Receive is called.
func ListenPacket(ctx context.Context, o PacketOptions) (*PacketConn, error) {
	network, wildcard := "udp", true
	if addr, err := netip.ParseAddrPort(o.Address); err == nil {
		wildcard = addr.Addr().IsUnspecified()
		if addr.Addr().Is4() {
			network = "udp4" // package net would create a dual-stack socket for 0.0.0.0
		}
	}
	config := net.ListenConfig{Control: func(family, _ string, raw syscall.RawConn) error {
		var sockErr error
		err := raw.Control(func(fd uintptr) { sockErr = setPacketOptions(int(fd), o.ReusePort, wildcard, family == "udp4") })
		return errors.Join(err, sockErr, setMark(raw, o.Mark))
	}}
	pc, err := config.ListenPacket(ctx, network, o.Address)
	if err != nil {
		return nil, fmt.Errorf("listener %s: %w", o.Name, err)
	}
	conn := pc.(*net.UDPConn)                 //nolint:forcetypeassert // ListenPacket returns it for UDP networks
	_ = conn.SetReadBuffer(receiveBufferSize) // a smaller buffer is acceptable
	return &PacketConn{conn: conn, wildcard: wildcard}, nil
}

func setPacketOptions(fd int, reusePort, wildcard, ipv4 bool) error {
	if reusePort {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return err
		}
	}
	switch {
	case !wildcard:
		return nil
	case ipv4:
		return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_PKTINFO, 1)
	default:
		return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1)
	}
}

// Addr returns the bound address.
func (p *PacketConn) Addr() net.Addr { return p.conn.LocalAddr() }

// Close frees the address and ends Receive.
func (p *PacketConn) Close() error { return p.conn.Close() }

// Flow is the source of a datagram and the local address that it was sent to. Local is the zero
// Addr if the socket is bound to a single address.
type Flow struct {
	Source netip.AddrPort
	Local  netip.Addr
}

// Receive waits for a datagram and copies its payload to b. Bytes that do not fit are lost; a
// buffer of MaxDatagram bytes loses none. The error is net.ErrClosed after Close. Any other error
// concerns one datagram or is temporary: the caller may call Receive again.
func (p *PacketConn) Receive(b []byte) (n int, f Flow, err error) {
	if !p.wildcard {
		n, f.Source, err = p.conn.ReadFromUDPAddrPort(b)
		return n, f, err
	}
	var oob [controlBufferSize]byte
	n, oobn, _, source, err := p.conn.ReadMsgUDPAddrPort(b, oob[:])
	if err != nil {
		return 0, Flow{}, err
	}
	return n, Flow{source, parsePacketInfo(oob[:oobn])}, nil
}

// Send sends b to the source of f, from the local address of f. While the send buffer of the kernel
// is full, it blocks, until Close at the latest.
func (p *PacketConn) Send(b []byte, f Flow) error {
	if !f.Local.IsValid() {
		_, err := p.conn.WriteToUDPAddrPort(b, f.Source)
		return err
	}
	var oob [controlBufferSize]byte
	_, _, err := p.conn.WriteMsgUDPAddrPort(b, appendPacketInfo(oob[:0], f.Local), f.Source)
	return err
}

// The ancillary data of a datagram in Linux (cmsg(3)) is a header with length, level and type, and
// then, for IPv4, a struct in_pktinfo (ip(7)): interface index, local address, destination address
// in the IP header. For IPv6 it is a struct in6_pktinfo (ipv6(7)): address, interface index.
const (
	controlHeaderSize = 16
	packetInfo4Size   = 12
	packetInfo6Size   = 20
	controlBufferSize = 64
)

// parsePacketInfo returns the address that a datagram was sent to; the zero Addr if its ancillary
// data does not contain it.
func parsePacketInfo(control []byte) netip.Addr {
	for len(control) >= controlHeaderSize {
		length := int(binary.NativeEndian.Uint64(control))
		if length < controlHeaderSize || length > len(control) {
			break
		}
		level, typ := binary.NativeEndian.Uint32(control[8:]), binary.NativeEndian.Uint32(control[12:])
		data := control[controlHeaderSize:length]
		switch {
		case level == unix.SOL_IP && typ == unix.IP_PKTINFO && len(data) >= packetInfo4Size:
			return netip.AddrFrom4([4]byte(data[4:8]))
		case level == unix.SOL_IPV6 && typ == unix.IPV6_PKTINFO && len(data) >= packetInfo6Size:
			return netip.AddrFrom16([16]byte(data[:16]))
		}
		control = control[min((length+7)&^7, len(control)):]
	}
	return netip.Addr{}
}

// appendPacketInfo appends the ancillary data that makes local the source address of a datagram.
func appendPacketInfo(dst []byte, local netip.Addr) []byte {
	if local.Is4() {
		ip := local.As4()
		dst = appendControlHeader(dst, packetInfo4Size, unix.SOL_IP, unix.IP_PKTINFO)
		dst = append(dst, 0, 0, 0, 0)
		dst = append(dst, ip[:]...)
		return append(dst, 0, 0, 0, 0, 0, 0, 0, 0) // the last four are padding
	}
	ip := local.As16()
	dst = appendControlHeader(dst, packetInfo6Size, unix.SOL_IPV6, unix.IPV6_PKTINFO)
	dst = append(dst, ip[:]...)
	return append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
}

func appendControlHeader(dst []byte, dataLen uint64, level, typ uint32) []byte {
	dst = binary.NativeEndian.AppendUint64(dst, controlHeaderSize+dataLen)
	dst = binary.NativeEndian.AppendUint32(dst, level)
	return binary.NativeEndian.AppendUint32(dst, typ)
}
