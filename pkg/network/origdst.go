package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// OriginalDstMode is how connections come to a listener that their callers made to
// another address.
type OriginalDstMode uint8

// The ways.
const (
	// OriginalDstOff: connections are made to the listener's address.
	OriginalDstOff OriginalDstMode = iota
	// OriginalDstRedirect: the kernel has rewritten the destination (REDIRECT or DNAT of iptables
	// and nftables on this machine), and tells what it was.
	OriginalDstRedirect
	// OriginalDstTProxy: the kernel has rewritten nothing (TPROXY): the destination is the
	// socket's own address, whosever that is.
	OriginalDstTProxy
)

// ListenerLookup finds who is to serve a connection that was made to an address; nil: the
// listener that has accepted it. It is called by that listener's Serve and must not
// wait. Several listeners may call it at once.
type ListenerLookup func(destination netip.AddrPort) *Listener

// diversion is what a listener does with connections that were made to other
// addresses. Immutable.
type diversion struct {
	how  OriginalDstMode
	find ListenerLookup
}

// UseOriginalDst makes the listener look for the destination that callers meant, of every
// connection that it accepts from now on: from then on it is the connection's
// LocalAddr. A connection whose destination find knows a listener for is handed to
// that, which it belongs to as if it had been accepted there; find may be nil. With
// Transparent the socket becomes one that may have addresses of others, which needs
// CAP_NET_ADMIN: that can fail, and then nothing has changed.
func (l *Listener) UseOriginalDst(how OriginalDstMode, find ListenerLookup) error {
	if how == OriginalDstOff {
		l.diversion.Store(nil)
		return nil
	}
	if how == OriginalDstTProxy {
		if err := l.SetTransparent(); err != nil {
			return err
		}
	}
	l.diversion.Store(&diversion{how, find})
	return nil
}

// SetTransparent makes the listener's socket one that Redirect can call Transparent: it is
// the part of Redirect that can fail, and changes nothing by itself.
func (l *Listener) SetTransparent() error {
	s, ok := l.ln.(syscall.Conn)
	if !ok {
		return fmt.Errorf("listener %s: it has no socket", l.o.Name)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return fmt.Errorf("listener %s: %w", l.o.Name, err)
	}
	if err := transparent(raw, l.Addr()); err != nil {
		return fmt.Errorf("listener %s: transparent socket: %w", l.o.Name, err)
	}
	return nil
}

// handOver makes the destination that c was made to its address, and hands c to the
// listener that there is for it. It reports whether c is somebody else's now.
func (l *Listener) handOver(d *diversion, c *Conn) (gone bool) {
	to, ok := destination(d.how, c, l.ln.Addr())
	if !ok {
		return false
	}
	c.SetOriginalDst(to)
	if d.find == nil {
		return false
	}
	for range 2 { // one that stops has been replaced by now
		next := d.find(to)
		if next == nil || next == l {
			return false
		}
		if next.take(c) {
			return true
		}
	}
	l.refuse(c) // everybody stops
	return true
}

// destination returns where c was to go when it was redirected to a listener's address;
// false: it was made to that.
func destination(how OriginalDstMode, c *Conn, own net.Addr) (netip.AddrPort, bool) {
	local, ok := addrPortOf(c.nc.LocalAddr())
	if !ok {
		return netip.AddrPort{}, false
	}
	if how == OriginalDstTProxy {
		at, ok := addrPortOf(own)
		if !ok || at.Port() == local.Port() && (at.Addr().IsUnspecified() || at.Addr() == local.Addr()) {
			return netip.AddrPort{}, false
		}
		return local, true
	}
	to, ok := originalDestination(c, local.Addr().Is4())
	// The kernel tells what it tracks, whether it has rewritten it or not.
	if !ok || to == local {
		return netip.AddrPort{}, false
	}
	return to, true
}

// addrPortOf returns the address of a TCP socket, one of IPv4 as such and without a
// zone.
func addrPortOf(a net.Addr) (netip.AddrPort, bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, false
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port()), true
}

// SetOriginalDst makes LocalAddr return where the connection was to go before it was
// redirected to this socket. Whoever accepted it, before anybody else knows it.
func (c *Conn) SetOriginalDst(to netip.AddrPort) {
	c.addrOverride = &announced{local: net.TCPAddrFromAddrPort(to), remote: c.nc.RemoteAddr(), redirected: true}
}

// OriginalDst returns the address that the caller of the connection meant, if that is
// known to be another than where it arrived: it was redirected, or carried on by a proxy
// that has announced it.
func (c *Conn) OriginalDst() (netip.AddrPort, bool) {
	if c.addrOverride == nil {
		return netip.AddrPort{}, false
	}
	to, ok := addrPortOf(c.addrOverride.local)
	own, _ := addrPortOf(c.nc.LocalAddr())
	return to, ok && (c.addrOverride.redirected || to != own)
}

// virtualSocket is what a virtual listener has in the place of a socket.
type virtualSocket struct {
	addr    net.Addr
	serving chan struct{}   // closed when Serve runs
	ctx     context.Context //nolint:containedctx // Serve's; written before serving is closed
}

// NewVirtualListener returns a listener without a socket, whose connections others hand to it:
// those that Redirect leads to it. Address is what it stands for; of o only what is
// said of sockets and of accepting has no meaning.
func NewVirtualListener(o ListenOptions, address netip.AddrPort, h Handler) *Listener {
	l := newListener(o, nil, h)
	l.handed = &virtualSocket{addr: net.TCPAddrFromAddrPort(address), serving: make(chan struct{})}
	return l
}

// take makes c a virtual listener's: false if that has stopped, and nothing was done. It
// waits until Serve runs.
func (l *Listener) take(c *Conn) bool {
	if l.handed == nil {
		return false
	}
	select {
	case <-l.handed.serving:
		return l.enter(l.handed.ctx, c)
	case <-l.stopping:
		return false
	}
}

// serveVirtual is Serve of a virtual listener.
func (l *Listener) serveVirtual(ctx context.Context) {
	l.handed.ctx = ctx
	close(l.handed.serving)
	<-l.stopping
}

// StopReplaced is Stop for a listener that leaves while others go on. If it is virtual, its
// address is served without a break, so that Drain lets connections that were made to it
// and have had no exchange yet have their first.
func (l *Listener) StopReplaced() {
	l.Stop()
	if l.handed != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.replaced = true
	}
}
