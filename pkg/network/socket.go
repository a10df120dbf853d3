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

// KeepAlive is how TCP asks a silent peer whether it lives. The zero value is whatever
// the place where it stands says.
type KeepAlive struct {
	Enabled  bool
	Idle     time.Duration // before the first probe; 0: the system's
	Interval time.Duration // between two probes; 0: the system's
	Probes   int           // without an answer; 0: the system's
}

// config is k as package net spells it: there, 0 means its own defaults, and what is
// negative is left to the system.
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

// keepAlive is a listener's KeepAlive, which may change while it accepts.
type keepAlive struct{ now atomic.Pointer[KeepAlive] }

// SetKeepAlive says how the callers of connections that are accepted from now on are
// asked whether they live; the zero value: not at all.
func (l *Listener) SetKeepAlive(k KeepAlive) {
	if !k.Enabled {
		l.keepAlive.now.Store(nil)
		return
	}
	l.keepAlive.now.Store(&k)
}

// apply sets the options of a connection that was accepted. One that fails is gone.
func (k *keepAlive) apply(nc net.Conn) {
	options := k.now.Load()
	if options == nil {
		return
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(options.config()) // the first read tells what is wrong
	}
}

// source returns the address that a connection to address comes from, nil if the
// system is to choose.
func (d *Dialer) source(network, address string) net.Addr {
	if network != "tcp" || !d.Source4.IsValid() && !d.Source6.IsValid() && d.Port4 == 0 && d.Port6 == 0 {
		return nil
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil
	}
	from, port, anywhere := d.Source6, d.Port6, netip.IPv6Unspecified()
	if to.Addr().Unmap().Is4() {
		from, port, anywhere = d.Source4, d.Port4, netip.IPv4Unspecified()
	}
	switch {
	case from.IsValid():
	case port == 0:
		return nil
	default:
		from = anywhere
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, port))
}

// bindLater lets a socket that is to be bound use a port that others use towards other
// peers, as if it was not bound. Bound to no port, it gets one when it connects.
func bindLater(raw syscall.RawConn, source net.Addr) error {
	level, option := unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT
	if tcp, ok := source.(*net.TCPAddr); ok && tcp.Port != 0 {
		level, option = unix.SOL_SOCKET, unix.SO_REUSEADDR
	}
	var serr error
	err := raw.Control(func(fd uintptr) { serr = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(err, serr)
}
