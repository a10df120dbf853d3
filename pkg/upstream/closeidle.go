package upstream

import (
	"time"

	"github.com/weft-proxy/weft/pkg/upstream/pool"
)

// CloseIdle closes the connections to hosts that carry nothing and have been idle for d, as if d
// were the idle timeout of every cluster, and returns how many. Connections of a bind pool stay
// open until their downstream connection ends. It is for processes that are short of memory or
// descriptors. Later exchanges open new connections.
func (s *Set) CloseIdle(d time.Duration) (ended int) {
	s.mu.RLock()
	clusters := make([]*Cluster, 0, len(s.configured))
	for _, c := range s.configured {
		clusters = append(clusters, c)
	}
	s.mu.RUnlock()
	for _, c := range clusters {
		for _, h := range c.state.Load().currentHosts() {
			for l := h.pools.Load(); l != nil; l = l.next {
				ended += pool.CloseIdle(l.pool, d)
			}
		}
	}
	return ended
}
