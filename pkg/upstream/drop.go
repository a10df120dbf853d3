package upstream

import (
	"maps"
	"sync"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// dropCounts counts dropped exchanges by category. The zero value is ready; safe for concurrent
// use.
type dropCounts struct {
	mu         sync.Mutex
	byCategory map[string]uint64 // guarded by mu
}

func (d *dropCounts) add(category string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byCategory == nil {
		d.byCategory = make(map[string]uint64)
	}
	d.byCategory[category]++
}

// DropOverloadCounts returns how many exchanges were dropped since the Cluster was created, by
// category; nil: none.
func (c *Cluster) DropOverloadCounts() map[string]uint64 {
	c.drops.mu.Lock()
	defer c.drops.mu.Unlock()
	return maps.Clone(c.drops.byCategory)
}

// dropOverload returns a Fault of Dropped for a random fraction of exchanges. The fraction of each
// category applies to the exchanges that the previous categories did not drop.
func (c *Cluster) dropOverload(cfg *config.Cluster) error {
	for i := range cfg.DropOverloads {
		d := &cfg.DropOverloads[i]
		if c.env.random()%config.Millionths < uint64(d.PerMillion) {
			c.drops.add(d.Category)
			fault := protocol.Faultf(protocol.Dropped, "cluster %s drops a fraction of its requests: category %s", cfg.Name, d.Category)
			if d.PerMillion == config.Millionths {
				return fault.WithEnvoyReply(unconditionalDrop)
			}
			return fault
		}
	}
	return nil
}

// unconditionalDrop is the reply if a category drops all requests.
//
//nolint:gochecknoglobals // a constant
var unconditionalDrop = protocol.EnvoyReply{Body: "unconditional drop overload", Details: "unconditional_drop_overload", Flag: "UDO"}
