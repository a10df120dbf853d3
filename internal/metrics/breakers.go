package metrics

import (
	"iter"
	"sync/atomic"
)

// Limit is a limit of a cluster's circuit breakers.
type Limit uint8

// The limits.
const (
	LimitConnections Limit = iota
	LimitPending
	LimitRequests
	LimitRetries
	LimitRetryBudget

	limitCount
)

// limitNames are the values of LabelLimit, by Limit.
//
//nolint:gochecknoglobals // a constant table
var limitNames = [limitCount]string{
	LimitConnections: "connections",
	LimitPending:     "pending_requests",
	LimitRequests:    "requests",
	LimitRetries:     "retries",
	LimitRetryBudget: "retry_budget",
}

// String returns the value of LabelLimit.
func (l Limit) String() string { return limitNames[l] }

// Limits yields every limit.
func Limits() iter.Seq[Limit] {
	return func(yield func(Limit) bool) {
		for l := range limitCount {
			if !yield(l) {
				return
			}
		}
	}
}

// priorityNames are the values of LabelPriority, by priority index.
//
//nolint:gochecknoglobals // a constant table
var priorityNames = [...]string{"default", "high"}

// LimitUsage reads the usage of the circuit breaker limits, by priority index and Limit.
type LimitUsage struct {
	read atomic.Pointer[func(priority int, l Limit) (used, limit int64)]
}

// SetFunc sets the function that returns the usage; any goroutine may call it. A limit of 0 means
// unlimited, and a negative limit allows nothing.
func (r *LimitUsage) SetFunc(read func(priority int, l Limit) (used, limit int64)) {
	r.read.Store(&read)
}

// collectBreakers exports how often each limit was reached (for the priority high only after the
// first time). For limits that are set, it also exports whether the limit is reached now and what
// remains.
func (c *scopeCollector) collectBreakers(e *emitter, name string, cluster *Cluster) {
	read := cluster.LimitUsage.read.Load()
	for p, priority := range priorityNames {
		for l := range Limits() {
			if n := cluster.Overflow[p][l].Value(); n > 0 || p == 0 {
				e.emitCounter(c.cluster[clusterOverflow], n, name, priority, l.String())
			}
			if read == nil {
				continue
			}
			used, limit := (*read)(p, l)
			if limit == 0 {
				continue
			}
			open := 0.0
			if used >= limit {
				open = 1
			}
			e.emitValue(c.cluster[clusterBreakerOpen], open, name, priority, l.String())
			e.emitValue(c.cluster[clusterBreakerRemaining], float64(max(limit-used, 0)), name, priority, l.String())
		}
	}
}
