package flowcontrol

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

const second = time.Second

// takeEvenly sends n requests to a rule, evenly spaced between two times. It returns how many were
// admitted, and the longest wait.
func takeEvenly(r *rule, n int, from, to time.Duration) (passed int, longest time.Duration) {
	for i := range n {
		wait, ok := r.take(from+(to-from)*time.Duration(i)/time.Duration(n), math.MaxInt64)
		if ok {
			passed++
		}
		longest = max(longest, wait)
	}
	return passed, longest
}

func TestSlidingWindow(t *testing.T) {
	r := newRule(limit{threshold: 10, interval: second})
	for _, step := range []struct {
		name     string
		n        int
		from, to time.Duration
		want     int
	}{
		{"as many as the threshold at once", 30, 0, 0, 10},
		{"none until they are forgotten", 30, 0, second - 1, 0},
		{"as many again", 30, second, second, 10},
		{"half of them", 5, 2 * second, 2*second + 500*time.Millisecond, 5},
		{"the other half in the same second", 30, 2900 * time.Millisecond, 2900 * time.Millisecond, 5},
		{"what the first piece has forgotten", 30, 3 * second, 3 * second, 1},
		{"after a rest as many as at first", 30, time.Hour, time.Hour, 10},
	} {
		if got, _ := takeEvenly(r, step.n, step.from, step.to); got != step.want {
			t.Errorf("%s: %d were let through, want %d", step.name, got, step.want)
		}
	}
}

// TestNoIntervalExceedsThreshold verifies that nine tenths of an interval never admit more
// than the threshold, wherever they begin.
func TestNoIntervalExceedsThreshold(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		l := limit{threshold: float64(1 + random.IntN(50)), interval: time.Duration(1+random.IntN(20)) * 100 * time.Millisecond}
		r := newRule(l)
		var passed []time.Duration
		for now := time.Duration(0); now < 10*second; now += time.Duration(random.Int64N(int64(l.interval) / 20)) {
			if _, ok := r.take(now, math.MaxInt64); ok {
				passed = append(passed, now)
			}
		}
		first := 0
		for i, at := range passed {
			for passed[first] <= at-l.interval*(bucketCount-1)/bucketCount {
				first++
			}
			if n := i - first + 1; float64(n) > l.threshold {
				t.Fatalf("%d of %v were let through within %v before %v", n, l.threshold, l.interval*(bucketCount-1)/bucketCount, at)
			}
		}
		if want := 0.8 * l.threshold * float64(10*second/l.interval); float64(len(passed)) < want {
			t.Errorf("%v in %v: %d were let through in 10s, want %v or more", l.threshold, l.interval, len(passed), want)
		}
	}
}

func TestFractionalAndZeroThresholds(t *testing.T) {
	for threshold, want := range map[float64]int{0: 0, 0.5: 0, 1: 1, 1.9: 1, 2: 2} {
		if got, _ := takeEvenly(newRule(limit{threshold: threshold, interval: second}), 10, 0, 0); got != want {
			t.Errorf("a threshold of %v lets %d through, want %d", threshold, got, want)
		}
		if got, _ := takeEvenly(newRule(limit{kind: kindConcurrency, threshold: threshold, interval: second}), 10, 0, 0); got != want {
			t.Errorf("a threshold of %v has %d at once, want %d", threshold, got, want)
		}
	}
	for _, threshold := range []float64{0, 1e-300} {
		if got, _ := takeEvenly(newRule(limit{kind: kindThrottling, threshold: threshold, interval: second, maxQueueing: time.Minute}), 10, 0, 0); got != 0 {
			t.Errorf("a threshold of %v gives %d turns, want none", threshold, got)
		}
	}
}

func TestPacerSpacing(t *testing.T) {
	r := newRule(limit{kind: kindThrottling, threshold: 10, interval: second, maxQueueing: 350 * time.Millisecond})
	for i, want := range []int64{0, 100, 200, 300, -1, -1} { // in ms
		wait, ok := r.take(0, math.MaxInt64)
		if ok != (want >= 0) || ok && wait.Milliseconds() != want {
			t.Errorf("request %d waits %v, %t; want %dms", i, wait, ok, want)
		}
	}
	if wait, ok := r.take(150*time.Millisecond, math.MaxInt64); !ok || wait != 250*time.Millisecond {
		t.Errorf("when there is room again: %v, %t; want 250ms", wait, ok)
	}
	if wait, ok := r.take(time.Minute, math.MaxInt64); !ok || wait != 0 {
		t.Errorf("after a rest: %v, %t; want no wait", wait, ok)
	}
	if wait, _ := r.take(time.Minute, math.MaxInt64); wait != 100*time.Millisecond {
		t.Errorf("behind that one: %v; want 100ms: turns that nobody took are no burst", wait)
	}
	r = newRule(limit{kind: kindThrottling, threshold: 10, interval: second})
	if got, _ := takeEvenly(r, 1000, 0, 10*second); got != 100 {
		t.Errorf("without a queue %d of 1000 were let through in 10s, want 100", got)
	}
}

