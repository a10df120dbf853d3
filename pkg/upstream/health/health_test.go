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

// sleepReal advances the fake time of a test.
//
//arch:clock called in bubbles of testing/synctest only
func sleepReal(d time.Duration) { time.Sleep(d) }

var errSick = errors.New("sick")

func TestThresholds(t *testing.T) {
	tests := []struct {
		name   string
		checks string // + passed, - failed
		want   string // state after each check: H or h healthy, U or u unhealthy; a capital marks a change
	}{
		{"the first check decides: healthy", "++", "Hh"},
		{"the first check decides: unhealthy", "--", "Uu"},
		{"three failures in a row change the state, two do not", "+--+---", "HhhhhhU"},
		{"two passes in a row change it back", "-+-++", "UuuuH"},
		{"further failures change nothing", "-----", "Uuuuu"},
	}
	cfg := &config.HealthCheck{HealthyThreshold: 2, UnhealthyThreshold: 3}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var v thresholdState
			var got []byte
			for _, c := range tt.checks {
				turned := v.record(c == '+', cfg)
				letter := byte('u')
				if v.healthy {
					letter = 'h'
				}
				if turned {
					letter -= 'a' - 'A'
				}
				got = append(got, letter)
			}
			if string(got) != tt.want {
				t.Errorf("%s: %s, want %s", tt.checks, got, tt.want)
			}
		})
	}
}

func TestChecksComeInIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewScheduler(nil)
		begun := time.Now()
		var at []time.Duration
		cfg := &config.HealthCheck{
			Delay: 3 * time.Second, Interval: 10 * time.Second, Jitter: time.Second, Timeout: time.Second,
			HealthyThreshold: 1, UnhealthyThreshold: 1,
		}
		g.Start(cfg, probeFunc(func(context.Context, time.Time) error {
			at = append(at, time.Since(begun))
			sleepReal(500 * time.Millisecond) // the next interval begins at the end of the check
			return nil
		}), func(Result) {})
		sleepReal(200 * time.Second)
		synctest.Wait()
		g.Close()
		if at[0] != cfg.Delay {
			t.Errorf("first check after %v, want %v", at[0], cfg.Delay)
		}
		for i := 1; i < len(at); i++ {
			wait := at[i] - at[i-1] - 500*time.Millisecond
			least := cfg.Interval
			if i == 1 {
				least = 0 // the second interval is random
			}
			if wait <= least-1 || wait > cfg.Interval+cfg.Jitter {
				t.Errorf("check %d ran %v after the previous check, want %v to %v", i, wait, least, cfg.Interval+cfg.Jitter)
			}
		}
		if len(at) < 17 || len(at) > 20 {
			t.Errorf("%d checks in 200 s, want 17 to 20", len(at))
		}
	})
}

func TestReportResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewScheduler(nil)
		defer g.Close()
		answers := []error{nil, errSick, errSick, nil}
		var got []Result
		cfg := &config.HealthCheck{Interval: time.Second, Timeout: time.Second, HealthyThreshold: 1, UnhealthyThreshold: 2}
		c := g.Start(cfg, probeFunc(func(ctx context.Context, _ time.Time) error {
			if len(got) == len(answers) {
				<-ctx.Done() // the probe ends only with ctx
				return ctx.Err()
			}
			return answers[len(got)]
		}), func(r Result) { got = append(got, r) })
		sleepReal(time.Minute)
		synctest.Wait()
		want := []Result{{true, true, nil}, {true, false, errSick}, {false, true, errSick}, {true, true, nil}}
		if !slices.Equal(got, want) {
			t.Errorf("reports %v, want %v", got, want)
		}
		if s := c.Stats(); s != (Stats{Checks: 4, Failures: 2}) {
			t.Errorf("stats %+v, want 4 checks and 2 failures", s)
		}
	})
}

func TestStopCancelsRunningCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewScheduler(nil)
		defer g.Close()
		var ended bool
		c := g.Start(&config.HealthCheck{Interval: time.Second, Timeout: time.Hour}, probeFunc(func(ctx context.Context, _ time.Time) error {
			<-ctx.Done()
			ended = true
			return ctx.Err()
		}), func(Result) { t.Error("a stopped check was reported") })
		sleepReal(time.Second)
		c.Stop()
		synctest.Wait()
		if !ended {
			t.Error("the check continues after Stop")
		}
		sleepReal(time.Minute)
	})
}

func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewScheduler(nil)
		var running atomic.Int32
		cfg := &config.HealthCheck{Interval: time.Second, Timeout: time.Hour}
		for range 3 * maxWorkers { // more checks than workers
			g.Start(cfg, probeFunc(func(ctx context.Context, _ time.Time) error {
				running.Add(1)
				defer running.Add(-1)
				<-ctx.Done()
				return ctx.Err()
			}), func(Result) { t.Error("a check was reported after Close") })
		}
		sleepReal(time.Second)
		if n := running.Load(); n != maxWorkers {
			t.Errorf("%d concurrent checks, want %d", n, maxWorkers)
		}
		g.Close()
		if n := running.Load(); n != 0 {
			t.Errorf("%d checks are running after Close, want 0", n)
		}
		sleepReal(time.Minute)
	})
}

