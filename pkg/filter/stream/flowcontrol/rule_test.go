package flowcontrol

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

const second = time.Second

// takeEvenly sends n requests to a rule, evenly spaced between start and end. It returns the number
// of admitted requests and the longest wait.
func takeEvenly(r *rule, n int, start, end time.Duration) (admitted int, maxWait time.Duration) {
	for i := range n {
		wait, ok := r.take(start+(end-start)*time.Duration(i)/time.Duration(n), math.MaxInt64)
		if ok {
			admitted++
		}
		maxWait = max(maxWait, wait)
	}
	return admitted, maxWait
}

func TestSlidingWindow(t *testing.T) {
	r := newRule(limit{threshold: 10, interval: second})
	for _, step := range []struct {
		name     string
		n        int
		from, to time.Duration
		want     int
	}{
		{"burst up to the threshold", 30, 0, 0, 10},
		{"no request within the interval", 30, 0, second - 1, 0},
		{"burst in the next interval", 30, second, second, 10},
		{"half of the threshold", 5, 2 * second, 2*second + 500*time.Millisecond, 5},
		{"other half in the same interval", 30, 2900 * time.Millisecond, 2900 * time.Millisecond, 5},
		{"first bucket has expired", 30, 3 * second, 3 * second, 1},
		{"burst after an idle period", 30, time.Hour, time.Hour, 10},
	} {
		if got, _ := takeEvenly(r, step.n, step.from, step.to); got != step.want {
			t.Errorf("%s: admitted %d, want %d", step.name, got, step.want)
		}
	}
}

// TestNineTenthsStayWithinThreshold verifies that nine tenths of an interval never admit more than
// the threshold, wherever they begin.
func TestNineTenthsStayWithinThreshold(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		l := limit{threshold: float64(1 + random.IntN(50)), interval: time.Duration(1+random.IntN(20)) * 100 * time.Millisecond}
		r := newRule(l)
		var admitted []time.Duration
		for now := time.Duration(0); now < 10*second; now += time.Duration(random.Int64N(int64(l.interval) / 20)) {
			if _, ok := r.take(now, math.MaxInt64); ok {
				admitted = append(admitted, now)
			}
		}
		first := 0
		for i, last := range admitted {
			for admitted[first] <= last-l.interval*(bucketCount-1)/bucketCount {
				first++
			}
			if n := i - first + 1; float64(n) > l.threshold {
				t.Fatalf("admitted %d with threshold %v within %v before %v, want at most the threshold", n, l.threshold, l.interval*(bucketCount-1)/bucketCount, last)
			}
		}
		if want := 0.8 * l.threshold * float64(10*second/l.interval); float64(len(admitted)) < want {
			t.Errorf("threshold %v per %v: admitted %d in 10s, want at least %v", l.threshold, l.interval, len(admitted), want)
		}
	}
}

func TestFractionalAndZeroThresholds(t *testing.T) {
	for threshold, want := range map[float64]int{0: 0, 0.5: 0, 1: 1, 1.9: 1, 2: 2} {
		if got, _ := takeEvenly(newRule(limit{threshold: threshold, interval: second}), 10, 0, 0); got != want {
			t.Errorf("QPS threshold %v: admitted %d, want %d", threshold, got, want)
		}
		if got, _ := takeEvenly(newRule(limit{kind: kindConcurrency, threshold: threshold, interval: second}), 10, 0, 0); got != want {
			t.Errorf("concurrency threshold %v: admitted %d, want %d", threshold, got, want)
		}
	}
	for _, threshold := range []float64{0, 1e-300} {
		if got, _ := takeEvenly(newRule(limit{kind: kindThrottling, threshold: threshold, interval: second, maxQueueing: time.Minute}), 10, 0, 0); got != 0 {
			t.Errorf("throttling threshold %v: admitted %d, want 0", threshold, got)
		}
	}
}

func TestPacerSpacing(t *testing.T) {
	r := newRule(limit{kind: kindThrottling, threshold: 10, interval: second, maxQueueing: 350 * time.Millisecond})
	for i, want := range []int64{0, 100, 200, 300, -1, -1} { // in ms
		wait, ok := r.take(0, math.MaxInt64)
		if ok != (want >= 0) || ok && wait.Milliseconds() != want {
			t.Errorf("request %d: wait %v, admitted %t; want %dms", i, wait, ok, want)
		}
	}
	if wait, ok := r.take(150*time.Millisecond, math.MaxInt64); !ok || wait != 250*time.Millisecond {
		t.Errorf("after one turn: wait %v, admitted %t; want 250ms", wait, ok)
	}
	if wait, ok := r.take(time.Minute, math.MaxInt64); !ok || wait != 0 {
		t.Errorf("after an idle period: wait %v, admitted %t; want no wait", wait, ok)
	}
	if wait, _ := r.take(time.Minute, math.MaxInt64); wait != 100*time.Millisecond {
		t.Errorf("next request after an idle period: wait %v, want 100ms because unused turns do not allow a burst", wait)
	}
	r = newRule(limit{kind: kindThrottling, threshold: 10, interval: second})
	if got, _ := takeEvenly(r, 1000, 0, 10*second); got != 100 {
		t.Errorf("no queue: admitted %d of 1000 in 10s, want 100", got)
	}
}

