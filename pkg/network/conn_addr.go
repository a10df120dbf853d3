package network

import (
	"net"
	"net/netip"
)

// addrOverride holds the addresses that replace the socket's: the proxied addresses, or the
// original destination.
type addrOverride struct {
	local, remote net.Addr
	redirected    bool // the kernel redirected the connection; remote is the socket's
}

// LocalAddr returns the proxied local address or the original destination if there is one, or
// otherwise the socket's local address.
func (c *Conn) LocalAddr() net.Addr {
	if c.addrOverride != nil {
		return c.addrOverride.local
	}
	return c.nc.LocalAddr()
}

// RemoteAddr returns the proxied remote address if there is one, or otherwise the socket's remote
// address.
func (c *Conn) RemoteAddr() net.Addr {
	if c.addrOverride != nil {
		return c.addrOverride.remote
	}
	return c.nc.RemoteAddr()
}

// Addrs gives access to the addresses of the connection other than LocalAddr and RemoteAddr, and to
// their setters.
func (c *Conn) Addrs() Addrs { return Addrs{c} }

// Addrs reads and replaces the addresses of a connection. The accepting or reading goroutine calls
// the setters before any other goroutine reads the addresses.
type Addrs struct{ conn *Conn }

// SetProxied makes LocalAddr and RemoteAddr return the proxied addresses, those in the PROXY header
// of a trusted proxy.
func (a Addrs) SetProxied(local, remote net.Addr) {
	a.conn.addrOverride = &addrOverride{local: local, remote: remote}
}

// SetOriginalDst makes LocalAddr return dst, the destination of the connection before it was
// redirected to this socket.
func (a Addrs) SetOriginalDst(dst netip.AddrPort) {
	a.conn.addrOverride = &addrOverride{local: net.TCPAddrFromAddrPort(dst), remote: a.conn.nc.RemoteAddr(), redirected: true}
}

// OriginalDst returns the address that the client connected to: the original destination, or the
// proxied local address if it differs from the socket's. It returns false if there is no such
// address.
func (a Addrs) OriginalDst() (netip.AddrPort, bool) {
	override := a.conn.addrOverride
	if override == nil {
		return netip.AddrPort{}, false
	}
	dst, ok := addrPortOf(override.local)
	socketAddr, _ := addrPortOf(a.conn.nc.LocalAddr())
	return dst, ok && (override.redirected || dst != socketAddr)
}

// DirectRemote returns the remote address of the socket, and whether a proxied address replaces it.
func (a Addrs) DirectRemote() (addr net.Addr, proxied bool) {
	override := a.conn.addrOverride
	return a.conn.nc.RemoteAddr(), override != nil && !override.redirected
}
