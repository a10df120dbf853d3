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

// wrongResponse is the kind of failures that are never allowed: a successful response that is
// damaged or belongs to another request.
const wrongResponse = "WRONG"

// failure is a failed request.
type failure struct {
	kind string // equal for failures with the same reason
	err  error
}

func (f *failure) Error() string { return f.kind + ": " + f.err.Error() }

// newFailure returns a failure of the kind.
func newFailure(kind, format string, args ...any) error {
	return &failure{kind, fmt.Errorf(format, args...)}
}

// failureKind returns the kind of a failure.
func failureKind(err error) string {
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.kind
	}
	return "error"
}

// load is an open loop of requests: they arrive at random times, independent of earlier responses.
type load struct {
	name    string
	rate    float64       // requests per second
	timeout time.Duration // of one request; 0: 10 seconds
	// call makes the n-th request and returns the host that responded. It is called concurrently.
	call func(ctx context.Context, n int) (responder string, err error)
}

// withSuffix returns copies of the loads with a suffix on their names, for another phase of a test.
func withSuffix(loads []load, suffix string) []load {
	loads = slices.Clone(loads)
	for i := range loads {
		loads[i].name += suffix
	}
	return loads
}

// maxInFlight is the maximum number of requests of a load in flight. Further requests count as
// failed, so that a collapsed proxy does not cause unlimited goroutines.
const maxInFlight = 5000

// loadResult is the result of a load. Latencies are of successful requests only and count from the
// time at which a request was due.
type loadResult struct {
	name     string
	expected float64 // number of requests, on average

	mu          sync.Mutex // guards the following fields
	requests    int
	failed      map[string]int
	firstErrors map[string]error // first error of each kind
	latencies   histogram.Histogram
	byHost      map[string]*histogram.Histogram // by host that responded
	slowest     time.Duration                   // of all requests, including failures
}

// runLoads runs the loads concurrently for the duration of the test run and waits until every
// request has ended.
func (r *testRun) runLoads(loads ...load) map[string]*loadResult {
	return r.runLoadsFor(r.duration, loads...)
}

// runLoadsFor is runLoads with another duration.
func (r *testRun) runLoadsFor(duration time.Duration, loads ...load) map[string]*loadResult {
	r.Helper()
	loads = append(loads, r.directClient().getLoad(direct, "/", 50))
	before := r.cpuTime()
	results := map[string]*loadResult{}
	var wg sync.WaitGroup
	for i, l := range loads {
		if invariants.Enabled {
			l.rate /= 5 // with invariant checks Weft is about five times slower
		}
		res := &loadResult{name: l.name, expected: l.rate * duration.Seconds(), failed: map[string]int{}, firstErrors: map[string]error{}, byHost: map[string]*histogram.Histogram{}}
		results[l.name] = res
		rng := r.newRand(uint64(1000 + i))
		wg.Go(func() {
			start := time.Now()
			var calls sync.WaitGroup
			inFlight := make(chan struct{}, maxInFlight)
			dueIn := time.Duration(0)
			for n := 0; ; n++ {
				dueIn += time.Duration(rng.ExpFloat64() / l.rate * float64(time.Second))
				if dueIn > duration {
					break
				}
				dueAt := start.Add(dueIn)
				sleep(nil, time.Until(dueAt))
				select {
				case inFlight <- struct{}{}:
				default:
					res.count("", newFailure("queue", "%d requests are in flight", maxInFlight), 0)
					continue
				}
				calls.Go(func() {
					responder, err := l.request(n)
					res.count(responder, err, time.Since(dueAt))
					<-inFlight
				})
			}
			calls.Wait()
		})
	}
	wg.Wait()
	for _, name := range slices.Sorted(maps.Keys(results)) {
		r.Log(results[name])
	}
	cpus := (r.cpuTime() - before).Seconds() / duration.Seconds()
	r.directP99 = results[direct].latencies.Quantile(0.99)
	if cpus > 0 {
		r.Logf("Weft used %.2f CPUs", cpus)
	}
	if r.directP99 > time.Second || results[direct].failures() > 0 {
		if cpus > 0.5 {
			r.Errorf("Weft used %.2f CPUs and starved the machine, want at most 0.5", cpus)
		}
		for _, res := range results { // a slow machine does not excuse wrong responses
			if n := res.failed[wrongResponse]; n > 0 {
				r.Errorf("%s: %d wrong responses; the first: %v", res.name, n, res.firstErrors[wrongResponse])
			}
		}
		r.Skipf("the machine is too busy: p99 of direct requests is %v", r.directP99)
	}
	return results
}

// cpuTime returns the CPU time that Weft has used.
func (r *testRun) cpuTime() time.Duration {
	r.Helper()
	used, err := process.CPUTime([]int{r.pid})
	if err != nil {
		return 0 // the process has exited; drain verifies its exit
	}
	return used
}

