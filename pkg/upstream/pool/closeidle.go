package pool

import (
	"slices"
	"time"
)

// CloseIdle implements Pool.
func (p *pingPongPool) CloseIdle(d time.Duration) int {
	before := p.Tasks.Now() - d
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && p.idle[n].idleSince <= before {
		n++
	}
	expired := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	p.mu.Unlock()
	for _, c := range expired {
		c.discard()
	}
	return len(expired)
}

// CloseIdle implements Pool. It closes connections that have been idle for d according to the last
// sweep, but not the connection that keeps the pool warm.
func (p *multiplexPool) CloseIdle(d time.Duration) int {
	var expired []*multiplexConn
	p.mu.Lock()
	for _, c := range p.activeConns() {
		if c.idleFor < d || c.usedSinceSweep.Load() || c.load.Load() != 0 || len(p.activeConns()) == 1 && p.staysWarm() {
			continue
		}
		if p.closeToNewExchanges(c) {
			expired = append(expired, c)
		}
	}
	p.mu.Unlock()
	for _, c := range expired {
		c.discard()
	}
	return len(expired)
}

// CloseIdle implements Pool.
func (*bindPool) CloseIdle(time.Duration) int { return 0 }

// CloseIdle implements Pool.
func (p *namePool) CloseIdle(d time.Duration) (closed int) {
	for _, sub := range p.pools() {
		closed += sub.CloseIdle(d)
	}
	return closed
}
