package localratelimit

import (
	"encoding/binary"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// limiter holds the buckets of a plan. It outlives its configuration if the next configuration has
// the same settings and the same filter.Env.Key.
type limiter struct {
	start         time.Time // immutable; times are relative to it
	defaultBucket bucket    // unused with plan.perConnection
	fixed         []bucket
	pools         []*pool
}

func newLimiter(p *plan, start time.Time, dropped *metrics.Counter) *limiter {
	l := &limiter{start: start, fixed: make([]bucket, p.fixedBuckets)}
	for _, r := range p.pools {
		l.pools = append(l.pools, newPool(r, p.maxDynamic, dropped))
	}
	return l
}

func (l *limiter) now() time.Duration { return epoch + time.Since(l.start) }

// quota is the state of the bucket with the fewest tokens left, among those from which a request
// took or tried to take a token.
type quota struct {
	counted   bool // the request has a bucket; false: the other fields are not set
	limit     int64
	remaining int64
	untilFull time.Duration // time until the bucket is full
	untilNext time.Duration // time until the bucket has a token; 0: it has one
}

func (q *quota) observe(b *bucket, r rate, now time.Duration) {
	if remaining, untilFull := b.remaining(r, now); !q.counted || remaining < q.remaining {
		*q = quota{counted: true, limit: r.tokens, remaining: remaining, untilFull: untilFull}
		if remaining == 0 {
			q.untilNext = untilFull - time.Duration(r.tokens-1)*r.period
		}
	}
}

// maxCombinations is the maximum number of combinations of repeated header values that a limit
// counts. A request with more combinations exceeds the limit.
const maxCombinations = 16

// take takes one token from every bucket of a request, and reports whether each bucket had one. It
// stops at the first empty bucket. A request with repeated headers takes from the buckets of all
// their values, so a client cannot avoid its bucket by adding a header.
func (l *limiter) take(p *plan, x *protocol.Exchange, q *quota) bool {
	now := l.now()
	hasDescriptor := false
	var c combination
	for i := range p.limits {
		limit := &p.limits[i]
		if !limit.firstCombination(&c, x, &p.client) {
			continue
		}
		for remaining := maxCombinations; ; remaining-- {
			desc := limit.findDescriptor(&c.values)
			if desc != nil {
				hasDescriptor = true
				if !takeToken(l.bucketFor(p, desc, &c.values, x, now), desc.rate, now, p.addsHeaders, q) {
					return false
				}
			}
			if !c.hasMore() && c.indexes == [maxActions]int{} || !limit.nextCombination(&c, x, &p.client) {
				break
			}
			if remaining == 1 {
				return false
			}
		}
	}
	if p.defaultRate == nil || hasDescriptor && !p.alwaysUsesDefault {
		return true
	}
	b := &l.defaultBucket
	if p.perConnection {
		var buf [8]byte
		b = l.pools[p.defaultPool].getOrCreate(appendConnection(buf[:0], x), now)
	}
	return takeToken(b, *p.defaultRate, now, p.addsHeaders, q)
}

func takeToken(b *bucket, r rate, now time.Duration, updatesQuota bool, q *quota) bool {
	ok := b.take(r, now)
	if updatesQuota {
		q.observe(b, r, now)
	}
	return ok
}

func (l *limiter) bucketFor(p *plan, d *descriptor, v *values, x *protocol.Exchange, now time.Duration) *bucket {
	if !d.dynamic {
		return &l.fixed[d.index]
	}
	var buf [2 * maxKeyValueBytes]byte
	key := buf[:0]
	if p.perConnection {
		key = appendConnection(key, x)
	}
	buckets := l.pools[d.index]
	return buckets.getOrCreate(d.appendKey(key, v, buckets.seed), now)
}

// appendConnection appends the ID of x's connection, or 0 if x has none. The buckets of a closed
// connection fill up, and the pool prefers to evict full buckets.
func appendConnection(dst []byte, x *protocol.Exchange) []byte {
	id := uint64(0)
	if x.Meta.Conn != nil {
		id = x.Meta.Conn.ID
	}
	return binary.LittleEndian.AppendUint64(dst, id)
}
