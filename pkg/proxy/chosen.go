package proxy

import (
	"sync"

	"github.com/weft-proxy/weft/pkg/upstream"
)

// Bounds of chosenClusters. Exchanges to more clusters are served, and allocate.
const (
	maxChosenClusters = 1024
	minChosenClusters = 16 // are remembered before those that are gone are looked for
)

// chosenClusters remembers the services of the clusters that the exchanges of a route chose.
// It holds at most maxChosenClusters, and no more than twice as many as there are, or
// minChosenClusters: others would keep clusters alive that have left the configuration. Safe
// for concurrent use.
type chosenClusters struct {
	find func(name string) *upstream.Cluster // nil: there is no such cluster
	make func(c *upstream.Cluster) *upstream.ClusterPicker

	vias sync.Map // *upstream.ClusterPicker by *upstream.Cluster

	mu    sync.Mutex
	count int // guarded by mu; entries of vias
	limit int // guarded by mu; of count, until those that are gone are looked for
}

// get returns the service of a cluster, nil if there is no such cluster.
func (t *chosenClusters) get(name string) *upstream.ClusterPicker {
	c := t.find(name)
	if c == nil {
		return nil
	}
	v, ok := t.vias.Load(c)
	if !ok {
		v = t.add(c)
	}
	return v.(*upstream.ClusterPicker) //nolint:forcetypeassert // nothing else is in it
}

// add makes and remembers the service of a cluster.
func (t *chosenClusters) add(c *upstream.Cluster) any {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, there := t.vias.LoadOrStore(c, t.make(c))
	if there {
		return v
	}
	if t.count++; t.count > max(t.limit, minChosenClusters) {
		t.vias.Range(func(key, _ any) bool {
			if one, _ := key.(*upstream.Cluster); one != c && (t.count > maxChosenClusters || t.find(one.Name()) != one) {
				t.vias.Delete(key)
				t.count--
			}
			return true
		})
		t.limit = min(2*t.count, maxChosenClusters)
	}
	return v
}
