package upstream

import (
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/breaker"
)

// initBreakers prepares the circuit breakers of a new cluster.
func (c *Cluster) initBreakers() {
	for p := range config.NumPriorities {
		c.breakers[p].Init(breaker.Options{
			Cluster:   c.name,
			Priority:  p,
			Config:    &c.config,
			OnLimit:   func(l metrics.Limit) { c.countLimitReached(p, l) },
			EvictIdle: func() breaker.Evicted { return c.evictIdleConn(p) },
		})
	}
}

// Breaker returns the breaker of a priority.
func (c *Cluster) Breaker(p config.Priority) *breaker.Breaker { return &c.breakers[p] }

// InFlight returns the number of exchanges of all priorities that the cluster has now: those that
// have a connection and those that are pending.
func (c *Cluster) InFlight() int64 {
	sum := int64(0)
	for p := range c.breakers {
		sum += c.breakers[p].InFlight()
	}
	return sum
}

// rejectedExchanges returns how many exchanges the circuit breakers rejected.
func (c *Cluster) rejectedExchanges() (n uint64) {
	for p := range c.breakers {
		n += c.breakers[p].Counts().Rejected
	}
	return n
}

func (c *Cluster) countLimitReached(p config.Priority, l metrics.Limit) {
	r, ok := c.recorder.get()
	if !ok {
		return
	}
	var e Event
	switch l {
	case metrics.LimitConnections:
		e = ConnectionOverflow
	case metrics.LimitPending:
		e = PendingOverflow
	case metrics.LimitRequests:
		e = RequestOverflow
	case metrics.LimitRetries:
		e = RetryOverflow
	case metrics.LimitRetryBudget:
		e = BudgetOverflow
	}
	r.LimitReached(p, e)
}

// evictIdleConn removes an idle connection from the pools of a priority of any host, or returns nil
// if there is none.
func (c *Cluster) evictIdleConn(p config.Priority) breaker.Evicted {
	s := c.state.Load()
	if s.originalDst != nil {
		return s.originalDst.evictIdleConn(p)
	}
	for _, h := range s.hosts {
		if idle := h.evictIdleConn(p); idle != nil {
			return idle
		}
	}
	return nil
}

// evictIdleConn removes an idle connection from any of the host's pools of a priority, or returns
// nil if there is none. The caller closes it and owns its slot.
func (h *Host) evictIdleConn(p config.Priority) breaker.Evicted {
	for n := h.pools.Load(); n != nil; n = n.next {
		if n.priority != p {
			continue
		}
		if idle := n.pool.EvictIdle(); idle != nil {
			return idle
		}
	}
	return nil
}

// LimitUsage returns the current usage of a limit and its maximum. The maximum 0 means unlimited; a
// negative maximum allows none.
func (c *Cluster) LimitUsage(p config.Priority, l metrics.Limit) (used, limit int64) {
	return c.breakers[p].Usage(l)
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
			if used, limit := c.LimitUsage(p, l); limit != 0 {
				list = append(list, BreakerStatus{p.String(), l.String(), used, max(limit, 0), used >= limit})
			}
		}
	}
	return list
}
