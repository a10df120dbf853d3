package network

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// KeepAlive configures TCP keepalive probes. The field or function that takes a KeepAlive says what
// its zero value means.
type KeepAlive struct {
	Enabled  bool
	Idle     time.Duration // before the first probe; 0: the system's default
	Interval time.Duration // between two probes; 0: the system's default
	Probes   int           // without a response; 0: the system's default
}

// config returns k in the form of package net, where 0 means the default of that package and a
// negative value means the default of the system.
func (k KeepAlive) config() net.KeepAliveConfig {
	c := net.KeepAliveConfig{Enable: k.Enabled, Idle: k.Idle, Interval: k.Interval, Count: k.Probes}
	if c.Idle == 0 {
		c.Idle = -1
	}
	if c.Interval == 0 {
		c.Interval = -1
	}
	if c.Count == 0 {
		c.Count = -1
	}
	return c
}

// keepAliveSetting holds a listener's KeepAlive, which may change while the listener accepts.
type keepAliveSetting struct{ current atomic.Pointer[KeepAlive] }

// SetKeepAlive configures keepalive for the connections that are accepted from now on; the zero
// value disables it.
func (l *Listener) SetKeepAlive(k KeepAlive) {
	if !k.Enabled {
		l.keepAlive.current.Store(nil)
		return
	}
	l.keepAlive.current.Store(&k)
}

// apply sets the keepalive options of an accepted connection. It fails only on a connection that
// has ended.
func (k *keepAliveSetting) apply(nc net.Conn) {
	options := k.current.Load()
	if options == nil {
		return
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(options.config()) // the first read returns the error
	}
}

// sourceAddr returns the source address of a connection to address; nil: the system chooses.
func (d *Dialer) sourceAddr(network, address string) net.Addr {
	if network != "tcp" || !d.Source4.IsValid() && !d.Source6.IsValid() && d.Port4 == 0 && d.Port6 == 0 {
		return nil
	}
	dst, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil
	}
	source, port, unspecified := d.Source6, d.Port6, netip.IPv6Unspecified()
	if dst.Addr().Unmap().Is4() {
		source, port, unspecified = d.Source4, d.Port4, netip.IPv4Unspecified()
	}
	switch {
	case source.IsValid():
	case port == 0:
		return nil
	default:
		source = unspecified
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, port))
}

// allowPortSharing lets a socket share its source port with sockets that connect to other peers: a
// configured port through SO_REUSEADDR; otherwise the kernel chooses the port only when the socket
// connects.
func allowPortSharing(raw syscall.RawConn, source net.Addr) error {
	level, option := unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT
	if tcp, ok := source.(*net.TCPAddr); ok && tcp.Port != 0 {
		level, option = unix.SOL_SOCKET, unix.SO_REUSEADDR
	}
	var sockErr error
	err := raw.Control(func(fd uintptr) { sockErr = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(err, sockErr)
}
