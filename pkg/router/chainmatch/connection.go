package chainmatch

import (
	"net/netip"

	"github.com/weft-proxy/weft/pkg/config"
)

// Connection is what is known of a connection when its filter chain is chosen. What is
// not known is the zero value, and meets no criterion.
type Connection struct {
	// Destination is what the connection was made to: before it was redirected, and as
	// a PROXY protocol header says. Invalid: no IP address.
	Destination netip.AddrPort
	// Source is who made it, as a PROXY protocol header says. Invalid: no IP address.
	Source netip.AddrPort
	// Peer is the socket's other end, which may be a proxy that carries it on.
	Peer netip.Addr

	Transport  config.TransportProtocol // what it begins with
	ServerName string                   // SNI, in lower case
	// Protocols are what the caller offers by ALPN, in its order of preference, or what
	// it was found to speak in plaintext.
	Protocols []string
}

// isLocal reports whether the connection comes from this machine, as far as its
// addresses tell: they are the same, or the source is loopback, or no IP address at all.
// A source without one that a proxy has told of is where the proxy is.
func (c *Connection) isLocal() bool {
	source := c.Source.Addr()
	if !source.IsValid() {
		source = c.Peer
	}
	return !source.IsValid() || source.IsLoopback() || source == c.Destination.Addr()
}
