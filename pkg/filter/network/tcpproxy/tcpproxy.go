// Package tcpproxy implements the tcp_proxy network filter, which forwards bytes between a client
// and a host of a cluster. It does not interpret them.
package tcpproxy

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
)

// Forwarder connects to hosts of clusters.
type Forwarder interface {
	// Forward connects to a host of the cluster on behalf of downstream. It calls relay with the
	// connection and with the counters for the relayed bytes, and closes the connection afterwards.
	// It returns an error if all attempts fail, or the error of relay.
	Forward(ctx context.Context, downstream *network.Conn, cluster string, attempts int, relay func(upstream *network.Conn, traffic *network.RelayCounters) error) error
}

// Proxy is the handler of one filter chain. It is immutable, and safe for concurrent use.
type Proxy struct {
	config    config.TCPProxy
	routes    []config.TCPRoute // routes of config, with IPv4 ranges in place of IPv4-mapped IPv6 ranges
	forwarder Forwarder
	log       *slog.Logger
}

// New returns the handler for cfg.
func New(cfg config.TCPProxy, forwarder Forwarder, log *slog.Logger) *Proxy {
	p := &Proxy{config: cfg, routes: slices.Clone(cfg.Routes), forwarder: forwarder, log: log}
	for i := range p.routes {
		r := &p.routes[i]
		r.SourceAddrs = unmapPrefixes(r.SourceAddrs)
		r.DestinationAddrs = unmapPrefixes(r.DestinationAddrs)
	}
	return p
}

// unmapPrefixes returns a copy of ranges. In the copy, ranges of IPv4-mapped IPv6 addresses (RFC
// 4291 2.5.5.2) are converted to IPv4 ranges.
func unmapPrefixes(ranges []netip.Prefix) []netip.Prefix {
	unmapped := slices.Clone(ranges)
	for i, r := range unmapped {
		if r.Addr().Is4In6() && r.Bits() >= mappedBits {
			unmapped[i] = netip.PrefixFrom(r.Addr().Unmap(), r.Bits()-mappedBits)
		}
	}
	return unmapped
}

// mappedBits is the number of bits before the IPv4 address in an IPv4-mapped IPv6 address.
const mappedBits = 96

// ServeConn implements network.Handler. It returns when both directions have ended, one of them has
// failed, or the idle timeout has passed. It returns immediately if there is neither a matching
// route nor a default cluster. Errors come from the Forwarder.
func (p *Proxy) ServeConn(ctx context.Context, conn *network.Conn) error {
	cluster := p.route(routeAddr(conn.RemoteAddr()), routeAddr(conn.LocalAddr()))
	if cluster == "" {
		p.log.Debug("tcp_proxy: no route", "remote", conn.RemoteAddr())
		return nil
	}
	attempts := max(p.config.MaxConnectAttempts, 1)
	return p.forwarder.Forward(ctx, conn, cluster, attempts, func(upstream *network.Conn, traffic *network.RelayCounters) error {
		traffic.Relay(conn, upstream, p.config.IdleTimeout)
		return nil
	})
}

// route returns the cluster of the first route that matches, or the default cluster.
func (p *Proxy) route(source, destination netip.AddrPort) string {
	for i := range p.routes {
		r := &p.routes[i]
		if matchesAddrPort(source, r.SourceAddrs, r.SourcePorts) && matchesAddrPort(destination, r.DestinationAddrs, r.DestinationPorts) {
			return r.Cluster
		}
	}
	return p.config.Cluster
}

// matchesAddrPort reports whether a is in one of the address ranges and in one of the port ranges.
// An empty list matches everything.
func matchesAddrPort(a netip.AddrPort, addrs []netip.Prefix, ports []config.PortRange) bool {
	return (len(addrs) == 0 || slices.ContainsFunc(addrs, func(p netip.Prefix) bool { return p.Contains(a.Addr()) })) &&
		(len(ports) == 0 || slices.ContainsFunc(ports, func(r config.PortRange) bool { return r.First <= a.Port() && a.Port() <= r.Last }))
}

// routeAddr returns a in the form that routes compare: IPv4 addresses are unmapped, and there is no
// zone, because ranges have none. It returns the zero value if a is not a TCP address.
func routeAddr(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}
