package health

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// probeFunc is a function that implements Probe.
type probeFunc func(ctx context.Context, deadline time.Time) error

func (f probeFunc) Probe(ctx context.Context, deadline time.Time) error { return f(ctx, deadline) }

var errUnhealthy = errors.New("unhealthy")

func TestThresholds(t *testing.T) {
	tests := []struct {
		name   string
		checks string // + passed, - failed
		want   string // state after each check: H or h healthy, U or u unhealthy; a capital marks a change
	}{
		{"first check: healthy", "++", "Hh"},
		{"first check: unhealthy", "--", "Uu"},
		{"three consecutive failures change the state, two do not", "+--+---", "HhhhhhU"},
		{"two consecutive passes change the state back", "-+-++", "UuuuH"},
		{"further failures change nothing", "-----", "Uuuuu"},
	}
	cfg := &config.HealthCheck{HealthyThreshold: 2, UnhealthyThreshold: 3}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var state thresholdState
			var got []byte
			for _, c := range tt.checks {
				changed := state.record(c == '+', cfg)
				letter := byte('u')
				if state.healthy {
					letter = 'h'
				}
				if changed {
					letter -= 'a' - 'A'
				}
				got = append(got, letter)
			}
			if string(got) != tt.want {
				t.Errorf("states after checks %s = %s, want %s", tt.checks, got, tt.want)
			}
		})
	}
}

func TestCheckIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScheduler(nil)
		start := time.Now()
		var starts []time.Duration
		cfg := &config.HealthCheck{
			Delay: 3 * time.Second, Interval: 10 * time.Second, Jitter: time.Second, Timeout: time.Second,
			HealthyThreshold: 1, UnhealthyThreshold: 1,
		}
		s.Start(cfg, probeFunc(func(context.Context, time.Time) error {
			starts = append(starts, time.Since(start))
			time.Sleep(500 * time.Millisecond) // the next interval begins at the end of the check
			return nil
		}), func(Result) {})
		time.Sleep(200 * time.Second)
		synctest.Wait()
		s.Close()
		if starts[0] != cfg.Delay {
			t.Errorf("first check after %v, want %v", starts[0], cfg.Delay)
		}
		for i := 1; i < len(starts); i++ {
			interval := starts[i] - starts[i-1] - 500*time.Millisecond
			minInterval := cfg.Interval
			if i == 1 {
				minInterval = 0 // the second interval is random
			}
			if interval <= minInterval-1 || interval > cfg.Interval+cfg.Jitter {
				t.Errorf("check %d ran %v after the previous check, want %v to %v", i, interval, minInterval, cfg.Interval+cfg.Jitter)
			}
		}
		if len(starts) < 17 || len(starts) > 20 {
			t.Errorf("%d checks in 200 s, want 17 to 20", len(starts))
		}
	})
}

func TestReportResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScheduler(nil)
		defer s.Close()
		results := []error{nil, errUnhealthy, errUnhealthy, nil}
		var got []Result
		cfg := &config.HealthCheck{Interval: time.Second, Timeout: time.Second, HealthyThreshold: 1, UnhealthyThreshold: 2}
		c := s.Start(cfg, probeFunc(func(ctx context.Context, _ time.Time) error {
			if len(got) == len(results) {
				<-ctx.Done() // the probe ends only with ctx
				return ctx.Err()
			}
			return results[len(got)]
		}), func(r Result) { got = append(got, r) })
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []Result{{true, true, nil}, {true, false, errUnhealthy}, {false, true, errUnhealthy}, {true, true, nil}}
		if !slices.Equal(got, want) {
			t.Errorf("reports %v, want %v", got, want)
		}
		if stats := c.Stats(); stats != (Stats{Checks: 4, Failures: 2}) {
			t.Errorf("stats %+v, want 4 checks and 2 failures", stats)
		}
	})
}

func TestStopCancelsRunningCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScheduler(nil)
		defer s.Close()
		var canceled bool
		c := s.Start(&config.HealthCheck{Interval: time.Second, Timeout: time.Hour}, probeFunc(func(ctx context.Context, _ time.Time) error {
			<-ctx.Done()
			canceled = true
			return ctx.Err()
		}), func(Result) { t.Error("a stopped check was reported") })
		time.Sleep(time.Second)
		c.Stop()
		synctest.Wait()
		if !canceled {
			t.Error("the check continues after Stop")
		}
		time.Sleep(time.Minute)
	})
}

func TestCloseEndsAllChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScheduler(nil)
		var running atomic.Int32
		cfg := &config.HealthCheck{Interval: time.Second, Timeout: time.Hour}
		for range 3 * maxWorkers { // more checks than workers
			s.Start(cfg, probeFunc(func(ctx context.Context, _ time.Time) error {
				running.Add(1)
				defer running.Add(-1)
				<-ctx.Done()
				return ctx.Err()
			}), func(Result) { t.Error("a check was reported after Close") })
		}
		time.Sleep(time.Second)
		if n := running.Load(); n != maxWorkers {
			t.Errorf("%d concurrent checks, want %d", n, maxWorkers)
		}
		s.Close()
		if n := running.Load(); n != 0 {
			t.Errorf("%d checks are running after Close, want 0", n)
		}
		time.Sleep(time.Minute)
	})
}

