package proxy

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// connectors returns a connector for each protocol whose engine has an upstream side.
func connectors(protocols []stream.Protocol, tls *upstreamTLS) map[config.Protocol]upstream.Connector {
	all := make(map[config.Protocol]upstream.Connector, len(protocols))
	for _, p := range protocols {
		if p.NewUpstreamConn != nil {
			all[p.Name] = connector{p.NewUpstreamConn, p.Multiplexed, stream.ALPN(p.Name), tls, connOrigin{}}
		}
	}
	return all
}

// connector dials a host and starts an engine on the connection.
type connector struct {
	client      func(*network.Conn, stream.UpstreamConnOptions) stream.UpstreamConn
	multiplexed bool
	alpn        string // name of the protocol in ALPN
	tls         *upstreamTLS
	carried     connOrigin
}

// WithAddrs implements upstream.Announcer.
func (c connector) WithAddrs(source, destination netip.AddrPort) upstream.Connector {
	c.carried.source, c.carried.destination = source, destination
	return c
}

// WithHostname implements upstream.Asker.
func (c connector) WithHostname(by config.RequestName, name string) upstream.Connector {
	c.carried.asked = credential.HostnameOverride{Name: name, SNI: by.SNI, Verify: by.Verify}
	return c
}

// Multiplexed implements upstream.Connector.
func (c connector) Multiplexed() bool { return c.multiplexed }

// Connect implements upstream.Connector.
func (c connector) Connect(ctx context.Context, h *upstream.Host, deadline time.Time, released func(bool)) (upstream.Connection, error) {
	conn, err := c.tls.dial(ctx, h, c.alpn, c.carried, deadline)
	if err != nil {
		return nil, err
	}
	return c.client(conn, stream.UpstreamConnOptions{
		HTTP1:     config.DefaultHTTP1Options(),
		HTTP2:     http2Options(h.Cluster().Config()),
		RPC:       rpcOptions(h.Cluster().Config()),
		OnRelease: released,
	}), nil
}

// http2Options returns the options of HTTP/2 connections to a cluster's hosts; c is nil if the
// cluster was removed. The downstream listener and the route limit stream idle time, because gRPC
// calls may be silent for hours.
func http2Options(c *config.Cluster) config.HTTP2Options {
	o := config.DefaultHTTP2Options()
	o.StreamIdleTimeout = 0
	if c != nil && c.KeepAlive.Interval > 0 {
		o.PingInterval, o.PingTimeout = c.KeepAlive.Interval, c.KeepAlive.Timeout
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
	if c.Pool.MaxQueued > 0 {
		o.MaxQueued = c.Pool.MaxQueued
	}
	o.PingInterval = c.KeepAlive.Interval
	if o.PingInterval > 0 {
		o.PingMisses = max(int((c.KeepAlive.Timeout+o.PingInterval-1)/o.PingInterval), 1)
	}
	return o
}

// dial connects to h on behalf of the connection in on, with TLS if the cluster uses it. alpn is
// the protocol to negotiate. Its errors are Faults: ConnectTimeout or ConnectFailure.
func (c *upstreamTLS) dial(ctx context.Context, h *upstream.Host, alpn string, on connOrigin, deadline time.Time) (*network.Conn, error) {
	conn, err := dial(ctx, h, deadline)
	if err != nil {
		return nil, err
	}
	if err := on.announce(conn, h, deadline); err != nil {
		_ = conn.Close() // no longer usable
		return nil, err
	}
	if err := c.secure(ctx, conn, h, alpn, on.asked, deadline); err != nil {
		_ = conn.Close() // no longer usable
		return nil, err
	}
	return conn, nil
}

// dial connects to h. Its errors are Faults: ConnectTimeout or ConnectFailure.
func dial(ctx context.Context, h *upstream.Host, deadline time.Time) (*network.Conn, error) {
	kind, address := "tcp", h.ResolvedAddress()
	if strings.HasPrefix(address, "/") || strings.HasPrefix(address, "@") {
		kind = "unix"
	}
	conn, err := dialer(h).Dial(ctx, kind, address, deadline)
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

// TCPForwarder connects downstream connections to clusters for network filters that relay bytes.
type TCPForwarder struct {
	clusters *upstream.Set
	clients  *upstreamTLS
	watchers []filter.SessionObserver
}

// Forward connects to a host of the cluster on behalf of a client, with at most that many attempts.
// It then calls use, which counts in traffic, and closes the connection. Forward's own errors are
// Faults.
func (c *TCPForwarder) Forward(ctx context.Context, caller *network.Conn, cluster string, attempts int, use func(conn *network.Conn, traffic *network.RelayCounters) error) (err error) {
	s := &session{cell: c.clusters.Find(cluster), caller: caller, watchers: c.watchers}
	defer func() { s.end(err) }()
	if s.cell == nil {
		return protocol.Faultf(protocol.NoCluster, "cluster %q", cluster)
	}
	at := arrivalOf(caller)
	err = s.cell.ForwardConn(ctx, at, attempts, func(ctx context.Context, h *upstream.Host, deadline time.Time) (func() error, error) {
		conn, err := c.clients.dial(ctx, h, "", originOf(caller), deadline)
		if err != nil {
			return nil, err
		}
		if err := h.CheckLoop(at); err != nil {
			_ = conn.Close() // the connection leads back to Weft
			return nil, err
		}
		return func() error {
			defer conn.Close() //nolint:errcheck // everything was sent, or cannot be
			s.begin(h, conn)
			return use(conn, &s.Traffic)
		}, nil
	})
	if cause := causeOf(err); cause != network.ClosedComplete {
		caller.CloseReason = cause
	}
	return err
}
