package proxy

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/subset"
)

// TCPForwarder connects downstream connections to clusters for network filters that relay bytes.
type TCPForwarder struct {
	clusters  *upstream.Set
	tls       *upstreamTLS
	observers []filter.SessionObserver
}

// Forward connects to a host of the target on behalf of a client, in at most attempts attempts.
// Then it calls relay, which adds its byte counts to traffic, and closes the connection to the
// host. It returns a Fault or the error of relay.
func (f *TCPForwarder) Forward(ctx context.Context, downstream *network.Conn, target config.TCPTarget, attempts int, relay func(conn *network.Conn, traffic *network.RelayCounters) error) (err error) {
	s := &session{cluster: f.clusters.Find(target.Cluster), downstream: downstream, observers: f.observers}
	defer func() { s.end(err) }()
	if s.cluster == nil {
		return protocol.Faultf(protocol.NoCluster, "cluster %q is not defined", target.Cluster)
	}
	addrs := connAddrsOf(downstream)
	choice := upstream.ConnChoice{Labels: subset.NewLabels(target.Metadata), Hash: target.Hash}
	err = s.cluster.ForwardConnTo(ctx, choice, addrs, attempts, func(ctx context.Context, h *upstream.Host, deadline time.Time) (func() error, error) {
		conn, err := f.tls.dial(ctx, h, nil, originOf(downstream), deadline)
		if err != nil {
			return nil, err
		}
		if err := h.CheckLoop(addrs); err != nil {
			_ = conn.Close() // the connection leads back to Weft
			return nil, err
		}
		return func() error {
			defer conn.Close() //nolint:errcheck // all bytes were sent or the connection has failed
			s.begin(h, conn)
			return relay(conn, &s.Traffic)
		}, nil
	})
	if reason := closeReasonOf(err); reason != network.ClosedComplete {
		downstream.CloseReason = reason
	}
	return err
}
