package proxy

import (
	"context"

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
	if err := protocol.Contain(ctx, &via, x); err != nil {
		return err
	}
	defer x.ResetResponse()
	return receive()
}

// Hosts is filter.Calls's.
func (c calls) Hosts(cluster string) int {
	found := c.server.clusters.Find(cluster)
	if found == nil {
		return 0
	}
	return found.Size()
}

// Go is filter.Calls's. Exchanges and other calls are waited for, so that there is
// one task at least whenever it is called.
func (c calls) Go(f func(ctx context.Context)) {
	c.server.tasks.Go(func() { f(c.server.life) })
}
