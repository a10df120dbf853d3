package upstream

import (
	"maps"
	"sync"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// drops counts what was dropped, by category. The zero value is ready; it is safe for
// concurrent use.
type drops struct {
	mu    sync.Mutex
	count map[string]uint64 // guarded by mu
}

func (d *drops) add(category string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == nil {
		d.count = make(map[string]uint64)
	}
	d.count[category]++
}

// DropOverloadCounts returns how many exchanges were dropped since the cluster was first known, by
// category; nil: none.
func (c *Cluster) DropOverloadCounts() map[string]uint64 {
	c.drops.mu.Lock()
	defer c.drops.mu.Unlock()
	return maps.Clone(c.drops.count)
}

// drop returns a Fault of Dropped for an exchange that is one of those to be dropped.
// Each category takes its share of what is left by those before it.
func (c *Cluster) drop(cfg *config.Cluster) error {
	for i := range cfg.Drops {
		d := &cfg.Drops[i]
		if c.env.random()%config.Millionths < uint64(d.Share) {
			c.drops.add(d.Category)
			return protocol.Faultf(protocol.Dropped, "cluster %s drops a share of its requests: %s", cfg.Name, d.Category)
		}
	}
	return nil
}
