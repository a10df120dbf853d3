package localratelimit

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// instant is a time in nanoseconds after epoch, and later than any bucket takes to
// fill: so that the zero bucket is full.
type instant int64

const (
	epoch    instant = 1 << 61
	fullMost         = 1 << 60 // the longest that a bucket may take to fill, in ns: 36 years
)

// rate is how fast a bucket fills, and how much it holds. It is immutable.
type rate struct {
	tokens int64   // that it holds
	period instant // from one token to the next
}

func (c *BucketConfig) compile() (rate, error) {
	r := rate{tokens: int64(c.Max), period: instant(c.Interval) / instant(max(c.Fill, 1))}
	switch {
	case c.Interval < 50*time.Millisecond:
		return rate{}, fmt.Errorf("fill_interval is %v: at least 50ms", c.Interval)
	case r.period == 0:
		return rate{}, errors.New("tokens_per_fill is more than one in a nanosecond")
	case int64(r.period) > fullMost/r.tokens:
		return rate{}, errors.New("the bucket takes more than 36 years to fill")
	}
	return r, nil
}

// full is how long an empty bucket takes to fill.
func (r rate) full() instant { return instant(r.tokens) * r.period }

// bucket holds tokens that come back one after the other, at a rate that is passed
// in: always the same. It is its own state, without a lock: the instant at which it
// would have been empty if nothing had been taken since. The zero bucket is full.
type bucket struct {
	empty atomic.Int64
}

// take takes a token and reports whether there was one.
func (b *bucket) take(r rate, now instant) bool {
	for {
		was := b.empty.Load()
		next := max(instant(was), now-r.full()) + r.period
		if next > now {
			return false
		}
		if b.empty.CompareAndSwap(was, int64(next)) {
			return true
		}
	}
}

// left returns how many tokens there are, and how long it takes until all are.
func (b *bucket) left(r rate, now instant) (tokens int64, untilFull time.Duration) {
	since := min(now-instant(b.empty.Load()), r.full())
	return int64(since / r.period), time.Duration(r.full() - since)
}
