package proxy

import (
	"context"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// calls is what filters call clusters by.
type calls struct{ server *Server }

// Call is filter.Calls's.
func (c calls) Call(ctx context.Context, to filter.Target, x *protocol.Exchange, receive func() error) error {
	cluster := c.server.clusters.Find(to.Cluster)
	if cluster == nil {
		return protocol.Faultf(protocol.NoCluster, "there is no cluster %q", to.Cluster)
	}
	via := upstream.Via{Cluster: cluster, Protocol: to.Protocol}
	if err := protocol.ServeRecovered(ctx, &via, x); err != nil {
		return err
	}
	defer x.ResetResponse()
	return receive()
}

// Hosts is filter.Calls's.
func (c calls) Hosts(cluster string) (usable, all int) {
	found := c.server.clusters.Find(cluster)
	if found == nil {
		return 0, 0
	}
	found.Use()
	return found.Usable(), found.Size()
}

// Go is filter.Calls's. Exchanges and other calls are waited for, so that there is
// one task at least whenever it is called.
func (c calls) Go(f func(ctx context.Context)) {
	s := c.server
	s.tasks.Go(func() {
		if p := protocol.PanicIn(contained(s.life, f)); p != nil {
			s.o.Metrics.Counter(metrics.Panics).Add(1)
			s.o.Log.Error("panic in what a filter does beside requests: this is a defect, please report it",
				"panic", p.Value, "stack", string(p.Stack))
		}
	})
}

// contained calls f, whose panic becomes an error.
func contained(ctx context.Context, f func(ctx context.Context)) (err error) {
	defer protocol.RecoverPanic(&err)
	f(ctx)
	return nil
}