// TestHangingChecksDoNotStarveOthers verifies that a hanging check occupies its worker only until
// the timeout: in each timeout, maxWorkers checks end.
func TestHangingChecksDoNotStarveOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScheduler(nil)
		defer s.Close()
		cfg := &config.HealthCheck{Interval: 1e6 * time.Hour, Timeout: time.Second, HealthyThreshold: 1, UnhealthyThreshold: 1}
		var done atomic.Int32
		for range 3 * maxWorkers {
			s.Start(cfg, probeFunc(func(_ context.Context, deadline time.Time) error {
				time.Sleep(time.Until(deadline))
				return errUnhealthy
			}), func(Result) { done.Add(1) })
		}
		for second := range 3 {
			time.Sleep(time.Second + 4*growDelay) // until the maximum number of workers runs
			synctest.Wait()
			if n := int(done.Load()); n != (second+1)*maxWorkers {
				t.Errorf("after %d timeouts, %d checks have ended, want %d", second+1, n, (second+1)*maxWorkers)
			}
		}
	})
}

// TestFastChecksNeedFewWorkers verifies that hosts that respond immediately need few
// workers, however many checks are due.
func TestFastChecksNeedFewWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScheduler(nil)
		defer s.Close()
		cfg := &config.HealthCheck{Interval: 1e6 * time.Hour, Timeout: time.Second, HealthyThreshold: 1, UnhealthyThreshold: 1}
		var done, running, maxRunning atomic.Int32
		for range 8 * maxWorkers {
			s.Start(cfg, probeFunc(func(context.Context, time.Time) error {
				n := running.Add(1)
				for old := maxRunning.Load(); n > old && !maxRunning.CompareAndSwap(old, n); old = maxRunning.Load() {
				}
				time.Sleep(growDelay / 100)
				running.Add(-1)
				return nil
			}), func(Result) { done.Add(1) })
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if done.Load() != 8*maxWorkers || maxRunning.Load() > baseWorkers {
			t.Errorf("%d of %d checks have ended, %d concurrent checks, want at most %d", done.Load(), 8*maxWorkers, maxRunning.Load(), baseWorkers)
		}
	})
}

func TestStoppedCheckIsUnscheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScheduler(nil)
		defer s.Close()
		runs := map[int]int{}
		var checks []*Check
		for i := range 10 {
			cfg := &config.HealthCheck{Delay: time.Duration(10-i) * time.Minute, Interval: time.Hour, Timeout: time.Second}
			checks = append(checks, s.Start(cfg, probeFunc(func(context.Context, time.Time) error { return nil }), func(Result) { runs[i]++ }))
		}
		for _, i := range []int{9, 4, 0} { // the first, a middle and the last check
			checks[i].Stop()
			checks[i].Stop()
		}
		if n := len(s.scheduled); n != 7 {
			t.Errorf("%d checks are scheduled, want 7", n)
		}
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		for i := range 10 {
			if want := i != 9 && i != 4 && i != 0; (runs[i] > 0) != want {
				t.Errorf("check %d ran %d times, want it to run: %t", i, runs[i], want)
			}
		}
	})
}

func TestPanicFailsCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScheduler(nil)
		var got Result
		s.Start(&config.HealthCheck{Interval: time.Hour}, probeFunc(func(context.Context, time.Time) error {
			panic("a defect")
		}), func(r Result) { got = r })
		synctest.Wait()
		s.Close()
		if got.Err == nil || got.Healthy || !got.Changed {
			t.Errorf("result = %+v, want an unhealthy host with an error", got)
		}
	})
}

// TestReportPanicIsRecovered verifies that the checks of all hosts continue after a report has
// panicked.
func TestReportPanicIsRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics []any
		s := NewScheduler(func(p *protocol.PanicError) { panics = append(panics, p.Value) })
		defer s.Close()
		passing := probeFunc(func(context.Context, time.Time) error { return nil })
		reports := [2]int{}
		for i := range reports {
			s.Start(&config.HealthCheck{Interval: time.Minute, Delay: time.Duration(i) * time.Second}, passing, func(Result) {
				if reports[i]++; i == 0 && reports[i] < 3 {
					panic("a defect of a report")
				}
			})
		}
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if reports[0] < 10 || reports[1] < 10 {
			t.Errorf("%v reports in 10 minutes, want at least 10 of each check", reports)
		}
		if len(panics) != 2 || panics[0] != "a defect of a report" {
			t.Errorf("reported panics = %v, want two", panics)
		}
	})
}
