package upstream

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/subset"
)

// ConnAddrs holds the addresses of a downstream connection. The zero value means that they are
// unknown.
type ConnAddrs struct {
	From netip.AddrPort // remote address of the socket
	To   netip.AddrPort // original destination if the connection was redirected, else the local address
	// Redirected reports that To differs from the address where the connection arrived.
	Redirected bool
}

// connAddrsOf returns the ConnAddrs of an exchange's connection.
func connAddrsOf(x *protocol.Exchange) ConnAddrs {
	if m := x.Meta.Conn; m != nil {
		return ConnAddrs{From: m.DirectRemote(), To: m.Local, Redirected: m.Redirected}
	}
	return ConnAddrs{}
}

// originalDstHost returns the host of a cluster of type ORIGINAL_DST for an exchange with these
// headers. header is nil for a forwarded connection. Errors are Faults: NoDestination,
// MalformedDestination, ReasonLoop, and Overflow if maxDestinations hosts are busy.
func (s *state) originalDstHost(addrs ConnAddrs, header *protocol.Header) (*Host, error) {
	c := s.originalDst.cluster
	if err := c.checkLoop(addrs); err != nil {
		return nil, err
	}
	dst, err := destinationOf(s.config, addrs, header)
	if err != nil {
		return nil, err
	}
	h := s.originalDst.hostFor(dst)
	if h == nil {
		c.destOverflows.Add(1)
		return nil, protocol.Faultf(protocol.Overflow, "cluster %s: all of its %d destinations are in use", c.name, maxDestinations)
	}
	return h, nil
}

// destinationOf returns the destination of an exchange.
func destinationOf(cfg *config.Cluster, addrs ConnAddrs, header *protocol.Header) (netip.AddrPort, error) {
	o := &cfg.OriginalDst
	dst, redirected := addrs.To, addrs.Redirected
	if o.Header != "" && header != nil {
		if value, ok := header.Lookup(o.Header); ok {
			if dst, redirected = parseDestination(value); !redirected {
				return dst, protocol.Faultf(protocol.MalformedDestination, "cluster %s: %s: %q is not a valid ip:port", cfg.Name, o.Header, value)
			}
		}
	}
	if !redirected {
		return dst, protocol.Faultf(protocol.NoDestination, "cluster %s: the connection was not redirected", cfg.Name)
	}
	if o.Port != 0 {
		dst = netip.AddrPortFrom(dst.Addr(), o.Port)
	}
	return dst, nil
}

// parseDestination parses ip:port or [ipv6]:port. It rejects port 0, zones, and unspecified and
// multicast addresses.
func parseDestination(s string) (netip.AddrPort, bool) {
	dst, err := netip.ParseAddrPort(s)
	ip := dst.Addr().Unmap()
	if err != nil || dst.Port() == 0 || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(ip, dst.Port()), true
}

// selfConns tracks the open connections to hosts of clusters of type ORIGINAL_DST. A kernel rule
// that redirects Weft's own traffic, or a header that names Weft, makes such a connection arrive at
// Weft again. Forwarding it would be an endless loop. The zero value is ready.
type selfConns struct {
	mu   sync.RWMutex
	open map[connEnds]int // guarded by mu; number of connections
}

// connEnds holds the addresses of a connection as its client sees them.
type connEnds struct{ from, to netip.AddrPort }

// has reports whether an accepted connection is one of Weft's own.
func (c *selfConns) has(addrs ConnAddrs) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.open[connEnds{addrs.From, addrs.To}] > 0
}

func (c *selfConns) add(ends connEnds, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = make(map[connEnds]int)
	}
	if c.open[ends] += n; c.open[ends] == 0 {
		delete(c.open, ends)
	}
}

// checkLoop returns a Fault of ReasonLoop if an accepted connection is one of Weft's own.
func (c *Cluster) checkLoop(addrs ConnAddrs) error {
	if c.env.selfConns.has(addrs) {
		return protocol.Faultf(protocol.ReasonLoop, "cluster %s: Weft itself opened the connection from %s to %s", c.name, addrs.From, addrs.To)
	}
	return nil
}

