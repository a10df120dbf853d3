package upstream

import (
	"net/netip"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// ProxyProtocolConnector is a Connector that can send the addresses of the downstream connection at
// the start of a connection, in a PROXY protocol header.
type ProxyProtocolConnector interface {
	Connector
	// WithAddrs returns a Connector whose connections send source and destination in a PROXY
	// header. The zero AddrPort means that the address is unknown.
	WithAddrs(source, destination netip.AddrPort) Connector
}

// withDownstreamAddrs returns a Connector whose connections serve the downstream connection of
// meta. meta is nil for connections that serve no downstream connection, such as those of health
// checks.
func withDownstreamAddrs(c Connector, meta *protocol.ConnMeta) Connector {
	pc, ok := c.(ProxyProtocolConnector)
	switch {
	case !ok:
		return c
	case meta == nil:
		return pc.WithAddrs(netip.AddrPort{}, netip.AddrPort{})
	}
	return pc.WithAddrs(meta.Remote, meta.Local)
}

// ProxyProtocol returns the version of the PROXY header that connections to the host begin with, or
// 0 for none. For a removed cluster it returns the last configured value.
func (h *Host) ProxyProtocol() int {
	if s := h.cluster.state.Load(); s != nil {
		return s.config.ProxyProtocol
	}
	return 0
}

// checkProxyProtocolPool returns a Fault if connections send a PROXY header for one downstream
// connection but the pool mode shares them between clients.
func (c *Cluster) checkProxyProtocolPool(cfg *config.Cluster) error {
	if cfg.ProxyProtocol == 0 || cfg.Pool.Mode == config.Bind {
		return nil
	}
	return protocol.Faultf(protocol.Internal,
		"cluster %s uses proxy_protocol, so clients cannot share its connections: set the mode of its connection_pool to %q",
		c.name, config.Bind)
}
