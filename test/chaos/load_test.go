package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/test/bench/histogram"
	"github.com/weft-proxy/weft/test/bench/process"
)

// wrong is the kind of the failures that nothing excuses: an answer that says it
// is good and is not, or that is another request's.
const wrong = "WRONG"

// failure is a request that failed.
type failure struct {
	kind string // the same for those that failed for the same reason
	err  error
}

func (f *failure) Error() string { return f.kind + ": " + f.err.Error() }

// fail returns a failure of the kind.
func fail(kind, format string, args ...any) error {
	return &failure{kind, fmt.Errorf(format, args...)}
}

// kindOf tells the kind of a failure.
func kindOf(err error) string {
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.kind
	}
	return "error"
}

// load is requests that come when they come, at random, whatever became of those
// before.
type load struct {
	name    string
	rate    float64       // a second
	timeout time.Duration // of the caller, for one request; 0: 10 seconds
	// call makes the n-th request and returns who answered. It is called by many
	// goroutines.
	call func(ctx context.Context, n int) (by string, err error)
}

// renamed returns the loads under other names, for another part of a test.
func renamed(loads []load, suffix string) []load {
	loads = slices.Clone(loads)
	for i := range loads {
		loads[i].name += suffix
	}
	return loads
}

// mostInFlight is how many requests of a load may wait: one that comes then is
// counted as failed, for the callers of a proxy that collapsed do not end.
const mostInFlight = 5000

// tally is what became of a load. Latencies count from when a request was due, of
// good answers alone.
type tally struct {
	name     string
	expected float64 // requests, on average

	mu       sync.Mutex // guards what follows
	requests int
	failed   map[string]int
	first    map[string]error // of each kind
	took     histogram.Histogram
	by       map[string]*histogram.Histogram // by who answered
	slowest  time.Duration                   // of all, failures included
}

// play plays the loads beside each other until the time of the trial is over and
// every request has ended.
func (r *trial) play(loads ...load) map[string]*tally { return r.playFor(r.lasts, loads...) }

// playFor is play with another time.
func (r *trial) playFor(lasts time.Duration, loads ...load) map[string]*tally {
	r.Helper()
	loads = append(loads, r.direct().get(direct, "/", 50))
	before := r.cpuTime()
	all := map[string]*tally{}
	var playing sync.WaitGroup
	for i, l := range loads {
		if invariants.Enabled {
			l.rate /= 5 // of a Weft that takes as much longer
		}
		t := &tally{name: l.name, expected: l.rate * lasts.Seconds(), failed: map[string]int{}, first: map[string]error{}, by: map[string]*histogram.Histogram{}}
		all[l.name] = t
		chance := r.chance(uint64(1000 + i))
		playing.Go(func() {
			begin := time.Now()
			var calls sync.WaitGroup
			inFlight := make(chan struct{}, mostInFlight)
			due := time.Duration(0)
			for n := 0; ; n++ {
				due += time.Duration(chance.ExpFloat64() / l.rate * float64(time.Second))
				if due > lasts {
					break
				}
				at := begin.Add(due)
				pause(nil, time.Until(at))
				select {
				case inFlight <- struct{}{}:
				default:
					t.count("", fail("queue", "%d requests are in flight", mostInFlight), 0)
					continue
				}
				calls.Go(func() {
					by, err := l.request(n)
					t.count(by, err, time.Since(at))
					<-inFlight
				})
			}
			calls.Wait()
		})
	}
	playing.Wait()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r.Log(all[name])
	}
	used := (r.cpuTime() - before).Seconds() / lasts.Seconds()
	r.machine = all[direct].took.Quantile(0.99)
	if used > 0 {
		r.Logf("Weft used %.2f CPUs", used)
	}
	if r.machine > time.Second || all[direct].failures() > 0 {
		if used > 0.5 {
			r.Errorf("Weft used %.2f CPUs, and left the machine no time", used)
		}
		for _, t := range all { // which is no excuse for what must never be
			if n := t.failed[wrong]; n > 0 {
				r.Errorf("%s: %d answers were wrong; the first: %v", t.name, n, t.first[wrong])
			}
		}
		r.Skipf("this machine has no time: p99 of requests that go past Weft is %v", r.machine)
	}
	return all
}

