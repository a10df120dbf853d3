package localratelimit

import (
	"encoding/binary"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// limiter holds the buckets of a plan. It outlives its configuration if the next one has the same
// settings at the same filter.Env.Key.
type limiter struct {
	start  time.Time // immutable; instants are relative to it
	shared bucket
	fixed  []bucket
	pools  []*pool
}

func newLimiter(p *plan, start time.Time, dropped *metrics.Counter) *limiter {
	l := &limiter{start: start, fixed: make([]bucket, p.fixedBuckets)}
	for _, r := range p.pools {
		l.pools = append(l.pools, newPool(r, p.maxDynamic, dropped))
	}
	return l
}

func (l *limiter) now() instant { return epoch + instant(time.Since(l.start)) }

// quota is the state of the bucket with the fewest tokens left among those of a request.
type quota struct {
	counted   bool // the request has a bucket
	limit     int64
	remaining int64
	untilFull time.Duration // time until the bucket is full
}

func (q *quota) observe(b *bucket, r rate, now instant) {
	if left, full := b.remaining(r, now); !q.counted || left < q.remaining {
		*q = quota{counted: true, limit: r.tokens, remaining: left, untilFull: full}
	}
}

// maxCombinations is the maximum number of combinations of repeated header values that a limit
// counts. A request with more is over the limit.
const maxCombinations = 16

// take takes one token from every bucket of a request, and reports whether each had one. It stops
// at the first empty bucket. A request with repeated headers takes from the buckets of all their
// values, so a client cannot avoid its bucket by adding a header.
func (l *limiter) take(p *plan, x *protocol.Exchange, q *quota) bool {
	now := l.now()
	described := false
	var d combination
	for i := range p.limits {
		s := &p.limits[i]
		if !s.firstCombination(&d, x, &p.client) {
			continue
		}
		for left := maxCombinations; ; left-- {
			c := s.findDescriptor(&d.values)
			if c != nil {
				described = true
				if !takeFrom(l.bucketFor(p, c, &d.values, x, now), c.rate, now, p.addsHeaders, q) {
					return false
				}
			}
			if !d.hasMore() && d.indexes == [maxActions]int{} || !s.nextCombination(&d, x, &p.client) {
				break
			}
			if left == 1 {
				return false
			}
		}
	}
	if p.shared == nil || described && !p.alwaysShared {
		return true
	}
	shared := &l.shared
	if p.perConnection {
		var room [8]byte
		shared = l.pools[p.sharedPool].getOrCreate(appendConnection(room[:0], x), now)
	}
	return takeFrom(shared, *p.shared, now, p.addsHeaders, q)
}

func takeFrom(b *bucket, r rate, now instant, tells bool, q *quota) bool {
	ok := b.take(r, now)
	if tells {
		q.observe(b, r, now)
	}
	return ok
}

func (l *limiter) bucketFor(p *plan, c *descriptor, v *values, x *protocol.Exchange, now instant) *bucket {
	if !c.dynamic {
		return &l.fixed[c.index]
	}
	var room [2 * maxKeyValueBytes]byte
	key := room[:0]
	if p.perConnection {
		key = appendConnection(key, x)
	}
	of := l.pools[c.index]
	return of.getOrCreate(c.appendKey(key, v, of.seed), now)
}

// appendConnection appends the ID of x's connection, 0 if there is none. The buckets of a closed
// connection fill, and the pool then replaces them first.
func appendConnection(dst []byte, x *protocol.Exchange) []byte {
	id := uint64(0)
	if x.Meta.Conn != nil {
		id = x.Meta.Conn.ID
	}
	return binary.LittleEndian.AppendUint64(dst, id)
}
