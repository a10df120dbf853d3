package upstream

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// moods is a network whose hosts answer with the status that the test gives them. A
// host of status 0 takes no connection.
type moods struct {
	mu       sync.Mutex
	statuses map[string]int // guarded by mu; default 200
	asked    map[string]int // guarded by mu; requests with a User-Agent: those of checks
}

func newMoods() *moods {
	return &moods{statuses: map[string]int{}, asked: map[string]int{}}
}

func (m *moods) set(host string, status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.statuses[host] = status
}

func (m *moods) of(host string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if status, ok := m.statuses[host]; ok {
		return status
	}
	return 200
}

func (*moods) Multiplexed() bool { return false }

func (m *moods) Connect(_ context.Context, h *Host, _ time.Time, released func(bool)) (Connection, error) {
	if m.of(h.Name()) == 0 {
		return nil, protocol.Faultf(protocol.ConnectFailure, "%s refused", h.Name())
	}
	return &moody{moods: m, host: h.Name(), released: released}, nil
}

// moody is a connection of moods.
type moody struct {
	moods    *moods
	host     string
	released func(bool)
}

func (c *moody) Serve(_ context.Context, x *protocol.Exchange) error {
	if x.Request.Header.Get("User-Agent") != "" {
		c.moods.mu.Lock()
		c.moods.asked[c.host]++
		c.moods.mu.Unlock()
	}
	x.Response.Status, x.Response.Body = c.moods.of(c.host), &moodyBody{c: c}
	return nil
}

func (*moody) Usable(time.Duration) bool { return true }
func (*moody) Close() error              { return nil }

// moodyBody is the body of its answers; closing it gives the connection back.
type moodyBody struct {
	protocol.StringBody
	c *moody
}

func (b *moodyBody) Close() error { b.c.released(true); return nil }

// newMoodySet returns a set with one cluster in a network of moods.
func newMoodySet(t testing.TB, m *moods, cfg *config.Cluster) (*Set, *Cluster) {
	t.Helper()
	s := newTestSet(t, nil, func(o *Options) {
		o.Connectors = map[config.Protocol]Connector{config.HTTP1: m, config.HTTP2: m}
	})
	apply(t, s, cfg)
	return s, s.Get(cfg.Name)
}

// hostNamed returns the host of the cluster.
func hostNamed(t testing.TB, c *Cluster, name string) *Host {
	t.Helper()
	hosts := c.state.Load().hosts
	i := slices.IndexFunc(hosts, func(h *Host) bool { return h.address == name })
	if i < 0 {
		t.Fatalf("there is no host %s", name)
	}
	return hosts[i]
}

// attempt has the host answer, or fail, n times, as Via tells of it.
func attempt(h *Host, n int, status int, reason protocol.Reason) {
	for range n {
		x := get()
		x.Response.Status = status
		var err error
		if reason != protocol.ReasonNone {
			err = protocol.Faultf(reason, "a test")
		}
		h.judge(x, err)
	}
}

// outliers is a configuration with only what a test switches on.
func outliers(change func(o *config.Outlier)) *config.Outlier {
	o := &config.Outlier{
		Interval: 10 * time.Second, BaseTime: 30 * time.Second, MaxTime: 300 * time.Second, MaxPercent: 100,
		SuccessRate:       config.SuccessRate{MinHosts: 5, Volume: 100, StdevFactor: 1900},
		FailurePercentage: config.FailurePercentage{MinHosts: 5, Volume: 50, Threshold: 85},
	}
	change(o)
	return o
}

func withOutliers(o *config.Outlier, hosts ...string) *config.Cluster {
	c := cluster("web", hosts...)
	c.Outlier = o
	return c
}

