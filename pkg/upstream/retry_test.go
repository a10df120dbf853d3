package upstream

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestRetriesAreBoundedByWhatIsInFlight(t *testing.T) {
	for _, test := range []struct {
		name     string
		breakers config.Breakers
		active   int64
		want     int // retries; -1: any number
		refused  Event
	}{
		{"no limit", config.Breakers{}, 1000, -1, 0},
		{"max_retries", config.Breakers{MaxRetries: 2}, 1000, 2, RetryOverflow},
		{"a share of the requests", config.Breakers{RetryBudget: config.RetryBudget{Percent: 20, MinConcurrency: 3}}, 100, 20, BudgetOverflow},
		{"part of a retry is none", config.Breakers{RetryBudget: config.RetryBudget{Percent: 12.5, MinConcurrency: 3}}, 79, 9, BudgetOverflow},
		{"few requests", config.Breakers{RetryBudget: config.RetryBudget{Percent: 20, MinConcurrency: 3}}, 14, 3, BudgetOverflow},
		{"no share at all", config.Breakers{RetryBudget: config.RetryBudget{MinConcurrency: 1}}, 1000, 1, BudgetOverflow},
		{"the budget is nearer", config.Breakers{MaxRetries: 21, RetryBudget: config.RetryBudget{Percent: 20, MinConcurrency: 3}}, 100, 20, BudgetOverflow},
		{"max_retries is nearer", config.Breakers{MaxRetries: 19, RetryBudget: config.RetryBudget{Percent: 20, MinConcurrency: 3}}, 100, 19, RetryOverflow},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := cluster("web", "a")
			cfg.Breakers = test.breakers
			_, c := one(t, newWorld(), cfg)
			c.breakers[0].active.Add(test.active)
			defer c.breakers[0].active.Add(-test.active)
			begun := 0
			for begun < 100 && c.breakers[0].BeginRetry() {
				begun++
			}
			if want := test.want; begun != want && (want >= 0 || begun < 100) {
				t.Errorf("%d retries began, want %d", begun, want)
			}
			if _, refused := c.breakers[0].mostRetries(); test.want >= 0 && refused != test.refused {
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
