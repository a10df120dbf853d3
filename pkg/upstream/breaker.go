package upstream

import (
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Breaker enforces the circuit_breakers of a cluster for the exchanges of one priority. Each
// priority has its own counts and connections, so that one that reaches its limits does not affect
// the other. Safe for concurrent use.
type Breaker struct {
	cluster  *Cluster        // immutable
	priority config.Priority // immutable

	active  atomic.Int64 // exchanges that have a connection, including forwarded connections and sessions
	pending atomic.Int64 // exchanges that wait for a connection
	retries atomic.Int64 // retries in flight
	slots   slots
}

// Breaker returns the breaker of a priority.
func (c *Cluster) Breaker(p config.Priority) *Breaker { return &c.breakers[p] }

// InFlight returns the number of exchanges of all priorities that the cluster has now: those that
// have a connection and those that wait for one.
func (c *Cluster) InFlight() int64 {
	sum := int64(0)
	for p := range c.breakers {
		sum += c.breakers[p].inFlight()
	}
	return sum
}

func (b *Breaker) inFlight() int64 { return b.active.Load() + b.pending.Load() }

// limits returns the active limits, or those of the last configuration if the cluster was removed.
func (b *Breaker) limits() *config.CircuitBreakers { return b.cluster.lastConfig().Limits(b.priority) }

// checkMaxConnections returns a Fault of Overflow if cfg allows no connection, because an exchange would
// wait for one forever.
func (b *Breaker) checkMaxConnections(cfg *config.Cluster) error {
	if cfg.Limits(b.priority).MaxConnections >= 0 {
		return nil
	}
	b.countRejected(ConnectionOverflow)
	return protocol.Faultf(protocol.Overflow, "cluster %s: max_connections allows no connections", cfg.Name)
}

// addActive counts one more active exchange, or returns a Fault of Overflow if max_requests is
// reached. After nil, the caller or the released function of the connection calls active.Add(-1).
func (b *Breaker) addActive() error {
	limit := b.limits().MaxRequests
	if tryIncrement(&b.active, limit) {
		return nil
	}
	return b.rejectRequest(limit)
}

func (b *Breaker) rejectRequest(limit int) error {
	b.countRejected(RequestOverflow)
	return protocol.Faultf(protocol.Overflow, "cluster %s: max_requests (%d) reached", b.cluster.name, max(limit, 0))
}

// enterPending counts one more pending exchange, or returns a Fault of Overflow. After nil, the
// caller calls pending.Add(-1).
//
// If max_requests is reached and the pool would open a connection for the exchange now,
// enterPending returns Overflow immediately: max_requests would not let the exchange use that
// connection. An exchange that waits for a connection in use may find fewer active exchanges later.
func (b *Breaker) enterPending() error {
	limits := b.limits()
	if most := limits.MaxRequests; most != 0 && b.active.Load() >= int64(most) && !b.maxConnectionsReached(limits) {
		return b.rejectRequest(most)
	}
	return b.addPending(limits)
}

// addPending counts one more pending exchange without checking max_requests.
func (b *Breaker) addPending(limits *config.CircuitBreakers) error {
	if limit := limits.MaxPendingRequests; !tryIncrement(&b.pending, limit) {
		b.countRejected(PendingOverflow)
		return protocol.Faultf(protocol.Overflow, "cluster %s: max_pending_requests (%d) reached", b.cluster.name, max(limit, 0))
	}
	return nil
}

// maxConnectionsReached reports whether another connection has to wait for a slot.
func (b *Breaker) maxConnectionsReached(limits *config.CircuitBreakers) bool {
	return b.slots.waiting.Load() > 0 || limits.MaxConnections != 0 && b.slots.open.Load() >= int64(limits.MaxConnections)
}

// countRejected counts an exchange, a retry or a connection that exceeds a limit.
func (b *Breaker) countRejected(e Event) {
	b.cluster.overflows.Add(1)
	if e != RetryOverflow && e != BudgetOverflow {
		b.cluster.rejected.Add(1)
	}
	b.countLimitReached(e)
}

// countLimitReached counts that a limit was reached.
func (b *Breaker) countLimitReached(e Event) {
	if a, ok := b.cluster.recorder.get(); ok {
		a.LimitReached(b.priority, e)
	}
}

// LimitUsage returns the current value of what a limit bounds, and the limit; a limit of 0 means
// unlimited, below 0 none allowed.
func (c *Cluster) LimitUsage(p config.Priority, l metrics.Limit) (used, most int64) {
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
			return b.retries.Load(), int64(b.retryBudget(limits))
		}
	}
	return 0, 0
}

// BreakerStatus is the state of one limit of a cluster's circuit breakers.
type BreakerStatus struct {
	Priority string `json:"priority"`
	Limit    string `json:"limit"`
	Used     int64  `json:"used"`
	Max      int64  `json:"most"`
	Open     bool   `json:"open"` // further requests are rejected or wait
}

// describeBreakers lists the limits that are set.
func (c *Cluster) describeBreakers() (list []BreakerStatus) {
	for p := range config.NumPriorities {
		for l := range metrics.Limits() {
			if used, most := c.LimitUsage(p, l); most != 0 {
				list = append(list, BreakerStatus{p.String(), l.String(), used, max(most, 0), used >= most})
			}
		}
	}
	return list
}