func TestFailuresInARowEject(t *testing.T) {
	const ok, r = 200, protocol.ReasonNone
	type step struct {
		n      int
		status int
		reason protocol.Reason
	}
	five := outliers(func(o *config.Outlier) { o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100} })
	gateway := outliers(func(o *config.Outlier) { o.ConsecutiveGateway = config.Consecutive{Failures: 3, Enforce: 100} })
	split := outliers(func(o *config.Outlier) {
		o.SplitLocal = true
		o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100}
		o.ConsecutiveLocal = config.Consecutive{Failures: 2, Enforce: 100}
	})
	tests := []struct {
		name   string
		config *config.Outlier
		steps  []step
		out    bool
	}{
		{"five 5xx", five, []step{{5, 500, r}}, true},
		{"four 5xx", five, []step{{4, 500, r}}, false},
		{"a good answer begins anew", five, []step{{4, 500, r}, {1, ok, r}, {4, 599, r}}, false},
		{"a 404 is a good answer", five, []step{{4, 500, r}, {1, 404, r}, {4, 500, r}}, false},
		{"failures on this side are 5xx, too", five, []step{{3, 503, r}, {1, 0, protocol.UpstreamReset}, {1, 0, protocol.UpstreamTimeout}}, true},
		{"what is not the host's fault counts for nothing", five, []step{
			{4, 500, r}, {9, 0, protocol.ReasonDownstreamDisconnect}, {9, 0, protocol.Overflow}, {9, 0, protocol.Draining},
		}, false},
		{"what is not the host's fault is no good answer, either", five, []step{{4, 500, r}, {9, 0, protocol.ReasonDownstreamDisconnect}, {1, 500, r}}, true},
		{"three of 502, 503 and 504", gateway, []step{{1, 502, r}, {1, 503, r}, {1, 504, r}}, true},
		{"a 500 is no gateway failure, and ends a row of them", gateway, []step{{2, 502, r}, {9, 500, r}, {2, 502, r}}, false},
		{"a refused connect is a gateway failure", gateway, []step{{3, 0, protocol.ConnectFailure}}, true},
		{"apart, two failures on this side eject", split, []step{{2, 0, protocol.ConnectTimeout}}, true},
		{"apart, an answer of 500 ends a row of failures on this side", split, []step{{1, 0, protocol.UpstreamClosed}, {1, 500, r}, {1, 0, protocol.UpstreamClosed}}, false},
		{"apart, failures on this side are no 5xx", split, []step{{4, 500, r}, {1, 0, protocol.UpstreamClosed}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, c := newMoodySet(t, newMoods(), withOutliers(tt.config, "a", "b"))
			h := hostNamed(t, c, "a")
			for _, s := range tt.steps {
				attempt(h, s.n, s.status, s.reason)
			}
			if out := h.health.has(ejected); out != tt.out {
				t.Errorf("ejected: %v, want %v", out, tt.out)
			}
			if hostNamed(t, c, "b").health.has(ejected) {
				t.Error("the other host is out")
			}
		})
	}
}

func TestAnEjectedHostGetsNothingAndReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoods()
		_, c := newMoodySet(t, m, withOutliers(outliers(func(o *config.Outlier) {
			o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100}
		}), "a", "b"))
		m.set("a", 500)
		for range 20 {
			do(t, c)
		}
		m.set("a", 200)
		for range 20 {
			if h := do(t, c); h != "b" {
				t.Fatalf("%s got a request while it was ejected", h)
			}
		}
		pass(30*time.Second + time.Millisecond) // its time is over, and the third interval has ended
		var hosts []string
		for range 4 {
			hosts = append(hosts, do(t, c))
		}
		if !slices.Contains(hosts, "a") {
			t.Errorf("%q got requests after the ejection, want a among them", hosts)
		}
	})
}

func TestEjectionsGrowAndShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newMoodySet(t, newMoods(), withOutliers(outliers(func(o *config.Outlier) {
			o.Consecutive5xx = config.Consecutive{Failures: 1, Enforce: 100}
			o.MaxTime = 80 * time.Second
		}), "a", "b"))
		h := hostNamed(t, c, "a")
		// out ejects the host and returns after how many intervals it is back.
		out := func() (intervals int) {
			attempt(h, 1, 500, protocol.ReasonNone)
			for h.health.has(ejected) {
				pass(10 * time.Second)
				if intervals++; intervals > 100 {
					t.Fatal("the host does not return")
				}
			}
			return intervals
		}
		pass(time.Second)                        // so that ejections do not begin with an interval
		for i, want := range []int{4, 7, 9, 9} { // 30 s, 60 s, 80 s at most: then until the interval ends
			// A host that returns keeps the number of its ejections for an interval at least.
			if got := out(); got != want {
				t.Errorf("ejection %d: back after %d intervals, want %d", i+1, got, want)
			}
		}
		pass(10 * time.Second * 2)
		if got := out(); got != 7 {
			t.Errorf("after two quiet intervals: back after %d intervals, want 7", got)
		}
		pass(10 * time.Second * 10)
		if got := out(); got != 4 {
			t.Errorf("after many quiet intervals: back after %d intervals, want 4", got)
		}
	})
}

