package network

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ConnLimiter limits the open connections of several listeners together, and pauses accepting. The
// zero value sets no limit. Safe for concurrent use.
type ConnLimiter struct {
	open           atomic.Int64  // number of open connections
	limit          atomic.Int64  // maximum number of open connections; 0: no limit
	rejectFraction atomic.Uint64 // fraction of new connections that are closed immediately, in units of 1/fractionScale
	refused        atomic.Uint64 // connections closed immediately because of rejectFraction

	mu          sync.Mutex
	resume      chan struct{} // guarded by mu; closed when accepting resumes; nil: not paused
	maybePaused atomic.Bool   // false: accepting is not paused, and resumed need not lock mu
}

const fractionScale = 1 << 32

// Active returns how many connections are open.
func (l *ConnLimiter) Active() int64 { return l.open.Load() }

// SetLimit sets the maximum number of open connections; 0: no limit. Listeners accept further
// connections and close them immediately. A lower limit closes no open connection.
func (l *ConnLimiter) SetLimit(n int64) { l.limit.Store(n) }

// SetRejectFraction makes the listeners close a fraction of the new connections immediately. A
// fraction below 0 counts as 0, one above 1 as 1.
func (l *ConnLimiter) SetRejectFraction(fraction float64) {
	l.rejectFraction.Store(uint64(min(1, max(0, fraction)) * fractionScale))
}

// Refused returns how many connections were closed immediately because of SetRejectFraction.
func (l *ConnLimiter) Refused() uint64 { return l.refused.Load() }

// PauseAccept leaves new connections in the kernel, up to the backlog. A second call does nothing.
func (l *ConnLimiter) PauseAccept() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resume == nil {
		l.resume = make(chan struct{})
		l.maybePaused.Store(true)
	}
}

// ResumeAccept undoes PauseAccept.
func (l *ConnLimiter) ResumeAccept() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resume != nil {
		close(l.resume)
		l.resume = nil
		l.maybePaused.Store(false)
	}
}

// resumed returns a channel that is closed when accepting resumes; nil: accepting is not paused.
func (l *ConnLimiter) resumed() <-chan struct{} {
	if l == nil || !l.maybePaused.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resume
}

// acquire reports whether one more connection may be open, and counts it. release undoes it.
func (l *ConnLimiter) acquire() bool {
	if l == nil {
		return true
	}
	if fraction := l.rejectFraction.Load(); fraction > 0 && rand.Uint64N(fractionScale) < fraction {
		l.refused.Add(1)
		return false
	}
	if limit := l.limit.Load(); l.open.Add(1) > limit && limit > 0 {
		l.open.Add(-1)
		return false
	}
	return true
}

func (l *ConnLimiter) release() {
	if l != nil {
		l.open.Add(-1)
	}
}

// AcceptRate limits how many connections a listener accepts: PerSecond on average, and up to Burst
// without a wait after a quiet time. If PerSecond is 0, there is no limit.
type AcceptRate struct {
	PerSecond float64
	Burst     int // less than 1 counts as 1
}

// tokenBucket is a token bucket: each accepted connection takes one token. The accepting goroutine
// owns it.
type tokenBucket struct {
	rate    AcceptRate
	tokens  float64
	updated time.Time // time of the last update of tokens
}

// take takes a token and returns 0. If there is none, it returns the time until there is one. After
// a change of the rate, the bucket is full.
func (b *tokenBucket) take(now time.Time, rate AcceptRate) (wait time.Duration) {
	if rate.PerSecond <= 0 {
		b.rate = rate
		return 0
	}
	burst := float64(max(rate.Burst, 1))
	if b.rate != rate {
		*b = tokenBucket{rate: rate, tokens: burst, updated: now}
	}
	b.tokens = min(burst, b.tokens+now.Sub(b.updated).Seconds()*rate.PerSecond)
	b.updated = now
	if b.tokens < 1 {
		// Round up, so that the token is available after the wait.
		return time.Duration((1-b.tokens)/rate.PerSecond*float64(time.Second)) + 1
	}
	b.tokens--
	return 0
}

// maxRateWait is the maximum time that a listener waits for a token before it checks whether the
// rate has changed.
const maxRateWait = time.Second

// awaitAccept waits until the listener may accept. It returns false when the listener must stop
// accepting.
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
		resumed := l.opts.Limiter.resumed()
		if resumed == nil {
			return true
		}
		select {
		case <-resumed:
		case <-l.stopping:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// admit starts an accepted connection. If accepting was paused during Accept, admit first waits
// until accepting resumes. It returns false when the listener must stop accepting.
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

// SetAcceptRate replaces the AcceptRate of ListenOptions. A listener that waits because of the old
// rate applies the new rate within a second.
func (l *Listener) SetAcceptRate(r AcceptRate) { l.rate.Store(&r) }
