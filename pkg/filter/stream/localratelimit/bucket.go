package localratelimit

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// epoch is the time at which a limiter starts. Times are durations: epoch plus the time since the
// start of the limiter. epoch is longer than any bucket takes to fill, so the zero bucket is full.
const epoch time.Duration = 1 << 61

// maxFillTime is the maximum time that a bucket may take to fill: 36 years.
const maxFillTime time.Duration = 1 << 60

// rate is the capacity of a bucket and the speed at which it fills. It is immutable.
type rate struct {
	tokens int64         // maximum number of tokens
	period time.Duration // time after which one token is added
}

func (c *BucketConfig) compile() (rate, error) {
	r := rate{tokens: int64(c.Max), period: c.Interval / time.Duration(max(c.Fill, 1))}
	switch {
	case c.Interval < 50*time.Millisecond:
		return rate{}, fmt.Errorf("fill_interval is %v: must be at least 50ms", c.Interval)
	case r.period == 0:
		return rate{}, fmt.Errorf("tokens_per_fill is %d, too many for fill_interval %v: at most one token per nanosecond can be added", c.Fill, c.Interval)
	case r.period > maxFillTime/time.Duration(r.tokens):
		return rate{}, errors.New("the bucket takes more than 36 years to fill")
	}
	return r, nil
}

// fillTime returns the time in which an empty bucket fills.
func (r rate) fillTime() time.Duration { return time.Duration(r.tokens) * r.period }

// bucket is a token bucket that fills one token at a time. Callers pass the same rate to every
// call. Its only state is a time, emptyAt: the bucket holds the tokens that were added between
// emptyAt and now, up to its capacity. So it needs no lock. The zero bucket is full. It is safe for
// concurrent use.
type bucket struct {
	emptyAt atomic.Int64
}

// take takes a token and reports whether there was one.
func (b *bucket) take(r rate, now time.Duration) bool {
	for {
		old := b.emptyAt.Load()
		next := max(time.Duration(old), now-r.fillTime()) + r.period
		if next > now {
			return false
		}
		if b.emptyAt.CompareAndSwap(old, int64(next)) {
			return true
		}
	}
}

// remaining returns the number of tokens, and the time until the bucket is full.
func (b *bucket) remaining(r rate, now time.Duration) (tokens int64, untilFull time.Duration) {
	elapsed := min(now-time.Duration(b.emptyAt.Load()), r.fillTime())
	return int64(elapsed / r.period), r.fillTime() - elapsed
}
