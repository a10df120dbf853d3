package network

import "net"

// addrOverride holds the addresses that replace the socket's: the proxied addresses, or the
// original destination.
type addrOverride struct {
	local, remote net.Addr
	redirected    bool // the kernel redirected the connection; remote is the socket's
}

// SetProxiedAddrs makes LocalAddr and RemoteAddr return the addresses that a trusted proxy
// announced. The reading goroutine calls it before any other goroutine knows the connection.
func (c *Conn) SetProxiedAddrs(local, remote net.Addr) {
	c.addrOverride = &addrOverride{local: local, remote: remote}
}

// LocalAddr returns the proxied local address or the original destination if there is one,
// and else the socket's local address.
func (c *Conn) LocalAddr() net.Addr {
	if c.addrOverride != nil {
		return c.addrOverride.local
	}
	return c.nc.LocalAddr()
}

// RemoteAddr returns the proxied remote address if there is one, and else the socket's.
func (c *Conn) RemoteAddr() net.Addr {
	if c.addrOverride != nil {
		return c.addrOverride.remote
	}
	return c.nc.RemoteAddr()
}

// DirectRemoteAddr returns the remote address of the socket, and whether a proxy announced
// another.
func (c *Conn) DirectRemoteAddr() (addr net.Addr, other bool) {
	return c.nc.RemoteAddr(), c.addrOverride != nil && !c.addrOverride.redirected
}
