package network

import "net"

// announced are the ends that a connection has in the eyes of its caller: of the one
// that a peer carries on, or before the kernel has redirected it.
type announced struct {
	local, remote net.Addr
	redirected    bool // by the kernel: remote is the socket's
}

// SetProxiedAddrs makes LocalAddr and RemoteAddr return what the peer, a proxy that is
// trusted, has said of the connection that it carries on. Reading goroutine, before
// anybody else knows the connection.
func (c *Conn) SetProxiedAddrs(local, remote net.Addr) {
	c.addrOverride = &announced{local: local, remote: remote}
}

// LocalAddr returns the address that the connection was made to: this end's, unless
// another was announced, or it was redirected.
func (c *Conn) LocalAddr() net.Addr {
	if c.addrOverride != nil {
		return c.addrOverride.local
	}
	return c.nc.LocalAddr()
}

// RemoteAddr returns the address that the connection was made from: the peer's, unless
// another was announced.
func (c *Conn) RemoteAddr() net.Addr {
	if c.addrOverride != nil {
		return c.addrOverride.remote
	}
	return c.nc.RemoteAddr()
}

// DirectRemoteAddr returns the address of the socket's other end, and whether that announced
// another.
func (c *Conn) DirectRemoteAddr() (addr net.Addr, other bool) {
	return c.nc.RemoteAddr(), c.addrOverride != nil && !c.addrOverride.redirected
}
