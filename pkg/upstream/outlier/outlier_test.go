package outlier

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// fakeHost is a Host that only the detector takes down.
type fakeHost struct {
	stats   atomic.Pointer[Stats]
	ejected atomic.Bool
}

func (h *fakeHost) Stats() *atomic.Pointer[Stats]          { return &h.stats }
func (h *fakeHost) SetEjected(ejected bool) (changed bool) { return h.ejected.Swap(ejected) != ejected }

// record has the host answer, or fail, n times.
func (h *fakeHost) record(n int, status int, reason protocol.Reason) {
	for range n {
		if s := h.stats.Load(); reason != protocol.ReasonNone {
			s.RecordFailure(reason)
		} else {
			s.RecordHead(status, true)
		}
	}
}

// fakeCluster is a detector with its hosts and a clock that the test sets.
type fakeCluster struct {
	detector *Detector
	hosts    []*fakeHost
	clock    time.Duration
	changes  atomic.Int64
	overflow atomic.Int64
}

func newFakeCluster(hosts int, cfg *config.OutlierDetection) *fakeCluster {
	c := new(fakeCluster)
	c.detector = New(Config{
		OutlierDetection: cfg,
		Now:              func() time.Duration { return c.clock },
		Random:           func() uint64 { return 0 },
		OnChange:         func(Change) { c.changes.Add(1) },
		OnOverflow:       func() { c.overflow.Add(1) },
	})
	list := make([]Host, hosts)
	for i := range list {
		h := new(fakeHost)
		c.hosts = append(c.hosts, h)
		list[i] = h
	}
	c.detector.SetHosts(list)
	return c
}

// passIntervals lets n intervals pass.
func (c *fakeCluster) passIntervals(n int) {
	for range n {
		c.clock += c.detector.Configuration().Interval
		c.detector.EndInterval()
	}
}

// ejected returns the indexes of the ejected hosts.
func (c *fakeCluster) ejected() (list []int) {
	for i, h := range c.hosts {
		if h.ejected.Load() {
			list = append(list, i)
		}
	}
	return list
}

// testConfig is a configuration with only what a test switches on.
func testConfig(change func(o *config.OutlierDetection)) *config.OutlierDetection {
	o := &config.OutlierDetection{
		Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 300 * time.Second, MaxEjectionPercent: 100,
		SuccessRate:       config.SuccessRate{MinHosts: 5, RequestVolume: 100, StdevFactor: 1900},
		FailurePercentage: config.FailurePercentage{MinHosts: 5, RequestVolume: 50, Threshold: 85},
	}
	change(o)
	return o
}

func TestFailuresInARowEject(t *testing.T) {
	const ok, r = 200, protocol.ReasonNone
	type step struct {
		n      int
		status int
		reason protocol.Reason
	}
	five := testConfig(func(o *config.OutlierDetection) { o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100} })
	gateway := testConfig(func(o *config.OutlierDetection) { o.ConsecutiveGateway = config.Consecutive{Failures: 3, Enforce: 100} })
	split := testConfig(func(o *config.OutlierDetection) {
		o.SplitLocalOriginErrors = true
		o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100}
		o.ConsecutiveLocal = config.Consecutive{Failures: 2, Enforce: 100}
	})
	tests := []struct {
		name   string
		config *config.OutlierDetection
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
			c := newFakeCluster(2, tt.config)
			for _, s := range tt.steps {
				c.hosts[0].record(s.n, s.status, s.reason)
			}
			if out := c.hosts[0].ejected.Load(); out != tt.out {
				t.Errorf("ejected: %v, want %v", out, tt.out)
			}
			if c.hosts[1].ejected.Load() {
				t.Error("the other host is out")
			}
		})
	}
}

func TestEjectionsGrowAndShrink(t *testing.T) {
	c := newFakeCluster(2, testConfig(func(o *config.OutlierDetection) {
		o.Consecutive5xx = config.Consecutive{Failures: 1, Enforce: 100}
		o.MaxEjectionTime = 80 * time.Second
	}))
	h := c.hosts[0]
	// out ejects the host and returns after how many intervals it is back.
	out := func() (intervals int) {
		c.clock += time.Second // so that ejections do not begin with an interval
		h.record(1, 500, protocol.ReasonNone)
		c.clock -= time.Second
		for h.ejected.Load() {
			c.passIntervals(1)
			if intervals++; intervals > 100 {
				t.Fatal("the host does not return")
			}
		}
		return intervals
	}
	for i, want := range []int{4, 7, 9, 9} { // 30 s, 60 s, 80 s at most: then until the interval ends
		// A host that returns keeps the number of its ejections for an interval at least.
		if got := out(); got != want {
			t.Errorf("ejection %d: back after %d intervals, want %d", i+1, got, want)
		}
	}
	c.passIntervals(2)
	if got := out(); got != 7 {
		t.Errorf("after two quiet intervals: back after %d intervals, want 7", got)
	}
	c.passIntervals(10)
	if got := out(); got != 4 {
		t.Errorf("after many quiet intervals: back after %d intervals, want 4", got)
	}
}

