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
		return protocol.Faultf(protocol.NoCluster, "the route chose cluster %q", x.Record.TargetCluster)
	}
	return picker.Start(ctx, x)
}

// WeightedClusters sends to the weighted cluster that the route chose for the exchange.
type WeightedClusters []*upstream.ClusterPicker

// Start implements protocol.Service.
func (pickers WeightedClusters) Start(ctx context.Context, x *protocol.Exchange) error {
	if x.Record.TargetCluster == "" {
		return protocol.Faultf(protocol.NoCluster, "the weights of all clusters of the route are 0")
	}
	return pickers[x.Record.WeightedIndex].Start(ctx, x)
}

// Limits of pickerCache. Exchanges to more clusters are served but allocate.
const (
	maxCachedPickers = 1024
	minCachedPickers = 16 // entries before get looks for removed clusters
)

// pickerCache caches the pickers of the clusters that exchanges of a route chose. It holds at
// most maxCachedPickers entries, and at most minCachedPickers or twice the number of existing
// clusters: more would keep removed clusters alive. It is safe for concurrent use.
type pickerCache struct {
	find      func(name string) *upstream.Cluster // returns nil for an unknown cluster
	newPicker func(c *upstream.Cluster) *upstream.ClusterPicker

	pickers sync.Map // *upstream.ClusterPicker by *upstream.Cluster

	mu    sync.Mutex
	count int // guarded by mu; entries of pickers
	limit int // guarded by mu; of count, until the next cleanup
}

// get returns the picker of a cluster, or nil if there is no such cluster.
func (t *pickerCache) get(name string) *upstream.ClusterPicker {
	c := t.find(name)
	if c == nil {
		return nil
	}
	v, ok := t.pickers.Load(c)
	if !ok {
		v = t.add(c)
	}
	return v.(*upstream.ClusterPicker) //nolint:forcetypeassert // nothing else is in it
}

// add creates and caches the picker of a cluster.
func (t *pickerCache) add(c *upstream.Cluster) any {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, there := t.pickers.LoadOrStore(c, t.newPicker(c))
	if there {
		return v
	}
	if t.count++; t.count > max(t.limit, minCachedPickers) {
		t.pickers.Range(func(key, _ any) bool {
			if one, _ := key.(*upstream.Cluster); one != c && (t.count > maxCachedPickers || t.find(one.Name()) != one) {
				t.pickers.Delete(key)
				t.count--
			}
			return true
		})
		t.limit = min(2*t.count, maxCachedPickers)
	}
	return v
}