func TestMaxEjectionPercent(t *testing.T) {
	ten := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	tests := []struct {
		name   string
		hosts  []string
		change func(o *config.Outlier)
		want   int
	}{
		{"a tenth of ten", ten, func(o *config.Outlier) { o.MaxPercent = 10 }, 1},
		{"a third of ten", ten, func(o *config.Outlier) { o.MaxPercent = 33 }, 3},
		{"a tenth of three", ten[:3], func(o *config.Outlier) { o.MaxPercent = 10 }, 0},
		{"a tenth of three, but always one", ten[:3], func(o *config.Outlier) { o.MaxPercent, o.AlwaysOne = 10, true }, 1},
		{"all", ten, func(o *config.Outlier) { o.MaxPercent = 100 }, 10},
		{"all, but two at most", ten, func(o *config.Outlier) { o.MaxHosts = 2 }, 2},
		{"none", ten, func(o *config.Outlier) { o.MaxPercent = 0 }, 0},
		{"all, with an enforcement of 0", ten, func(o *config.Outlier) { o.Consecutive5xx.Enforce = 0 }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := outliers(func(o *config.Outlier) {
				o.Consecutive5xx = config.Consecutive{Failures: 1, Enforce: 100}
				tt.change(o)
			})
			_, c := newMoodySet(t, newMoods(), withOutliers(o, tt.hosts...))
			var work sync.WaitGroup
			for _, h := range c.state.Load().hosts {
				work.Go(func() { attempt(h, 3, 500, protocol.ReasonNone) })
			}
			work.Wait()
			out := 0
			for _, h := range c.state.Load().hosts {
				if h.health.has(ejected) {
					out++
				}
			}
			if out != tt.want {
				t.Errorf("%d hosts are out, want %d", out, tt.want)
			}
		})
	}
}

func TestRatesEject(t *testing.T) {
	type traffic struct{ good, bad, lost int }
	many := func(n int, each traffic, then ...traffic) []traffic {
		return append(slices.Repeat([]traffic{each}, n), then...)
	}
	success := func(o *config.Outlier) { o.SuccessRate.Enforce = 100 }
	percentage := func(o *config.Outlier) { o.FailurePercentage.Enforce = 100 }
	multiple := func(o *config.Outlier) { o.FailureMultiple = config.FailureMultiple{Multiple: 3, Volume: 10} }
	split := func(o *config.Outlier) { o.SplitLocal = true }
	tests := []struct {
		name    string
		change  []func(*config.Outlier)
		traffic []traffic // of each host
		out     []int     // hosts
	}{
		{"a success rate far below the others'", []func(*config.Outlier){success}, many(9, traffic{good: 99, bad: 1}, traffic{good: 50, bad: 50}), []int{9}},
		{"all alike, all bad", []func(*config.Outlier){success}, many(10, traffic{good: 50, bad: 50}), nil},
		{"too few requests to be judged", []func(*config.Outlier){success}, many(9, traffic{good: 100}, traffic{bad: 99}), nil},
		{"too few hosts with enough requests", []func(*config.Outlier){success}, many(3, traffic{good: 100}, traffic{bad: 100}, traffic{good: 20}), nil},
		{"together, failures on this side are failures", []func(*config.Outlier){success}, many(9, traffic{good: 100}, traffic{lost: 100}), []int{9}},
		{"apart, they are not", []func(*config.Outlier){success, split}, many(9, traffic{good: 100}, traffic{good: 100, lost: 100}), nil},
		{"apart, they have a rate of their own", []func(*config.Outlier){split, func(o *config.Outlier) { o.LocalSuccessRate = 100 }}, many(9, traffic{good: 100}, traffic{good: 100, lost: 100}), []int{9}},
		{"85 percent failures", []func(*config.Outlier){percentage}, many(5, traffic{good: 100}, traffic{good: 15, bad: 85}), []int{5}},
		{"84 percent failures", []func(*config.Outlier){percentage}, many(5, traffic{good: 100}, traffic{good: 16, bad: 84}), nil},
		{"85 percent failures everywhere", []func(*config.Outlier){percentage}, many(5, traffic{good: 15, bad: 85}), []int{0, 1, 2, 3, 4}},
		{"apart, 85 percent failures on this side", []func(*config.Outlier){split, func(o *config.Outlier) { o.LocalFailurePercentage = 100 }}, many(5, traffic{good: 100}, traffic{good: 15, lost: 85}), []int{5}},
		{"three times the failures of all", []func(*config.Outlier){multiple}, many(9, traffic{good: 99, bad: 1}, traffic{good: 60, bad: 40}), []int{9}},
		{"less than three times the failures of all", []func(*config.Outlier){multiple}, many(2, traffic{good: 90, bad: 10}, traffic{good: 60, bad: 40}), nil},
		{"a multiple of nothing", []func(*config.Outlier){multiple}, many(3, traffic{good: 100}), nil},
		{"only the statuses that count", []func(*config.Outlier){multiple, func(o *config.Outlier) { o.Codes = []int{503} }}, many(9, traffic{good: 100}, traffic{good: 10, bad: 90}), nil},
		{"nothing is switched on", nil, many(9, traffic{good: 100}, traffic{bad: 100}), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var names []string
				for i := range tt.traffic {
					names = append(names, string(rune('a'+i)))
				}
				_, c := newMoodySet(t, newMoods(), withOutliers(outliers(func(o *config.Outlier) {
					for _, change := range tt.change {
						change(o)
					}
				}), names...))
				for i, of := range tt.traffic {
					h := hostNamed(t, c, names[i])
					attempt(h, of.good, 200, protocol.ReasonNone)
					attempt(h, of.bad, 500, protocol.ReasonNone)
					attempt(h, of.lost, 0, protocol.UpstreamReset)
				}
				pass(10 * time.Second)
				var out []int
				for i, name := range names {
					if hostNamed(t, c, name).health.has(ejected) {
						out = append(out, i)
					}
				}
				if !slices.Equal(out, tt.out) {
					t.Errorf("hosts %v are out, want %v", out, tt.out)
				}
			})
		})
	}
}

