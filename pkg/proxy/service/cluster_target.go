package service

import (
	"context"
	"sync"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// DynamicCluster returns a service that sends to the cluster that the route chose for the exchange,
// with the pickers that newPicker returns. find returns nil for an unknown cluster.
func DynamicCluster(find func(name string) *upstream.Cluster, newPicker func(*upstream.Cluster) *upstream.ClusterPicker) protocol.Service {
	cache := &pickerCache{find: find, newPicker: newPicker}
	return dynamicCluster(cache.get)
}

type dynamicCluster func(name string) *upstream.ClusterPicker

// Start implements protocol.Service.
func (find dynamicCluster) Start(ctx context.Context, x *protocol.Exchange) error {
	picker := find(x.Record.TargetCluster)
	if picker == nil {
		return protocol.Faultf(protocol.NoCluster, "the route chose cluster %q, which is not defined", x.Record.TargetCluster)
	}
	return picker.Start(ctx, x)
}

// WeightedClusters passes an exchange to the service of the weighted cluster that the route chose for
// it.
type WeightedClusters []protocol.Service

// Start implements protocol.Service.
func (services WeightedClusters) Start(ctx context.Context, x *protocol.Exchange) error {
	return services[x.Record.WeightedIndex].Start(ctx, x)
}

// NoWeight returns a service that fails an exchange if the route chose no weighted cluster for it.
// Other exchanges continue with next.
func NoWeight(next protocol.Service) protocol.Service { return noWeight{next} }

type noWeight struct{ next protocol.Service }

// Start implements protocol.Service.
func (n noWeight) Start(ctx context.Context, x *protocol.Exchange) error {
	if x.Record.TargetCluster == "" {
		return protocol.Faultf(protocol.NoCluster, "the weights of all clusters of the route are 0, or the request does not name its cluster")
	}
	return n.next.Start(ctx, x)
}

// Limits of pickerCache. Exchanges to more clusters are served but allocate.
const (
	maxCachedPickers = 1024
	minCachedPickers = 16 // number of entries before add looks for removed clusters
)

// pickerCache caches the pickers of the clusters that exchanges of a route chose. It holds at most
// maxCachedPickers entries. Entries keep removed clusters alive, so the cache deletes the entries
// of removed clusters whenever its size has doubled. It is safe for concurrent use.
type pickerCache struct {
	find      func(name string) *upstream.Cluster // returns nil for an unknown cluster
	newPicker func(c *upstream.Cluster) *upstream.ClusterPicker

	pickers sync.Map // *upstream.ClusterPicker by *upstream.Cluster

	mu    sync.Mutex
	count int // guarded by mu; number of entries in pickers
	limit int // guarded by mu; maximum of count before the next cleanup
}

// get returns the picker of a cluster, or nil if there is no such cluster.
func (c *pickerCache) get(name string) *upstream.ClusterPicker {
	cluster := c.find(name)
	if cluster == nil {
		return nil
	}
	v, ok := c.pickers.Load(cluster)
	if !ok {
		v = c.add(cluster)
	}
	return v.(*upstream.ClusterPicker) //nolint:forcetypeassert // nothing else is in it
}

// add creates and caches the picker of a cluster.
func (c *pickerCache) add(cluster *upstream.Cluster) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, loaded := c.pickers.LoadOrStore(cluster, c.newPicker(cluster))
	if loaded {
		return v
	}
	if c.count++; c.count > max(c.limit, minCachedPickers) {
		c.pickers.Range(func(key, _ any) bool {
			if other, _ := key.(*upstream.Cluster); other != cluster && (c.count > maxCachedPickers || c.find(other.Name()) != other) {
				c.pickers.Delete(key)
				c.count--
			}
			return true
		})
		c.limit = min(2*c.count, maxCachedPickers)
	}
	return v
}
