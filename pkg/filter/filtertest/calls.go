package filtertest

import (
	"context"
	"sync"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Calls is a filter.ClusterClient whose clusters are services of the test. Its fields are set
// before the first use.
type Calls struct {
	Clusters map[string]protocol.Service
	Sizes    map[string]int // hosts; 1 for a cluster that is not here
	Down     map[string]int // those of them that are not usable

	tasks sync.WaitGroup
}

// Call is filter.ClusterClient's.
func (c *Calls) Call(ctx context.Context, to filter.Target, x *protocol.Exchange, receive func() error) error {
	s := c.Clusters[to.Cluster]
	if s == nil {
		return protocol.Faultf(protocol.NoCluster, "there is no cluster %q", to.Cluster)
	}
	if err := protocol.ServeRecovered(ctx, s, x); err != nil {
		return err
	}
	defer x.ResetResponse()
	return receive()
}

// Hosts is filter.ClusterClient's.
func (c *Calls) Hosts(cluster string) (usable, all int) {
	if c.Clusters[cluster] == nil {
		return 0, 0
	}
	all = 1
	if n, ok := c.Sizes[cluster]; ok {
		all = n
	}
	return all - c.Down[cluster], all
}

// Go is filter.ClusterClient's. A panic is contained, as a server does it.
func (c *Calls) Go(f func(ctx context.Context)) {
	c.tasks.Go(func() {
		_ = contained(func() error { f(context.Background()); return nil }) // the test sees what is held
	})
}

// Wait returns when everything has ended that Go has started.
func (c *Calls) Wait() { c.tasks.Wait() }
