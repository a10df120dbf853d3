package localratelimit

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// instant is a time in nanoseconds: epoch plus the time since the start of the limiter. epoch is
// longer than any bucket takes to fill, so the zero bucket is full.
type instant int64

const (
	epoch       instant = 1 << 61
	maxFillTime         = 1 << 60 // maximum time in ns that a bucket may take to fill: 36 years
)

// rate is the capacity of a bucket and the speed at which it fills. It is immutable.
type rate struct {
	tokens int64   // maximum number of tokens
	period instant // time to fill one token
}

func (c *BucketConfig) compile() (rate, error) {
	r := rate{tokens: int64(c.Max), period: instant(c.Interval) / instant(max(c.Fill, 1))}
	switch {
	case c.Interval < 50*time.Millisecond:
		return rate{}, fmt.Errorf("fill_interval is %v: must be at least 50ms", c.Interval)
	case r.period == 0:
		return rate{}, errors.New("tokens_per_fill is more than one token per nanosecond")
	case int64(r.period) > maxFillTime/r.tokens:
		return rate{}, errors.New("the bucket takes more than 36 years to fill")
	}
	return r, nil
}

// fillTime returns the time in which an empty bucket fills.
func (r rate) fillTime() instant { return instant(r.tokens) * r.period }

// bucket is a token bucket that fills one token at a time. Callers pass the same rate to every
// call. Its only state is an instant, emptyAt: the bucket has the tokens that fill between emptyAt
// and now, up to its capacity. So it needs no lock. The zero bucket is full. It is safe for
// concurrent use.
type bucket struct {
	emptyAt atomic.Int64
}

// take takes a token and reports whether there was one.
func (b *bucket) take(r rate, now instant) bool {
	for {
		old := b.emptyAt.Load()
		next := max(instant(old), now-r.fillTime()) + r.period
		if next > now {
			return false
		}
		if b.emptyAt.CompareAndSwap(old, int64(next)) {
			return true
		}
	}
}

// remaining returns the number of tokens, and the time until the bucket is full.
func (b *bucket) remaining(r rate, now instant) (tokens int64, untilFull time.Duration) {
	elapsed := min(now-instant(b.emptyAt.Load()), r.fillTime())
	return int64(elapsed / r.period), time.Duration(r.fillTime() - elapsed)
}
