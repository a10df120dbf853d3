package localratelimit

import (
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// limiter is the buckets of a plan. It outlives the configuration that it was made
// for, as long as the next one says the same in the same place.
type limiter struct {
	start  time.Time // immutable; what instants count from
	shared bucket
	fixed  []bucket
	pools  []*pool
}

func newLimiter(p *plan, start time.Time, dropped *metrics.Counter) *limiter {
	l := &limiter{start: start, fixed: make([]bucket, p.buckets)}
	for _, r := range p.pools {
		l.pools = append(l.pools, newPool(r, p.maxDynamic, dropped))
	}
	return l
}

func (l *limiter) now() instant { return epoch + instant(time.Since(l.start)) }

// quota is what is left in the bucket that has the least of those that a request
// takes from.
type quota struct {
	counted bool // there is such a bucket
	limit   int64
	left    int64
	full    time.Duration // until it is
}

func (q *quota) see(b *bucket, r rate, now instant) {
	if left, full := b.left(r, now); !q.counted || left < q.left {
		*q = quota{counted: true, limit: r.tokens, left: left, full: full}
	}
}

// take takes the tokens of a request, and reports whether there was one in every
// bucket that counts it. It stops at the first that has none.
func (l *limiter) take(p *plan, x *protocol.Exchange, q *quota) bool {
	now := l.now()
	described := false
	var v values
	for i := range p.steps {
		s := &p.steps[i]
		if !s.describe(&v, x, &p.client) {
			continue
		}
		for j := range s.choices {
			c := &s.choices[j]
			if !c.fits(&v) {
				continue
			}
			described = true
			if !takeFrom(l.bucket(c, &v, now), c.rate, now, p.tells, q) {
				return false
			}
			break
		}
	}
	if p.shared == nil || described && !p.always {
		return true
	}
	return takeFrom(&l.shared, *p.shared, now, p.tells, q)
}

func takeFrom(b *bucket, r rate, now instant, tells bool, q *quota) bool {
	ok := b.take(r, now)
	if tells {
		q.see(b, r, now)
	}
	return ok
}

func (l *limiter) bucket(c *choice, v *values, now instant) *bucket {
	if !c.dynamic {
		return &l.fixed[c.index]
	}
	var room [2 * longest]byte
	p := l.pools[c.index]
	return p.find(c.appendKey(room[:0], v, p.seed), now)
}

// shelf finds the limiters that are in use. Safe for concurrent use.
type shelf struct {
	start time.Time // immutable

	mu    sync.Mutex
	byKey map[string]weak.Pointer[limiter] // guarded by mu
}

func newShelf() *shelf {
	return &shelf{start: time.Now(), byKey: make(map[string]weak.Pointer[limiter])}
}

// limiter returns the limiter that is in use under key, or a new one for p.
func (s *shelf) limiter(key string, p *plan, dropped *metrics.Counter) *limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.byKey[key].Value(); l != nil {
		return l
	}
	l := newLimiter(p, s.start, dropped)
	s.byKey[key] = weak.Make(l)
	runtime.AddCleanup(l, s.forget, key)
	return l
}

// forget drops what is under key if nobody uses it.
func (s *shelf) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[key].Value() == nil {
		delete(s.byKey, key)
	}
}