func TestWarmUp(t *testing.T) {
	for _, kind := range []kind{kindQPS, kindThrottling} {
		r := newRule(limit{kind: kind, threshold: 90, interval: second, warmUp: 10 * second, coldFactor: 3})
		now := 100 * second
		saturate := func(seconds int) (each []int) {
			for range seconds {
				n, _ := takeEvenly(r, 1000, now, now+second)
				each = append(each, n)
				now += second
			}
			return each
		}
		within := func(what string, got, least, most int) {
			t.Helper()
			if got < least || got > most {
				t.Errorf("kind %d: %s: %d in a second, want %d to %d", kind, what, got, least, most)
			}
		}
		each := saturate(15)
		within("at first", each[0], 27, 33)
		within("after half of the time", each[5], 36, 70)
		within("after all of it", each[12], 80, 92) // turns have a resolution of one millisecond
		for i := 1; i < len(each); i++ {
			if each[i] < each[i-1]-2 {
				t.Errorf("kind %d: the threshold fell while it was used: %v", kind, each)
				break
			}
		}
		for range 20 { // two thirds of the threshold are used
			takeEvenly(r, 60, now, now+second)
			now += second
		}
		within("used by two thirds it stays warm", saturate(1)[0], 80, 92)
		now += time.Minute
		within("after a rest", saturate(1)[0], 27, 33)
	}
	r := newRule(limit{threshold: 1, interval: second, warmUp: 10 * second, coldFactor: 3})
	if got, _ := takeEvenly(r, 1000, 0, 10*second); got < 8 {
		t.Errorf("a threshold of one lets %d through in 10s, want 10 or nearly", got)
	}
}

func TestRefund(t *testing.T) {
	for _, kind := range []kind{kindQPS, kindConcurrency} {
		r := newRule(limit{kind: kind, threshold: 3, interval: second})
		takeEvenly(r, 3, 0, 0)
		r.refund(0)
		if got, _ := takeEvenly(r, 3, 0, 0); got != 1 {
			t.Errorf("kind %d: of one that was given back %d were let through", kind, got)
		}
	}
	r := newRule(limit{threshold: 3, interval: second})
	r.refund(0) // nothing was taken at that time
	if got, _ := takeEvenly(r, 9, 0, 0); got != 3 {
		t.Errorf("more was given back than was taken: %d were let through", got)
	}
}

// TestRulesAreExactConcurrently verifies that rules are exact for concurrent requests.
func TestRulesAreExactConcurrently(t *testing.T) {
	for _, kind := range []kind{kindQPS, kindThrottling, kindConcurrency} {
		r := newRule(limit{kind: kind, threshold: 1000, interval: second, maxQueueing: second - 1})
		var wait sync.WaitGroup
		passed := make(chan int, 8)
		for range 8 {
			wait.Go(func() {
				n, _ := takeEvenly(r, 500, second, second)
				passed <- n
			})
		}
		wait.Wait()
		close(passed)
		sum := 0
		for n := range passed {
			sum += n
		}
		if sum != 1000 {
			t.Errorf("kind %d: %d were let through of 4000, want 1000", kind, sum)
		}
	}
}

func FuzzRule(f *testing.F) {
	f.Add(uint8(0), 10.0, int64(second), int64(0), int64(1e6), int64(5))
	f.Add(uint8(1), 0.3, int64(second), int64(second), int64(0), int64(1<<62))
	f.Add(uint8(2), math.MaxFloat64, int64(minInterval), int64(0), int64(1), int64(1))
	f.Fuzz(func(t *testing.T, of uint8, threshold float64, interval, queueing, start, step int64) {
		if !(threshold >= 0) || interval < int64(minInterval) || interval > int64(time.Hour) || queueing < 0 || queueing > int64(time.Hour) || start < 0 || step < 0 {
			return
		}
		l := limit{kind: kind(of % 3), threshold: threshold, interval: time.Duration(interval), maxQueueing: time.Duration(queueing)}
		if of > 100 {
			l.warmUp, l.coldFactor = time.Minute, 2
		}
		r := newRule(l)
		now := time.Duration(start)
		for range 50 {
			wait, _ := r.take(now, math.MaxInt64)
			if wait < 0 || wait > l.maxQueueing {
				t.Fatalf("%+v: a wait of %v", l, wait)
			}
			if now > math.MaxInt64/4 {
				return
			}
			now += time.Duration(step % int64(time.Hour))
		}
	})
}
