package upstream

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// beginWithPriority starts an exchange of a priority and returns it with the reason of its failure,
// if any.
func beginWithPriority(c *Cluster, p config.Priority) (*protocol.Exchange, protocol.Reason) {
	x := newExchange()
	err := x.Serve(context.Background(), (&ClusterPicker{Cluster: c, Priority: p}))
	return x, protocol.ReasonOf(err)
}

// TestPrioritiesHaveSeparateLimits verifies that a limit of one priority does not affect the
// other priority.
func TestPrioritiesHaveSeparateLimits(t *testing.T) {
	for name, test := range map[string]struct {
		limits  config.CircuitBreakers
		pending int // exchanges of the first priority that can wait
	}{
		"max_requests":         {config.CircuitBreakers{MaxRequests: 1}, 0},
		"max_connections":      {config.CircuitBreakers{MaxConnections: 1, MaxPendingRequests: 1}, 1},
		"max_pending_requests": {config.CircuitBreakers{MaxConnections: 1, MaxPendingRequests: 2}, 2},
	} {
		for _, first := range []config.Priority{config.DefaultPriority, config.HighPriority} {
			other := config.HighPriority - first
			t.Run(name+" of "+first.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := cluster("web", "a")
					*cfg.Limits(first) = test.limits
					f := newFakeConnector()
					s, c := newTestCluster(t, f, cfg)
					defer s.Close()
					x, _ := beginWithPriority(c, first)
					waiting := make(chan *protocol.Exchange, test.pending)
					for range test.pending {
						go func() {
							x, _ := beginWithPriority(c, first)
							waiting <- x
						}()
						synctest.Wait()
					}
					if _, reason := beginWithPriority(c, first); reason != protocol.Overflow {
						t.Errorf("exchange above the limit: %v, want an overflow", reason)
					}
					var others []*protocol.Exchange
					for range 5 {
						x, reason := beginWithPriority(c, other)
						if reason != protocol.ReasonNone {
							t.Fatalf("exchange of the other priority: %v; want no failure", reason)
						}
						others = append(others, x)
					}
					if got := f.numOpen(); got != 6 {
						t.Errorf("%d connections are open, want 6", got)
					}
					for _, x := range others {
						finish(x)
					}
					finish(x)
					for range test.pending {
						finish(<-waiting)
					}
					if got := c.Breaker(first).Counts().Active + c.Breaker(other).Counts().Active + c.Breaker(first).Counts().Pending; got != 0 {
						t.Errorf("%d exchanges are counted after all have ended, want 0", got)
					}
				})
			})
		}
	}
}

// TestPrioritiesShareNoConnection verifies that exchanges of different priorities do not share a
// multiplexed connection, because connections count against the limit of one priority.
func TestPrioritiesShareNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		s, c := f.newTestCluster(t, muxCluster(1, "a"))
		defer s.Close()
		var exchanges []*protocol.Exchange
		for range 3 {
			for _, p := range []config.Priority{config.DefaultPriority, config.HighPriority} {
				x, reason := beginWithPriority(c, p)
				if reason != protocol.ReasonNone {
					t.Fatal(reason)
				}
				exchanges = append(exchanges, x)
			}
		}
		if got := f.numOpen(); got != 2 {
			t.Errorf("%d connections, want one for each priority", got)
		}
		for i := range exchanges {
			if connOf(exchanges[i]) != connOf(exchanges[i%2]) {
				t.Errorf("exchange %d is on the connection of the other priority", i)
			}
		}
		finishAll(exchanges)
	})
}

// TestRetriesOfPriorities verifies that each priority has its own max_retries and retry budget.
func TestRetriesOfPriorities(t *testing.T) {
	cfg := cluster("web", "a")
	cfg.CircuitBreakers.MaxRetries = 1
	cfg.HighCircuitBreakers.RetryBudget = config.RetryBudget{Percent: 20, MinConcurrency: 2}
	_, c := newTestCluster(t, newFakeConnector(), cfg)
	for p, want := range map[config.Priority]int{config.DefaultPriority: 1, config.HighPriority: 2} {
		b := c.Breaker(p)
		started := 0
		for b.BeginRetry() {
			started++
		}
		if started != want {
			t.Errorf("%v: %d retries started, want %d", p, started, want)
		}
		for range started {
			b.EndRetry()
		}
	}
}