// An answer is counted when it has ended, if its head was good.
func TestEndingsCount(t *testing.T) {
	tests := []struct {
		name   string
		ending attemptOutcome
		out    bool
	}{
		{"good", attemptOutcome{string(config.HTTP1), protocol.ReasonNone, 200, protocol.NoCode}, false},
		{"gRPC that is unavailable", attemptOutcome{string(config.HTTP2), protocol.ReasonNone, 200, 14}, true},
		{"gRPC that failed within", attemptOutcome{string(config.HTTP2), protocol.ReasonNone, 200, 13}, true},
		{"gRPC that did not find what was asked for", attemptOutcome{string(config.HTTP2), protocol.ReasonNone, 200, 5}, false},
		{"gRPC that is well", attemptOutcome{string(config.HTTP2), protocol.ReasonNone, 200, 0}, false},
		{"no answer, which counted when the attempt ended", attemptOutcome{string(config.HTTP2), protocol.UpstreamReset, 0, 14}, false},
		{"cut short by the host", attemptOutcome{string(config.HTTP1), protocol.UpstreamReset, 200, protocol.NoCode}, true},
		{"cut short by the caller", attemptOutcome{string(config.HTTP1), protocol.ReasonDownstreamDisconnect, 200, protocol.NoCode}, false},
		{"a status that was counted with its head", attemptOutcome{string(config.HTTP1), protocol.ReasonNone, 503, protocol.NoCode}, false},
		{"a native status of RPC", attemptOutcome{string(config.Dubbo), protocol.ReasonNone, 200, 20}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, c := newMoodySet(t, newMoods(), withOutliers(outliers(func(o *config.Outlier) {
				o.Consecutive5xx = config.Consecutive{Failures: 2, Enforce: 100}
			}), "a"))
			h := hostNamed(t, c, "a")
			h.record.Load().observe(tt.ending, 2)
			if out := h.health.has(ejected); out != tt.out {
				t.Errorf("ejected: %v, want %v", out, tt.out)
			}
		})
	}
}

