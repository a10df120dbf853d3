package adaptiveconcurrency

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"
)

// simulation is a deterministic model of clients, a controller and a server in simulated time.
type simulation struct {
	c      *controller
	random *rand.Rand
	now    time.Duration

	workers int           // of the server: requests that it serves concurrently; others queue
	service time.Duration // service time of one request
	free    []time.Duration
	ends    ends // end times of requests in flight

	fails    bool          // the server fails every request after 100µs
	sent     map[int64]int // requests by share of the limit
	admitted map[int64]int
	most     int64 // largest limit seen
	fewest   int64
}

type end struct{ began, ends time.Duration }

// ends is a heap of requests by their end time.
type ends []end

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].ends < e[j].ends }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

func simulate(p params, workers int, service time.Duration) *simulation {
	c := new(controller)
	c.begin(&p, 0)
	return &simulation{
		c: c, random: rand.New(rand.NewPCG(1, 2)), workers: workers, service: service,
		free: make([]time.Duration, workers), sent: map[int64]int{}, admitted: map[int64]int{},
	}
}

// usual returns the params of an empty configuration.
func usual() params {
	return params{percent: 50, most: 1000, window: 100 * time.Millisecond, interval: time.Minute, jitter: 0.15, requests: 50, least: 3, buffer: 0.25}
}

// run generates rate requests per second for d, and cycles through shares.
func (s *simulation) run(d time.Duration, rate float64, shares ...int64) {
	s.sent, s.admitted = map[int64]int{}, map[int64]int{}
	s.most, s.fewest = 0, 1<<62
	stop := s.now + d
	for turn := 0; s.now < stop; turn++ {
		s.now += time.Duration(s.random.ExpFloat64() / rate * float64(time.Second))
		for len(s.ends) > 0 && s.ends[0].ends <= s.now {
			e := heap.Pop(&s.ends).(end)
			o := answered
			if s.fails {
				o = failed
			}
			s.c.leave(e.began, e.ends, o)
		}
		share := shares[turn%len(shares)]
		s.sent[share]++
		s.most, s.fewest = max(s.most, s.c.limit.Load()), min(s.fewest, s.c.limit.Load())
		if !s.c.enter(share) {
			s.c.look(s.now)
			continue
		}
		s.admitted[share]++
		heap.Push(&s.ends, end{s.now, s.served()})
	}
}

// served returns the end time of a request that arrives now.
func (s *simulation) served() time.Duration {
	if s.fails {
		return s.now + 100*time.Microsecond
	}
	first := 0
	for i, at := range s.free {
		if at < s.free[first] {
			first = i
		}
	}
	took := time.Duration(float64(s.service) * (0.9 + 0.2*s.random.Float64()))
	s.free[first] = max(s.free[first], s.now) + took
	return s.free[first]
}

// throughput returns the admitted fraction of the server's capacity.
func (s *simulation) throughput(d time.Duration) float64 {
	sum := 0
	for _, n := range s.admitted {
		sum += n
	}
	return float64(sum) * s.service.Seconds() / d.Seconds() / float64(s.workers)
}

// within fails the test unless the limit always stayed within the bounds.
func (s *simulation) within(t *testing.T, what string, least, most int64) {
	t.Helper()
	if s.fewest < least || s.most > most {
		t.Errorf("%s: the limit was from %d to %d, want it within %d and %d", what, s.fewest, s.most, least, most)
	}
}

func TestTheLimitConvergesNearTheKnee(t *testing.T) {
	for _, test := range []struct {
		workers int
		service time.Duration
	}{{10, 20 * time.Millisecond}, {50, 50 * time.Millisecond}, {5, time.Millisecond}, {200, 200 * time.Millisecond}} {
		s := simulate(usual(), test.workers, test.service)
		capacity := float64(test.workers) / test.service.Seconds()
		s.run(10*time.Second, 3*capacity, 100)
		s.run(20*time.Second, 3*capacity, 100)
		s.within(t, "three times what can be served", int64(test.workers), 2*int64(test.workers)+10)
		if got := s.throughput(20 * time.Second); got < 0.95 {
			t.Errorf("%d workers of %v do %.0f %% of what they could", test.workers, test.service, 100*got)
		}
	}
}

func TestALimitThatIsNotUsedDoesNotGrow(t *testing.T) {
	s := simulate(usual(), 50, 50*time.Millisecond)
	s.run(30*time.Second, 100, 100) // five in flight
	s.run(20*time.Second, 100, 100)
	if s.most > 60 {
		t.Errorf("the limit is %d while five are under way", s.most)
	}
	if s.admitted[100] < s.sent[100]*99/100 {
		t.Errorf("%d of %d were let in, which the server has time for", s.admitted[100], s.sent[100])
	}
}

func TestTheLimitFollowsTheServer(t *testing.T) {
	p := usual()
	p.interval = 10 * time.Second
	s := simulate(p, 50, 50*time.Millisecond)
	s.run(20*time.Second, 3_000, 100)

	s.service = 200 * time.Millisecond // minRTT changed; the overload did not
	s.run(20*time.Second, 3_000, 100)
	s.run(20*time.Second, 3_000, 100)
	if got := s.throughput(20 * time.Second); got < 0.8 {
		t.Errorf("a server that is slower does %.0f %% of what it could", 100*got)
	}

	s.service = 50 * time.Millisecond
	s.run(20*time.Second, 3_000, 100)
	s.run(20*time.Second, 3_000, 100)
	if s.most > 200 {
		t.Errorf("when it is as fast as before the limit is up to %d", s.most)
	}
	if got := s.throughput(20 * time.Second); got < 0.8 {
		t.Errorf("when it is as fast as before it does %.0f %% of what it could", 100*got)
	}

	s.workers, s.free = 10, s.free[:10] // most workers are lost
	s.run(20*time.Second, 3_000, 100)
	s.run(10*time.Second, 3_000, 100)
	if s.most > 40 {
		t.Errorf("with a fifth of the workers the limit is up to %d", s.most)
	}
}

