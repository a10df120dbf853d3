package upstream

import "time"

// CloseIdle closes the upstream connections that have been idle for d, as if d were the idle
// timeout of every cluster, and returns their number. Connections of a bind pool stay open until
// their downstream connection ends. The overload manager calls it when memory or descriptors run
// short. Later exchanges open new connections.
func (s *Set) CloseIdle(d time.Duration) (closed int) {
	s.mu.RLock()
	clusters := make([]*Cluster, 0, len(s.configured))
	for _, c := range s.configured {
		clusters = append(clusters, c)
	}
	s.mu.RUnlock()
	for _, c := range clusters {
		for _, h := range c.state.Load().currentHosts() {
			for n := h.pools.Load(); n != nil; n = n.next {
				closed += n.pool.CloseIdle(d)
			}
		}
	}
	return closed
}
