package upstream

import (
	"slices"
	"time"
)

// A pool with connections that may become too old has a timer that sweeps them; a pool without has
// none. A quarter of the idle timeout bounds the delay after which an expired connection closes.
// mostSweep bounds how long a connection that its host has closed keeps a descriptor.
const (
	leastSweep = 10 * time.Millisecond
	mostSweep  = 5 * time.Second
)

// sweeper is the timer of a pool.
type sweeper struct {
	timer *time.Timer // nil until it is first armed
	armed bool        // the timer is set, or its function runs
}

func (b *base) sweepEvery() time.Duration {
	timeout := b.host.cluster.settings().IdleTimeout
	if timeout <= 0 {
		return mostSweep
	}
	return min(max(timeout/4, leastSweep), mostSweep)
}

// arm sets the timer for p, whose base is b, unless it is set. The pool's mu is held, as for rearm
// and still.
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

// rearm is called at the end of a sweep; more says that something is left to sweep.
func (b *base) rearm(more bool) {
	if more {
		b.sweep.timer.Reset(b.sweepEvery())
		return
	}
	b.sweep.armed = false
	b.host.cluster.env.tasks.Done()
}

// still stops the timer. A sweep that is running stops it itself.
func (b *base) still() {
	if b.sweep.armed && b.sweep.timer.Stop() {
		b.rearm(false)
	}
}

// contain runs a part of a sweep. It logs a panic of a connection or a recorder: nothing else
// recovers on a timer's goroutine, and the pool must be swept again.
func (b *base) contain(f func()) { b.host.cluster.env.contain("sweeping a pool", f) }

// isUsable reports whether a connection can be used. One whose Usable panics cannot.
func (b *base) isUsable(conn Connection, idle time.Duration) (usable bool) {
	b.contain(func() { usable = conn.Usable(idle) })
	return usable
}

// swept closes the connections that were idle for too long or are no longer usable. The timer runs
// it.
func (p *pingPongPool) swept() {
	now := p.host.cluster.env.now()
	for _, m := range p.expired(now) {
		p.contain(m.discard)
	}
	p.contain(func() { p.probe(now) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rearm(!p.isClosed && len(p.idle) > 0)
}

// expired removes and returns the connections that reached the idle timeout.
func (p *pingPongPool) expired(now time.Duration) []*pingPongConn {
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

// probeShare is the divisor for the idle connections that a probe removes from the pool together:
// exchanges find the others, and a sweep of many takes time in proportion to their number, though
// each removal moves those behind it.
const probeShare = 16

// probe checks whether each connection that was idle at the given time is still usable. It checks
// some at a time, because a check is a system call, and oldest first, because exchanges take the
// newest.
func (p *pingPongPool) probe(now time.Duration) {
	var batch []*pingPongConn
	for place := 0; ; {
		batch = p.popAt(batch[:0], place, now)
		if len(batch) == 0 {
			return
		}
		usable := batch[:0]
		for _, m := range batch {
			if p.isUsable(m.conn, now-m.since) {
				usable = append(usable, m)
			} else {
				p.contain(m.discard)
			}
		}
		if p.keepAt(usable, place) {
			place += len(usable)
			continue
		}
		for _, m := range usable {
			m.put()
		}
	}
}

// popAt moves the next connections from index place on that became idle at now or before to batch:
// a part of the pool at a time.
func (p *pingPongPool) popAt(batch []*pingPongConn, place int, now time.Duration) []*pingPongConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	end := min(place+max(len(p.idle)/probeShare, 1), len(p.idle))
	for end > place && p.idle[end-1].since > now {
		end--
	}
	if end <= place {
		return batch
	}
	batch = append(batch, p.idle[place:end]...)
	p.idle = slices.Delete(p.idle, place, end)
	return batch
}

// keepAt puts connections back at an index, and returns false if something waits for one or the
// pool is closed.
func (p *pingPongPool) keepAt(members []*pingPongConn, place int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed || p.isWanted() {
		return false
	}
	p.idle = slices.Insert(p.idle, min(place, len(p.idle)), members...)
	p.arm(p)
	return true
}