// What an attempt has come to is counted once, whatever the caller is told of it.
func TestEachAttemptCountsOnce(t *testing.T) {
	const none = protocol.NoCode
	tests := []struct {
		name    string
		codes   []int
		answer  int             // of the host; 0: none
		reason  protocol.Reason // why there was none
		dropped bool            // the answer was: the request is sent again
		field   string          // grpc-status of the answer
		told    metrics.Outcome
		out     bool // two of them eject
	}{
		{name: "no answer", reason: protocol.UpstreamTimeout, told: metrics.Outcome{Protocol: "Http1", Status: 504, Code: none}, out: true},
		{name: "no answer, told as a status of gRPC", reason: protocol.ConnectFailure, told: metrics.Outcome{Protocol: "Http2", Status: 200, Code: 14}, out: true},
		{name: "no answer, and its status does not count", codes: []int{500}, reason: protocol.UpstreamTimeout, told: metrics.Outcome{Protocol: "Http1", Status: 504, Code: none}, out: true},
		{name: "a bad answer that a filter made good", answer: 500, told: metrics.Outcome{Protocol: "Http1", Status: 200, Code: none}, out: true},
		{name: "a good answer that a filter made bad", answer: 200, told: metrics.Outcome{Protocol: "Http1", Status: 500, Code: none}, out: false},
		{name: "gRPC that was tried again", answer: 200, dropped: true, field: "14", out: true},
		{name: "a bad answer that was tried again", answer: 503, dropped: true, out: true},
		{name: "a good answer that was tried again", answer: 409, dropped: true, out: false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, c := newMoodySet(t, newMoods(), withOutliers(outliers(func(o *config.Outlier) {
				o.Consecutive5xx = config.Consecutive{Failures: 2, Enforce: 100}
				o.Codes = tt.codes
			}), "a"))
			h := hostNamed(t, c, "a")
			once := func() {
				x := get()
				x.Meta.Protocol, x.Record.Listener, x.Response.Status = string(config.HTTP2), h, tt.answer
				x.Response.Header.Add("grpc-status", tt.field)
				if tt.reason != protocol.ReasonNone {
					h.judge(x, protocol.Faultf(tt.reason, "a test"))
				} else {
					h.judge(x, nil)
				}
				if tt.dropped {
					h.ResponseDiscarded(x)
					return
				}
				s := metrics.Sum{Outcome: tt.told}
				s.Reason, s.Answer = uint8(tt.reason), tt.answer
				s.Count(metrics.Request{})
				h.Add(s)
			}
			once()
			if h.health.has(ejected) {
				t.Error("one attempt ejects, want it counted once")
			}
			once()
			if out := h.health.has(ejected); out != tt.out {
				t.Errorf("ejected after two: %v, want %v", out, tt.out)
			}
		})
	}
}

func TestEjectionsSurviveWhatDoesNotConcernThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := outliers(func(o *config.Outlier) { o.Consecutive5xx = config.Consecutive{Failures: 1, Enforce: 100} })
		s, c := newMoodySet(t, newMoods(), withOutliers(o, "a", "b"))
		a := hostNamed(t, c, "a")
		attempt(a, 1, 500, protocol.ReasonNone)
		same := *o
		apply(t, s, withOutliers(&same, "a", "b", "c"))
		if !a.health.has(ejected) || c.outlier.out != 1 {
			t.Errorf("another host has come: ejected %v, %d out, want true, 1", a.health.has(ejected), c.outlier.out)
		}
		apply(t, s, withOutliers(&same, "b", "c"))
		if a.record.Load() != nil || c.outlier.out != 0 {
			t.Errorf("after the host was removed: record %v, %d ejected, want none", a.record.Load(), c.outlier.out)
		}
		b := hostNamed(t, c, "b")
		attempt(b, 1, 500, protocol.ReasonNone)
		apply(t, s, withOutliers(nil, "b", "c"))
		if b.health.has(ejected) || b.record.Load() != nil {
			t.Error("detection is off: the host is out yet")
		}
		apply(t, s)
		pass(time.Hour)
	})
}

func TestCountingAllocatesNothing(t *testing.T) {
	_, c := newMoodySet(t, newMoods(), withOutliers(outliers(func(o *config.Outlier) {
		o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100}
		o.SplitLocal = true
	}), "a"))
	h := hostNamed(t, c, "a")
	x := get()
	x.Response.Status = 200
	if n := testing.AllocsPerRun(100, func() {
		h.judge(x, nil)
		h.record.Load().observe(attemptOutcome{string(config.HTTP1), protocol.ReasonNone, 200, protocol.NoCode}, 1)
	}); n != 0 {
		t.Errorf("%v allocations for a good answer, want 0", n)
	}
}

func TestSuccessThreshold(t *testing.T) {
	rate := func(percent uint64) sample { return sample{requests: 100, failures: 100 - percent} }
	got := successThreshold([]sample{rate(80), rate(90), rate(100), rate(90)}, 1.9)
	if want := 90 - 1.9*math.Sqrt(50); math.Abs(got-want) > 1e-9 {
		t.Errorf("threshold %v, want %v", got, want)
	}
}

func BenchmarkCountGood(b *testing.B) {
	_, c := newMoodySet(b, newMoods(), withOutliers(outliers(func(o *config.Outlier) {
		o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100}
	}), "a"))
	h := c.state.Load().hosts[0]
	x := get()
	x.Response.Status = 200
	b.ReportAllocs()
	for b.Loop() {
		h.judge(x, nil)
	}
}
