package localratelimit

import (
	"encoding/binary"
	"time"

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

// maxCombinations is how many combinations of the values of repeated fields a limit looks
// at. A request with more is beyond it.
const maxCombinations = 16

// take takes the tokens of a request, and reports whether there was one in every
// bucket that counts it. It stops at the first that has none. A request whose fields
// repeat takes from the buckets of each of their values: no caller can leave its own
// bucket by adding a field.
func (l *limiter) take(p *plan, x *protocol.Exchange, q *quota) bool {
	now := l.now()
	described := false
	var d description
	for i := range p.steps {
		s := &p.steps[i]
		if !s.describe(&d, x, &p.client) {
			continue
		}
		for left := maxCombinations; ; left-- {
			c := s.choose(&d.values)
			if c != nil {
				described = true
				if !takeFrom(l.bucket(p, c, &d.values, x, now), c.rate, now, p.tells, q) {
					return false
				}
			}
			if !d.repeats() && d.taken == [maxActions]int{} || !s.next(&d, x, &p.client) {
				break
			}
			if left == 1 {
				return false
			}
		}
	}
	if p.shared == nil || described && !p.always {
		return true
	}
	shared := &l.shared
	if p.perConnection {
		var room [8]byte
		shared = l.pools[p.sharedPool].find(appendConnection(room[:0], x), now)
	}
	return takeFrom(shared, *p.shared, now, p.tells, q)
}

func takeFrom(b *bucket, r rate, now instant, tells bool, q *quota) bool {
	ok := b.take(r, now)
	if tells {
		q.see(b, r, now)
	}
	return ok
}

func (l *limiter) bucket(p *plan, c *descriptor, v *values, x *protocol.Exchange, now instant) *bucket {
	if !c.dynamic {
		return &l.fixed[c.index]
	}
	var room [2 * longest]byte
	key := room[:0]
	if p.perConnection {
		key = appendConnection(key, x)
	}
	of := l.pools[c.index]
	return of.find(c.appendKey(key, v, of.seed), now)
}

// appendConnection appends what tells connections apart. The buckets of one that has
// ended fill, and make room for others.
func appendConnection(dst []byte, x *protocol.Exchange) []byte {
	id := uint64(0)
	if x.Meta.Conn != nil {
		id = x.Meta.Conn.ID
	}
	return binary.LittleEndian.AppendUint64(dst, id)
}
