package proxy

import (
	"context"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/proxy/service"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// clusterClient lets filters call clusters.
type clusterClient struct {
	server *Server
	// internalHeaders marks the requests as those of the proxy; see service.SetInternalHeaders.
	internalHeaders bool
}

// Call implements filter.ClusterClient.
func (c clusterClient) Call(ctx context.Context, target filter.Target, x *protocol.Exchange, receive func() error) error {
	cluster := c.server.clusters.Find(target.Cluster)
	if cluster == nil {
		return protocol.Faultf(protocol.NoCluster, "cluster %q is not defined", target.Cluster)
	}
	picker := upstream.ClusterPicker{Cluster: cluster, Protocol: target.Protocol}
	if c.internalHeaders {
		service.SetInternalHeaders(x, target.Timeout)
	}
	if err := x.Serve(ctx, &picker); err != nil {
		return err
	}
	defer x.ResetResponse()
	if c.internalHeaders {
		service.SetServiceTime(x, x.Record.UpstreamStart)
	}
	return receive()
}

// Hosts implements filter.ClusterClient.
func (c clusterClient) Hosts(name string) (usable, total int) {
	cluster := c.server.clusters.Find(name)
	if cluster == nil {
		return 0, 0
	}
	cluster.RequestHosts()
	return cluster.UsableHosts(), cluster.HostCount()
}

// Go implements filter.ClusterClient. It does not race with s.tasks.Wait in Drain: only exchanges
// and tasks call Go, and Drain waits for them.
func (c clusterClient) Go(f func(ctx context.Context)) {
	s := c.server
	s.tasks.Go(func() {
		if p := protocol.PanicIn(recoverPanic(s.backgroundCtx, f)); p != nil {
			s.o.Metrics.Counter(metrics.Panics).Add(1)
			s.o.Log.Error("panic in a background task of a filter; this is a defect, please report it",
				"panic", p.Value, "stack", string(p.Stack))
		}
	})
}

// recoverPanic calls f and returns its panic as an error.
func recoverPanic(ctx context.Context, f func(ctx context.Context)) (err error) {
	defer protocol.RecoverPanic(&err)
	f(ctx)
	return nil
}
