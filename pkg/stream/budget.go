package stream

import (
	"cmp"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// CostBudget bounds how often callers may do what costs a listener more than it costs
// them, such as opening streams and resetting them at once: all connections of a source
// address together, and all of the listener together. What one connection may do is
// bounded by its engine. Safe for concurrent use.
//
// Only connections that misbehave ask it, and only they pay: a connection that charges
// nothing is never ended because others have used the budget up, neither those of its own
// address nor those of the listener.
type CostBudget struct {
	seed maphash.Seed
	lull logLimiter // of log lines about connections that are ended

	mu       sync.Mutex
	listener debt             // guarded by mu
	sources  *[sets]sourceSet // guarded by mu; nil: no address was charged yet
	start    time.Time        // guarded by mu; when the first charge came
}

// CostLimits are what a server allows its callers of a CostBudget.
type CostLimits struct {
	Source   config.Budget // of one source address; of IPv6 a /64 prefix
	Listener config.Budget // of all
}

// CostLimitsOf returns the limits that o sets; those that it leaves out are the defaults.
func CostLimitsOf(o *config.HTTP2Options) CostLimits {
	defaults := config.DefaultHTTP2Options()
	return CostLimits{
		Source:   budgetOr(o.SourceResets, defaults.SourceResets),
		Listener: budgetOr(o.ListenerResets, defaults.ListenerResets),
	}
}

// budgetOr returns b with what is 0 in it taken from other.
func budgetOr(b, other config.Budget) config.Budget {
	return config.Budget{Burst: cmp.Or(b.Burst, other.Burst), PerSecond: cmp.Or(b.PerSecond, other.PerSecond)}
}

// sets and ways are the table of source addresses: 4,096 of them, about 200 KiB for each
// listener that is attacked. Of more, those that owe the least are forgotten.
const (
	sets = 1024
	ways = 4
)

// Verdict is what a charge comes to.
type Verdict uint8

// The verdicts.
const (
	WithinBudget     Verdict = iota
	SourceExceeded           // the source address has used up its budget
	ListenerExceeded         // all callers of the listener have used up theirs
)

type sourceSet [ways]source

type source struct {
	address netip.Addr // the zero Addr: the entry is free
	debt    debt
}

// debt is the time, since CostBudget.start, at which everything charged is paid back: a
// token bucket in one word.
type debt time.Duration

// charge adds n, and reports whether more than limit allows are owed. The debt never grows
// much beyond that.
func (d *debt) charge(n int, limit config.Budget, elapsed time.Duration) (exceeded bool) {
	one := time.Second / time.Duration(limit.PerSecond)
	most := elapsed + time.Duration(limit.Burst)*one
	owed := max(time.Duration(*d), elapsed) + time.Duration(n)*one
	exceeded = owed > most
	*d = debt(min(owed, most))
	return exceeded
}

// NewCostBudget returns a budget of which nothing is used.
func NewCostBudget() *CostBudget { return &CostBudget{seed: maphash.MakeSeed()} }

// Charge takes n from the budgets of a source address, which is the zero Addr for
// callers that have none, and of the listener. Servers of one listener may have other
// limits, as before and after a reload: what callers owe is paid back in the same time.
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

// SourceExceeded reports whether a source address has used up its budget: whether a charge
// of 1 would come to SourceExceeded.
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

// MayLog reports whether a connection that is ended may be logged now, and how many were
// not logged before: one line a second at most.
func (b *CostBudget) MayLog(now time.Time) (skipped int64, ok bool) { return b.lull.allow(now) }

// source returns what an address owes. It takes the place of the one that owes the
// least, if it has none. b.mu is held.
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

// find returns the entry of an address, nil if it has none, and the set that it would be
// in. b.mu is held, and b.sources is not nil.
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

// keyOf returns the address that stands for from in the table.
func keyOf(from netip.Addr) netip.Addr {
	from = from.Unmap().WithZone("")
	if from.Is6() {
		prefix, err := from.Prefix(64) // what one host has to itself (RFC 4291 2.5.4)
		if err == nil {
			from = prefix.Addr()
		}
	}
	return from
}
