// Package breaker enforces the circuit_breakers of a cluster: it counts exchanges, retries and
// connections against the limits, and queues connects that wait for max_connections.
//
//	exchanges    AddActive, EnterPending          breaker.go
//	retries      BeginRetry                       retry.go
//	connections  TryAcquireSlot, AwaitSlot        slots.go
//
// Each increment of a count has exactly one decrement: the doc comment of the method that
// increments the count names the method that decrements it.
package breaker

import (
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Breaker enforces the limits of a cluster for the exchanges of one priority. Each priority has its
// own counts and connections, so a priority that reaches its limits does not affect the other. Safe
// for concurrent use after Init.
type Breaker struct {
	options Options // immutable

	active        atomic.Int64 // exchanges that have a connection, and all forwarded connections and sessions
	pending       atomic.Int64 // exchanges and forwarded connections that wait for a connection or for hosts
	pendingActive atomic.Int64 // forwarded connections that are counted in active and in pending
	retries       atomic.Int64 // retries in flight
	slots         slots

	overflows atomic.Uint64 // exchanges and retries that were rejected
	rejected  atomic.Uint64 // exchanges that were rejected
}

// Options are the dependencies of a Breaker. Immutable.
type Options struct {
	Cluster  string // name of the cluster, for errors
	Priority config.Priority
	// Config holds the last configuration of the cluster, and nil until the first one. The cluster
	// replaces it. While it holds nil, the caller calls no method that reads limits except
	// BeginRetry and Usage.
	Config *atomic.Pointer[config.Cluster]
	// OnLimit is called each time that a limit is reached.
	OnLimit func(metrics.Limit)
	// EvictIdle removes an idle connection from any of the pools of the priority, or returns nil if
	// there is none. The caller holds the lock of the slots: EvictIdle must not call the Breaker.
	EvictIdle func() Evicted
}

// Init prepares b. The caller calls it once, before any other method.
func (b *Breaker) Init(o Options) { b.options = o }

// limits returns the active limits, or those of the last configuration if the cluster was removed.
func (b *Breaker) limits() *config.CircuitBreakers {
	return b.options.Config.Load().Limits(b.options.Priority)
}

// Priority returns the priority of the exchanges.
func (b *Breaker) Priority() config.Priority { return b.options.Priority }

// Counts holds the current counts of a Breaker. The counts are not read at the same moment.
type Counts struct {
	Active      int64 // exchanges that have a connection, and all forwarded connections and sessions
	Pending     int64 // exchanges and forwarded connections that wait for a connection or for hosts
	Retries     int64 // retries in flight
	Connections int64 // connections that are open or being opened
	Waiting     int64 // connects that wait for a slot
	Evicted     int64 // busy connections that drain because connects wait

	Overflows uint64 // exchanges and retries that were rejected so far
	Rejected  uint64 // exchanges that were rejected so far
}

// Counts returns the current counts.
func (b *Breaker) Counts() Counts {
	return Counts{
		Active:      b.active.Load(),
		Pending:     b.pending.Load(),
		Retries:     b.retries.Load(),
		Connections: b.slots.open.Load(),
		Waiting:     b.slots.waiting.Load(),
		Evicted:     b.slots.draining.Load(),
		Overflows:   b.overflows.Load(),
		Rejected:    b.rejected.Load(),
	}
}

// InFlight returns the number of exchanges that have a connection or are pending. The counts are
// not read at the same moment.
func (b *Breaker) InFlight() int64 {
	return max(0, b.active.Load()+b.pending.Load()-b.pendingActive.Load())
}

// CheckConnections returns a Fault of Overflow if cfg allows no connection, because an exchange
// would wait for one forever.
func (b *Breaker) CheckConnections(cfg *config.Cluster) error {
	if cfg.Limits(b.options.Priority).MaxConnections >= 0 {
		return nil
	}
	b.countRejected(metrics.LimitConnections)
	return protocol.Faultf(protocol.Overflow, "cluster %s: max_connections allows no connections", cfg.Name)
}

// AddActive increments the active exchanges, or returns a Fault of Overflow if max_requests is
// reached. After nil, the caller or the released function of the connection calls RemoveActive.
func (b *Breaker) AddActive() error {
	limit := b.limits().MaxRequests
	if tryIncrement(&b.active, limit) {
		return nil
	}
	return b.rejectRequest(limit)
}

// RemoveActive decrements the active exchanges.
func (b *Breaker) RemoveActive() { b.active.Add(-1) }

func (b *Breaker) rejectRequest(limit int) error {
	b.countRejected(metrics.LimitRequests)
	return protocol.Faultf(protocol.Overflow, "cluster %s: max_requests (%d) reached", b.options.Cluster, max(limit, 0))
}

// EnterPending increments the pending exchanges, or returns a Fault of Overflow. After nil, the
// caller calls LeavePending.
//
// If max_requests is reached and the pool would open a connection for the exchange now,
// EnterPending returns Overflow immediately: max_requests would not let the exchange use that
// connection. An exchange that waits for a connection in use may find fewer active exchanges later.
func (b *Breaker) EnterPending() error {
	limits := b.limits()
	if limit := limits.MaxRequests; limit != 0 && b.active.Load() >= int64(limit) && !b.maxConnectionsReached(limits) {
		return b.rejectRequest(limit)
	}
	return b.addPending(limits)
}

// EnterPendingActive is EnterPending for a forwarded connection, which is active already: it does
// not check max_requests. After nil, the caller calls LeavePendingActive.
func (b *Breaker) EnterPendingActive() error {
	if err := b.addPending(b.limits()); err != nil {
		return err
	}
	b.pendingActive.Add(1)
	return nil
}

func (b *Breaker) addPending(limits *config.CircuitBreakers) error {
	if limit := limits.MaxPendingRequests; !tryIncrement(&b.pending, limit) {
		b.countRejected(metrics.LimitPending)
		return protocol.Faultf(protocol.Overflow, "cluster %s: max_pending_requests (%d) reached", b.options.Cluster, max(limit, 0))
	}
	return nil
}

// LeavePending decrements the pending exchanges.
func (b *Breaker) LeavePending() { b.pending.Add(-1) }

// LeavePendingActive decrements the counts that EnterPendingActive incremented.
func (b *Breaker) LeavePendingActive() {
	b.pendingActive.Add(-1)
	b.pending.Add(-1)
}

// AddConnection takes a slot for a connection that no pool holds, without waiting. Without a free
// slot it returns a Fault of Overflow. After nil, the caller calls ReleaseSlot.
func (b *Breaker) AddConnection() error {
	limit := b.limits().MaxConnections
	if tryIncrement(&b.slots.open, limit) {
		return nil
	}
	b.countRejected(metrics.LimitConnections)
	return protocol.Faultf(protocol.Overflow, "cluster %s: max_connections (%d) reached", b.options.Cluster, limit)
}

// MoveSession counts an active exchange and its connection without checking the limits, because a
// session moves to another host and soon releases its counts for the old host. The caller calls
// ReleaseSlot and RemoveActive.
func (b *Breaker) MoveSession() {
	b.active.Add(1)
	b.slots.open.Add(1)
}

// countRejected counts an exchange, a retry or a connection that exceeds a limit.
func (b *Breaker) countRejected(l metrics.Limit) {
	b.overflows.Add(1)
	if l != metrics.LimitRetries && l != metrics.LimitRetryBudget {
		b.rejected.Add(1)
	}
	b.options.OnLimit(l)
}

// Usage returns the current usage of a limit and its maximum. The maximum 0 means unlimited; a
// negative maximum allows none. For a cluster that was never configured, Usage returns zeros.
func (b *Breaker) Usage(l metrics.Limit) (used, limit int64) {
	if b.options.Config.Load() == nil {
		return 0, 0
	}
	limits := b.limits()
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

// tryIncrement increments count unless it has reached limit, in the form of config.CircuitBreakers:
// 0 means unlimited, below 0 none allowed.
func tryIncrement(count *atomic.Int64, limit int) bool {
	if limit == 0 {
		count.Add(1)
		return true
	}
	for {
		n := count.Load()
		if n >= int64(limit) {
			return false
		}
		if count.CompareAndSwap(n, n+1) {
			return true
		}
	}
}
