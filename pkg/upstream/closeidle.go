package upstream

import (
	"slices"
	"time"
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
				if p, ok := l.pool.(interface{ closeIdle(d time.Duration) int }); ok {
					ended += p.closeIdle(d)
				}
			}
		}
	}
	return ended
}

// closeIdle closes connections that have been idle for d.
func (p *pingPongPool) closeIdle(d time.Duration) int {
	before := p.host.cluster.env.now() - d
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && p.idle[n].idleSince <= before {
		n++
	}
	old := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	p.mu.Unlock()
	for _, m := range old {
		m.discard()
	}
	return len(old)
}

// closeIdle closes connections that have been idle for d according to the last sweep. A connection
// that is kept open ahead of exchanges stays.
func (p *multiplexPool) closeIdle(d time.Duration) int {
	var old []*multiplexConn
	p.mu.Lock()
	for _, l := range p.activeConns() {
		if l.idleFor < d || l.usedSinceSweep.Load() || l.load.Load() != 0 || len(p.activeConns()) == 1 && p.isWarm() {
			continue
		}
		if p.closeToNew(l) {
			old = append(old, l)
		}
	}
	p.mu.Unlock()
	for _, l := range old {
		l.discard()
	}
	return len(old)
}