func TestMaxEjectionPercent(t *testing.T) {
	tests := []struct {
		name   string
		hosts  int
		change func(o *config.OutlierDetection)
		want   int
	}{
		{"a tenth of ten", 10, func(o *config.OutlierDetection) { o.MaxEjectionPercent = 10 }, 1},
		{"a third of ten", 10, func(o *config.OutlierDetection) { o.MaxEjectionPercent = 33 }, 3},
		{"a tenth of three", 3, func(o *config.OutlierDetection) { o.MaxEjectionPercent = 10 }, 0},
		{"a tenth of three, but always one", 3, func(o *config.OutlierDetection) { o.MaxEjectionPercent, o.AlwaysEjectOne = 10, true }, 1},
		{"all", 10, func(o *config.OutlierDetection) { o.MaxEjectionPercent = 100 }, 10},
		{"all, but two at most", 10, func(o *config.OutlierDetection) { o.MaxEjectedHosts = 2 }, 2},
		{"none", 10, func(o *config.OutlierDetection) { o.MaxEjectionPercent = 0 }, 0},
		{"all, with an enforcement of 0", 10, func(o *config.OutlierDetection) { o.Consecutive5xx.Enforce = 0 }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := testConfig(func(o *config.OutlierDetection) {
				o.Consecutive5xx = config.Consecutive{Failures: 1, Enforce: 100}
				tt.change(o)
			})
			c := newFakeCluster(tt.hosts, o)
			var work sync.WaitGroup
			for _, h := range c.hosts {
				work.Go(func() { h.record(3, 500, protocol.ReasonNone) })
			}
			work.Wait()
			if out := len(c.ejected()); out != tt.want || int64(out) != c.changes.Load() {
				t.Errorf("%d hosts are out and %d were reported, want %d", out, c.changes.Load(), tt.want)
			}
			if tt.want < tt.hosts && o.Consecutive5xx.Enforce > 0 && c.overflow.Load() == 0 {
				t.Error("no overflow was reported")
			}
		})
	}
}

func TestRatesEject(t *testing.T) {
	type traffic struct{ good, bad, lost int }
	many := func(n int, each traffic, then ...traffic) []traffic {
		return append(slices.Repeat([]traffic{each}, n), then...)
	}
	success := func(o *config.OutlierDetection) { o.SuccessRate.Enforce = 100 }
	percentage := func(o *config.OutlierDetection) { o.FailurePercentage.Enforce = 100 }
	multiple := func(o *config.OutlierDetection) {
		o.FailureMultiple = config.FailureMultiple{Multiple: 3, RequestVolume: 10}
	}
	split := func(o *config.OutlierDetection) { o.SplitLocalOriginErrors = true }
	tests := []struct {
		name    string
		change  []func(*config.OutlierDetection)
		traffic []traffic // of each host
		out     []int     // hosts
	}{
		{"a success rate far below the others'", []func(*config.OutlierDetection){success}, many(9, traffic{good: 99, bad: 1}, traffic{good: 50, bad: 50}), []int{9}},
		{"all alike, all bad", []func(*config.OutlierDetection){success}, many(10, traffic{good: 50, bad: 50}), nil},
		{"too few requests to be judged", []func(*config.OutlierDetection){success}, many(9, traffic{good: 100}, traffic{bad: 99}), nil},
		{"too few hosts with enough requests", []func(*config.OutlierDetection){success}, many(3, traffic{good: 100}, traffic{bad: 100}, traffic{good: 20}), nil},
		{"together, failures on this side are failures", []func(*config.OutlierDetection){success}, many(9, traffic{good: 100}, traffic{lost: 100}), []int{9}},
		{"apart, they are not", []func(*config.OutlierDetection){success, split}, many(9, traffic{good: 100}, traffic{good: 100, lost: 100}), nil},
		{"apart, they have a rate of their own", []func(*config.OutlierDetection){split, func(o *config.OutlierDetection) { o.EnforceLocalSuccessRate = 100 }}, many(9, traffic{good: 100}, traffic{good: 100, lost: 100}), []int{9}},
		{"85 percent failures", []func(*config.OutlierDetection){percentage}, many(5, traffic{good: 100}, traffic{good: 15, bad: 85}), []int{5}},
		{"84 percent failures", []func(*config.OutlierDetection){percentage}, many(5, traffic{good: 100}, traffic{good: 16, bad: 84}), nil},
		{"85 percent failures everywhere", []func(*config.OutlierDetection){percentage}, many(5, traffic{good: 15, bad: 85}), []int{0, 1, 2, 3, 4}},
		{"apart, 85 percent failures on this side", []func(*config.OutlierDetection){split, func(o *config.OutlierDetection) { o.EnforceLocalFailurePercentage = 100 }}, many(5, traffic{good: 100}, traffic{good: 15, lost: 85}), []int{5}},
		{"three times the failures of all", []func(*config.OutlierDetection){multiple}, many(9, traffic{good: 99, bad: 1}, traffic{good: 60, bad: 40}), []int{9}},
		{"less than three times the failures of all", []func(*config.OutlierDetection){multiple}, many(2, traffic{good: 90, bad: 10}, traffic{good: 60, bad: 40}), nil},
		{"a multiple of nothing", []func(*config.OutlierDetection){multiple}, many(3, traffic{good: 100}), nil},
		{"only the statuses that count", []func(*config.OutlierDetection){multiple, func(o *config.OutlierDetection) { o.FailureStatuses = []int{503} }}, many(9, traffic{good: 100}, traffic{good: 10, bad: 90}), nil},
		{"nothing is switched on", nil, many(9, traffic{good: 100}, traffic{bad: 100}), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newFakeCluster(len(tt.traffic), testConfig(func(o *config.OutlierDetection) {
				for _, change := range tt.change {
					change(o)
				}
			}))
			for i, of := range tt.traffic {
				c.hosts[i].record(of.good, 200, protocol.ReasonNone)
				c.hosts[i].record(of.bad, 500, protocol.ReasonNone)
				c.hosts[i].record(of.lost, 0, protocol.UpstreamReset)
			}
			c.passIntervals(1)
			if out := c.ejected(); !slices.Equal(out, tt.out) {
				t.Errorf("hosts %v are out, want %v", out, tt.out)
			}
		})
	}
}

