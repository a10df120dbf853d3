package upstream

import "github.com/weft-proxy/weft/pkg/config"

// BeginRetry counts a retry more in flight and reports true, or reports that the
// cluster has as many as max_retries or retry_budget allow. Each true is followed
// by one EndRetry.
func (c *Cluster) BeginRetry() bool {
	limit, refused := c.mostRetries()
	if enter(&c.retries, limit) {
		return true
	}
	c.overflows.Add(1)
	c.count(refused)
	return false
}

// EndRetry counts a retry less in flight.
func (c *Cluster) EndRetry() { c.retries.Add(-1) }

// mostRetries returns how many retries may be in flight, 0 for any number, and what
// it is when there is one too many.
func (c *Cluster) mostRetries() (limit int, refused Event) {
	s := c.state.Load()
	if s == nil {
		return 0, RetryOverflow
	}
	limit = s.config.Breakers.MaxRetries
	b := s.config.Breakers.RetryBudget
	if b == (config.RetryBudget{}) {
		return limit, RetryOverflow
	}
	budget := max(b.MinConcurrency, 1, int(float64(c.active.Load())*b.Percent/100))
	if limit > 0 && limit <= budget {
		return limit, RetryOverflow
	}
	return budget, BudgetOverflow
}
