// Package tcpproxy owns the tcp_proxy network filter: bytes between a caller and
// a host of a cluster, whatever they mean.
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

// Carrier connects to a host of a cluster, on behalf of a caller, and calls use with
// the connection, and with what is to count the bytes; it closes the connection afterwards.
// It tries so many hosts at most. An error is its own or use's.
type Carrier interface {
	Forward(ctx context.Context, caller *network.Conn, cluster string, attempts int, use func(upstream *network.Conn, traffic *network.RelayCounters) error) error
}

// Proxy is the handler of one filter chain. Immutable: safe for concurrent use.
type Proxy struct {
	config  config.TCPProxy
	routes  []config.TCPRoute // config's, with addresses as addrPort gives them
	carrier Carrier
	log     *slog.Logger
}

// New returns the handler that cfg describes.
func New(cfg config.TCPProxy, carrier Carrier, log *slog.Logger) *Proxy {
	p := &Proxy{config: cfg, routes: slices.Clone(cfg.Routes), carrier: carrier, log: log}
	for i := range p.routes {
		r := &p.routes[i]
		r.SourceAddrs = unmapped(r.SourceAddrs)
		r.DestinationAddrs = unmapped(r.DestinationAddrs)
	}
	return p
}

// unmapped returns ranges with those of IPv4-mapped IPv6 addresses (RFC 4291
// 2.5.5.2) as the IPv4 ranges that they are.
func unmapped(ranges []netip.Prefix) []netip.Prefix {
	out := slices.Clone(ranges)
	for i, r := range out {
		if r.Addr().Is4In6() && r.Bits() >= mappedBits {
			out[i] = netip.PrefixFrom(r.Addr().Unmap(), r.Bits()-mappedBits)
		}
	}
	return out
}

// mappedBits is how many bits come before the IPv4 address in a mapped one.
const mappedBits = 96

// ServeConn is network.Handler's: it returns when both directions have ended,
// either failed, or the connection was idle for too long; at once, when no route
// matches. An error is the carrier's: the connection was not carried.
func (p *Proxy) ServeConn(ctx context.Context, conn *network.Conn) error {
	cluster := p.route(addrPort(conn.RemoteAddr()), addrPort(conn.LocalAddr()))
	if cluster == "" {
		p.log.Debug("tcp_proxy: no route", "remote", conn.RemoteAddr())
		return nil
	}
	attempts := max(p.config.MaxConnectAttempts, 1)
	return p.carrier.Forward(ctx, conn, cluster, attempts, func(upstream *network.Conn, traffic *network.RelayCounters) error {
		traffic.Pump(conn, upstream, p.config.IdleTimeout)
		return nil
	})
}

// route returns the cluster of the first route that matches, else the default.
func (p *Proxy) route(source, destination netip.AddrPort) string {
	for i := range p.routes {
		r := &p.routes[i]
		if within(source, r.SourceAddrs, r.SourcePorts) && within(destination, r.DestinationAddrs, r.DestinationPorts) {
			return r.Cluster
		}
	}
	return p.config.Cluster
}

// within reports whether a is in one of the ranges and one of the port ranges;
// an empty list holds everything.
func within(a netip.AddrPort, addrs []netip.Prefix, ports []config.PortRange) bool {
	return (len(addrs) == 0 || slices.ContainsFunc(addrs, func(p netip.Prefix) bool { return p.Contains(a.Addr()) })) &&
		(len(ports) == 0 || slices.ContainsFunc(ports, func(r config.PortRange) bool { return r.First <= a.Port() && a.Port() <= r.Last }))
}

// addrPort is an address as routes compare it: IPv4 as such, and without a zone,
// which no range has. What has no IP address is the zero value.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}
