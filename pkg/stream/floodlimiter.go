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
// Only connections that misbehave charge it, and only they are closed: a connection that charges
// nothing is never closed because other connections of its address or its listener have exhausted
// the budget.
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

// rateOrDefault returns b with its zero fields replaced by those of other.
func rateOrDefault(b, other config.TokenBucket) config.TokenBucket {
	return config.TokenBucket{Burst: cmp.Or(b.Burst, other.Burst), PerSecond: cmp.Or(b.PerSecond, other.PerSecond)}
}

// numSourceSets and sourcesPerSet define the table of source addresses: 4,096 entries, 128 KiB per
// listener that is attacked. When a set is full, a new address evicts the one that owes the least.
const (
	numSourceSets = 1024
	sourcesPerSet = 4
)

// TakeResult is the result of a charge.
type TakeResult uint8

// Results of a charge.
const (
	WithinLimits     TakeResult = iota
	SourceExceeded              // the source address has exhausted its budget
	ListenerExceeded            // the clients of the listener have exhausted its budget
)

type sourceSet [sourcesPerSet]sourceEntry

type sourceEntry struct {
	address netip.Addr // the zero Addr: the entry is free
	bucket  tokenBucket
}

// tokenBucket is the time, since FloodLimiter.start, at which all charges are refunded: a token
// bucket in one word.
type tokenBucket time.Duration

// take charges n, and reports whether the debt exceeds limit. The debt is capped at the limit.
func (d *tokenBucket) take(n int, limit config.TokenBucket, elapsed time.Duration) (exceeded bool) {
	one := time.Second / time.Duration(limit.PerSecond)
	most := elapsed + time.Duration(limit.Burst)*one
	owed := max(time.Duration(*d), elapsed) + time.Duration(n)*one
	exceeded = owed > most
	*d = tokenBucket(min(owed, most))
	return exceeded
}

// NewFloodLimiter returns a FloodLimiter without charges.
func NewFloodLimiter() *FloodLimiter { return &FloodLimiter{seed: maphash.MakeSeed()} }

// Take charges n to the budget of the listener and to that of a source address. The zero Addr is a
// client without an address. Servers of one listener may have different limits, as before and after
// a reload; a debt is a time, so that it takes equally long to refund under each of them.
func (b *FloodLimiter) Take(limits *FloodRateLimits, from netip.Addr, n int, now time.Time) TakeResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.start.IsZero() {
		b.start = now
	}
	elapsed := now.Sub(b.start)
	verdict := WithinLimits
	if b.listener.take(n, limits.Listener, elapsed) {
		verdict = ListenerExceeded
	}
	if from.IsValid() && b.sourceBucket(from).take(n, limits.Source, elapsed) {
		verdict = SourceExceeded
	}
	return verdict
}

// SourceExceeded reports whether a source address has exhausted its budget: whether a charge of 1
// would return SourceExceeded. It charges nothing.
func (b *FloodLimiter) SourceExceeded(limits *FloodRateLimits, from netip.Addr, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !from.IsValid() || b.sources == nil {
		return false
	}
	owed, _ := b.find(from)
	if owed == nil {
		return false
	}
	after := owed.bucket
	return after.take(1, limits.Source, now.Sub(b.start))
}

// AllowLog reports whether the close of a connection may be logged now, and how many closes were
// not logged before: it allows one log line per second.
func (b *FloodLimiter) AllowLog(now time.Time) (skipped int64, ok bool) {
	return b.logLimiter.allow(now)
}

// sourceBucket returns the debt of an address. A new address replaces the one that owes the least
// in its set. The caller holds b.mu.
func (b *FloodLimiter) sourceBucket(from netip.Addr) *tokenBucket {
	if b.sources == nil {
		b.sources = new([numSourceSets]sourceSet)
	}
	s, set := b.find(from)
	if s == nil {
		s = &set[0]
		for i := range set {
			if set[i].bucket < s.bucket {
				s = &set[i]
			}
		}
		*s = sourceEntry{address: sourceKey(from)}
	}
	return &s.bucket
}

// find returns the entry of an address, or nil if it has none, and the set of the address. The
// caller holds b.mu, and b.sources is not nil.
func (b *FloodLimiter) find(from netip.Addr) (*sourceEntry, *sourceSet) {
	from = sourceKey(from)
	set := &b.sources[maphash.Comparable(b.seed, from)%numSourceSets]
	for i := range set {
		if set[i].address == from {
			return &set[i], set
		}
	}
	return nil, set
}

// sourceKey returns the address that represents from in the table.
func sourceKey(from netip.Addr) netip.Addr {
	from = from.Unmap().WithZone("")
	if from.Is6() {
		prefix, err := from.Prefix(64) // one machine may own the whole /64 (RFC 4291 2.5.4)
		if err == nil {
			from = prefix.Addr()
		}
	}
	return from
}
