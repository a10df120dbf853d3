package upstream

import (
	"slices"
	"time"
)

// A pool with idle connections has a timer that sweeps them; a pool without has
// none. A quarter of the idle timeout bounds how much later than due a
// connection ends, and mostSweep how long one that its host has closed holds a
// descriptor.
const (
	leastSweep = 10 * time.Millisecond
	mostSweep  = 5 * time.Second
)

func (p *pool) sweepEvery() time.Duration {
	timeout := p.host.cluster.settings().IdleTimeout
	if timeout <= 0 {
		return mostSweep
	}
	return min(max(timeout/4, leastSweep), mostSweep)
}

// arm sets the timer unless it is set. p.mu is held.
func (p *pool) arm() {
	if p.armed {
		return
	}
	p.armed = true
	p.host.cluster.env.timers.Add(1)
	if p.timer == nil {
		p.timer = time.AfterFunc(p.sweepEvery(), p.sweep)
	} else {
		p.timer.Reset(p.sweepEvery())
	}
}

// disarm takes note that the timer is not set and sweep does not run. p.mu is
// held.
func (p *pool) disarm() {
	p.armed = false
	p.host.cluster.env.timers.Done()
}

// sweep ends the connections that were idle for too long or are not usable any
// more. It runs on the timer.
func (p *pool) sweep() {
	now := p.host.cluster.env.now()
	for _, m := range p.expired(now) {
		m.discard()
	}
	p.probe(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed || len(p.idle) == 0 {
		p.disarm()
		return
	}
	p.timer.Reset(p.sweepEvery())
}

// expired takes the connections that were idle for the idle timeout.
func (p *pool) expired(now time.Duration) []*member {
	timeout := p.host.cluster.settings().IdleTimeout
	if timeout <= 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.idle) && now-p.idle[n].since >= timeout {
		n++
	}
	expired := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	return expired
}

// probe asks each connection that was idle at the given time whether it is still
// usable. It takes them one at a time, because asking is a system call, and
// oldest first, because exchanges take the newest.
func (p *pool) probe(now time.Duration) {
	for place := 0; ; {
		m := p.popAt(place, now)
		if m == nil {
			return
		}
		if !m.conn.Usable(now - m.since) {
			m.discard()
			continue
		}
		switch p.keep(m, place) {
		case kept:
			place++
		case refused:
			m.discard()
		case wanted:
			m.put()
		}
	}
}

// popAt takes the idle connection at a place, nil if there is none or if it
// became idle after the given time.
func (p *pool) popAt(place int, now time.Duration) *member {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place >= len(p.idle) || p.idle[place].since > now {
		return nil
	}
	m := p.idle[place]
	p.idle = slices.Delete(p.idle, place, place+1)
	return m
}
