package proxy

import (
	"context"
	"net/netip"
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
	conn, err := c.tls.dial(ctx, h, c.alpn, c.origin, deadline)
	if err != nil {
		return nil, err
	}
	return c.newConn(conn, stream.UpstreamConnOptions{
		HTTP1:     config.DefaultHTTP1Options(),
		HTTP2:     http2Options(h.Cluster().Config()),
		RPC:       rpcOptions(h.Cluster().Config()),
		OnRelease: onRelease,
	}), nil
}

// http2Options returns the options of HTTP/2 connections to a cluster's hosts; c is nil if the
// cluster was removed. They set no idle timeout of streams, because gRPC calls may be silent for
// hours; the downstream listener and the route limit the idle time.
func http2Options(c *config.Cluster) config.HTTP2Options {
	o := config.DefaultHTTP2Options()
	o.StreamIdleTimeout = 0
	if c != nil && c.Heartbeat.Interval > 0 {
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

// dial connects to h on behalf of the connection in origin, with TLS if h uses it. alpn is the
// protocol to negotiate, "" for any. Its errors are Faults: ConnectTimeout or ConnectFailure.
func (u *upstreamTLS) dial(ctx context.Context, h *upstream.Host, alpn string, origin connOrigin, deadline time.Time) (*network.Conn, error) {
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
		return nil, protocol.NewFault(protocol.ConnectFailure, err)
	}
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
