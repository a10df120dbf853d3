package pool

import (
	"sync"

	"github.com/weft-proxy/weft/pkg/upstream/breaker"
)

// subpoolEntry is one of the pools that a pool consists of, with its bookkeeping.
type subpoolEntry interface{ connPool() Pool }

// subpools are the pools that a pool consists of, by a key that the exchanges of each share.
type subpools[K comparable, P subpoolEntry] struct {
	mu       sync.Mutex
	entries  map[K]P // guarded by mu
	isClosed bool    // guarded by mu
}

// pools returns the pools.
func (p *subpools[K, P]) pools() []Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Pool, 0, len(p.entries))
	for _, one := range p.entries {
		all = append(all, one.connPool())
	}
	return all
}

// EvictIdle implements Pool.
func (p *subpools[K, P]) EvictIdle() breaker.Evicted {
	for _, one := range p.pools() {
		if idle := one.EvictIdle(); idle != nil {
			return idle
		}
	}
	return nil
}