// TestDescribeLimits verifies that Describe reports the usage and the maximum of each configured
// limit.
func TestDescribeLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster("web", "a")
		cfg.CircuitBreakers.MaxRequests = 1
		cfg.HighCircuitBreakers.MaxConnections = 3
		cfg.HighCircuitBreakers.RetryBudget = config.RetryBudget{Percent: 20, MinConcurrency: 2}
		var counts eventCounts
		s := newTestSet(t, newFakeConnector(), func(o *Options) { o.Meter = &counts })
		apply(t, s, cfg)
		defer s.Close()
		c := s.Get("web")
		x, _ := beginWithPriority(c, config.DefaultPriority)
		y, _ := beginWithPriority(c, config.HighPriority)
		beginWithPriority(c, config.DefaultPriority)
		want := []BreakerStatus{
			{"DEFAULT", "requests", 1, 1, true},
			{"HIGH", "connections", 1, 3, false},
			{"HIGH", "retry_budget", 0, 2, false},
		}
		if got := s.Describe()[0].Breakers; !slices.Equal(got, want) {
			t.Errorf("limits = %v, want %v", got, want)
		}
		if counts.events[RequestOverflow] != 1 || s.Describe()[0].Overflows != 1 || c.InFlight() != 2 {
			t.Errorf("%d overflows counted, %d in the status, %d in flight, want 1, 1 and 2", counts.events[RequestOverflow], s.Describe()[0].Overflows, c.InFlight())
		}
		finish(x)
		finish(y)
		advanceClock(time.Millisecond)
		if used, limit := c.LimitUsage(config.DefaultPriority, metrics.LimitRequests); used != 0 || limit != 1 {
			t.Errorf("after the exchanges: usage %d of %d requests, want 0 of 1", used, limit)
		}
	})
}

// TestUnconfiguredClusterHasNoLimits verifies the limits of a cluster that is referred to but not
// configured.
func TestUnconfiguredClusterHasNoLimits(t *testing.T) {
	c := newTestSet(t, newFakeConnector()).Get("other")
	for l := range metrics.Limits() {
		if used, limit := c.LimitUsage(config.HighPriority, l); used != 0 || limit != 0 {
			t.Errorf("%v: usage %d of %d, want 0 of 0", l, used, limit)
		}
	}
}

// TestNegativeLimitIsAlwaysReached verifies that each limit of LimitNoneAllowed rejects all
// exchanges of its priority.
func TestNegativeLimitIsAlwaysReached(t *testing.T) {
	for name, limits := range map[string]config.CircuitBreakers{
		"max_requests":         {MaxRequests: config.LimitNoneAllowed},
		"max_connections":      {MaxConnections: config.LimitNoneAllowed},
		"max_pending_requests": {MaxPendingRequests: config.LimitNoneAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := cluster("web", "a")
				cfg.CircuitBreakers = limits
				f := newFakeConnector()
				s, c := newTestCluster(t, f, cfg)
				defer s.Close()
				if _, reason := beginWithPriority(c, config.DefaultPriority); reason != protocol.Overflow {
					t.Errorf("exchange ended with %v, want an overflow", reason)
				}
				if got := c.InFlight(); got != 0 {
					t.Errorf("%d exchanges are in flight, want 0", got)
				}
				x, reason := beginWithPriority(c, config.HighPriority)
				if reason != protocol.ReasonNone {
					t.Fatalf("exchange of the other priority: %v; want no failure", reason)
				}
				finish(x)
				d := c.describe()
				if len(d.Breakers) != 1 || !d.Breakers[0].Open || d.Breakers[0].Max != 0 {
					t.Errorf("breakers = %+v, want one open breaker", d.Breakers)
				}
			})
		})
	}
}

func TestNoRetryWithNegativeLimit(t *testing.T) {
	for _, budget := range []config.RetryBudget{{}, {Percent: 100, MinConcurrency: 3}} {
		cfg := cluster("web", "a")
		cfg.CircuitBreakers = config.CircuitBreakers{MaxRetries: config.LimitNoneAllowed, RetryBudget: budget}
		s, c := newTestCluster(t, newFakeConnector(), cfg)
		if c.Breaker(config.DefaultPriority).BeginRetry() {
			t.Errorf("BeginRetry with the budget %+v = true, want false", budget)
		}
		s.Close()
	}
}
