package upstream

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestRetryBudgetFollowsInFlight(t *testing.T) {
	for _, test := range []struct {
		name     string
		breakers config.CircuitBreakers
		active   int64
		want     int // retries; -1: any number
		refused  Event
	}{
		{"no limit", config.CircuitBreakers{}, 1000, -1, 0},
		{"max_retries", config.CircuitBreakers{MaxRetries: 2}, 1000, 2, RetryOverflow},
		{"a share of the requests", config.CircuitBreakers{RetryBudget: config.RetryBudget{Percent: 20, MinConcurrency: 3}}, 100, 20, BudgetOverflow},
		{"part of a retry is none", config.CircuitBreakers{RetryBudget: config.RetryBudget{Percent: 12.5, MinConcurrency: 3}}, 79, 9, BudgetOverflow},
		{"few requests", config.CircuitBreakers{RetryBudget: config.RetryBudget{Percent: 20, MinConcurrency: 3}}, 14, 3, BudgetOverflow},
		{"no share at all", config.CircuitBreakers{RetryBudget: config.RetryBudget{MinConcurrency: 1}}, 1000, 1, BudgetOverflow},
		{"the budget is nearer", config.CircuitBreakers{MaxRetries: 21, RetryBudget: config.RetryBudget{Percent: 20, MinConcurrency: 3}}, 100, 20, BudgetOverflow},
		{"max_retries is nearer", config.CircuitBreakers{MaxRetries: 19, RetryBudget: config.RetryBudget{Percent: 20, MinConcurrency: 3}}, 100, 19, RetryOverflow},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := cluster("web", "a")
			cfg.CircuitBreakers = test.breakers
			_, c := newTestCluster(t, newFakeConnector(), cfg)
			c.breakers[0].active.Add(test.active)
			defer c.breakers[0].active.Add(-test.active)
			begun := 0
			for begun < 100 && c.breakers[0].BeginRetry() {
				begun++
			}
			if want := test.want; begun != want && (want >= 0 || begun < 100) {
				t.Errorf("%d retries began, want %d", begun, want)
			}
			if _, refused := c.breakers[0].maxRetries(); test.want >= 0 && refused != test.refused {
				t.Errorf("a retry was refused as %d, want %d", refused, test.refused)
			}
			for range begun {
				c.breakers[0].EndRetry()
			}
			if !c.breakers[0].BeginRetry() {
				t.Error("a retry was refused when the others had ended")
			}
			c.breakers[0].EndRetry()
		})
	}
}
