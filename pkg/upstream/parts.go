package upstream

import "sync"

// subpool is one of the pools that a pool consists of, with its bookkeeping.
type subpool interface{ whole() pool }

// subpools are the pools that a pool consists of, by a key that the exchanges of each share.
type subpools[K comparable, P subpool] struct {
	mu       sync.Mutex
	own      map[K]P // guarded by mu
	isClosed bool    // guarded by mu
}

// all returns the pools.
func (p *subpools[K, P]) all() []pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]pool, 0, len(p.own))
	for _, one := range p.own {
		all = append(all, one.whole())
	}
	return all
}

// giveWay implements pool.
func (p *subpools[K, P]) giveWay() evictedConn {
	for _, one := range p.all() {
		if idle := one.giveWay(); idle != nil {
			return idle
		}
	}
	return nil
}
