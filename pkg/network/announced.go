package network

import "net"

// announced are the ends that a connection has in the eyes of its caller: of the one
// that a peer carries on, or before the kernel has redirected it.
type announced struct {
	local, remote net.Addr
	redirected    bool // by the kernel: remote is the socket's
}

// Announce makes LocalAddr and RemoteAddr return what the peer, a proxy that is
// trusted, has said of the connection that it carries on. Reading goroutine, before
// anybody else knows the connection.
func (c *Conn) Announce(local, remote net.Addr) {
	c.announced = &announced{local: local, remote: remote}
}

// LocalAddr returns the address that the connection was made to: this end's, unless
// another was announced, or it was redirected.
func (c *Conn) LocalAddr() net.Addr {
	if c.announced != nil {
		return c.announced.local
	}
	return c.nc.LocalAddr()
}

// RemoteAddr returns the address that the connection was made from: the peer's, unless
// another was announced.
func (c *Conn) RemoteAddr() net.Addr {
	if c.announced != nil {
		return c.announced.remote
	}
	return c.nc.RemoteAddr()
}

// PeerAddr returns the address of the socket's other end, and whether that announced
// another.
func (c *Conn) PeerAddr() (addr net.Addr, other bool) {
	return c.nc.RemoteAddr(), c.announced != nil && !c.announced.redirected
}
