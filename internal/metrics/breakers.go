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

// String returns the limit as LabelLimit spells it.
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

// priorityNames are the values of LabelPriority. They are few, and known.
//
//nolint:gochecknoglobals // a constant table
var priorityNames = [...]string{"default", "high"}

// Room is how near requests are to limits that somebody else keeps, by the position of a
// priority, from 0, and the limit.
type Room struct {
	read atomic.Pointer[func(priority int, l Limit) (used, most int64)]
}

// Follow makes read what is exported; it is called from any goroutine. most 0: there is
// no limit; below 0: there may be nothing.
func (r *Room) Follow(read func(priority int, l Limit) (used, most int64)) { r.read.Store(&read) }

// collectBreakers exports what a cluster's circuit breakers refused, and of the limits
// that are set, whether they are reached and what is left.
func (c *placeCollector) collectBreakers(e *emitter, name string, cluster *Cluster) {
	room := cluster.Room.read.Load()
	for p, priority := range priorityNames {
		for l := range Limits() {
			if n := cluster.Overflow[p][l].Value(); n > 0 || p == 0 {
				e.counter(c.cluster[clusterOverflow], n, name, priority, l.String())
			}
			if room == nil {
				continue
			}
			used, most := (*room)(p, l)
			if most == 0 {
				continue
			}
			open := 0.0
			if used >= most {
				open = 1
			}
			e.value(c.cluster[clusterBreakerOpen], open, name, priority, l.String())
			e.value(c.cluster[clusterBreakerLeft], float64(max(most-used, 0)), name, priority, l.String())
		}
	}
}