// TestMeasuringEnds verifies that a measurement ends in time even if the server hangs, because few
// requests pass during a measurement.
func TestMeasuringEnds(t *testing.T) {
	p := usual()
	p.interval, p.jitter = 10*time.Second, 0
	s := simulate(p, 50, 50*time.Millisecond)
	s.run(9*time.Second, 3_000, 100)
	before := s.c.limit.Load()
	s.service = 10 * time.Second // it hangs just as a measurement begins
	for s.c.wanted.Load() == 0 {
		s.run(100*time.Millisecond, 3_000, 100)
	}
	began := s.now
	for s.c.wanted.Load() > 0 {
		s.run(10*time.Millisecond, 3_000, 100)
	}
	if took := s.now - began; took > 2*time.Second {
		t.Errorf("it was measured for %v, want a tenth of the interval at most", took)
	}
	if got := s.c.limit.Load(); got < before/2 {
		t.Errorf("the limit is %d afterwards, and was %d before", got, before)
	}
}

// TestAServerThatHangsIsAskedLess verifies that the limit falls when requests become very slow, and
// recovers with the server.
func TestAServerThatHangsIsAskedLess(t *testing.T) {
	s := simulate(usual(), 50, 50*time.Millisecond)
	s.run(10*time.Second, 3_000, 100)
	before := s.c.limit.Load()
	s.service = 10 * time.Second
	s.run(40*time.Second, 3_000, 100)
	if got := s.c.limit.Load(); got > before/2 {
		t.Errorf("after 40s of answers that take 10s the limit is %d, and was %d before", got, before)
	}
	s.service = 50 * time.Millisecond
	s.run(30*time.Second, 3_000, 100)
	s.run(10*time.Second, 3_000, 100)
	if got := s.throughput(10 * time.Second); got < 0.95 {
		t.Errorf("when it goes on it does %.0f %% of what it could", 100*got)
	}
}

// TestFailuresDoNotMakeAServerFast verifies that fast failures do not lower minRTT, which would
// make successful requests look slow.
func TestFailuresDoNotMakeAServerFast(t *testing.T) {
	p := usual()
	p.interval = time.Second
	s := simulate(p, 50, 50*time.Millisecond)
	s.run(10*time.Second, 3_000, 100)
	before := time.Duration(s.c.minRTT.Load())
	s.fails = true
	s.run(10*time.Second, 3_000, 100)
	if got := time.Duration(s.c.minRTT.Load()); got < before*9/10 {
		t.Errorf("after failures of 100µs the least time is %v, and was %v before", got, before)
	}
	s.fails = false
	s.run(5*time.Second, 3_000, 100)
	s.run(5*time.Second, 3_000, 100)
	if got := s.throughput(5 * time.Second); got < 0.8 {
		t.Errorf("after them the server does %.0f %% of what it could", 100*got)
	}
}

// TestTheFastestCountsToo verifies that minRTT is known, not 0, even if requests take no measurable
// time.
func TestTheFastestCountsToo(t *testing.T) {
	p := usual()
	p.percent = 0 // the minimum of all samples
	c := new(controller)
	c.begin(&p, 0)
	for now := time.Duration(0); now < time.Second; now += time.Millisecond {
		for range 10 {
			if c.enter(100) {
				c.leave(now, now, answered)
			}
		}
	}
	if got := c.minRTT.Load(); got == 0 {
		t.Error("what requests take when there are few is not known")
	}
}

func TestAFixedTimeIsNotMeasured(t *testing.T) {
	p := usual()
	p.interval, p.fixed = 0, 50*time.Millisecond
	s := simulate(p, 50, 50*time.Millisecond)
	s.run(10*time.Second, 3_000, 100)
	s.run(60*time.Second, 3_000, 100)
	s.within(t, "a fixed time", 50, 110)
	if got := time.Duration(s.c.minRTT.Load()); got != 50*time.Millisecond {
		t.Errorf("the least time is %v", got)
	}
}

// TestHighPriorityKeepsItsPlace verifies that requests that may use the whole limit are admitted
// under overload, as long as the server has capacity for them alone.
func TestHighPriorityKeepsItsPlace(t *testing.T) {
	for _, overload := range []float64{1.5, 3, 10} {
		for _, part := range []int{2, 5, 10} { // one of part requests is important
			if overload/float64(part) > 0.6 {
				continue // they alone exceed the capacity
			}
			shares := []int64{100}
			for i := 1; i < part; i++ {
				shares = append(shares, []int64{80, 50}[i%2])
			}
			s := simulate(usual(), 50, 50*time.Millisecond)
			s.run(10*time.Second, 1000*overload, shares...)
			s.run(20*time.Second, 1000*overload, shares...)
			rate := func(share int64) float64 { return float64(s.admitted[share]) / float64(max(s.sent[share], 1)) }
			if got := rate(100); got < 0.99 {
				t.Errorf("overload %v, one of %d: %.2f %% of the important requests were let in", overload, part, 100*got)
			}
			if part > 2 && rate(50) > rate(80) {
				t.Errorf("overload %v, one of %d: the least important got more (%.2f) than those before them (%.2f)", overload, part, rate(50), rate(80))
			}
		}
	}
}
