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

// statusConnector is a network whose hosts answer with the status that the test gives them. A
// host of status 0 takes no connection.
type statusConnector struct {
	mu         sync.Mutex
	statuses   map[string]int // guarded by mu; default 200
	checkCount map[string]int // guarded by mu; requests with a User-Agent: those of checks
}

func newStatusConnector() *statusConnector {
	return &statusConnector{statuses: map[string]int{}, checkCount: map[string]int{}}
}

func (m *statusConnector) set(host string, status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.statuses[host] = status
}

func (m *statusConnector) statusFor(host string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if status, ok := m.statuses[host]; ok {
		return status
	}
	return 200
}

func (*statusConnector) Multiplexed() bool { return false }

func (m *statusConnector) Connect(_ context.Context, h *Host, _ time.Time, released func(bool)) (Connection, error) {
	if m.statusFor(h.Name()) == 0 {
		return nil, protocol.Faultf(protocol.ConnectFailure, "%s refused", h.Name())
	}
	return &statusConn{connector: m, host: h.Name(), released: released}, nil
}

// statusConn is a connection of statusConnector.
type statusConn struct {
	connector *statusConnector
	host      string
	released  func(bool)
}

func (c *statusConn) Start(_ context.Context, x *protocol.Exchange) error {
	if x.Request.Header.Get("User-Agent") != "" {
		c.connector.mu.Lock()
		c.connector.checkCount[c.host]++
		c.connector.mu.Unlock()
	}
	x.Response.Status, x.Response.Body = c.connector.statusFor(c.host), &statusBody{c: c}
	return nil
}

func (*statusConn) Usable(time.Duration) bool { return true }
func (*statusConn) Close() error              { return nil }

// statusBody is the body of its answers; closing it gives the connection back.
type statusBody struct {
	protocol.StringBody
	c *statusConn
}

func (b *statusBody) Close() error { b.c.released(true); return nil }

// newStatusSet returns a set with one cluster that connects with statusConnector.
func newStatusSet(t testing.TB, m *statusConnector, cfg *config.Cluster) (*Set, *Cluster) {
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

// recordAttempts has the host answer, or fail, n times, as Via tells of it.
func recordAttempts(h *Host, n int, status int, reason protocol.Reason) {
	for range n {
		x := get()
		x.Response.Status = status
		var err error
		if reason != protocol.ReasonNone {
			err = protocol.Faultf(reason, "a test")
		}
		h.recordAttempt(x, err)
	}
}

// outlierConfig is a configuration with only what a test switches on.
func outlierConfig(change func(o *config.OutlierDetection)) *config.OutlierDetection {
	o := &config.OutlierDetection{
		Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 300 * time.Second, MaxEjectionPercent: 100,
		SuccessRate:       config.SuccessRate{MinHosts: 5, RequestVolume: 100, StdevFactor: 1900},
		FailurePercentage: config.FailurePercentage{MinHosts: 5, RequestVolume: 50, Threshold: 85},
	}
	change(o)
	return o
}

func withOutliers(o *config.OutlierDetection, hosts ...string) *config.Cluster {
	c := cluster("web", hosts...)
	c.OutlierDetection = o
	return c
}

func TestFailuresInARowEject(t *testing.T) {
	const ok, r = 200, protocol.ReasonNone
	type step struct {
		n      int
		status int
		reason protocol.Reason
	}
	five := outlierConfig(func(o *config.OutlierDetection) { o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100} })
	gateway := outlierConfig(func(o *config.OutlierDetection) { o.ConsecutiveGateway = config.Consecutive{Failures: 3, Enforce: 100} })
	split := outlierConfig(func(o *config.OutlierDetection) {
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
			_, c := newStatusSet(t, newStatusConnector(), withOutliers(tt.config, "a", "b"))
			h := hostNamed(t, c, "a")
			for _, s := range tt.steps {
				recordAttempts(h, s.n, s.status, s.reason)
			}
			if out := h.health.has(FlagEjected); out != tt.out {
				t.Errorf("ejected: %v, want %v", out, tt.out)
			}
			if hostNamed(t, c, "b").health.has(FlagEjected) {
				t.Error("the other host is out")
			}
		})
	}
}

func TestAnEjectedHostGetsNothingAndReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newStatusConnector()
		_, c := newStatusSet(t, m, withOutliers(outlierConfig(func(o *config.OutlierDetection) {
			o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100}
		}), "a", "b"))
		m.set("a", 500)
		for range 20 {
			serveOne(t, c)
		}
		m.set("a", 200)
		for range 20 {
			if h := serveOne(t, c); h != "b" {
				t.Fatalf("%s got a request while it was ejected", h)
			}
		}
		advanceClock(30*time.Second + time.Millisecond) // its time is over, and the third interval has ended
		var hosts []string
		for range 4 {
			hosts = append(hosts, serveOne(t, c))
		}
		if !slices.Contains(hosts, "a") {
			t.Errorf("%q got requests after the ejection, want a among them", hosts)
		}
	})
}

func TestEjectionsGrowAndShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newStatusSet(t, newStatusConnector(), withOutliers(outlierConfig(func(o *config.OutlierDetection) {
			o.Consecutive5xx = config.Consecutive{Failures: 1, Enforce: 100}
			o.MaxEjectionTime = 80 * time.Second
		}), "a", "b"))
		h := hostNamed(t, c, "a")
		// out ejects the host and returns after how many intervals it is back.
		out := func() (intervals int) {
			recordAttempts(h, 1, 500, protocol.ReasonNone)
			for h.health.has(FlagEjected) {
				advanceClock(10 * time.Second)
				if intervals++; intervals > 100 {
					t.Fatal("the host does not return")
				}
			}
			return intervals
		}
		advanceClock(time.Second)                // so that ejections do not begin with an interval
		for i, want := range []int{4, 7, 9, 9} { // 30 s, 60 s, 80 s at most: then until the interval ends
			// A host that returns keeps the number of its ejections for an interval at least.
			if got := out(); got != want {
				t.Errorf("ejection %d: back after %d intervals, want %d", i+1, got, want)
			}
		}
		advanceClock(10 * time.Second * 2)
		if got := out(); got != 7 {
			t.Errorf("after two quiet intervals: back after %d intervals, want 7", got)
		}
		advanceClock(10 * time.Second * 10)
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
		change func(o *config.OutlierDetection)
		want   int
	}{
		{"a tenth of ten", ten, func(o *config.OutlierDetection) { o.MaxEjectionPercent = 10 }, 1},
		{"a third of ten", ten, func(o *config.OutlierDetection) { o.MaxEjectionPercent = 33 }, 3},
		{"a tenth of three", ten[:3], func(o *config.OutlierDetection) { o.MaxEjectionPercent = 10 }, 0},
		{"a tenth of three, but always one", ten[:3], func(o *config.OutlierDetection) { o.MaxEjectionPercent, o.AlwaysEjectOne = 10, true }, 1},
		{"all", ten, func(o *config.OutlierDetection) { o.MaxEjectionPercent = 100 }, 10},
		{"all, but two at most", ten, func(o *config.OutlierDetection) { o.MaxEjectedHosts = 2 }, 2},
		{"none", ten, func(o *config.OutlierDetection) { o.MaxEjectionPercent = 0 }, 0},
		{"all, with an enforcement of 0", ten, func(o *config.OutlierDetection) { o.Consecutive5xx.Enforce = 0 }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := outlierConfig(func(o *config.OutlierDetection) {
				o.Consecutive5xx = config.Consecutive{Failures: 1, Enforce: 100}
				tt.change(o)
			})
			_, c := newStatusSet(t, newStatusConnector(), withOutliers(o, tt.hosts...))
			var work sync.WaitGroup
			for _, h := range c.state.Load().hosts {
				work.Go(func() { recordAttempts(h, 3, 500, protocol.ReasonNone) })
			}
			work.Wait()
			out := 0
			for _, h := range c.state.Load().hosts {
				if h.health.has(FlagEjected) {
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
			synctest.Test(t, func(t *testing.T) {
				var names []string
				for i := range tt.traffic {
					names = append(names, string(rune('a'+i)))
				}
				_, c := newStatusSet(t, newStatusConnector(), withOutliers(outlierConfig(func(o *config.OutlierDetection) {
					for _, change := range tt.change {
						change(o)
					}
				}), names...))
				for i, of := range tt.traffic {
					h := hostNamed(t, c, names[i])
					recordAttempts(h, of.good, 200, protocol.ReasonNone)
					recordAttempts(h, of.bad, 500, protocol.ReasonNone)
					recordAttempts(h, of.lost, 0, protocol.UpstreamReset)
				}
				advanceClock(10 * time.Second)
				var out []int
				for i, name := range names {
					if hostNamed(t, c, name).health.has(FlagEjected) {
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
func TestExchangeEndsAreCounted(t *testing.T) {
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
			_, c := newStatusSet(t, newStatusConnector(), withOutliers(outlierConfig(func(o *config.OutlierDetection) {
				o.Consecutive5xx = config.Consecutive{Failures: 2, Enforce: 100}
			}), "a"))
			h := hostNamed(t, c, "a")
			h.outlierStats.Load().recordExchanges(tt.ending, 2)
			if out := h.health.has(FlagEjected); out != tt.out {
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
			_, c := newStatusSet(t, newStatusConnector(), withOutliers(outlierConfig(func(o *config.OutlierDetection) {
				o.Consecutive5xx = config.Consecutive{Failures: 2, Enforce: 100}
				o.FailureStatuses = tt.codes
			}), "a"))
			h := hostNamed(t, c, "a")
			once := func() {
				x := get()
				x.Meta.Protocol, x.Record.Listener, x.Response.Status = string(config.HTTP2), h, tt.answer
				x.Response.Header.Add("grpc-status", tt.field)
				if tt.reason != protocol.ReasonNone {
					h.recordAttempt(x, protocol.Faultf(tt.reason, "a test"))
				} else {
					h.recordAttempt(x, nil)
				}
				if tt.dropped {
					h.ResponseDiscarded(x)
					return
				}
				s := metrics.Batch{Outcome: tt.told}
				s.Reason, s.UpstreamStatus = uint8(tt.reason), tt.answer
				s.AddRequest(metrics.Request{})
				h.Add(s)
			}
			once()
			if h.health.has(FlagEjected) {
				t.Error("one attempt ejects, want it counted once")
			}
			once()
			if out := h.health.has(FlagEjected); out != tt.out {
				t.Errorf("ejected after two: %v, want %v", out, tt.out)
			}
		})
	}
}

func TestEjectionsSurviveUnrelatedChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := outlierConfig(func(o *config.OutlierDetection) { o.Consecutive5xx = config.Consecutive{Failures: 1, Enforce: 100} })
		s, c := newStatusSet(t, newStatusConnector(), withOutliers(o, "a", "b"))
		a := hostNamed(t, c, "a")
		recordAttempts(a, 1, 500, protocol.ReasonNone)
		same := *o
		apply(t, s, withOutliers(&same, "a", "b", "c"))
		if !a.health.has(FlagEjected) || c.outlier.ejectedCount != 1 {
			t.Errorf("another host has come: ejected %v, %d out, want true, 1", a.health.has(FlagEjected), c.outlier.ejectedCount)
		}
		apply(t, s, withOutliers(&same, "b", "c"))
		if a.outlierStats.Load() != nil || c.outlier.ejectedCount != 0 {
			t.Errorf("after the host was removed: record %v, %d ejected, want none", a.outlierStats.Load(), c.outlier.ejectedCount)
		}
		b := hostNamed(t, c, "b")
		recordAttempts(b, 1, 500, protocol.ReasonNone)
		apply(t, s, withOutliers(nil, "b", "c"))
		if b.health.has(FlagEjected) || b.outlierStats.Load() != nil {
			t.Error("detection is off: the host is out yet")
		}
		apply(t, s)
		advanceClock(time.Hour)
	})
}

func TestCountingAllocatesNothing(t *testing.T) {
	_, c := newStatusSet(t, newStatusConnector(), withOutliers(outlierConfig(func(o *config.OutlierDetection) {
		o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100}
		o.SplitLocalOriginErrors = true
	}), "a"))
	h := hostNamed(t, c, "a")
	x := get()
	x.Response.Status = 200
	if n := testing.AllocsPerRun(100, func() {
		h.recordAttempt(x, nil)
		h.outlierStats.Load().recordExchanges(attemptOutcome{string(config.HTTP1), protocol.ReasonNone, 200, protocol.NoCode}, 1)
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
	_, c := newStatusSet(b, newStatusConnector(), withOutliers(outlierConfig(func(o *config.OutlierDetection) {
		o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100}
	}), "a"))
	h := c.state.Load().hosts[0]
	x := get()
	x.Response.Status = 200
	b.ReportAllocs()
	for b.Loop() {
		h.recordAttempt(x, nil)
	}
}
