package upstream

import "github.com/weft-proxy/weft/pkg/config"

// BeginRetry counts one more retry in flight and returns true, or returns false if max_retries or
// retry_budget of the priority is reached. The caller calls EndRetry once for each true.
func (b *Breaker) BeginRetry() bool {
	limit, refused := b.maxRetries()
	if tryIncrement(&b.retries, limit) {
		return true
	}
	b.countRejected(refused)
	return false
}

// EndRetry counts one retry less in flight.
func (b *Breaker) EndRetry() { b.retries.Add(-1) }

// maxRetries returns the limit of retries in flight, in the form of config.CircuitBreakers, and the event
// for a retry beyond it.
func (b *Breaker) maxRetries() (limit int, refused Event) {
	s := b.cluster.state.Load()
	if s == nil {
		return 0, RetryOverflow
	}
	limits := s.config.Limits(b.priority)
	limit = limits.MaxRetries
	if limits.RetryBudget == (config.RetryBudget{}) {
		return limit, RetryOverflow
	}
	budget := b.retryBudget(limits)
	if limit != 0 && limit <= budget {
		return limit, RetryOverflow
	}
	return budget, BudgetOverflow
}

// retryBudget returns how many retries the retry budget allows now.
func (b *Breaker) retryBudget(limits *config.CircuitBreakers) int {
	of := &limits.RetryBudget
	return max(of.MinConcurrency, 1, int(float64(b.inFlight())*of.Percent/100))
}
