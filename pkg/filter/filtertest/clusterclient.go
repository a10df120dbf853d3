package filtertest

import (
	"context"
	"sync"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// ClusterClient is a filter.ClusterClient whose clusters are services of the test. The test sets
// its fields before the first use.
type ClusterClient struct {
	Clusters      map[string]protocol.Service
	HostCounts    map[string]int // number of hosts; 1 for a cluster without an entry
	UnusableHosts map[string]int // number of hosts that are not usable

	tasks sync.WaitGroup
}

// Call implements filter.ClusterClient.
func (c *ClusterClient) Call(ctx context.Context, target filter.Target, x *protocol.Exchange, receive func() error) error {
	s := c.Clusters[target.Cluster]
	if s == nil {
		return protocol.Faultf(protocol.NoCluster, "cluster %q is not defined", target.Cluster)
	}
	if err := x.Serve(ctx, s); err != nil {
		return err
	}
	defer x.ResetResponse()
	return receive()
}

// Hosts implements filter.ClusterClient.
func (c *ClusterClient) Hosts(cluster string) (usable, total int) {
	if c.Clusters[cluster] == nil {
		return 0, 0
	}
	total = 1
	if n, ok := c.HostCounts[cluster]; ok {
		total = n
	}
	return total - c.UnusableHosts[cluster], total
}

// Go implements filter.ClusterClient. It recovers a panic, as a server does.
func (c *ClusterClient) Go(f func(ctx context.Context)) {
	c.tasks.Go(func() {
		_ = recoverPanic(func() error { f(context.Background()); return nil }) // the test checks what f did
	})
}

// Wait returns when all functions started by Go have returned.
func (c *ClusterClient) Wait() { c.tasks.Wait() }