// TestChecksWaitForAWorkerInTurn verifies that a host whose checks hang does not delay the checks
// of others for longer than its timeouts.
func TestChecksWaitForAWorkerInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewScheduler(nil)
		defer g.Close()
		cfg := &config.HealthCheck{Interval: 1e6 * time.Hour, Timeout: time.Second, HealthyThreshold: 1, UnhealthyThreshold: 1}
		var done atomic.Int32
		for range 3 * maxWorkers {
			g.Start(cfg, probeFunc(func(_ context.Context, deadline time.Time) error {
				sleepReal(time.Until(deadline))
				return errSick
			}), func(Result) { done.Add(1) })
		}
		for second := range 3 {
			sleepReal(time.Second + 4*growDelay) // until the maximum number of workers runs
			synctest.Wait()
			if n := int(done.Load()); n != (second+1)*maxWorkers {
				t.Errorf("after %d s %d checks have ended, want %d", second+1, n, (second+1)*maxWorkers)
			}
		}
	})
}

// TestChecksThatTakeNoTimeNeedFewWorkers verifies that hosts that respond immediately need few
// workers, however many checks are due.
func TestChecksThatTakeNoTimeNeedFewWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewScheduler(nil)
		defer g.Close()
		cfg := &config.HealthCheck{Interval: 1e6 * time.Hour, Timeout: time.Second, HealthyThreshold: 1, UnhealthyThreshold: 1}
		var done, running, most atomic.Int32
		for range 8 * maxWorkers {
			g.Start(cfg, probeFunc(func(context.Context, time.Time) error {
				n := running.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				sleepReal(growDelay / 100)
				running.Add(-1)
				return nil
			}), func(Result) { done.Add(1) })
		}
		sleepReal(time.Second)
		synctest.Wait()
		if done.Load() != 8*maxWorkers || most.Load() > baseWorkers {
			t.Errorf("%d of %d checks have ended, %d concurrent checks, want at most %d", done.Load(), 8*maxWorkers, most.Load(), baseWorkers)
		}
	})
}

func TestStoppedCheckIsUnscheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewScheduler(nil)
		defer g.Close()
		ran := map[int]int{}
		var checks []*Check
		for i := range 10 {
			cfg := &config.HealthCheck{Delay: time.Duration(10-i) * time.Minute, Interval: time.Hour, Timeout: time.Second}
			checks = append(checks, g.Start(cfg, probeFunc(func(context.Context, time.Time) error { return nil }), func(Result) { ran[i]++ }))
		}
		for _, i := range []int{9, 4, 0} { // the first, a middle one and the last
			checks[i].Stop()
			checks[i].Stop()
		}
		if n := len(g.scheduled); n != 7 {
			t.Errorf("%d checks are scheduled, want 7", n)
		}
		sleepReal(11 * time.Minute)
		synctest.Wait()
		for i := range 10 {
			if want := i != 9 && i != 4 && i != 0; (ran[i] > 0) != want {
				t.Errorf("check %d ran %d times", i, ran[i])
			}
		}
	})
}

func TestAPanicFailsTheCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewScheduler(nil)
		var got Result
		g.Start(&config.HealthCheck{Interval: time.Hour}, probeFunc(func(context.Context, time.Time) error {
			panic("a defect")
		}), func(r Result) { got = r })
		synctest.Wait()
		g.Close()
		if got.Err == nil || got.Healthy || !got.Changed {
			t.Errorf("result = %+v, want an unhealthy host with an error", got)
		}
	})
}

// TestAPanicOfAReportIsContained verifies that the checks of all hosts continue after a panic of a
// report.
func TestAPanicOfAReportIsContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var contained []any
		g := NewScheduler(func(p *protocol.PanicError) { contained = append(contained, p.Value) })
		defer g.Close()
		fine := probeFunc(func(context.Context, time.Time) error { return nil })
		reports := [2]int{}
		for i := range reports {
			g.Start(&config.HealthCheck{Interval: time.Minute, Delay: time.Duration(i) * time.Second}, fine, func(Result) {
				if reports[i]++; i == 0 && reports[i] < 3 {
					panic("a defect of a report")
				}
			})
		}
		sleepReal(10*time.Minute + time.Second)
		synctest.Wait()
		if reports[0] < 10 || reports[1] < 10 {
			t.Errorf("%v reports in 10 minutes, want at least 10 of each check", reports)
		}
		if len(contained) != 2 || contained[0] != "a defect of a report" {
			t.Errorf("reported panics = %v, want two", contained)
		}
	})
}
