// Package tcpproxy implements the tcp_proxy network filter, which forwards bytes between a client
// and a host of a cluster. It does not interpret them.
package tcpproxy

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-proxy/weft/internal/hash"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
)

// Forwarder connects to hosts of clusters.
type Forwarder interface {
	// Forward connects to a host of the target on behalf of downstream. It calls relay with the
	// connection and with the counters for the relayed bytes, and closes the connection afterwards.
	// It returns an error if all attempts fail, or the error of relay.
	Forward(ctx context.Context, downstream *network.Conn, target config.TCPTarget, attempts int, relay func(upstream *network.Conn, traffic *network.RelayCounters) error) error
}

// Proxy is the handler of one filter chain. It is immutable, and safe for concurrent use.
type Proxy struct {
	config    config.TCPProxy
	routes    []config.TCPRoute // routes of config, with IPv4 ranges in place of IPv4-mapped IPv6 ranges
	weighted  []config.TCPTarget
	weights   []uint64 // cumulative, by index in weighted
	random    func(n uint64) uint64
	forwarder Forwarder
	log       *slog.Logger
}

// New returns the handler for cfg.
func New(cfg config.TCPProxy, forwarder Forwarder, log *slog.Logger) *Proxy {
	p := &Proxy{config: cfg, routes: slices.Clone(cfg.Routes), random: rand.Uint64N, forwarder: forwarder, log: log}
	total := uint64(0)
	for _, w := range cfg.WeightedClusters {
		labels := maps.Clone(cfg.Metadata)
		if labels == nil {
			labels = w.Metadata
		} else {
			maps.Copy(labels, w.Metadata)
		}
		total += uint64(w.Weight)
		p.weighted, p.weights = append(p.weighted, config.TCPTarget{Cluster: w.Cluster, Metadata: labels}), append(p.weights, total)
	}
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
// failed, the idle timeout has passed, or the connection has reached its maximum duration. It returns immediately if there is neither a matching
// route nor a default cluster. Errors come from the Forwarder.
func (p *Proxy) ServeConn(ctx context.Context, conn *network.Conn) error {
	target := p.target(routeAddr(conn.RemoteAddr()), routeAddr(conn.LocalAddr()))
	if target.Cluster == "" {
		p.log.Debug("tcp_proxy: no route", "remote", conn.RemoteAddr())
		return nil
	}
	attempts := max(p.config.MaxConnectAttempts, 1)
	if p.config.MaxDuration > 0 {
		closing := time.AfterFunc(p.config.MaxDuration, func() { _ = conn.Close() }) // ends the relay
		defer closing.Stop()
	}
	return p.forwarder.Forward(ctx, conn, target, attempts, func(upstream *network.Conn, traffic *network.RelayCounters) error {
		traffic.Relay(conn, upstream, p.config.IdleTimeout)
		return nil
	})
}

// target returns where a connection between two addresses goes. Without a route for it and without
// clusters, the target has no cluster.
func (p *Proxy) target(source, destination netip.AddrPort) config.TCPTarget {
	t := config.TCPTarget{Cluster: p.route(source, destination), Metadata: p.config.Metadata}
	if t.Cluster == "" && len(p.weighted) > 0 {
		point := p.random(p.weights[len(p.weights)-1])
		t = p.weighted[slices.IndexFunc(p.weights, func(end uint64) bool { return point < end })]
	}
	if p.config.HashSourceIP && source.IsValid() {
		t.Hash = max(hash.String(source.Addr().String()), 1)
	}
	return t
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
