package pool

import (
	"slices"
	"time"
)

// CloseIdle closes connections of p that have been idle for d, and returns their number.
// Connections of a bind pool stay open until their downstream connection ends.
func CloseIdle(p Pool, d time.Duration) int {
	if closer, ok := p.(interface{ closeIdle(d time.Duration) int }); ok {
		return closer.closeIdle(d)
	}
	return 0
}

// closeIdle closes connections that have been idle for d.
func (p *pingPongPool) closeIdle(d time.Duration) int {
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

// closeIdle closes connections that have been idle for d according to the last sweep, but not the
// connection that keeps the pool warm.
func (p *multiplexPool) closeIdle(d time.Duration) int {
	var expired []*multiplexConn
	p.mu.Lock()
	for _, c := range p.activeConns() {
		if c.idleFor < d || c.usedSinceSweep.Load() || c.load.Load() != 0 || len(p.activeConns()) == 1 && p.staysWarm() {
			continue
		}
		if p.closeToNew(c) {
			expired = append(expired, c)
		}
	}
	p.mu.Unlock()
	for _, c := range expired {
		c.discard()
	}
	return len(expired)
}
