package stream

import (
	"cmp"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// FloodLimiter limits operations that cost a listener more than its clients, such as opening
// streams and resetting them immediately. It limits the connections of each source address
// together, and all connections of the listener together; the engine limits each connection. It is
// safe for concurrent use.
//
// Only connections that misbehave charge the FloodLimiter, and only such connections are closed: a
// connection that charges nothing is never closed because other connections of its address or its
// listener have exceeded a limit.
type FloodLimiter struct {
	seed       maphash.Seed
	logLimiter logLimiter // for log lines about closed connections

	mu       sync.Mutex
	listener tokenBucket               // guarded by mu
	sources  *[numSourceSets]sourceSet // guarded by mu; nil until an address is charged
	start    time.Time                 // guarded by mu; time of the first charge
}

// FloodRateLimits are the limits of a FloodLimiter that a server applies.
type FloodRateLimits struct {
	Source   config.TokenBucket // of one source address; for IPv6 a /64 prefix
	Listener config.TokenBucket // of all clients together
}

// FloodRateLimitsOf returns the limits in o. Unset limits have their defaults.
func FloodRateLimitsOf(o *config.HTTP2Options) FloodRateLimits {
	defaults := config.DefaultHTTP2Options()
	return FloodRateLimits{
		Source:   rateOrDefault(o.SourceResets, defaults.SourceResets),
		Listener: rateOrDefault(o.ListenerResets, defaults.ListenerResets),
	}
}

// rateOrDefault returns b with its zero fields replaced by the fields of defaults.
func rateOrDefault(b, defaults config.TokenBucket) config.TokenBucket {
	return config.TokenBucket{Burst: cmp.Or(b.Burst, defaults.Burst), PerSecond: cmp.Or(b.PerSecond, defaults.PerSecond)}
}

// numSourceSets and sourcesPerSet define the table of source addresses: 4,096 entries, 128 KiB per
// listener that is attacked. When a set is full, a new address evicts the one whose tokens are all
// refunded first.
const (
	numSourceSets = 1024
	sourcesPerSet = 4
)

// TakeResult is the result of Take.
type TakeResult uint8

// Results of Take.
const (
	WithinLimits     TakeResult = iota
	SourceExceeded              // the source address has exceeded its limit
	ListenerExceeded            // the clients of the listener have exceeded its limit
)

type sourceSet [sourcesPerSet]sourceEntry

type sourceEntry struct {
	address netip.Addr // the zero Addr: the entry is free
	bucket  tokenBucket
}

// tokenBucket is a token bucket in one word: the time, since FloodLimiter.start, at which all
// tokens are refunded.
type tokenBucket time.Duration

// take takes n tokens. It reports whether the bucket had fewer; then it takes all of them.
func (b *tokenBucket) take(n int, limit config.TokenBucket, elapsed time.Duration) (exceeded bool) {
	perToken := time.Second / time.Duration(limit.PerSecond)
	maxDebt := elapsed + time.Duration(limit.Burst)*perToken
	debt := max(time.Duration(*b), elapsed) + time.Duration(n)*perToken
	exceeded = debt > maxDebt
	*b = tokenBucket(min(debt, maxDebt))
	return exceeded
}

// NewFloodLimiter returns a FloodLimiter whose token buckets are full.
func NewFloodLimiter() *FloodLimiter { return &FloodLimiter{seed: maphash.MakeSeed()} }

// Take takes n tokens from the bucket of the listener and n from the bucket of a source address;
// the zero Addr means that the client has no address. Servers of one listener may have different
// limits, for example before and after a reload. A bucket stores the time at which all of its
// tokens are refunded. So tokens that were taken under other limits still count, up to the burst of
// limits.
func (l *FloodLimiter) Take(limits *FloodRateLimits, source netip.Addr, n int, now time.Time) TakeResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.start.IsZero() {
		l.start = now
	}
	elapsed := now.Sub(l.start)
	result := WithinLimits
	if l.listener.take(n, limits.Listener, elapsed) {
		result = ListenerExceeded
	}
	if source.IsValid() && l.sourceBucket(source).take(n, limits.Source, elapsed) {
		result = SourceExceeded
	}
	return result
}

// SourceExceeded reports whether a source address has exceeded its limit: whether Take of one token
// would return SourceExceeded. It takes nothing.
func (l *FloodLimiter) SourceExceeded(limits *FloodRateLimits, source netip.Addr, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !source.IsValid() || l.sources == nil {
		return false
	}
	entry, _ := l.find(source)
	if entry == nil {
		return false
	}
	bucket := entry.bucket
	return bucket.take(1, limits.Source, now.Sub(l.start))
}

// AllowLog reports whether the close of a connection may be logged now, and how many closes were
// not logged before: it allows one log line per second.
func (l *FloodLimiter) AllowLog(now time.Time) (skipped int64, ok bool) {
	return l.logLimiter.allow(now)
}

// sourceBucket returns the token bucket of an address. A new address replaces the address in its
// set whose tokens are all refunded first. The caller holds l.mu.
func (l *FloodLimiter) sourceBucket(source netip.Addr) *tokenBucket {
	if l.sources == nil {
		l.sources = new([numSourceSets]sourceSet)
	}
	entry, set := l.find(source)
	if entry == nil {
		entry = &set[0]
		for i := range set {
			if set[i].bucket < entry.bucket {
				entry = &set[i]
			}
		}
		*entry = sourceEntry{address: sourceKey(source)}
	}
	return &entry.bucket
}

// find returns the entry of an address, or nil if it has none, and the set of the address. The
// caller holds l.mu, and l.sources is not nil.
func (l *FloodLimiter) find(source netip.Addr) (*sourceEntry, *sourceSet) {
	source = sourceKey(source)
	set := &l.sources[maphash.Comparable(l.seed, source)%numSourceSets]
	for i := range set {
		if set[i].address == source {
			return &set[i], set
		}
	}
	return nil, set
}

// sourceKey returns the address that represents source in the table.
func sourceKey(source netip.Addr) netip.Addr {
	source = source.Unmap().WithZone("")
	if source.Is6() {
		prefix, err := source.Prefix(64) // one machine may own the whole /64 (RFC 4291 2.5.4)
		if err == nil {
			source = prefix.Addr()
		}
	}
	return source
}
