package pool

import (
	"slices"
	"time"
)

// A pool with connections that may become too old has a timer that sweeps them; a pool without has
// none. A quarter of the idle timeout bounds the delay after which an expired connection closes.
// maxSweepInterval bounds how long a connection that its host has closed keeps a descriptor.
const (
	minSweepInterval = 10 * time.Millisecond
	maxSweepInterval = 5 * time.Second
)

// sweepTimer is the timer of a pool.
type sweepTimer struct {
	timer *time.Timer // nil until it is first armed
	armed bool        // the timer is set, or its function runs
}

func (b *base) sweepInterval() time.Duration {
	timeout := b.Config.Load().IdleTimeout
	if timeout <= 0 {
		return maxSweepInterval
	}
	return min(max(timeout/4, minSweepInterval), maxSweepInterval)
}

// arm sets the timer for p, whose base is b, unless it is set. The pool's mu is held, as for rearm
// and stopTimer.
func (b *base) arm(p interface{ runSweep() }) {
	s := &b.sweep
	if s.armed {
		return
	}
	s.armed = true
	b.Tasks.AddTimer()
	if s.timer == nil {
		s.timer = time.AfterFunc(b.sweepInterval(), p.runSweep)
	} else {
		s.timer.Reset(b.sweepInterval())
	}
}

// rearm is called at the end of a sweep. more reports whether anything is left to sweep.
func (b *base) rearm(more bool) {
	if more {
		b.sweep.timer.Reset(b.sweepInterval())
		return
	}
	b.sweep.armed = false
	b.Tasks.TimerDone()
}

// stopTimer stops the timer. A sweep that is running stops it itself.
func (b *base) stopTimer() {
	if b.sweep.armed && b.sweep.timer.Stop() {
		b.rearm(false)
	}
}

// runRecovered runs a part of a sweep. It logs a panic of a connection or a recorder: nothing else
// recovers on a timer's goroutine, and the pool must be swept again.
func (b *base) runRecovered(f func()) { b.Tasks.RunRecovered("sweeping a pool", f) }

// isUsable reports whether a connection can be used. One whose Usable panics cannot.
func (b *base) isUsable(conn Connection, idle time.Duration) (usable bool) {
	b.runRecovered(func() { usable = conn.Usable(idle) })
	return usable
}

// runSweep closes the connections that were idle for too long or are no longer usable. The timer
// runs it.
func (p *pingPongPool) runSweep() {
	now := p.Tasks.Now()
	for _, m := range p.removeExpired(now) {
		p.runRecovered(m.discard)
	}
	p.runRecovered(func() { p.checkIdle(now) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rearm(!p.isClosed && len(p.idle) > 0)
}

// removeExpired removes and returns the connections that reached the idle timeout.
func (p *pingPongPool) removeExpired(now time.Duration) []*pingPongConn {
	timeout := p.Config.Load().IdleTimeout
	if timeout <= 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.idle) && now-p.idle[n].idleSince >= timeout {
		n++
	}
	expired := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	return expired
}

// idleCheckDivisor divides the idle connections into the batches that a check removes from the
// pool. Exchanges can use the connections outside the batch. The number of batches is bounded
// because each removal moves the connections behind it.
const idleCheckDivisor = 16

// checkIdle checks whether each connection that was idle at the given time is still usable. It
// checks some at a time, because a check is a system call, and oldest first, because exchanges take
// the newest.
func (p *pingPongPool) checkIdle(now time.Duration) {
	var batch []*pingPongConn
	for place := 0; ; {
		batch = p.popIdleAt(batch[:0], place, now)
		if len(batch) == 0 {
			return
		}
		usable := batch[:0]
		for _, m := range batch {
			if p.isUsable(m.conn, now-m.idleSince) {
				usable = append(usable, m)
			} else {
				p.runRecovered(m.discard)
			}
		}
		if p.putIdleAt(usable, place) {
			place += len(usable)
			continue
		}
		for _, m := range usable {
			m.returnToPool()
		}
	}
}

// popIdleAt moves one batch of connections, from index place on, that became idle at now or before,
// to batch.
func (p *pingPongPool) popIdleAt(batch []*pingPongConn, place int, now time.Duration) []*pingPongConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	end := min(place+max(len(p.idle)/idleCheckDivisor, 1), len(p.idle))
	for end > place && p.idle[end-1].idleSince > now {
		end--
	}
	if end <= place {
		return batch
	}
	batch = append(batch, p.idle[place:end]...)
	p.idle = slices.Delete(p.idle, place, end)
	return batch
}

// putIdleAt puts connections back at an index. It returns false if an exchange or a connect waits,
// or if the pool is closed.
func (p *pingPongPool) putIdleAt(members []*pingPongConn, place int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed || p.hasWaiters() {
		return false
	}
	p.idle = slices.Insert(p.idle, min(place, len(p.idle)), members...)
	p.arm(p)
	return true
}
