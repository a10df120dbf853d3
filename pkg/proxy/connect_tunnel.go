package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// connectTunnel serves CONNECT requests itself: it connects to a host of the cluster, and responds
// with a tunnel of the bytes between the client and the host.
type connectTunnel struct {
	server  *Server
	cluster func(x *protocol.Exchange) *upstream.Cluster // returns nil for an unknown cluster
}

// Start implements protocol.Service.
func (s *connectTunnel) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, s)
}

// Serve implements protocol.BlockingService.
func (s *connectTunnel) Serve(ctx context.Context, x *protocol.Exchange) error {
	cluster := s.cluster(x)
	if cluster == nil {
		return protocol.Faultf(protocol.NoCluster, "the route chose cluster %q, which is not defined", x.Record.TargetCluster)
	}
	x.Detach()
	x.Record.Cluster = cluster
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if x.Downstream != nil {
		defer x.Downstream.OnDisconnect(cancel)()
	}
	t := &hostTunnel{connected: make(chan *upstream.Host, 1), closed: make(chan struct{}), ended: make(chan error, 1)}
	connecting, stop := context.WithCancel(context.WithoutCancel(ctx)) // the tunnel outlives Serve
	addrs := upstream.ConnAddrs{From: x.Meta.Conn.DirectRemote(), To: x.Meta.Conn.Local, Redirected: x.Meta.Conn.Redirected}
	clusterClient{server: s.server}.Go(func(context.Context) {
		defer stop()
		t.ended <- cluster.ForwardConn(connecting, addrs, 1, s.connect(t))
	})
	select {
	case h := <-t.connected:
		x.Record.BeginAttempt(h)
		x.Response.Status = 200
		x.Response.ContentLength = -1
		x.Response.Source = protocol.UpstreamResponse
		x.Response.SetTunnel(t)
		return nil
	case err := <-t.ended:
		return err
	case <-ctx.Done():
		stop()
		_ = t.Close()
		return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client disconnected before a host was connected")
	}
}

// connect returns the function that connects t to a host.
func (s *connectTunnel) connect(t *hostTunnel) func(ctx context.Context, h *upstream.Host, deadline time.Time) (func() error, error) {
	return func(ctx context.Context, h *upstream.Host, deadline time.Time) (func() error, error) {
		conn, err := s.server.upstreamTLS.dial(ctx, h, nil, connOrigin{}, deadline)
		if err != nil {
			return nil, err
		}
		return func() error {
			defer conn.Close() //nolint:errcheck // all bytes were sent or the connection has failed
			t.Conn = conn
			t.connected <- h
			<-t.closed
			return nil
		}, nil
	}
}

// hostTunnel is a protocol.Tunnel to a host.
type hostTunnel struct {
	*network.Conn                     // set before connected is sent
	connected     chan *upstream.Host // gets the host
	ended         chan error          // gets the result of the connect, or nil after the tunnel
	closed        chan struct{}       // closed by Close
	once          sync.Once
}

// Close implements protocol.Tunnel. The goroutine that connected closes the connection.
func (t *hostTunnel) Close() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}
