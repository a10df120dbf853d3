package chainmatch

import (
	"net/netip"

	"github.com/weft-proxy/weft/pkg/config"
)

// Connection holds the properties of a connection that are known when its filter chain is chosen.
// An unknown property is zero and matches no criterion. The source type is always known.
type Connection struct {
	// Destination is the original destination, before a redirect, or the destination in a PROXY
	// protocol header. Invalid: no IP address.
	Destination netip.AddrPort
	// Source is the remote address, or the proxied address of a PROXY protocol header. Invalid: no
	// IP address.
	Source netip.AddrPort
	// DirectSource is the direct remote address, which may belong to a proxy.
	DirectSource netip.Addr

	Transport  config.TransportProtocol // detected by the first bytes
	ServerName string                   // SNI, in lower case
	// Protocols are the protocols that the client offers by ALPN, in its order of preference, or
	// those detected in plaintext.
	Protocols []string
}

// isLocal reports whether the connection comes from this machine, judging by its addresses: the
// source is a loopback address, equals the destination, or has no IP address. DirectSource replaces
// a Source without an IP address.
func (c *Connection) isLocal() bool {
	source := c.Source.Addr()
	if !source.IsValid() {
		source = c.DirectSource
	}
	return !source.IsValid() || source.IsLoopback() || source == c.Destination.Addr()
}
