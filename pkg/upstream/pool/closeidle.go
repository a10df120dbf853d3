package pool

import (
	"slices"
	"time"
)

// CloseIdle closes connections of p that carry nothing and have been idle for d, and returns how
// many. Connections of a bind pool stay open until their downstream connection ends.
func CloseIdle(p Pool, d time.Duration) int {
	if c, ok := p.(interface{ closeIdle(d time.Duration) int }); ok {
		return c.closeIdle(d)
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
