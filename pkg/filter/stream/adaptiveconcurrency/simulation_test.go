package adaptiveconcurrency

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"
)

// simulation is a deterministic model of clients, a controller and a server in simulated time.
type simulation struct {
	controller *controller
	random     *rand.Rand
	now        time.Duration

	workers      int           // number of requests that the server serves concurrently; others queue
	serviceTime  time.Duration // service time of one request
	workerFreeAt []time.Duration
	inFlight     requestHeap // end times of requests in flight

	failing  bool          // the server fails every request after 100µs
	sent     map[int64]int // requests by share of the limit
	admitted map[int64]int
	maxLimit int64 // largest limit seen
	minLimit int64
}

type simulatedRequest struct{ start, end time.Duration }

// requestHeap is a heap of requests by their end time.
type requestHeap []simulatedRequest

func (h requestHeap) Len() int           { return len(h) }
func (h requestHeap) Less(i, j int) bool { return h[i].end < h[j].end }
func (h requestHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *requestHeap) Push(x any)        { *h = append(*h, x.(simulatedRequest)) }
func (h *requestHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

func simulate(p params, workerCount int, service time.Duration) *simulation {
	c := new(controller)
	c.initialize(&p, 0)
	return &simulation{
		controller: c, random: rand.New(rand.NewPCG(1, 2)), workers: workerCount, serviceTime: service,
		workerFreeAt: make([]time.Duration, workerCount), sent: map[int64]int{}, admitted: map[int64]int{},
	}
}

// defaultParams returns the params of an empty configuration.
func defaultParams() params {
	return params{percentile: 50, maxLimit: 1000, updateInterval: 100 * time.Millisecond, minRTTInterval: time.Minute, jitter: 0.15, minRTTRequests: 50, minLimit: 3, buffer: 0.25}
}

// run generates rate requests per second for d, and cycles through shares.
func (s *simulation) run(d time.Duration, rate float64, shares ...int64) {
	s.sent, s.admitted = map[int64]int{}, map[int64]int{}
	s.maxLimit, s.minLimit = 0, 1<<62
	stop := s.now + d
	for i := 0; s.now < stop; i++ {
		s.now += time.Duration(s.random.ExpFloat64() / rate * float64(time.Second))
		for len(s.inFlight) > 0 && s.inFlight[0].end <= s.now {
			request := heap.Pop(&s.inFlight).(simulatedRequest)
			o := succeeded
			if s.failing {
				o = failed
			}
			s.controller.release(request.start, request.end, o)
		}
		share := shares[i%len(shares)]
		s.sent[share]++
		s.maxLimit, s.minLimit = max(s.maxLimit, s.controller.limit.Load()), min(s.minLimit, s.controller.limit.Load())
		if !s.controller.acquire(share) {
			s.controller.updateIfDue(s.now)
			continue
		}
		s.admitted[share]++
		heap.Push(&s.inFlight, simulatedRequest{s.now, s.completionTime()})
	}
}

// completionTime returns the end time of a request that arrives now.
func (s *simulation) completionTime() time.Duration {
	if s.failing {
		return s.now + 100*time.Microsecond
	}
	first := 0
	for i, freeAt := range s.workerFreeAt {
		if freeAt < s.workerFreeAt[first] {
			first = i
		}
	}
	duration := time.Duration(float64(s.serviceTime) * (0.9 + 0.2*s.random.Float64()))
	s.workerFreeAt[first] = max(s.workerFreeAt[first], s.now) + duration
	return s.workerFreeAt[first]
}

// throughput returns the admitted fraction of the server's capacity.
func (s *simulation) throughput(d time.Duration) float64 {
	sum := 0
	for _, n := range s.admitted {
		sum += n
	}
	return float64(sum) * s.serviceTime.Seconds() / d.Seconds() / float64(s.workers)
}

// checkLimitWithin fails the test unless the limit always stayed within the bounds.
func (s *simulation) checkLimitWithin(t *testing.T, scenario string, lower, upper int64) {
	t.Helper()
	if s.minLimit < lower || s.maxLimit > upper {
		t.Errorf("%s: the limit was between %d and %d, want it between %d and %d", scenario, s.minLimit, s.maxLimit, lower, upper)
	}
}

func TestLimitConvergesNearKnee(t *testing.T) {
	for _, test := range []struct {
		workers int
		service time.Duration
	}{{10, 20 * time.Millisecond}, {50, 50 * time.Millisecond}, {5, time.Millisecond}, {200, 200 * time.Millisecond}} {
		s := simulate(defaultParams(), test.workers, test.service)
		capacity := float64(test.workers) / test.service.Seconds()
		s.run(10*time.Second, 3*capacity, 100)
		s.run(20*time.Second, 3*capacity, 100)
		s.checkLimitWithin(t, "load of three times the capacity", int64(test.workers), 2*int64(test.workers)+10)
		if got := s.throughput(20 * time.Second); got < 0.95 {
			t.Errorf("%d workers with service time %v: throughput is %.0f %% of the capacity, want at least 95 %%", test.workers, test.service, 100*got)
		}
	}
}

func TestUnusedLimitDoesNotGrow(t *testing.T) {
	s := simulate(defaultParams(), 50, 50*time.Millisecond)
	s.run(30*time.Second, 100, 100) // five in flight
	s.run(20*time.Second, 100, 100)
	if s.maxLimit > 60 {
		t.Errorf("limit = %d with five requests in flight, want at most 60", s.maxLimit)
	}
	if s.admitted[100] < s.sent[100]*99/100 {
		t.Errorf("admitted %d of %d requests below the capacity, want at least 99 %%", s.admitted[100], s.sent[100])
	}
}

func TestLimitAdaptsToServer(t *testing.T) {
	p := defaultParams()
	p.minRTTInterval = 10 * time.Second
	s := simulate(p, 50, 50*time.Millisecond)
	s.run(20*time.Second, 3_000, 100)

	s.serviceTime = 200 * time.Millisecond // the service time changes, the overload does not
	s.run(20*time.Second, 3_000, 100)
	s.run(20*time.Second, 3_000, 100)
	if got := s.throughput(20 * time.Second); got < 0.8 {
		t.Errorf("slow server: throughput is %.0f %% of the capacity, want at least 80 %%", 100*got)
	}

	s.serviceTime = 50 * time.Millisecond
	s.run(20*time.Second, 3_000, 100)
	s.run(20*time.Second, 3_000, 100)
	if s.maxLimit > 200 {
		t.Errorf("recovered server: maximum limit = %d, want at most 200", s.maxLimit)
	}
	if got := s.throughput(20 * time.Second); got < 0.8 {
		t.Errorf("recovered server: throughput is %.0f %% of the capacity, want at least 80 %%", 100*got)
	}

	s.workers, s.workerFreeAt = 10, s.workerFreeAt[:10] // the server loses most workers
	s.run(20*time.Second, 3_000, 100)
	s.run(10*time.Second, 3_000, 100)
	if s.maxLimit > 40 {
		t.Errorf("a fifth of the workers: maximum limit = %d, want at most 40", s.maxLimit)
	}
}

// TestMeasurementEnds verifies that a measurement ends in time even if the server hangs, because
// few requests pass during a measurement.
func TestMeasurementEnds(t *testing.T) {
	p := defaultParams()
	p.minRTTInterval, p.jitter = 10*time.Second, 0
	s := simulate(p, 50, 50*time.Millisecond)
	s.run(9*time.Second, 3_000, 100)
	before := s.controller.limit.Load()
	s.serviceTime = 10 * time.Second // the server hangs when a measurement begins
	for s.controller.samplesNeeded.Load() == 0 {
		s.run(100*time.Millisecond, 3_000, 100)
	}
	start := s.now
	for s.controller.samplesNeeded.Load() > 0 {
		s.run(10*time.Millisecond, 3_000, 100)
	}
	if duration := s.now - start; duration > 2*time.Second {
		t.Errorf("the measurement took %v, want at most about a tenth of the interval", duration)
	}
	if got := s.controller.limit.Load(); got < before/2 {
		t.Errorf("limit after the measurement = %d, want at least half of %d", got, before)
	}
}

// TestLimitFallsWhenServerHangs verifies that the limit falls when requests become very slow, and
// recovers with the server.
func TestLimitFallsWhenServerHangs(t *testing.T) {
	s := simulate(defaultParams(), 50, 50*time.Millisecond)
	s.run(10*time.Second, 3_000, 100)
	before := s.controller.limit.Load()
	s.serviceTime = 10 * time.Second
	s.run(40*time.Second, 3_000, 100)
	if got := s.controller.limit.Load(); got > before/2 {
		t.Errorf("limit after 40s with a hanging server = %d, want at most half of %d", got, before)
	}
	s.serviceTime = 50 * time.Millisecond
	s.run(30*time.Second, 3_000, 100)
	s.run(10*time.Second, 3_000, 100)
	if got := s.throughput(10 * time.Second); got < 0.95 {
		t.Errorf("recovered server: throughput is %.0f %% of the capacity, want at least 95 %%", 100*got)
	}
}

// TestFastFailuresDoNotLowerMinRTT verifies that fast failures do not lower minRTT, which would
// make successful requests look slow.
func TestFastFailuresDoNotLowerMinRTT(t *testing.T) {
	p := defaultParams()
	p.minRTTInterval = time.Second
	s := simulate(p, 50, 50*time.Millisecond)
	s.run(10*time.Second, 3_000, 100)
	before := time.Duration(s.controller.minRTT.Load())
	s.failing = true
	s.run(10*time.Second, 3_000, 100)
	if got := time.Duration(s.controller.minRTT.Load()); got < before*9/10 {
		t.Errorf("minRTT after failures of 100µs = %v, want about %v", got, before)
	}
	s.failing = false
	s.run(5*time.Second, 3_000, 100)
	s.run(5*time.Second, 3_000, 100)
	if got := s.throughput(5 * time.Second); got < 0.8 {
		t.Errorf("after the failures: throughput is %.0f %% of the capacity, want at least 80 %%", 100*got)
	}
}

// TestInstantRequestsHaveMinRTT verifies that minRTT is not 0 even if requests take no measurable
// time.
func TestInstantRequestsHaveMinRTT(t *testing.T) {
	p := defaultParams()
	p.percentile = 0 // the minimum of all samples
	c := new(controller)
	c.initialize(&p, 0)
	for now := time.Duration(0); now < time.Second; now += time.Millisecond {
		for range 10 {
			if c.acquire(100) {
				c.release(now, now, succeeded)
			}
		}
	}
	if got := c.minRTT.Load(); got == 0 {
		t.Error("minRTT = 0 after a second of requests")
	}
}

func TestFixedMinRTT(t *testing.T) {
	p := defaultParams()
	p.minRTTInterval, p.fixedMinRTT = 0, 50*time.Millisecond
	s := simulate(p, 50, 50*time.Millisecond)
	s.run(10*time.Second, 3_000, 100)
	s.run(60*time.Second, 3_000, 100)
	s.checkLimitWithin(t, "fixed minRTT", 50, 110)
	if got := time.Duration(s.controller.minRTT.Load()); got != 50*time.Millisecond {
		t.Errorf("minRTT = %v, want 50ms", got)
	}
}

// TestHighPriorityIsAdmittedUnderOverload verifies that requests that may use the full limit are
// admitted under overload, as long as they do not exceed the capacity.
func TestHighPriorityIsAdmittedUnderOverload(t *testing.T) {
	for _, overload := range []float64{1.5, 3, 10} {
		for _, ratio := range []int{2, 5, 10} { // one of ratio requests has high priority
			if overload/float64(ratio) > 0.6 {
				continue // the requests of high priority exceed the capacity
			}
			shares := []int64{100}
			for i := 1; i < ratio; i++ {
				shares = append(shares, []int64{80, 50}[i%2])
			}
			s := simulate(defaultParams(), 50, 50*time.Millisecond)
			s.run(10*time.Second, 1000*overload, shares...)
			s.run(20*time.Second, 1000*overload, shares...)
			admittedShare := func(share int64) float64 { return float64(s.admitted[share]) / float64(max(s.sent[share], 1)) }
			if got := admittedShare(100); got < 0.99 {
				t.Errorf("overload %v, one of %d: admitted %.2f %% of the requests of high priority, want at least 99 %%", overload, ratio, 100*got)
			}
			if ratio > 2 && admittedShare(50) > admittedShare(80) {
				t.Errorf("overload %v, one of %d: admitted fraction of low priority (%.2f) exceeds the fraction of normal priority (%.2f)", overload, ratio, admittedShare(50), admittedShare(80))
			}
		}
	}
}
