package proxy

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/pool"
)

// connectors returns a connector for each protocol whose engine has an upstream side.
func connectors(protocols []stream.Protocol, tls *upstreamTLS) map[config.Protocol]upstream.Connector {
	byProtocol := make(map[config.Protocol]upstream.Connector, len(protocols))
	for _, p := range protocols {
		if p.NewUpstreamConn != nil {
			byProtocol[p.Name] = connector{p.NewUpstreamConn, p.Multiplexed, stream.ALPN(p.Name), tls, connOrigin{}}
		}
	}
	http1, hasHTTP1 := byProtocol[config.HTTP1].(connector)
	http2, hasHTTP2 := byProtocol[config.HTTP2].(connector)
	if hasHTTP1 && hasHTTP2 {
		byProtocol[config.HTTPByALPN] = alpnConnector{http1, http2}
	}
	return byProtocol
}

// connector dials a host and starts an engine on the connection.
type connector struct {
	newConn     func(*network.Conn, stream.UpstreamConnOptions) stream.UpstreamConn
	multiplexed bool
	alpn        string // name of the protocol in ALPN
	tls         *upstreamTLS
	origin      connOrigin
}

// WithAddrs implements upstream.ProxyProtocolConnector.
func (c connector) WithAddrs(source, destination netip.AddrPort) upstream.Connector {
	c.origin.source, c.origin.destination = source, destination
	return c
}

// WithHostname implements upstream.SNIConnector.
func (c connector) WithHostname(sni config.AutoSNI, name string) upstream.Connector {
	c.origin.hostname = credential.HostnameOverride{Name: name, SNI: sni.SendSNI, Verify: sni.ValidateSAN}
	return c
}

// Multiplexed implements upstream.Connector.
func (c connector) Multiplexed() bool { return c.multiplexed }

// Connect implements upstream.Connector.
func (c connector) Connect(ctx context.Context, h *upstream.Host, deadline time.Time, onRelease func(bool)) (pool.Connection, error) {
	conn, err := c.tls.dial(ctx, h, c.offer(), c.origin, deadline)
	if err != nil {
		return nil, err
	}
	return c.start(conn, h, onRelease), nil
}

// offer returns the protocols to offer by ALPN.
func (c connector) offer() []string {
	if c.alpn == "" {
		return nil
	}
	return []string{c.alpn}
}

// start starts the engine on a connection to h.
func (c connector) start(conn *network.Conn, h *upstream.Host, onRelease func(bool)) stream.UpstreamConn {
	cfg := h.Cluster().Config()
	return c.newConn(conn, stream.UpstreamConnOptions{HTTP1: http1Options(cfg), HTTP2: http2Options(cfg), RPC: rpcOptions(cfg), ZeroLength: cfg != nil && cfg.ZeroLength, OnRelease: onRelease})
}

// alpnConnector dials hosts that choose HTTP/1.1 or HTTP/2 by ALPN.
type alpnConnector struct{ http1, http2 connector }

// WithAddrs implements upstream.ProxyProtocolConnector.
func (c alpnConnector) WithAddrs(source, destination netip.AddrPort) upstream.Connector {
	c.http2.origin.source, c.http2.origin.destination = source, destination
	return c
}

// WithHostname implements upstream.SNIConnector.
func (c alpnConnector) WithHostname(sni config.AutoSNI, name string) upstream.Connector {
	c.http2.origin.hostname = credential.HostnameOverride{Name: name, SNI: sni.SendSNI, Verify: sni.ValidateSAN}
	return c
}

// Multiplexed implements upstream.Connector.
func (alpnConnector) Multiplexed() bool { return true }

// Connect implements upstream.Connector.
func (c alpnConnector) Connect(ctx context.Context, h *upstream.Host, deadline time.Time, onRelease func(bool)) (pool.Connection, error) {
	conn, _, err := c.Negotiate(ctx, h, deadline, onRelease)
	return conn, err
}

// Negotiate implements upstream.NegotiatingConnector.
func (c alpnConnector) Negotiate(ctx context.Context, h *upstream.Host, deadline time.Time, onRelease func(bool)) (pool.Connection, config.Protocol, error) {
	conn, err := c.http2.tls.dial(ctx, h, []string{c.http2.alpn, c.http1.alpn}, c.http2.origin, deadline)
	if err != nil {
		return nil, "", err
	}
	if state := conn.TLS(); state != nil && state.Protocol == c.http2.alpn {
		return c.http2.start(conn, h, onRelease), config.HTTP2, nil
	}
	return c.http1.start(conn, h, onRelease), config.HTTP1, nil
}

