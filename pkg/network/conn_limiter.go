package network

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ConnLimiter limits the open connections of several listeners together, and pauses
// accepting. The zero value sets no limit. Safe for concurrent use.
type ConnLimiter struct {
	open           atomic.Int64  // connections
	limit          atomic.Int64  // maximum of open; 0: no limit
	rejectFraction atomic.Uint64 // fraction of new connections that are closed immediately, of fractionScale
	refused        atomic.Uint64 // connections closed immediately because of rejectFraction

	mu          sync.Mutex
	resume      chan struct{} // guarded by mu; closed when accepting resumes; nil: not paused
	maybePaused atomic.Bool   // accepting may be paused: only then is mu taken
}

const fractionScale = 1 << 32

// Active returns how many connections are open.
func (g *ConnLimiter) Active() int64 { return g.open.Load() }

// SetLimit sets the maximum number of open connections; 0: no limit. Listeners accept more
// and close them immediately. A lower limit closes no open connection.
func (g *ConnLimiter) SetLimit(n int64) { g.limit.Store(n) }

// SetRejectFraction makes the listeners close a fraction of the new connections immediately,
// from 0 to 1.
func (g *ConnLimiter) SetRejectFraction(share float64) {
	g.rejectFraction.Store(uint64(min(1, max(0, share)) * fractionScale))
}

// Refused returns how many connections were closed immediately because of SetRejectFraction.
func (g *ConnLimiter) Refused() uint64 { return g.refused.Load() }

// PauseAccept leaves new connections in the kernel, up to the backlog. A second call does
// nothing.
func (g *ConnLimiter) PauseAccept() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resume == nil {
		g.resume = make(chan struct{})
		g.maybePaused.Store(true)
	}
}

// ResumeAccept undoes PauseAccept.
func (g *ConnLimiter) ResumeAccept() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resume != nil {
		close(g.resume)
		g.resume = nil
		g.maybePaused.Store(false)
	}
}

// resumed returns a channel that is closed when accepting resumes; nil: accepting is not
// paused.
func (g *ConnLimiter) resumed() <-chan struct{} {
	if g == nil || !g.maybePaused.Load() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.resume
}

// acquire reports whether one more connection may be open, and counts it. release undoes it.
func (g *ConnLimiter) acquire() bool {
	if g == nil {
		return true
	}
	if share := g.rejectFraction.Load(); share > 0 && rand.Uint64N(fractionScale) < share {
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

// AcceptRate is how many connections a listener accepts per second, and how many immediately
// after a pause. PerSecond 0: no limit.
type AcceptRate struct {
	PerSecond float64
	Burst     int // at least 1
}

// tokenBucket is a token bucket: each accepted connection takes one token. The accepting
// goroutine owns it.
type tokenBucket struct {
	rate    AcceptRate
	tokens  float64
	updated time.Time // time of the last update of tokens
}

// take takes a token and returns 0, or returns how long it takes until there is one. After a
// change of the rate it starts with a full burst.
func (b *tokenBucket) take(now time.Time, rate AcceptRate) (wait time.Duration) {
	if rate.PerSecond <= 0 {
		b.rate = rate
		return 0
	}
	full := float64(max(rate.Burst, 1))
	if b.rate != rate {
		*b = tokenBucket{rate: rate, tokens: full, updated: now}
	}
	b.tokens = min(full, b.tokens+now.Sub(b.updated).Seconds()*rate.PerSecond)
	b.updated = now
	if b.tokens < 1 {
		// Round up, so that the token is available when the time is over.
		return time.Duration((1-b.tokens)/rate.PerSecond*float64(time.Second)) + 1
	}
	b.tokens--
	return 0
}

// maxRateWait bounds how long a listener waits for its rate before it checks whether the
// rate has changed.
const maxRateWait = time.Second

// awaitAccept waits until the listener may accept. It returns false when the listener must
// stop accepting.
func (l *Listener) awaitAccept(ctx context.Context, b *tokenBucket) bool {
	for {
		wait := b.take(time.Now(), *l.rate.Load())
		if wait == 0 {
			return l.awaitResume(ctx)
		}
		if !l.sleep(ctx, min(wait, maxRateWait)) {
			return false
		}
	}
}

// awaitResume waits while accepting is paused. It returns false when the listener must stop
// accepting.
func (l *Listener) awaitResume(ctx context.Context) bool {
	for {
		opened := l.o.Limiter.resumed()
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

// admit starts an accepted connection once accepting is not paused: the pause may have begun
// during Accept. It returns false when the listener must stop accepting.
func (l *Listener) admit(ctx context.Context, nc net.Conn) bool {
	if !l.awaitResume(ctx) {
		_ = nc.Close() // no handler will serve it
		return false
	}
	l.startConn(ctx, nc)
	return true
}

// sleep waits for d. It returns false when the listener must stop accepting.
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

// SetAcceptRate changes the rate of ListenOptions. The change takes effect within a second.
func (l *Listener) SetAcceptRate(r AcceptRate) { l.rate.Store(&r) }
