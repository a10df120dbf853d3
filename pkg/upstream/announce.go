package upstream

import (
	"net/netip"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Announcer is a Connector that can say, as a connection begins, whom it is for: the
// PROXY protocol.
type Announcer interface {
	Connector
	// WithAddrs returns the Connector of connections that carry on one from source to
	// destination; the zero AddrPort is an address that is none, or nobody's.
	WithAddrs(source, destination netip.AddrPort) Connector
}

// announcing returns c for connections that belong to a caller; nil: to nobody.
func announcing(c Connector, caller *protocol.ConnMeta) Connector {
	a, ok := c.(Announcer)
	switch {
	case !ok:
		return c
	case caller == nil:
		return a.WithAddrs(netip.AddrPort{}, netip.AddrPort{})
	}
	return a.WithAddrs(caller.Remote, caller.Local)
}

// ProxyProtocol returns the version of the header that connections to the host begin
// with, 0 for none; of a cluster that has left the configuration, what it said last.
func (h *Host) ProxyProtocol() int {
	if s := h.cluster.state.Load(); s != nil {
		return s.config.ProxyProtocol
	}
	return 0
}

// checkShared refuses exchanges where connections say for whom they are, and would be
// used for others, too.
func (c *Cluster) checkShared(cfg *config.Cluster) error {
	if cfg.ProxyProtocol == 0 || cfg.Pool.Mode == config.Bind {
		return nil
	}
	return protocol.Faultf(protocol.Internal,
		"cluster %s says proxy_protocol, and its connections would be shared by callers: requests need the mode %q of its connection_pool",
		c.name, config.Bind)
}