// direct is the load that bypasses Weft. It measures the latency of the machine, which may also run
// other work.
const direct = "direct"

// directClient returns a client of a host in the test process.
func (r *testRun) directClient() *httpClient {
	r.Helper()
	if r.directHTTP == nil {
		_, addrs := r.newHost(direct)
		r.directHTTP = r.newHTTPClient(addrs.http, false, plainDial)
	}
	return r.directHTTP
}

// request makes one request.
func (l load) request(n int) (responder string, err error) {
	timeout := l.timeout
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.call(ctx, n)
}

func (res *loadResult) count(responder string, err error, elapsed time.Duration) {
	res.mu.Lock()
	defer res.mu.Unlock()
	res.requests++
	res.slowest = max(res.slowest, elapsed)
	if err != nil {
		kind := failureKind(err)
		res.failed[kind]++
		if res.firstErrors[kind] == nil {
			res.firstErrors[kind] = err
		}
		return
	}
	res.latencies.Record(elapsed)
	if res.byHost[responder] == nil {
		res.byHost[responder] = new(histogram.Histogram)
	}
	res.byHost[responder].Record(elapsed)
}

// failures returns the number of failures of the kinds, or of all kinds if none is given.
func (res *loadResult) failures(kinds ...string) int {
	sum := 0
	for kind, n := range res.failed {
		if len(kinds) == 0 || slices.Contains(kinds, kind) {
			sum += n
		}
	}
	return sum
}

// fraction returns the fraction of successful responses from a host.
func (res *loadResult) fraction(responder string) float64 {
	if res.byHost[responder] == nil {
		return 0
	}
	return float64(res.byHost[responder].Count()) / float64(res.latencies.Count())
}

// String returns one line of the report.
func (res *loadResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-22s %6d requests, %4d failed", res.name, res.requests, res.failures())
	for i, kind := range slices.Sorted(maps.Keys(res.failed)) {
		fmt.Fprintf(&b, "%s%s %d", []string{" (", ", "}[min(i, 1)], kind, res.failed[kind])
	}
	if len(res.failed) > 0 {
		b.WriteByte(')')
	}
	fmt.Fprintf(&b, "; p50 %v, p99 %v, slowest %v", short(res.latencies.Quantile(0.5)), short(res.latencies.Quantile(0.99)), short(res.slowest))
	if len(res.byHost) > 1 {
		for _, responder := range slices.Sorted(maps.Keys(res.byHost)) {
			fmt.Fprintf(&b, "; %s %.1f %%", responder, 100*res.fraction(responder))
		}
	}
	return b.String()
}

func short(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// bounds are the limits of a test for a load. Times are those of an otherwise idle machine.
type bounds struct {
	allowedKinds []string      // allowed kinds of failures
	maxFailed    float64       // maximum fraction of requests that may fail with the allowed kinds
	p50          time.Duration // of successful requests; 0: not checked
	p99          time.Duration
	maxLatency   time.Duration // maximum of all requests, including failures
	maxRetries   int           // maximum number of retries of a request
}

// check reports violations of the bounds. For the waits for a CPU it adds multiples of the direct
// latency to the limits: one for the client, and two, for Weft and the host, for each attempt.
func (r *testRun) check(res *loadResult, b bounds) {
	r.Helper()
	slack := time.Duration(1+2*(1+b.maxRetries)) * r.directP99
	if float64(res.requests) < res.expected/3 {
		r.Errorf("%s: sent only %d requests, want about %.0f", res.name, res.requests, res.expected)
	}
	for kind, n := range res.failed {
		if !slices.Contains(b.allowedKinds, kind) {
			r.Errorf("%s: %d failures of a kind that is not allowed; the first: %v", res.name, n, res.firstErrors[kind])
		}
	}
	if got := float64(res.failures(b.allowedKinds...)) / float64(res.requests); got > b.maxFailed {
		r.Errorf("%s: %.3f %% of the requests failed, want at most %.3f %%; the first: %v", res.name, 100*got, 100*b.maxFailed, res.firstErrors)
	}
	for _, q := range []struct {
		quantile float64
		maximum  time.Duration
	}{{0.5, b.p50}, {0.99, b.p99}} {
		if got := res.latencies.Quantile(q.quantile); q.maximum > 0 && got > q.maximum+slack {
			r.Errorf("%s: p%.0f is %v, want at most %v plus %v for the machine", res.name, 100*q.quantile, got, q.maximum, slack)
		}
	}
	if b.maxLatency > 0 && res.slowest > b.maxLatency+slack {
		r.Errorf("%s: a request took %v, want at most %v plus %v for the machine", res.name, res.slowest, b.maxLatency, slack)
	}
}