// http1Options returns the options of HTTP connections to a cluster's hosts; c is nil if the cluster
// was removed.
func http1Options(c *config.Cluster) config.HTTP1Options {
	o := config.DefaultHTTP1Options()
	if c == nil {
		return o
	}
	if c.HTTP.MaxHeaderSize > 0 {
		o.MaxHeaderSize, o.MaxRequestLineSize = c.HTTP.MaxHeaderSize, c.HTTP.MaxHeaderSize
	}
	if c.HTTP.MaxHeaderCount > 0 {
		o.MaxHeaderCount = c.HTTP.MaxHeaderCount
	}
	return o
}

// http2Options returns the options of HTTP/2 connections to a cluster's hosts; c is nil if the
// cluster was removed. They set no idle timeout of streams, because gRPC calls may be silent for
// hours; the downstream listener and the route limit the idle time.
func http2Options(c *config.Cluster) config.HTTP2Options {
	o := config.DefaultHTTP2Options()
	o.StreamIdleTimeout, o.MaxConcurrentStreams = 0, 0
	if c == nil {
		return o
	}
	o.MaxConcurrentStreams, o.MaxHeaderSize, o.MaxHeaderCount = c.HTTP.MaxStreams, c.HTTP.MaxHeaderSize, c.HTTP.MaxHeaderCount
	if c.HTTP.StreamWindow > 0 {
		o.StreamWindow = c.HTTP.StreamWindow
	}
	if c.Heartbeat.Interval > 0 {
		o.PingInterval, o.PingTimeout = c.Heartbeat.Interval, c.Heartbeat.Timeout
	}
	return o
}

// rpcOptions returns the options of RPC connections to a cluster's hosts; c is nil if the cluster
// was removed.
func rpcOptions(c *config.Cluster) config.RPCOptions {
	o := config.DefaultRPCOptions()
	if c == nil {
		return o
	}
	o.MaxFrameSize = c.Pool.MaxFrameSize
	if c.Pool.MaxPendingBytes > 0 {
		o.MaxPendingBytes = c.Pool.MaxPendingBytes
	}
	o.HeartbeatInterval = c.Heartbeat.Interval
	if o.HeartbeatInterval > 0 {
		o.MaxMissedHeartbeats = max(int((c.Heartbeat.Timeout+o.HeartbeatInterval-1)/o.HeartbeatInterval), 1)
	}
	return o
}

// dial connects to h on behalf of the connection in origin, with TLS if h uses it. alpn lists the
// protocols to offer; empty: none. Its errors are Faults: ConnectTimeout or ConnectFailure.
func (u *upstreamTLS) dial(ctx context.Context, h *upstream.Host, alpn []string, origin connOrigin, deadline time.Time) (*network.Conn, error) {
	conn, err := dial(ctx, h, deadline)
	if err != nil {
		return nil, err
	}
	if err := origin.writeProxyHeader(conn, h, deadline); err != nil {
		_ = conn.Close() // no longer usable
		return nil, err
	}
	if err := u.handshake(ctx, conn, h, alpn, origin.hostname, deadline); err != nil {
		_ = conn.Close() // no longer usable
		return nil, err
	}
	return conn, nil
}

// dial connects to h. Its errors are Faults: ConnectTimeout or ConnectFailure.
func dial(ctx context.Context, h *upstream.Host, deadline time.Time) (*network.Conn, error) {
	netName, address := "tcp", h.ResolvedAddress()
	if unixaddr.Is(address) {
		netName = "unix"
	}
	conn, err := dialer(h).Dial(ctx, netName, address, deadline)
	switch {
	case err == nil:
		h.TrackConn(conn)
		return conn, nil
	case network.IsTimeout(err):
		return nil, protocol.NewFault(protocol.ConnectTimeout, err)
	default:
		return nil, protocol.NewFault(protocol.ConnectFailure, err).WithEnvoyReply(connectFailure(err))
	}
}

// connectFailure returns how Envoy expresses that a connect failed with err.
func connectFailure(err error) protocol.EnvoyReply {
	reply := protocol.EnvoyReply{ResetReason: "remote connection failure"}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		text := errno.Error()
		reply.TransportFailure = "delayed connect error: " + strings.ToUpper(text[:1]) + text[1:]
	}
	return reply
}

// dialer returns the dialer for connections to h.
func dialer(h *upstream.Host) network.Dialer {
	s := h.Socket()
	return network.Dialer{Mark: h.Mark(), KeepAlive: keepAlive(s.KeepAlive), Source4: sourceAddr(s.SourceIPv4), Source6: sourceAddr(s.SourceIPv6), Port4: s.SourcePortIPv4, Port6: s.SourcePortIPv6}
}

// sourceAddr parses a checked address of config.Socket. It returns the zero Addr for "".
func sourceAddr(text string) netip.Addr {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return ip
}

func keepAlive(k config.TCPKeepAlive) network.KeepAlive { return network.KeepAlive(k) }
