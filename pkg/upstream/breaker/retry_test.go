package breaker

import (
	"sync/atomic"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
)

// newBreaker returns a breaker with these limits.
func newBreaker(limits config.CircuitBreakers) *Breaker {
	cfg := new(atomic.Pointer[config.Cluster])
	cfg.Store(&config.Cluster{Name: "web", CircuitBreakers: limits})
	b := new(Breaker)
	b.Init(Options{
		Cluster:   "web",
		Config:    cfg,
		OnLimit:   func(metrics.Limit) {},
		EvictIdle: func() Evicted { return nil },
	})
	return b
}

func TestRetryBudgetFollowsInFlight(t *testing.T) {
	for _, test := range []struct {
		name     string
		breakers config.CircuitBreakers
		active   int64
		want     int // retries; -1: any number
		reached  metrics.Limit
	}{
		{"no limit", config.CircuitBreakers{}, 1000, -1, 0},
		{"max_retries", config.CircuitBreakers{MaxRetries: 2}, 1000, 2, metrics.LimitRetries},
		{"percentage of the requests", config.CircuitBreakers{RetryBudget: config.RetryBudget{Percent: 20, MinConcurrency: 3}}, 100, 20, metrics.LimitRetryBudget},
		{"rounded down", config.CircuitBreakers{RetryBudget: config.RetryBudget{Percent: 12.5, MinConcurrency: 3}}, 79, 9, metrics.LimitRetryBudget},
		{"MinConcurrency exceeds the percentage", config.CircuitBreakers{RetryBudget: config.RetryBudget{Percent: 20, MinConcurrency: 3}}, 14, 3, metrics.LimitRetryBudget},
		{"zero percent", config.CircuitBreakers{RetryBudget: config.RetryBudget{MinConcurrency: 1}}, 1000, 1, metrics.LimitRetryBudget},
		{"retry budget is lower", config.CircuitBreakers{MaxRetries: 21, RetryBudget: config.RetryBudget{Percent: 20, MinConcurrency: 3}}, 100, 20, metrics.LimitRetryBudget},
		{"max_retries is lower", config.CircuitBreakers{MaxRetries: 19, RetryBudget: config.RetryBudget{Percent: 20, MinConcurrency: 3}}, 100, 19, metrics.LimitRetries},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBreaker(test.breakers)
			b.active.Add(test.active)
			started := 0
			for started < 100 && b.BeginRetry() {
				started++
			}
			if want := test.want; started != want && (want >= 0 || started < 100) {
				t.Errorf("%d retries started, want %d", started, want)
			}
			if _, reached := b.maxRetries(); test.want >= 0 && reached != test.reached {
				t.Errorf("a retry was rejected because of limit %d, want %d", reached, test.reached)
			}
			for range started {
				b.EndRetry()
			}
			if !b.BeginRetry() {
				t.Error("a retry was rejected after the others had ended")
			}
			b.EndRetry()
		})
	}
}
