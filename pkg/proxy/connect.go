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

// connectors make upstream connections of each protocol that an engine speaks.
func connectors(protocols []stream.Protocol, tls *upstreamTLS) map[config.Protocol]upstream.Connector {
	all := make(map[config.Protocol]upstream.Connector, len(protocols))
	for _, p := range protocols {
		if p.NewUpstreamConn != nil {
			all[p.Name] = connector{p.NewUpstreamConn, p.Multiplexed, stream.ALPN(p.Name), tls, connOrigin{}}
		}
	}
	return all
}

// connector dials a host and lets an engine speak over the connection.
type connector struct {
	client      func(*network.Conn, stream.UpstreamConnOptions) stream.UpstreamConn
	multiplexed bool
	alpn        string // how the protocol is called there
	tls         *upstreamTLS
	carried     connOrigin
}

// WithAddrs is upstream.Announcer's.
func (c connector) WithAddrs(source, destination netip.AddrPort) upstream.Connector {
	c.carried.source, c.carried.destination = source, destination
	return c
}

// WithHostname is upstream.Asker's.
func (c connector) WithHostname(by config.RequestName, name string) upstream.Connector {
	c.carried.asked = credential.HostnameOverride{Name: name, SNI: by.SNI, Verify: by.Verify}
	return c
}

// Multiplexed is upstream.Connector's.
func (c connector) Multiplexed() bool { return c.multiplexed }

// Connect is upstream.Connector's.
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

// http2Options are the habits of HTTP/2 connections to a cluster's hosts; nil for
// one that has left the configuration. How long a stream may be silent is for its
// caller's listener to say, and for the route: calls of gRPC may be so for hours.
func http2Options(c *config.Cluster) config.HTTP2Options {
	o := config.DefaultHTTP2Options()
	o.StreamIdleTimeout = 0
	if c != nil && c.KeepAlive.Interval > 0 {
		o.PingInterval, o.PingTimeout = c.KeepAlive.Interval, c.KeepAlive.Timeout
	}
	return o
}

// rpcOptions are the limits and habits of connections to a cluster's hosts; nil
// for one that has left the configuration.
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

// dial connects to h, for a connection that is carried on, over TLS if its cluster says
// so: alpn is what is to be spoken. Its errors are Faults: ConnectTimeout or
// ConnectFailure.
func (c *upstreamTLS) dial(ctx context.Context, h *upstream.Host, alpn string, on connOrigin, deadline time.Time) (*network.Conn, error) {
	conn, err := dial(ctx, h, deadline)
	if err != nil {
		return nil, err
	}
	if err := on.announce(conn, h, deadline); err != nil {
		_ = conn.Close() // it is good for nothing
		return nil, err
	}
	if err := c.secure(ctx, conn, h, alpn, on.asked, deadline); err != nil {
		_ = conn.Close() // it is good for nothing
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

// TCPForwarder connects callers to clusters for network filters that carry bytes.
type TCPForwarder struct {
	clusters *upstream.Set
	clients  *upstreamTLS
	watchers []filter.SessionObserver
}

// Forward connects to a host of the cluster for a caller, trying so many at most, calls
// use, which counts in traffic, and closes the connection. Errors of its own are Faults.
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
			_ = conn.Close() // it leads back to here
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
