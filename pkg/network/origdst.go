package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// OriginalDstMode says how a listener receives connections that clients made to other addresses.
type OriginalDstMode uint8

// Original destination modes.
const (
	// OriginalDstOff means that clients connect to the listener's address.
	OriginalDstOff OriginalDstMode = iota
	// OriginalDstRedirect means that the kernel has rewritten the destination (REDIRECT or DNAT of
	// iptables and nftables on this machine), and reports the original one.
	OriginalDstRedirect
	// OriginalDstTProxy means that the kernel has rewritten nothing (TPROXY): the destination is
	// the socket's local address, which may belong to another machine.
	OriginalDstTProxy
)

// ListenerLookup returns the listener for a destination; nil: the listener that accepted the
// connection. A ListenerLookup must not block, because it runs in the accept loop. Several
// listeners may call it concurrently.
type ListenerLookup func(destination netip.AddrPort) *Listener

// originalDstConfig says how a listener treats connections that clients made to other addresses.
// Immutable.
type originalDstConfig struct {
	mode   OriginalDstMode
	lookup ListenerLookup
}

// UseOriginalDst makes the listener look up the original destination of every connection that it
// accepts from now on. The original destination becomes the connection's LocalAddr. If lookup
// returns another listener, which must be virtual, that listener takes over the connection as if it
// had accepted it; lookup may be nil. OriginalDstTProxy makes the socket transparent, which needs
// CAP_NET_ADMIN or CAP_NET_RAW. If that fails, UseOriginalDst changes nothing. OriginalDstOff makes
// the listener ignore original destinations again.
func (l *Listener) UseOriginalDst(mode OriginalDstMode, lookup ListenerLookup) error {
	if mode == OriginalDstOff {
		l.originalDst.Store(nil)
		return nil
	}
	if mode == OriginalDstTProxy {
		if err := l.SetTransparent(); err != nil {
			return err
		}
	}
	l.originalDst.Store(&originalDstConfig{mode, lookup})
	return nil
}

// SetTransparent makes the listener's socket transparent, as OriginalDstTProxy requires. It is the
// part of UseOriginalDst that can fail, and changes nothing else.
func (l *Listener) SetTransparent() error {
	s, ok := l.ln.(syscall.Conn)
	if !ok {
		return fmt.Errorf("listener %s: the listener has no socket", l.opts.Name)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return fmt.Errorf("listener %s: %w", l.opts.Name, err)
	}
	if err := setTransparent(raw, l.Addr()); err != nil {
		return fmt.Errorf("listener %s: transparent socket: %w", l.opts.Name, err)
	}
	return nil
}

// redirect sets c's original destination and passes c to the listener for it. It reports whether it
// passed c to another listener or closed c.
func (l *Listener) redirect(d *originalDstConfig, c *Conn) (handled bool) {
	dst, ok := originalDst(d.mode, c, l.ln.Addr())
	if !ok {
		return false
	}
	c.Addrs().SetOriginalDst(dst)
	if d.lookup == nil {
		return false
	}
	for range 2 { // if the first listener has stopped, the second lookup finds its replacement
		target := d.lookup(dst)
		if target == nil || target == l {
			return false
		}
		if target.takeOver(c) {
			return true
		}
	}
	l.refuseConn(c) // both lookups returned a listener that has stopped or has a socket
	return true
}

// originalDst returns the original destination of a connection; false: the client connected to the
// listener's own address, or the destination is not known.
func originalDst(mode OriginalDstMode, c *Conn, listenAddr net.Addr) (netip.AddrPort, bool) {
	local, ok := addrPortOf(c.nc.LocalAddr())
	if !ok {
		return netip.AddrPort{}, false
	}
	if mode == OriginalDstTProxy {
		listen, ok := addrPortOf(listenAddr)
		if !ok || listen.Port() == local.Port() && (listen.Addr().IsUnspecified() || listen.Addr() == local.Addr()) {
			return netip.AddrPort{}, false
		}
		return local, true
	}
	dst, ok := queryOriginalDst(c, local.Addr().Is4())
	// The kernel reports every connection that it tracks, rewritten or not.
	if !ok || dst == local {
		return netip.AddrPort{}, false
	}
	return dst, true
}

// addrPortOf returns the address of a TCP socket, without a zone. It turns an IPv4-mapped address
// into an IPv4 address.
func addrPortOf(a net.Addr) (netip.AddrPort, bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, false
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port()), true
}

// virtualSocket replaces the socket of a virtual listener.
type virtualSocket struct {
	addr    net.Addr
	serving chan struct{}   // closed when Serve runs
	ctx     context.Context //nolint:containedctx // the context of Serve; written before serving is closed
}

// NewVirtualListener returns a listener without a socket. Other listeners pass connections to it,
// through UseOriginalDst. Addr returns address, to which no socket is bound. Network, Address,
// ReusePort, Mark and AcceptRate of o, and SetKeepAlive, have no effect.
func NewVirtualListener(o ListenOptions, address netip.AddrPort, h Handler) *Listener {
	l := newListener(o, nil, h)
	l.virtual = &virtualSocket{addr: net.TCPAddrFromAddrPort(address), serving: make(chan struct{})}
	return l
}

// takeOver waits until Serve runs, and then adds c to a virtual listener. It returns false and
// leaves c open if the listener has stopped or has a socket.
func (l *Listener) takeOver(c *Conn) bool {
	if l.virtual == nil {
		return false
	}
	select {
	case <-l.virtual.serving:
		return l.addConn(l.virtual.ctx, c)
	case <-l.stopping:
		return false
	}
}

// serveVirtual is Serve for a virtual listener.
func (l *Listener) serveVirtual(ctx context.Context) {
	l.virtual.ctx = ctx
	close(l.virtual.serving)
	<-l.stopping
}

// StopReplaced is Stop for a listener that is removed while Weft continues. If the listener is
// virtual, another listener serves its address without a gap, so clients do not expect new
// connections to close. Drain then closes a connection without an exchange only after its first
// one.
func (l *Listener) StopReplaced() {
	l.Stop()
	if l.virtual != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.replaced = true
	}
}
