package network

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ConnLimiter is what several listeners have in common: how many connections they may have
// open together, and whether they accept at all. The zero value lets everything in.
// Safe for concurrent use.
type ConnLimiter struct {
	open    atomic.Int64  // connections
	limit   atomic.Int64  // of open; 0: none
	share   atomic.Uint64 // of new connections that are closed at once, of wholeShare
	refused atomic.Uint64 // connections that were closed at once for share

	mu          sync.Mutex
	shut        chan struct{} // guarded by mu; closed when the gate opens; nil: it is open
	maybePaused atomic.Bool   // it may be shut: mu is only taken then
}

const wholeShare = 1 << 32

// Active returns how many connections are open.
func (g *ConnLimiter) Active() int64 { return g.open.Load() }

// SetLimit bounds how many connections are open: more are accepted and closed at
// once. 0: no limit. Connections above a lower one stay.
func (g *ConnLimiter) SetLimit(n int64) { g.limit.Store(n) }

// SetRejectFraction has a share of the new connections, from 0 to 1, closed at once.
func (g *ConnLimiter) SetRejectFraction(share float64) {
	g.share.Store(uint64(min(1, max(0, share)) * wholeShare))
}

// Refused returns how many connections were closed at once because of Refuse.
func (g *ConnLimiter) Refused() uint64 { return g.refused.Load() }

// PauseAccept has new connections wait where they are: in the kernel, up to the backlog.
// A second call does nothing.
func (g *ConnLimiter) PauseAccept() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
		g.maybePaused.Store(true)
	}
}

// ResumeAccept ends what Shut began.
func (g *ConnLimiter) ResumeAccept() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
		g.maybePaused.Store(false)
	}
}

// resumed returns what is closed when the gate opens; nil: it is open.
func (g *ConnLimiter) resumed() <-chan struct{} {
	if g == nil || !g.maybePaused.Load() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// acquire reports whether one more connection may be open, and counts it. leave takes
// that back.
func (g *ConnLimiter) acquire() bool {
	if g == nil {
		return true
	}
	if share := g.share.Load(); share > 0 && rand.Uint64N(wholeShare) < share {
		g.refused.Add(1)
		return false
	}
	if limit := g.limit.Load(); g.open.Add(1) > limit && limit > 0 {
		g.open.Add(-1)
		return false
	}
	return true
}

func (g *ConnLimiter) release() {
	if g != nil {
		g.open.Add(-1)
	}
}

// AcceptRate is how many connections a listener accepts in a second, and how many at
// once after a pause. PerSecond 0: as many as come.
type AcceptRate struct {
	PerSecond float64
	Burst     int // at least 1
}

// bucket is a token bucket: who takes a token may accept a connection. It belongs to
// the goroutine that accepts.
type bucket struct {
	rate   AcceptRate
	tokens float64
	at     time.Time // when tokens was right
}

// take takes a token, or returns how long it takes until there is one. A rate that is
// another than before begins with a whole burst.
func (b *bucket) take(now time.Time, rate AcceptRate) (wait time.Duration) {
	if rate.PerSecond <= 0 {
		b.rate = rate
		return 0
	}
	full := float64(max(rate.Burst, 1))
	if b.rate != rate {
		*b = bucket{rate: rate, tokens: full, at: now}
	}
	b.tokens = min(full, b.tokens+now.Sub(b.at).Seconds()*rate.PerSecond)
	b.at = now
	if b.tokens < 1 {
		// Rounded up, so that the token is there when the time is over.
		return time.Duration((1-b.tokens)/rate.PerSecond*float64(time.Second)) + 1
	}
	b.tokens--
	return 0
}

// longestWait bounds how long a listener waits for its rate before it looks whether
// that has changed.
const longestWait = time.Second

// awaitAccept waits until the listener may accept. false: it is to accept no more.
func (l *Listener) awaitAccept(ctx context.Context, b *bucket) bool {
	for {
		wait := b.take(time.Now(), *l.rate.Load())
		if wait == 0 {
			return l.awaitResume(ctx)
		}
		if !l.sleep(ctx, min(wait, longestWait)) {
			return false
		}
	}
}

// awaitResume waits until the gate is open. false: the listener is to accept no more.
func (l *Listener) awaitResume(ctx context.Context) bool {
	for {
		opened := l.o.Gate.resumed()
		if opened == nil {
			return true
		}
		select {
		case <-opened:
		case <-l.stopping:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// admit starts a connection that was accepted, once the gate is open: it may have been
// shut while it was waited for.
func (l *Listener) admit(ctx context.Context, nc net.Conn) bool {
	if !l.awaitResume(ctx) {
		_ = nc.Close() // nobody will serve it
		return false
	}
	l.start(ctx, nc)
	return true
}

// sleep waits for d. false: the listener is to accept no more.
func (l *Listener) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.stopping:
		return false
	case <-ctx.Done():
		return false
	}
}

// SetAcceptRate changes the rate of ListenOptions. It takes hold within a second.
func (l *Listener) SetAcceptRate(r AcceptRate) { l.rate.Store(&r) }