// cpuTime is how long Weft has used processors.
func (r *trial) cpuTime() time.Duration {
	r.Helper()
	used, err := process.CPUTime([]int{r.pid})
	if err != nil {
		return 0 // it has ended: its drain is looked at
	}
	return used
}

// direct is the load that goes past Weft: its latencies are those of the machine,
// which has other things to do.
const direct = "direct"

// direct returns a caller of a host that is the test's own.
func (r *trial) direct() *web {
	r.Helper()
	if r.past == nil {
		_, at := r.newHost(direct)
		r.past = r.newWeb(at.page, false, plainDial)
	}
	return r.past
}

// request makes one request.
func (l load) request(n int) (by string, err error) {
	timeout := l.timeout
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.call(ctx, n)
}

func (t *tally) count(by string, err error, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
	t.slowest = max(t.slowest, took)
	if err != nil {
		kind := kindOf(err)
		t.failed[kind]++
		if t.first[kind] == nil {
			t.first[kind] = err
		}
		return
	}
	t.took.Record(took)
	if t.by[by] == nil {
		t.by[by] = new(histogram.Histogram)
	}
	t.by[by].Record(took)
}

// failures counts those of the kinds; of all without.
func (t *tally) failures(kinds ...string) int {
	sum := 0
	for kind, n := range t.failed {
		if len(kinds) == 0 || slices.Contains(kinds, kind) {
			sum += n
		}
	}
	return sum
}

// share is the part of the good answers that one gave.
func (t *tally) share(by string) float64 {
	if t.by[by] == nil {
		return 0
	}
	return float64(t.by[by].Count()) / float64(t.took.Count())
}

// String is the line of the report.
func (t *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-22s %6d requests, %4d failed", t.name, t.requests, t.failures())
	for i, kind := range slices.Sorted(maps.Keys(t.failed)) {
		fmt.Fprintf(&b, "%s%s %d", []string{" (", ", "}[min(i, 1)], kind, t.failed[kind])
	}
	if len(t.failed) > 0 {
		b.WriteByte(')')
	}
	fmt.Fprintf(&b, "; p50 %v, p99 %v, slowest %v", short(t.took.Quantile(0.5)), short(t.took.Quantile(0.99)), short(t.slowest))
	if len(t.by) > 1 {
		for _, by := range slices.Sorted(maps.Keys(t.by)) {
			fmt.Fprintf(&b, "; %s %.1f %%", by, 100*t.share(by))
		}
	}
	return b.String()
}

func short(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// bounds are what a test allows of a load. Times are those of a machine that has
// nothing else to do.
type bounds struct {
	kinds  []string      // of failures; others are not allowed at all
	failed float64       // share of the requests that may fail, in those kinds
	p50    time.Duration // of good answers; 0: not looked at
	p99    time.Duration
	most   time.Duration // of everything, failures included
}

// hold reports what exceeds the bounds. A request through Weft waits for the machine
// three times as often as one that goes past it: at the caller, Weft and the host.
func (r *trial) hold(t *tally, b bounds) {
	r.Helper()
	slack := 3 * r.machine
	if float64(t.requests) < t.expected/3 {
		r.Errorf("%s: only %d requests were made of %.0f", t.name, t.requests, t.expected)
	}
	for kind, n := range t.failed {
		if !slices.Contains(b.kinds, kind) {
			r.Errorf("%s: %d failures of a kind that must not be; the first: %v", t.name, n, t.first[kind])
		}
	}
	if got := float64(t.failures(b.kinds...)) / float64(t.requests); got > b.failed {
		r.Errorf("%s: %.3f %% of the requests failed, want at most %.3f %%; the first: %v", t.name, 100*got, 100*b.failed, t.first)
	}
	for _, q := range []struct {
		quantile float64
		most     time.Duration
	}{{0.5, b.p50}, {0.99, b.p99}} {
		if got := t.took.Quantile(q.quantile); q.most > 0 && got > q.most+slack {
			r.Errorf("%s: p%.0f is %v, want at most %v and %v for the machine", t.name, 100*q.quantile, got, q.most, slack)
		}
	}
	if b.most > 0 && t.slowest > b.most+slack {
		r.Errorf("%s: a request took %v, want at most %v and %v for the machine", t.name, t.slowest, b.most, slack)
	}
}
