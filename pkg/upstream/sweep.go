package upstream

import (
	"slices"
	"time"
)

// A pool with connections that may grow old has a timer that sweeps them; a pool
// without has none. A quarter of the idle timeout bounds how much later than due
// a connection ends, and mostSweep how long one that its host has closed holds a
// descriptor.
const (
	leastSweep = 10 * time.Millisecond
	mostSweep  = 5 * time.Second
)

// sweeper is the timer of a pool.
type sweeper struct {
	timer *time.Timer // nil until it is first armed
	armed bool        // it is set, or what it calls runs
}

func (b *base) sweepEvery() time.Duration {
	timeout := b.host.cluster.settings().IdleTimeout
	if timeout <= 0 {
		return mostSweep
	}
	return min(max(timeout/4, leastSweep), mostSweep)
}

// arm sets the timer for p, whose base b is, unless it is set. The pool's mu is
// held, as for the others below.
func (b *base) arm(p interface{ swept() }) {
	s := &b.sweep
	if s.armed {
		return
	}
	s.armed = true
	b.host.cluster.env.tasks.Add(1)
	if s.timer == nil {
		s.timer = time.AfterFunc(b.sweepEvery(), p.swept)
	} else {
		s.timer.Reset(b.sweepEvery())
	}
}

// rearm is called at the end of sweep: more says that there is something to
// sweep yet.
func (b *base) rearm(more bool) {
	if more {
		b.sweep.timer.Reset(b.sweepEvery())
		return
	}
	b.sweep.armed = false
	b.host.cluster.env.tasks.Done()
}

// still stops the timer. If sweep runs, it is left to that.
func (b *base) still() {
	if b.sweep.armed && b.sweep.timer.Stop() {
		b.rearm(false)
	}
}

// swept ends the connections that were idle for too long or are not usable any
// more. It runs on the timer.
func (p *exclusive) swept() {
	now := p.host.cluster.env.now()
	for _, m := range p.expired(now) {
		m.discard()
	}
	p.probe(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rearm(!p.isClosed && len(p.idle) > 0)
}

// expired takes the connections that were idle for the idle timeout.
func (p *exclusive) expired(now time.Duration) []*member {
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
func (p *exclusive) probe(now time.Duration) {
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
func (p *exclusive) popAt(place int, now time.Duration) *member {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place >= len(p.idle) || p.idle[place].since > now {
		return nil
	}
	m := p.idle[place]
	p.idle = slices.Delete(p.idle, place, place+1)
	return m
}
