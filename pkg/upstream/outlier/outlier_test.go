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

// fakeHost is a Host that is usable unless it is ejected.
type fakeHost struct {
	stats   atomic.Pointer[Stats]
	ejected atomic.Bool
}

func (h *fakeHost) Stats() *atomic.Pointer[Stats]          { return &h.stats }
func (h *fakeHost) SetEjected(ejected bool) (changed bool) { return h.ejected.Swap(ejected) != ejected }

// record records n attempts at the host with this status or failure.
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
	outlierHosts := make([]Host, hosts)
	for i := range outlierHosts {
		h := new(fakeHost)
		c.hosts = append(c.hosts, h)
		outlierHosts[i] = h
	}
	c.detector.SetHosts(outlierHosts)
	return c
}

// passIntervals ends n intervals.
func (c *fakeCluster) passIntervals(n int) {
	for range n {
		c.clock += c.detector.Configuration().Interval
		c.detector.EndInterval()
	}
}

// ejected returns the indexes of the ejected hosts.
func (c *fakeCluster) ejected() (indexes []int) {
	for i, h := range c.hosts {
		if h.ejected.Load() {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// testConfig returns a configuration in which only the given change enables a detector.
func testConfig(change func(o *config.OutlierDetection)) *config.OutlierDetection {
	o := &config.OutlierDetection{
		Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 300 * time.Second, MaxEjectionPercent: 100,
		SuccessRate:       config.SuccessRate{MinHosts: 5, RequestVolume: 100, StdevFactor: 1900},
		FailurePercentage: config.FailurePercentage{MinHosts: 5, RequestVolume: 50, Threshold: 85},
	}
	change(o)
	return o
}

func TestConsecutiveFailuresEject(t *testing.T) {
	const ok, r = 200, protocol.ReasonNone
	type step struct {
		n      int
		status int
		reason protocol.Reason
	}
	consecutive5xx := testConfig(func(o *config.OutlierDetection) { o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100} })
	gateway := testConfig(func(o *config.OutlierDetection) { o.ConsecutiveGateway = config.Consecutive{Failures: 3, Enforce: 100} })
	split := testConfig(func(o *config.OutlierDetection) {
		o.SplitLocalOriginErrors = true
		o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100}
		o.ConsecutiveLocal = config.Consecutive{Failures: 2, Enforce: 100}
	})
	tests := []struct {
		name    string
		config  *config.OutlierDetection
		steps   []step
		ejected bool
	}{
		{"five 5xx", consecutive5xx, []step{{5, 500, r}}, true},
		{"four 5xx", consecutive5xx, []step{{4, 500, r}}, false},
		{"a good response resets the count", consecutive5xx, []step{{4, 500, r}, {1, ok, r}, {4, 599, r}}, false},
		{"a 404 is a good response", consecutive5xx, []step{{4, 500, r}, {1, 404, r}, {4, 500, r}}, false},
		{"local failures count as 5xx", consecutive5xx, []step{{3, 503, r}, {1, 0, protocol.UpstreamReset}, {1, 0, protocol.UpstreamTimeout}}, true},
		{"failures not caused by the host do not count", consecutive5xx, []step{
			{4, 500, r}, {9, 0, protocol.ReasonDownstreamDisconnect}, {9, 0, protocol.Overflow}, {9, 0, protocol.Draining},
		}, false},
		{"failures not caused by the host do not reset the count", consecutive5xx, []step{{4, 500, r}, {9, 0, protocol.ReasonDownstreamDisconnect}, {1, 500, r}}, true},
		{"three of 502, 503 and 504", gateway, []step{{1, 502, r}, {1, 503, r}, {1, 504, r}}, true},
		{"a 500 resets the gateway failures", gateway, []step{{2, 502, r}, {9, 500, r}, {2, 502, r}}, false},
		{"a refused connect is a gateway failure", gateway, []step{{3, 0, protocol.ConnectFailure}}, true},
		{"split: two local failures eject", split, []step{{2, 0, protocol.ConnectTimeout}}, true},
		{"split: a 500 response resets the local failures", split, []step{{1, 0, protocol.UpstreamClosed}, {1, 500, r}, {1, 0, protocol.UpstreamClosed}}, false},
		{"split: local failures do not count as 5xx", split, []step{{4, 500, r}, {1, 0, protocol.UpstreamClosed}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newFakeCluster(2, tt.config)
			for _, s := range tt.steps {
				c.hosts[0].record(s.n, s.status, s.reason)
			}
			if ejected := c.hosts[0].ejected.Load(); ejected != tt.ejected {
				t.Errorf("ejected = %v, want %v", ejected, tt.ejected)
			}
			if c.hosts[1].ejected.Load() {
				t.Error("the other host is ejected")
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
	// ejectionIntervals ejects the host and returns the number of intervals until the ejection
	// ends.
	ejectionIntervals := func() (intervals int) {
		c.clock += time.Second // so that ejections do not begin at the start of an interval
		h.record(1, 500, protocol.ReasonNone)
		c.clock -= time.Second
		for h.ejected.Load() {
			c.passIntervals(1)
			if intervals++; intervals > 100 {
				t.Fatal("the host is still ejected")
			}
		}
		return intervals
	}
	for i, want := range []int{4, 7, 9, 9} { // 30 s, 60 s, at most 80 s: each until the end of an interval
		// A host that returns keeps its backoff count for at least one interval.
		if got := ejectionIntervals(); got != want {
			t.Errorf("ejection %d ended after %d intervals, want %d", i+1, got, want)
		}
	}
	c.passIntervals(2)
	if got := ejectionIntervals(); got != 7 {
		t.Errorf("after two intervals without an ejection: the ejection ended after %d intervals, want 7", got)
	}
	c.passIntervals(10)
	if got := ejectionIntervals(); got != 4 {
		t.Errorf("after many intervals without an ejection: the ejection ended after %d intervals, want 4", got)
	}
}

func TestMaxEjectionPercent(t *testing.T) {
	tests := []struct {
		name   string
		hosts  int
		change func(o *config.OutlierDetection)
		want   int
	}{
		{"10 percent of ten", 10, func(o *config.OutlierDetection) { o.MaxEjectionPercent = 10 }, 1},
		{"33 percent of ten", 10, func(o *config.OutlierDetection) { o.MaxEjectionPercent = 33 }, 3},
		{"10 percent of three", 3, func(o *config.OutlierDetection) { o.MaxEjectionPercent = 10 }, 0},
		{"10 percent of three, always_eject_one", 3, func(o *config.OutlierDetection) { o.MaxEjectionPercent, o.AlwaysEjectOne = 10, true }, 1},
		{"all", 10, func(o *config.OutlierDetection) { o.MaxEjectionPercent = 100 }, 10},
		{"at most two", 10, func(o *config.OutlierDetection) { o.MaxEjectedHosts = 2 }, 2},
		{"none", 10, func(o *config.OutlierDetection) { o.MaxEjectionPercent = 0 }, 0},
		{"enforce 0", 10, func(o *config.OutlierDetection) { o.Consecutive5xx.Enforce = 0 }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := testConfig(func(o *config.OutlierDetection) {
				o.Consecutive5xx = config.Consecutive{Failures: 1, Enforce: 100}
				tt.change(o)
			})
			c := newFakeCluster(tt.hosts, o)
			var wg sync.WaitGroup
			for _, h := range c.hosts {
				wg.Go(func() { h.record(3, 500, protocol.ReasonNone) })
			}
			wg.Wait()
			if ejected := len(c.ejected()); ejected != tt.want || int64(ejected) != c.changes.Load() {
				t.Errorf("%d hosts are ejected and %d were reported, want %d", ejected, c.changes.Load(), tt.want)
			}
			if tt.want < tt.hosts && o.Consecutive5xx.Enforce > 0 && c.overflow.Load() == 0 {
				t.Error("no ejection overflow was reported")
			}
		})
	}
}

func TestRatesEject(t *testing.T) {
	type traffic struct{ good, bad, lost int }
	repeat := func(n int, common traffic, others ...traffic) []traffic {
		return append(slices.Repeat([]traffic{common}, n), others...)
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
		ejected []int     // hosts
	}{
		{"low success rate of one host", []func(*config.OutlierDetection){success}, repeat(9, traffic{good: 99, bad: 1}, traffic{good: 50, bad: 50}), []int{9}},
		{"equal low success rates", []func(*config.OutlierDetection){success}, repeat(10, traffic{good: 50, bad: 50}), nil},
		{"too few requests", []func(*config.OutlierDetection){success}, repeat(9, traffic{good: 100}, traffic{bad: 99}), nil},
		{"too few hosts with enough requests", []func(*config.OutlierDetection){success}, repeat(3, traffic{good: 100}, traffic{bad: 100}, traffic{good: 20}), nil},
		{"local failures without split", []func(*config.OutlierDetection){success}, repeat(9, traffic{good: 100}, traffic{lost: 100}), []int{9}},
		{"local failures with split", []func(*config.OutlierDetection){success, split}, repeat(9, traffic{good: 100}, traffic{good: 100, lost: 100}), nil},
		{"local success rate with split", []func(*config.OutlierDetection){split, func(o *config.OutlierDetection) { o.EnforceLocalSuccessRate = 100 }}, repeat(9, traffic{good: 100}, traffic{good: 100, lost: 100}), []int{9}},
		{"85 percent failures", []func(*config.OutlierDetection){percentage}, repeat(5, traffic{good: 100}, traffic{good: 15, bad: 85}), []int{5}},
		{"84 percent failures", []func(*config.OutlierDetection){percentage}, repeat(5, traffic{good: 100}, traffic{good: 16, bad: 84}), nil},
		{"85 percent failures of all hosts", []func(*config.OutlierDetection){percentage}, repeat(5, traffic{good: 15, bad: 85}), []int{0, 1, 2, 3, 4}},
		{"85 percent local failures with split", []func(*config.OutlierDetection){split, func(o *config.OutlierDetection) { o.EnforceLocalFailurePercentage = 100 }}, repeat(5, traffic{good: 100}, traffic{good: 15, lost: 85}), []int{5}},
		{"three times the failure rate of all", []func(*config.OutlierDetection){multiple}, repeat(9, traffic{good: 99, bad: 1}, traffic{good: 60, bad: 40}), []int{9}},
		{"less than three times the failure rate of all", []func(*config.OutlierDetection){multiple}, repeat(2, traffic{good: 90, bad: 10}, traffic{good: 60, bad: 40}), nil},
		{"no failures at all", []func(*config.OutlierDetection){multiple}, repeat(3, traffic{good: 100}), nil},
		{"only configured failure statuses count", []func(*config.OutlierDetection){multiple, func(o *config.OutlierDetection) { o.FailureStatuses = []int{503} }}, repeat(9, traffic{good: 100}, traffic{good: 10, bad: 90}), nil},
		{"no detector enabled", nil, repeat(9, traffic{good: 100}, traffic{bad: 100}), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newFakeCluster(len(tt.traffic), testConfig(func(o *config.OutlierDetection) {
				for _, change := range tt.change {
					change(o)
				}
			}))
			for i, results := range tt.traffic {
				c.hosts[i].record(results.good, 200, protocol.ReasonNone)
				c.hosts[i].record(results.bad, 500, protocol.ReasonNone)
				c.hosts[i].record(results.lost, 0, protocol.UpstreamReset)
			}
			c.passIntervals(1)
			if ejected := c.ejected(); !slices.Equal(ejected, tt.ejected) {
				t.Errorf("ejected hosts = %v, want %v", ejected, tt.ejected)
			}
		})
	}
}

// TestRecordExchanges verifies that a response with a good head is counted at the end of its
// exchange.
func TestRecordExchanges(t *testing.T) {
	tests := []struct {
		name    string
		outcome Outcome
		ejected bool
	}{
		{"good", Outcome{config.HTTP1, protocol.ReasonNone, 200, protocol.NoCode}, false},
		{"gRPC unavailable", Outcome{config.HTTP2, protocol.ReasonNone, 200, 14}, true},
		{"gRPC internal", Outcome{config.HTTP2, protocol.ReasonNone, 200, 13}, true},
		{"gRPC not found", Outcome{config.HTTP2, protocol.ReasonNone, 200, 5}, false},
		{"gRPC OK", Outcome{config.HTTP2, protocol.ReasonNone, 200, 0}, false},
		{"no response, counted at the end of the attempt", Outcome{config.HTTP2, protocol.UpstreamReset, 0, 14}, false},
		{"interrupted by the host", Outcome{config.HTTP1, protocol.UpstreamReset, 200, protocol.NoCode}, true},
		{"interrupted by the client", Outcome{config.HTTP1, protocol.ReasonDownstreamDisconnect, 200, protocol.NoCode}, false},
		{"status counted with its head", Outcome{config.HTTP1, protocol.ReasonNone, 503, protocol.NoCode}, false},
		{"native RPC status", Outcome{config.Dubbo, protocol.ReasonNone, 200, 20}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newFakeCluster(1, testConfig(func(o *config.OutlierDetection) {
				o.Consecutive5xx = config.Consecutive{Failures: 2, Enforce: 100}
			}))
			c.hosts[0].stats.Load().RecordExchanges(tt.outcome, 2)
			if ejected := c.hosts[0].ejected.Load(); ejected != tt.ejected {
				t.Errorf("ejected = %v, want %v", ejected, tt.ejected)
			}
		})
	}
}

// TestSetHostsKeepsStatistics verifies that hosts that stay keep their statistics, and that the
// removal of an ejected host permits another ejection.
func TestSetHostsKeepsStatistics(t *testing.T) {
	c := newFakeCluster(2, testConfig(func(o *config.OutlierDetection) {
		o.Consecutive5xx = config.Consecutive{Failures: 1, Enforce: 100}
	}))
	c.hosts[0].record(1, 500, protocol.ReasonNone)
	before := c.hosts[0].stats.Load()
	c.detector.SetHosts([]Host{c.hosts[0]})
	if c.hosts[0].stats.Load() != before || c.detector.ejectedCount != 1 || c.hosts[1].stats.Load() != nil {
		t.Errorf("%d hosts are ejected, want only the first one with its statistics", c.detector.ejectedCount)
	}
	c.detector.SetHosts([]Host{c.hosts[1]})
	if c.hosts[0].stats.Load() != nil || c.detector.ejectedCount != 0 {
		t.Errorf("%d hosts are ejected after the ejected one was removed, want 0", c.detector.ejectedCount)
	}
}

func TestSuccessThreshold(t *testing.T) {
	rate := func(percent uint64) sample { return sample{requests: 100, failures: 100 - percent} }
	got := successThreshold([]sample{rate(80), rate(90), rate(100), rate(90)}, 1.9)
	if want := 90 - 1.9*math.Sqrt(50); math.Abs(got-want) > 1e-9 {
		t.Errorf("threshold %v, want %v", got, want)
	}
}
