package pool

import (
	"sync"

	"github.com/weft-proxy/weft/pkg/upstream/breaker"
)

// subpoolEntry holds a subpool and the state that its parent pool keeps for it.
type subpoolEntry interface{ connPool() Pool }

// subpools holds the subpools of a bindPool or a namePool. The key of an exchange is its downstream
// connection or its host name.
type subpools[K comparable, P subpoolEntry] struct {
	mu       sync.Mutex
	entries  map[K]P // guarded by mu
	isClosed bool    // guarded by mu
}

func (p *subpools[K, P]) pools() []Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Pool, 0, len(p.entries))
	for _, e := range p.entries {
		list = append(list, e.connPool())
	}
	return list
}

// stats returns the sums of the numbers of the subpools, and the longest of their round-trip times.
func (p *subpools[K, P]) stats() (total Stats) {
	for _, sub := range p.pools() {
		s := sub.Stats()
		total.Open += s.Open
		total.Idle += s.Idle
		total.MaxRTT = max(total.MaxRTT, s.MaxRTT)
	}
	return total
}

// EvictIdle implements Pool.
func (p *subpools[K, P]) EvictIdle() breaker.Evicted {
	for _, sub := range p.pools() {
		if idle := sub.EvictIdle(); idle != nil {
			return idle
		}
	}
	return nil
}