// An answer is counted when it has ended, if its head was good.
func TestExchangeEndsAreCounted(t *testing.T) {
	tests := []struct {
		name   string
		ending Outcome
		out    bool
	}{
		{"good", Outcome{config.HTTP1, protocol.ReasonNone, 200, protocol.NoCode}, false},
		{"gRPC that is unavailable", Outcome{config.HTTP2, protocol.ReasonNone, 200, 14}, true},
		{"gRPC that failed within", Outcome{config.HTTP2, protocol.ReasonNone, 200, 13}, true},
		{"gRPC that did not find what was asked for", Outcome{config.HTTP2, protocol.ReasonNone, 200, 5}, false},
		{"gRPC that is well", Outcome{config.HTTP2, protocol.ReasonNone, 200, 0}, false},
		{"no answer, which counted when the attempt ended", Outcome{config.HTTP2, protocol.UpstreamReset, 0, 14}, false},
		{"cut short by the host", Outcome{config.HTTP1, protocol.UpstreamReset, 200, protocol.NoCode}, true},
		{"cut short by the caller", Outcome{config.HTTP1, protocol.ReasonDownstreamDisconnect, 200, protocol.NoCode}, false},
		{"a status that was counted with its head", Outcome{config.HTTP1, protocol.ReasonNone, 503, protocol.NoCode}, false},
		{"a native status of RPC", Outcome{config.Dubbo, protocol.ReasonNone, 200, 20}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newFakeCluster(1, testConfig(func(o *config.OutlierDetection) {
				o.Consecutive5xx = config.Consecutive{Failures: 2, Enforce: 100}
			}))
			c.hosts[0].stats.Load().RecordExchanges(tt.ending, 2)
			if out := c.hosts[0].ejected.Load(); out != tt.out {
				t.Errorf("ejected: %v, want %v", out, tt.out)
			}
		})
	}
}

// Hosts that stay keep their statistics; one that leaves makes room for other ejections.
func TestSetHostsKeepsStatistics(t *testing.T) {
	c := newFakeCluster(2, testConfig(func(o *config.OutlierDetection) {
		o.Consecutive5xx = config.Consecutive{Failures: 1, Enforce: 100}
	}))
	c.hosts[0].record(1, 500, protocol.ReasonNone)
	before := c.hosts[0].stats.Load()
	c.detector.SetHosts([]Host{c.hosts[0]})
	if c.hosts[0].stats.Load() != before || c.detector.ejectedCount != 1 || c.hosts[1].stats.Load() != nil {
		t.Errorf("%d hosts are out, want the first one with its statistics", c.detector.ejectedCount)
	}
	c.detector.SetHosts([]Host{c.hosts[1]})
	if c.hosts[0].stats.Load() != nil || c.detector.ejectedCount != 0 {
		t.Errorf("%d hosts are out after the ejected one left, want 0", c.detector.ejectedCount)
	}
}

func TestSuccessThreshold(t *testing.T) {
	rate := func(percent uint64) sample { return sample{requests: 100, failures: 100 - percent} }
	got := successThreshold([]sample{rate(80), rate(90), rate(100), rate(90)}, 1.9)
	if want := 90 - 1.9*math.Sqrt(50); math.Abs(got-want) > 1e-9 {
		t.Errorf("threshold %v, want %v", got, want)
	}
}
