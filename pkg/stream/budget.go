package stream

import (
	"cmp"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// CostBudget bounds how often clients may do what costs a listener more than it costs them, such as
// opening streams and resetting them immediately. It bounds all connections of a source address
// together, and all of the listener together; the engine bounds each connection. It is safe for
// concurrent use.
//
// Only connections that misbehave charge it, and only they are closed: a connection that charges
// nothing never ends because other connections of its address or its listener have exhausted the
// budget.
type CostBudget struct {
	seed maphash.Seed
	lull logLimiter // for log lines about connections that are closed

	mu       sync.Mutex
	listener debt             // guarded by mu
	sources  *[sets]sourceSet // guarded by mu; nil until an address is charged
	start    time.Time        // guarded by mu; time of the first charge
}

// CostLimits are the limits of a CostBudget that a server applies.
type CostLimits struct {
	Source   config.Budget // of one source address; of IPv6 a /64 prefix
	Listener config.Budget // of all clients together
}

// CostLimitsOf returns the limits that o sets, with the defaults for those that it does not set.
func CostLimitsOf(o *config.HTTP2Options) CostLimits {
	defaults := config.DefaultHTTP2Options()
	return CostLimits{
		Source:   budgetOr(o.SourceResets, defaults.SourceResets),
		Listener: budgetOr(o.ListenerResets, defaults.ListenerResets),
	}
}

// budgetOr returns b with its zero fields taken from other.
func budgetOr(b, other config.Budget) config.Budget {
	return config.Budget{Burst: cmp.Or(b.Burst, other.Burst), PerSecond: cmp.Or(b.PerSecond, other.PerSecond)}
}

// sets and ways are the size of the table of source addresses: 4,096 entries, 128 KiB for each
// listener that is attacked. When a set is full, a new address evicts the one that owes the least.
const (
	sets = 1024
	ways = 4
)

// Verdict is the result of a charge.
type Verdict uint8

// The verdicts.
const (
	WithinBudget     Verdict = iota
	SourceExceeded           // the source address has exhausted its budget
	ListenerExceeded         // the clients of the listener have exhausted its budget
)

type sourceSet [ways]source

type source struct {
	address netip.Addr // the zero Addr: the entry is free
	debt    debt
}

// debt is the time, since CostBudget.start, at which all charges are paid back: a token bucket in
// one word.
type debt time.Duration

// charge adds n, and reports whether the debt exceeds limit. The debt is capped at the limit.
func (d *debt) charge(n int, limit config.Budget, elapsed time.Duration) (exceeded bool) {
	one := time.Second / time.Duration(limit.PerSecond)
	most := elapsed + time.Duration(limit.Burst)*one
	owed := max(time.Duration(*d), elapsed) + time.Duration(n)*one
	exceeded = owed > most
	*d = debt(min(owed, most))
	return exceeded
}

// NewCostBudget returns a budget without charges.
func NewCostBudget() *CostBudget { return &CostBudget{seed: maphash.MakeSeed()} }

// Charge takes n from the budget of the listener and from that of a source address, unless from is
// the zero Addr of a client that has none. Servers of one listener may have different limits, as
// before and after a reload: the debt is paid back in the same time.
func (b *CostBudget) Charge(limits *CostLimits, from netip.Addr, n int, now time.Time) Verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.start.IsZero() {
		b.start = now
	}
	elapsed := now.Sub(b.start)
	verdict := WithinBudget
	if b.listener.charge(n, limits.Listener, elapsed) {
		verdict = ListenerExceeded
	}
	if from.IsValid() && b.source(from).charge(n, limits.Source, elapsed) {
		verdict = SourceExceeded
	}
	return verdict
}

// SourceExceeded reports whether a source address has exhausted its budget: whether a charge of 1
// would return SourceExceeded. It charges nothing.
func (b *CostBudget) SourceExceeded(limits *CostLimits, from netip.Addr, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !from.IsValid() || b.sources == nil {
		return false
	}
	owed, _ := b.find(from)
	if owed == nil {
		return false
	}
	after := owed.debt
	return after.charge(1, limits.Source, now.Sub(b.start))
}

// MayLog reports whether the close of a connection may be logged now, and how many closes were not
// logged before: it allows one log line per second.
func (b *CostBudget) MayLog(now time.Time) (skipped int64, ok bool) { return b.lull.allow(now) }

// source returns the debt of an address. A new address replaces the one that owes the least in its
// set. The caller holds b.mu.
func (b *CostBudget) source(from netip.Addr) *debt {
	if b.sources == nil {
		b.sources = new([sets]sourceSet)
	}
	s, set := b.find(from)
	if s == nil {
		s = &set[0]
		for i := range set {
			if set[i].debt < s.debt {
				s = &set[i]
			}
		}
		*s = source{address: keyOf(from)}
	}
	return &s.debt
}

// find returns the entry of an address, or nil if it has none, and the set of the address. The
// caller holds b.mu, and b.sources is not nil.
func (b *CostBudget) find(from netip.Addr) (*source, *sourceSet) {
	from = keyOf(from)
	set := &b.sources[maphash.Comparable(b.seed, from)%sets]
	for i := range set {
		if set[i].address == from {
			return &set[i], set
		}
	}
	return nil, set
}

// keyOf returns the address that represents from in the table.
func keyOf(from netip.Addr) netip.Addr {
	from = from.Unmap().WithZone("")
	if from.Is6() {
		prefix, err := from.Prefix(64) // one machine may own the whole /64 (RFC 4291 2.5.4)
		if err == nil {
			from = prefix.Addr()
		}
	}
	return from
}
