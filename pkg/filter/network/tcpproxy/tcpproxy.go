// Package tcpproxy owns the tcp_proxy network filter: bytes between a caller and
// a host of a cluster, whatever they mean.
package tcpproxy

import (
	"context"
	"log/slog"
	"net"
	"net/netip"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
)

// Carrier connects to a host of a cluster and calls use with the connection; it
// closes the connection afterwards. It tries so many hosts at most. An error is
// its own or use's.
type Carrier interface {
	Carry(ctx context.Context, cluster string, attempts int, use func(upstream *network.Conn) error) error
}

// Proxy is the handler of one filter chain. Safe for concurrent use.
type Proxy struct {
	config  config.TCPProxy
	carrier Carrier
	log     *slog.Logger
}

// New returns the handler that cfg describes.
func New(cfg config.TCPProxy, carrier Carrier, log *slog.Logger) *Proxy {
	return &Proxy{config: cfg, carrier: carrier, log: log}
}

// ServeConn is network.Handler's: it returns when both directions have ended,
// either failed, or the connection was idle for too long.
func (p *Proxy) ServeConn(ctx context.Context, conn *network.Conn) error {
	cluster := p.route(addrPort(conn.RemoteAddr()), addrPort(conn.LocalAddr()))
	if cluster == "" {
		p.log.Debug("tcp_proxy: no route", "remote", conn.RemoteAddr())
		return nil
	}
	attempts := max(p.config.MaxConnectAttempts, 1)
	return p.carrier.Carry(ctx, cluster, attempts, func(upstream *network.Conn) error {
		network.Pump(conn, upstream, p.config.IdleTimeout)
		return nil
	})
}

// route returns the cluster of the first route that matches, else the default.
func (p *Proxy) route(source, destination netip.AddrPort) string {
	for i := range p.config.Routes {
		r := &p.config.Routes[i]
		if within(source, r.SourceAddrs, r.SourcePorts) && within(destination, r.DestinationAddrs, r.DestinationPorts) {
			return r.Cluster
		}
	}
	return p.config.Cluster
}

// within reports whether a is in one of the ranges and one of the port ranges;
// an empty list holds everything.
func within(a netip.AddrPort, addrs []netip.Prefix, ports []config.PortRange) bool {
	return anyOf(addrs, func(p netip.Prefix) bool { return p.Contains(a.Addr()) }) &&
		anyOf(ports, func(r config.PortRange) bool { return r.First <= a.Port() && a.Port() <= r.Last })
}

func anyOf[T any](list []T, holds func(T) bool) bool {
	for _, v := range list {
		if holds(v) {
			return true
		}
	}
	return len(list) == 0
}

// addrPort is the zero value for what has no IP address.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