func TestWarmUp(t *testing.T) {
	for _, kind := range []kind{kindQPS, kindThrottling} {
		r := newRule(limit{kind: kind, threshold: 90, interval: second, warmUp: 10 * second, coldFactor: 3})
		now := 100 * second
		saturate := func(seconds int) (counts []int) {
			for range seconds {
				n, _ := takeEvenly(r, 1000, now, now+second)
				counts = append(counts, n)
				now += second
			}
			return counts
		}
		checkBetween := func(phase string, got, minCount, maxCount int) {
			t.Helper()
			if got < minCount || got > maxCount {
				t.Errorf("kind %d: %s: admitted %d in a second, want %d to %d", kind, phase, got, minCount, maxCount)
			}
		}
		counts := saturate(15)
		checkBetween("start", counts[0], 27, 33)
		checkBetween("half of the warm-up", counts[5], 36, 70)
		checkBetween("end of the warm-up", counts[12], 80, 92) // turns have a resolution of one millisecond
		for i := 1; i < len(counts); i++ {
			if counts[i] < counts[i-1]-2 {
				t.Errorf("kind %d: the threshold fell under full load: %v, want no decrease by more than 2", kind, counts)
				break
			}
		}
		for range 20 { // load of two thirds of the threshold
			takeEvenly(r, 60, now, now+second)
			now += second
		}
		checkBetween("load of two thirds", saturate(1)[0], 80, 92)
		now += time.Minute
		checkBetween("idle period", saturate(1)[0], 27, 33)
	}
	r := newRule(limit{threshold: 1, interval: second, warmUp: 10 * second, coldFactor: 3})
	if got, _ := takeEvenly(r, 1000, 0, 10*second); got < 8 {
		t.Errorf("threshold 1: admitted %d in 10s, want at least 8", got)
	}
}

func TestRefund(t *testing.T) {
	for _, kind := range []kind{kindQPS, kindConcurrency} {
		r := newRule(limit{kind: kind, threshold: 3, interval: second})
		takeEvenly(r, 3, 0, 0)
		r.refund(0)
		if got, _ := takeEvenly(r, 3, 0, 0); got != 1 {
			t.Errorf("kind %d: admitted %d after one refund, want 1", kind, got)
		}
	}
	r := newRule(limit{threshold: 3, interval: second})
	r.refund(0) // no request was admitted
	if got, _ := takeEvenly(r, 9, 0, 0); got != 3 {
		t.Errorf("admitted %d after a refund without a request, want 3", got)
	}
}

// TestRulesAreExactConcurrently verifies that rules are exact for concurrent requests.
func TestRulesAreExactConcurrently(t *testing.T) {
	for _, kind := range []kind{kindQPS, kindThrottling, kindConcurrency} {
		r := newRule(limit{kind: kind, threshold: 1000, interval: second, maxQueueing: second - 1})
		var wg sync.WaitGroup
		admitted := make(chan int, 8)
		for range 8 {
			wg.Go(func() {
				n, _ := takeEvenly(r, 500, second, second)
				admitted <- n
			})
		}
		wg.Wait()
		close(admitted)
		sum := 0
		for n := range admitted {
			sum += n
		}
		if sum != 1000 {
			t.Errorf("kind %d: admitted %d of 4000, want 1000", kind, sum)
		}
	}
}

func FuzzRule(f *testing.F) {
	f.Add(uint8(0), 10.0, int64(second), int64(0), int64(1e6), int64(5))
	f.Add(uint8(1), 0.3, int64(second), int64(second), int64(0), int64(1<<62))
	f.Add(uint8(2), math.MaxFloat64, int64(minInterval), int64(0), int64(1), int64(1))
	f.Fuzz(func(t *testing.T, selector uint8, threshold float64, interval, queueing, start, step int64) {
		if !(threshold >= 0) || interval < int64(minInterval) || interval > int64(time.Hour) || queueing < 0 || queueing > int64(time.Hour) || start < 0 || step < 0 {
			return
		}
		l := limit{kind: kind(selector % 3), threshold: threshold, interval: time.Duration(interval), maxQueueing: time.Duration(queueing)}
		if selector > 100 {
			l.warmUp, l.coldFactor = time.Minute, 2
		}
		r := newRule(l)
		now := time.Duration(start)
		for range 50 {
			wait, _ := r.take(now, math.MaxInt64)
			if wait < 0 || wait > l.maxQueueing {
				t.Fatalf("%+v: wait %v, want 0 to maxQueueing", l, wait)
			}
			if now > math.MaxInt64/4 {
				return
			}
			now += time.Duration(step % int64(time.Hour))
		}
	})
}
