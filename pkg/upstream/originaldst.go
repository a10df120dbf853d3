package upstream

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/subset"
)

// ConnAddrs holds the addresses of a downstream connection. The zero value means that they are
// unknown.
type ConnAddrs struct {
	From netip.AddrPort // remote address of the socket
	To   netip.AddrPort // its original destination, or the local address
	// Redirected is true if To is known to differ from the address where the connection arrived.
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
// headers. fields is nil for a forwarded connection. Errors are Faults: NoDestination,
// MalformedDestination, ReasonLoop, and Overflow if there are too many hosts.
func (s *state) originalDstHost(at ConnAddrs, fields *protocol.Header) (*Host, error) {
	c := s.originalDst.cluster
	if err := c.checkLoop(at); err != nil {
		return nil, err
	}
	to, err := destinationOf(s.config, at, fields)
	if err != nil {
		return nil, err
	}
	h := s.originalDst.hostFor(to)
	if h == nil {
		c.destOverflows.Add(1)
		return nil, protocol.Faultf(protocol.Overflow, "cluster %s: all of its %d destinations are in use", c.name, maxDestinations)
	}
	return h, nil
}

// destinationOf returns the destination of an exchange.
func destinationOf(cfg *config.Cluster, at ConnAddrs, fields *protocol.Header) (netip.AddrPort, error) {
	o := &cfg.OriginalDst
	to, known := at.To, at.Redirected
	if o.Header != "" && fields != nil {
		if value, ok := fields.Lookup(o.Header); ok {
			if to, known = parseDestination(value); !known {
				return to, protocol.Faultf(protocol.MalformedDestination, "cluster %s: %s: %q is not a valid ip:port", cfg.Name, o.Header, value)
			}
		}
	}
	if !known {
		return to, protocol.Faultf(protocol.NoDestination, "cluster %s: the connection was not redirected", cfg.Name)
	}
	if o.Port != 0 {
		to = netip.AddrPortFrom(to.Addr(), o.Port)
	}
	return to, nil
}

// parseDestination parses ip:port or [ipv6]:port. It accepts only addresses that one host can have.
func parseDestination(text string) (netip.AddrPort, bool) {
	to, err := netip.ParseAddrPort(text)
	ip := to.Addr().Unmap()
	if err != nil || to.Port() == 0 || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(ip, to.Port()), true
}

// selfConns tracks the open connections to hosts of clusters of type ORIGINAL_DST. A kernel rule
// that redirects Weft's own traffic, or a header that names Weft, makes such a connection arrive at
// Weft again. To forward it would never end. The zero value is ready.
type selfConns struct {
	mu   sync.RWMutex
	open map[connEnds]int // guarded by mu; number of connections
}

// connEnds holds the addresses of a connection from the view of its client.
type connEnds struct{ from, to netip.AddrPort }

// has reports whether an accepted connection is one of Weft's own.
func (o *selfConns) has(at ConnAddrs) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.open[connEnds{at.From, at.To}] > 0
}

func (o *selfConns) add(e connEnds, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = make(map[connEnds]int)
	}
	if o.open[e] += n; o.open[e] == 0 {
		delete(o.open, e)
	}
}

// checkLoop returns a Fault of ReasonLoop if an accepted connection is one of Weft's own.
func (c *Cluster) checkLoop(at ConnAddrs) error {
	if c.env.selfConns.has(at) {
		return protocol.Faultf(protocol.ReasonLoop, "cluster %s: Weft itself opened the connection from %s to %s", c.name, at.From, at.To)
	}
	return nil
}

// CheckLoop returns a Fault of ReasonLoop if the downstream connection with the addresses at is one
// of Weft's own. The caller has connected to the host and sent nothing yet. It repeats the check
// after the connect because Weft may not have recorded its own connection at the first check.
func (h *Host) CheckLoop(at ConnAddrs) error {
	if !h.isOriginalDst {
		return nil
	}
	return h.cluster.checkLoop(at)
}

// TrackConn records a connection to the host until it closes, if its cluster is of type
// ORIGINAL_DST. The caller calls it before it sends anything.
func (h *Host) TrackConn(conn *network.Conn) {
	from, to := addrPortOf(conn.LocalAddr()), addrPortOf(conn.RemoteAddr())
	if !h.isOriginalDst || !from.IsValid() || !to.IsValid() {
		return
	}
	own, e := &h.cluster.env.selfConns, connEnds{from, to}
	own.add(e, 1)
	conn.OnClose(func() { own.add(e, -1) })
}

// addrPortOf returns a TCP address without a zone, with IPv4 unmapped.
func addrPortOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

// pickHost returns the next host for x, as hostSet.pick does. For a cluster of type ORIGINAL_DST it
// returns the destination, once. Errors are Faults.
func (v *ClusterPicker) pickHost(s *state, x *protocol.Exchange, first int) (*Host, error) {
	if s.originalDst != nil {
		h, err := s.originalDstHost(connAddrsOf(x), &x.Request.Header)
		if err == nil && wasTried(x.Record.Attempts[first:], h) {
			return nil, protocol.Faultf(protocol.NoHealthyHost, "cluster %s has no other host to try", s.config.Name)
		}
		return h, err
	}
	g := s.hostsFor(subset.Request{Route: v.Labels, Metadata: &x.Metadata})
	if g.rules != nil {
		if g = v.Cluster.applyRules(s, g, x); len(g.levels) == 0 {
			return nil, protocol.Faultf(protocol.NoHealthyHost, "cluster %s: its routing rules exclude every host for the request", s.config.Name)
		}
	}
	h := g.pick(x.Record.Hash, x.Record.Attempts, first)
	switch {
	case h != nil:
		return h, nil
	case s.subsets != nil && len(g.levels) == 0:
		return nil, protocol.Faultf(protocol.NoHealthyHost, "cluster %s has no host with the labels of the request", s.config.Name)
	default:
		return nil, protocol.Faultf(protocol.NoHealthyHost, "cluster %s has no host to try", s.config.Name)
	}
}

// pickForConn returns the next host for a forwarded connection. made holds the previous attempts.
func (s *state) pickForConn(at ConnAddrs, made []protocol.Attempt) (*Host, error) {
	if s.originalDst != nil && len(made) == 0 {
		return s.originalDstHost(at, nil)
	}
	if h := s.connectionHosts().pick(0, made, 0); h != nil {
		return h, nil
	}
	return nil, protocol.Faultf(protocol.NoHealthyHost, "cluster %s has no host to try", s.config.Name)
}

// ForwardWithoutAddrs is ForwardConn without addresses of the downstream connection.
func (c *Cluster) ForwardWithoutAddrs(ctx context.Context, attempts int, connect func(ctx context.Context, h *Host, deadline time.Time) (carry func() error, err error)) error {
	return c.ForwardConn(ctx, ConnAddrs{}, attempts, connect)
}

// Mark returns the socket mark of connections to the host, 0 for none. For a removed cluster it
// returns the last configured value.
func (h *Host) Mark() uint32 {
	if s := h.cluster.state.Load(); s != nil {
		return uint32(s.config.Mark) //nolint:gosec // config has checked it
	}
	return 0
}
