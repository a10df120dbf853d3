package pool

import (
	"slices"
	"time"
)

// A pool arms its sweep timer only while it has connections that may expire or must keep one open.
// The interval is a quarter of the idle timeout or of the maximum age, but within these bounds, so that an expired
// connection closes soon. maxSweepInterval bounds how long a connection that its host has closed
// keeps a descriptor.
const (
	minSweepInterval = 10 * time.Millisecond
	maxSweepInterval = 5 * time.Second
)

// sweepTimer is the timer of a pool.
type sweepTimer struct {
	timer *time.Timer // nil until it is armed for the first time
	armed bool        // timer is set, or its function is running
}

func (b *base) sweepInterval() time.Duration {
	cfg := b.Config.Load()
	timeout := cfg.IdleTimeout
	if d := cfg.HTTP.MaxConnectionDuration; d > 0 && (timeout <= 0 || d < timeout) {
		timeout = d
	}
	if timeout <= 0 {
		return maxSweepInterval
	}
	return min(max(timeout/4, minSweepInterval), maxSweepInterval)
}

// arm sets the timer to sweep p, whose base is b, unless it is set. The caller holds the pool's mu,
// here and for finishSweep and stopTimer.
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

// finishSweep ends a sweep: it sets the timer for the next one if again is true, otherwise it
// disarms the timer.
func (b *base) finishSweep(again bool) {
	if again {
		b.sweep.timer.Reset(b.sweepInterval())
		return
	}
	b.sweep.armed = false
	b.Tasks.TimerDone()
}

// stopTimer stops the timer. A running sweep does not arm it again.
func (b *base) stopTimer() {
	if b.sweep.armed && b.sweep.timer.Stop() {
		b.finishSweep(false)
	}
}

// runRecovered runs a part of a sweep. It recovers and logs a panic of a connection or a recorder,
// so that later sweeps run.
func (b *base) runRecovered(f func()) { b.Tasks.RunRecovered("sweeping a pool", f) }

// isUsable reports whether a connection is usable. It returns false if Usable panics.
func (b *base) isUsable(conn Connection, idle time.Duration) (usable bool) {
	b.runRecovered(func() { usable = conn.Usable(idle) })
	return usable
}

// runSweep closes the connections that were idle for the idle timeout or are no longer usable. The
// timer calls runSweep.
func (p *pingPongPool) runSweep() {
	now := p.Tasks.Now()
	for _, c := range p.removeExpired(now) {
		p.runRecovered(c.discard)
	}
	p.runRecovered(func() { p.checkIdle(now) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finishSweep(!p.isClosed && len(p.idle) > 0)
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

// idleCheckDivisor is the number of batches into which checkIdle divides the idle connections.
// Exchanges can use the connections outside the current batch. More batches would cost more: each
// removal moves all connections behind the batch.
const idleCheckDivisor = 16

// checkIdle checks whether each connection that was idle at the given time is still usable. It
// checks in batches, because a check is a system call, and oldest first, because exchanges use the
// newest.
func (p *pingPongPool) checkIdle(now time.Duration) {
	var batch []*pingPongConn
	for index := 0; ; {
		batch = p.popIdleAt(batch[:0], index, now)
		if len(batch) == 0 {
			return
		}
		usable := batch[:0]
		for _, c := range batch {
			if !p.isExpired(c.expiry) && p.isUsable(c.conn, now-c.idleSince) {
				usable = append(usable, c)
			} else {
				p.runRecovered(c.discard)
			}
		}
		if p.putIdleAt(usable, index) {
			index += len(usable)
			continue
		}
		for _, c := range usable {
			c.returnToPool()
		}
	}
}

// popIdleAt moves connections that became idle by now from p.idle, starting at index, to batch.
func (p *pingPongPool) popIdleAt(batch []*pingPongConn, index int, now time.Duration) []*pingPongConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	end := min(index+max(len(p.idle)/idleCheckDivisor, 1), len(p.idle))
	for end > index && p.idle[end-1].idleSince > now {
		end--
	}
	if end <= index {
		return batch
	}
	batch = append(batch, p.idle[index:end]...)
	p.idle = slices.Delete(p.idle, index, end)
	return batch
}

// putIdleAt puts connections back at an index. It returns false if an exchange or a connect waits,
// or if the pool is closed.
func (p *pingPongPool) putIdleAt(conns []*pingPongConn, index int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed || p.hasWaiters() {
		return false
	}
	p.idle = slices.Insert(p.idle, min(index, len(p.idle)), conns...)
	p.arm(p)
	return true
}
