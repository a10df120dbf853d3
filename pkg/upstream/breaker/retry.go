package breaker

import (
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
)

// BeginRetry increments the retries in flight and returns true, or returns false if max_retries or
// retry_budget of the priority is reached. The caller calls EndRetry once for each true.
func (b *Breaker) BeginRetry() bool {
	limit, reached := b.maxRetries()
	if tryIncrement(&b.retries, limit) {
		return true
	}
	b.countRejected(reached)
	return false
}

// EndRetry decrements the retries in flight.
func (b *Breaker) EndRetry() { b.retries.Add(-1) }

// maxRetries returns the maximum number of retries in flight (0: no limit, negative: none allowed,
// as in config.CircuitBreakers), and the limit that is reached at this number.
func (b *Breaker) maxRetries() (limit int, reached metrics.Limit) {
	if b.options.Config.Load() == nil {
		return 0, metrics.LimitRetries
	}
	limits := b.limits()
	limit = limits.MaxRetries
	if limits.RetryBudget == (config.RetryBudget{}) {
		return limit, metrics.LimitRetries
	}
	budget := b.retryBudget(limits)
	if limit != 0 && limit <= budget {
		return limit, metrics.LimitRetries
	}
	return budget, metrics.LimitRetryBudget
}

// retryBudget returns how many retries the retry budget allows now.
func (b *Breaker) retryBudget(limits *config.CircuitBreakers) int {
	budget := &limits.RetryBudget
	return max(budget.MinConcurrency, 1, int(float64(b.InFlight())*budget.Percent/100))
}
