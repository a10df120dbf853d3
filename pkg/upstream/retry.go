package upstream

import "github.com/weft-proxy/weft/pkg/config"

// BeginRetry counts a retry more in flight and reports true, or reports that the
// priority has as many as max_retries or retry_budget allow. Each true is followed
// by one EndRetry.
func (b *Breaker) BeginRetry() bool {
	limit, refused := b.mostRetries()
	if publish(&b.retries, limit) {
		return true
	}
	b.refused(refused)
	return false
}

// EndRetry counts a retry less in flight.
func (b *Breaker) EndRetry() { b.retries.Add(-1) }

// mostRetries returns how many retries may be in flight, as config.Breakers has it, and what
// it is when there is one too many.
func (b *Breaker) mostRetries() (limit int, refused Event) {
	s := b.cluster.state.Load()
	if s == nil {
		return 0, RetryOverflow
	}
	limits := s.config.Limits(b.priority)
	limit = limits.MaxRetries
	if limits.RetryBudget == (config.RetryBudget{}) {
		return limit, RetryOverflow
	}
	budget := b.budget(limits)
	if limit != 0 && limit <= budget {
		return limit, RetryOverflow
	}
	return budget, BudgetOverflow
}

// budget returns how many retries the retry budget allows now.
func (b *Breaker) budget(limits *config.Breakers) int {
	of := &limits.RetryBudget
	return max(of.MinConcurrency, 1, int(float64(b.inFlight())*of.Percent/100))
}