// CheckLoop returns a Fault of ReasonLoop if the downstream connection with these addresses is one
// of Weft's own. The caller has connected to the host and sent nothing yet. This is the second
// check: at the first, before the connect, Weft may not have recorded its own connection yet.
func (h *Host) CheckLoop(addrs ConnAddrs) error {
	if !h.isOriginalDst {
		return nil
	}
	return h.cluster.checkLoop(addrs)
}

// TrackConn records a connection to the host until the connection closes, if the cluster is of type
// ORIGINAL_DST. The caller has sent nothing on the connection yet.
func (h *Host) TrackConn(conn *network.Conn) {
	from, to := addrPortOf(conn.LocalAddr()), addrPortOf(conn.RemoteAddr())
	if !h.isOriginalDst || !from.IsValid() || !to.IsValid() {
		return
	}
	conns, ends := &h.cluster.env.selfConns, connEnds{from, to}
	conns.add(ends, 1)
	conn.OnClose(func() { conns.add(ends, -1) })
}

// addrPortOf returns a TCP address without a zone and with IPv4 unmapped, or the zero AddrPort if a
// is not a TCP address.
func addrPortOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	addr := tcp.AddrPort()
	return netip.AddrPortFrom(addr.Addr().Unmap().WithZone(""), addr.Port())
}

// pickHost returns the next host for x, as hostSet.pick does. For a cluster of type ORIGINAL_DST it
// returns the original destination, or an error if the exchange has already tried that host. Errors
// are Faults.
func (cp *ClusterPicker) pickHost(s *state, x *protocol.Exchange, first int) (*Host, error) {
	if s.originalDst != nil {
		h, err := s.originalDstHost(connAddrsOf(x), &x.Request.Header)
		if err == nil && wasTried(x.Record.Attempts[first:], h) {
			return nil, protocol.Faultf(protocol.NoHealthyHost, "cluster %s has no other host to try", s.config.Name)
		}
		return h, err
	}
	hs := s.hostsFor(subset.Request{Route: cp.Labels, Metadata: &x.Metadata})
	if hs.rules != nil {
		if hs = cp.Cluster.applyRules(s, hs, x); len(hs.levels) == 0 {
			return nil, protocol.Faultf(protocol.NoHealthyHost, "cluster %s: its routing rules exclude every host for the request", s.config.Name)
		}
	}
	h := hs.pick(x.Record.Hash, x.Record.Attempts, first)
	switch {
	case h != nil:
		return h, nil
	case s.subsets != nil && len(hs.levels) == 0:
		return nil, protocol.Faultf(protocol.NoHealthyHost, "cluster %s has no host with the labels of the request", s.config.Name)
	default:
		return nil, protocol.Faultf(protocol.NoHealthyHost, "cluster %s has no healthy host", s.config.Name)
	}
}

// pickForConn returns the next host for a forwarded connection. tried holds the previous attempts.
func (s *state) pickForConn(choice ConnChoice, addrs ConnAddrs, tried []protocol.Attempt) (*Host, error) {
	if s.originalDst != nil && len(tried) == 0 {
		return s.originalDstHost(addrs, nil)
	}
	if s.aggregate != nil {
		if h := s.aggregate.pickForConn(choice, rand.Uint64(), tried); h != nil {
			return h, nil
		}
	} else if h := s.connectionHosts(choice.Labels).pick(choice.Hash, tried, 0); h != nil {
		return h, nil
	}
	return nil, protocol.Faultf(protocol.NoHealthyHost, "cluster %s has no healthy host", s.config.Name)
}

// Mark returns the socket mark of connections to the host, 0 for none. For a removed cluster it
// returns the last configured value.
func (h *Host) Mark() uint32 {
	if s := h.cluster.state.Load(); s != nil {
		return uint32(s.config.Mark) //nolint:gosec // config has checked it
	}
	return 0
}
