package upstream

import (
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Breaker holds the exchanges of one priority to what a cluster may have of them at
// once, its circuit_breakers. Each priority has its own counts, and connections of its
// own, so that one which has used up what it may have leaves the other its own. Safe for
// concurrent use.
type Breaker struct {
	cluster  *Cluster        // immutable
	priority config.Priority // immutable

	active  atomic.Int64 // exchanges that have a connection, bytes and sessions included
	pending atomic.Int64 // exchanges that wait for a connection
	retries atomic.Int64 // retries in flight
	slots   slots
}

// Breaker returns what holds exchanges of a priority.
func (c *Cluster) Breaker(p config.Priority) *Breaker { return &c.breakers[p] }

// InFlight returns the number of exchanges that the cluster has now, of any priority:
// those that have a connection and those that wait for one.
func (c *Cluster) InFlight() int64 {
	sum := int64(0)
	for p := range c.breakers {
		sum += c.breakers[p].inFlight()
	}
	return sum
}

func (b *Breaker) inFlight() int64 { return b.active.Load() + b.pending.Load() }

// limits are those in force; those of the last configuration if there is none.
func (b *Breaker) limits() *config.Breakers { return b.cluster.settings().Limits(b.priority) }

// connectable returns a Fault of Overflow if cfg allows no connection: an exchange would
// wait for one that never comes.
func (b *Breaker) connectable(cfg *config.Cluster) error {
	if cfg.Limits(b.priority).MaxConnections >= 0 {
		return nil
	}
	b.refused(ConnectionOverflow)
	return protocol.Faultf(protocol.Overflow, "cluster %s: max_connections lets nothing through", cfg.Name)
}

// activate counts one active exchange more, one that gets a connection, or returns a
// Fault of Overflow if max_requests is reached. After nil the caller, or the released
// function of the connection, calls active.Add(-1).
func (b *Breaker) activate() error {
	limit := b.limits().MaxRequests
	if publish(&b.active, limit) {
		return nil
	}
	return b.requestOverflow(limit)
}

func (b *Breaker) requestOverflow(limit int) error {
	b.refused(RequestOverflow)
	return protocol.Faultf(protocol.Overflow, "cluster %s: max_requests (%d) reached", b.cluster.name, max(limit, 0))
}

// enterPending counts one pending exchange more, or returns a Fault of Overflow. After
// nil the caller calls pending.Add(-1).
//
// An exchange for which a connection would be opened now, and which max_requests would
// not let use it, overflows at once: the connection would be opened for nothing. One that
// has to wait for a connection in use may find fewer active exchanges then.
func (b *Breaker) enterPending() error {
	limits := b.limits()
	if most := limits.MaxRequests; most != 0 && b.active.Load() >= int64(most) && !b.connectionsReached(limits) {
		return b.requestOverflow(most)
	}
	return b.addPending(limits)
}

// addPending counts one pending exchange more, whatever max_requests says.
func (b *Breaker) addPending(limits *config.Breakers) error {
	if limit := limits.MaxPendingRequests; !publish(&b.pending, limit) {
		b.refused(PendingOverflow)
		return protocol.Faultf(protocol.Overflow, "cluster %s: max_pending_requests (%d) reached", b.cluster.name, max(limit, 0))
	}
	return nil
}

// connectionsReached reports whether another connection has to wait for a slot.
func (b *Breaker) connectionsReached(limits *config.Breakers) bool {
	return b.slots.waiting.Load() > 0 || limits.MaxConnections != 0 && b.slots.open.Load() >= int64(limits.MaxConnections)
}

// refused counts an exchange, a retry or a connection that there is no room for.
func (b *Breaker) refused(e Event) {
	b.cluster.overflows.Add(1)
	if e != RetryOverflow && e != BudgetOverflow {
		b.cluster.refusals.Add(1)
	}
	b.reached(e)
}

// reached counts that a limit was reached.
func (b *Breaker) reached(e Event) {
	if a, ok := b.cluster.ledger.get(); ok {
		a.LimitReached(b.priority, e)
	}
}

// Room returns how much there is of what a limit bounds, and how much there may be; 0:
// any number; below 0: none.
func (c *Cluster) Room(p config.Priority, l metrics.Limit) (used, most int64) {
	s := c.state.Load()
	if s == nil {
		return 0, 0
	}
	b, limits := &c.breakers[p], s.config.Limits(p)
	switch l {
	case metrics.LimitConnections:
		return b.slots.open.Load(), int64(limits.MaxConnections)
	case metrics.LimitPending:
		return b.pending.Load(), int64(limits.MaxPendingRequests)
	case metrics.LimitRequests:
		return b.active.Load(), int64(limits.MaxRequests)
	case metrics.LimitRetries:
		return b.retries.Load(), int64(limits.MaxRetries)
	case metrics.LimitRetryBudget:
		if limits.RetryBudget != (config.RetryBudget{}) {
			return b.retries.Load(), int64(b.budget(limits))
		}
	}
	return 0, 0
}

// BreakerStatus is a limit of a cluster's circuit breakers at a moment.
type BreakerStatus struct {
	Priority             string `json:"priority"`
	MaxConcurrentStreams string `json:"limit"`
	Used                 int64  `json:"used"`
	Most                 int64  `json:"most"`
	Open                 bool   `json:"open"` // what comes is refused, or waits
}

// describeBreakers lists the limits that are set.
func (c *Cluster) describeBreakers() (list []BreakerStatus) {
	for p := range config.Priorities {
		for l := range metrics.Limits() {
			if used, most := c.Room(p, l); most != 0 {
				list = append(list, BreakerStatus{p.String(), l.String(), used, max(most, 0), used >= most})
			}
		}
	}
	return list
}
