package upstream

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
	"github.com/weft-proxy/weft/pkg/upstream/outlier"
	"github.com/weft-proxy/weft/pkg/upstream/pool"
)

// statusConnector is a network whose hosts respond with the status that the test sets. A host with
// status 0 refuses connections.
type statusConnector struct {
	mu         sync.Mutex
	statuses   map[string]int // guarded by mu; default 200
	checkCount map[string]int // guarded by mu; requests with a User-Agent, which only checks send
}

func newStatusConnector() *statusConnector {
	return &statusConnector{statuses: map[string]int{}, checkCount: map[string]int{}}
}

func (f *statusConnector) set(host string, status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses[host] = status
}

func (f *statusConnector) statusFor(host string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if status, ok := f.statuses[host]; ok {
		return status
	}
	return 200
}

func (*statusConnector) Multiplexed() bool { return false }

func (f *statusConnector) Connect(_ context.Context, h *Host, _ time.Time, released func(bool)) (pool.Connection, error) {
	if f.statusFor(h.Name()) == 0 {
		return nil, protocol.Faultf(protocol.ConnectFailure, "%s refused", h.Name())
	}
	return &statusConn{connector: f, host: h.Name(), released: released}, nil
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

// statusBody is the body of a response. Closing it releases the connection.
type statusBody struct {
	protocol.StringBody
	c *statusConn
}

func (b *statusBody) Close() error { b.c.released(true); return nil }

// newStatusSet returns a set with one cluster that connects with statusConnector.
func newStatusSet(t testing.TB, f *statusConnector, cfg *config.Cluster) (*Set, *Cluster) {
	t.Helper()
	s := newTestSet(t, nil, func(o *Options) {
		o.Connectors = map[config.Protocol]Connector{config.HTTP1: f, config.HTTP2: f}
	})
	apply(t, s, cfg)
	return s, s.Get(cfg.Name)
}

// hostNamed returns the host with this name.
func hostNamed(t testing.TB, c *Cluster, name string) *Host {
	t.Helper()
	hosts := c.state.Load().hosts
	i := slices.IndexFunc(hosts, func(h *Host) bool { return h.address == name })
	if i < 0 {
		t.Fatalf("no host %s", name)
	}
	return hosts[i]
}

// recordAttempts records n attempts at the host with this status or failure.
func recordAttempts(h *Host, n int, status int, reason protocol.Reason) {
	for range n {
		x := newExchange()
		x.Response.Status = status
		var err error
		if reason != protocol.ReasonNone {
			err = protocol.Faultf(reason, "a test")
		}
		h.recordAttempt(x, err)
	}
}

// outlierConfig returns a configuration in which only the given change enables a detector.
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

func TestEjectedHostReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStatusConnector()
		_, c := newStatusSet(t, f, withOutliers(outlierConfig(func(o *config.OutlierDetection) {
			o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100}
		}), "a", "b"))
		f.set("a", 500)
		for range 20 {
			serveOne(t, c)
		}
		f.set("a", 200)
		for range 20 {
			if h := serveOne(t, c); h != "b" {
				t.Fatalf("%s got a request while a was ejected, want b", h)
			}
		}
		advanceClock(30*time.Second + time.Millisecond) // the ejection time and the third interval have ended
		var hosts []string
		for range 4 {
			hosts = append(hosts, serveOne(t, c))
		}
		if !slices.Contains(hosts, "a") {
			t.Errorf("hosts with requests after the ejection = %q, want a among them", hosts)
		}
	})
}

// TestEachAttemptCountsOnce verifies that the outcome of an attempt at the host is counted once,
// regardless of the response that the client receives.
func TestEachAttemptCountsOnce(t *testing.T) {
	const none = protocol.NoCode
	tests := []struct {
		name            string
		failureStatuses []int
		status          int             // status of the host's response; 0: none
		reason          protocol.Reason // reason why there was no response
		discarded       bool            // the response was discarded for a retry
		grpcStatus      string          // grpc-status of the response
		outcome         metrics.Outcome
		ejected         bool // two such attempts eject the host
	}{
		{name: "no response", reason: protocol.UpstreamTimeout, outcome: metrics.Outcome{Protocol: "Http1", Status: 504, Code: none}, ejected: true},
		{name: "no response, gRPC client", reason: protocol.ConnectFailure, outcome: metrics.Outcome{Protocol: "Http2", Status: 200, Code: 14}, ejected: true},
		{name: "no response, 504 is not a failure status", failureStatuses: []int{500}, reason: protocol.UpstreamTimeout, outcome: metrics.Outcome{Protocol: "Http1", Status: 504, Code: none}, ejected: true},
		{name: "500 changed to 200 by a filter", status: 500, outcome: metrics.Outcome{Protocol: "Http1", Status: 200, Code: none}, ejected: true},
		{name: "200 changed to 500 by a filter", status: 200, outcome: metrics.Outcome{Protocol: "Http1", Status: 500, Code: none}, ejected: false},
		{name: "gRPC response discarded for a retry", status: 200, discarded: true, grpcStatus: "14", ejected: true},
		{name: "503 discarded for a retry", status: 503, discarded: true, ejected: true},
		{name: "409 discarded for a retry", status: 409, discarded: true, ejected: false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, c := newStatusSet(t, newStatusConnector(), withOutliers(outlierConfig(func(o *config.OutlierDetection) {
				o.Consecutive5xx = config.Consecutive{Failures: 2, Enforce: 100}
				o.FailureStatuses = tt.failureStatuses
			}), "a"))
			h := hostNamed(t, c, "a")
			attempt := func() {
				x := newExchange()
				x.Meta.Protocol, x.Record.Listener, x.Response.Status = string(config.HTTP2), h, tt.status
				x.Response.Header.Add("grpc-status", tt.grpcStatus)
				if tt.reason != protocol.ReasonNone {
					h.recordAttempt(x, protocol.Faultf(tt.reason, "a test"))
				} else {
					h.recordAttempt(x, nil)
				}
				if tt.discarded {
					h.ResponseDiscarded(x)
					return
				}
				b := metrics.Batch{Outcome: tt.outcome}
				b.Reason, b.UpstreamStatus = uint8(tt.reason), tt.status
				b.AddRequest(metrics.Request{})
				h.Add(b)
			}
			attempt()
			if h.health.Has(hosthealth.Ejected) {
				t.Error("one attempt ejected the host: it was counted twice")
			}
			attempt()
			if ejected := h.health.Has(hosthealth.Ejected); ejected != tt.ejected {
				t.Errorf("ejected after two attempts = %v, want %v", ejected, tt.ejected)
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
		if !a.health.Has(hosthealth.Ejected) || a.outlierStats.Load().Ejections() != 1 {
			t.Errorf("after a host was added: ejected = %v, %d ejections, want true and 1", a.health.Has(hosthealth.Ejected), a.outlierStats.Load().Ejections())
		}
		apply(t, s, withOutliers(&same, "b", "c"))
		if a.outlierStats.Load() != nil {
			t.Errorf("after the host was removed: statistics = %v, want nil", a.outlierStats.Load())
		}
		b := hostNamed(t, c, "b")
		recordAttempts(b, 1, 500, protocol.ReasonNone)
		apply(t, s, withOutliers(nil, "b", "c"))
		if b.health.Has(hosthealth.Ejected) || b.outlierStats.Load() != nil {
			t.Error("the host is ejected or has statistics after outlier detection was disabled")
		}
		apply(t, s)
		advanceClock(time.Hour)
	})
}

func TestRecordOutcomeDoesNotAllocate(t *testing.T) {
	_, c := newStatusSet(t, newStatusConnector(), withOutliers(outlierConfig(func(o *config.OutlierDetection) {
		o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100}
		o.SplitLocalOriginErrors = true
	}), "a"))
	h := hostNamed(t, c, "a")
	x := newExchange()
	x.Response.Status = 200
	if n := testing.AllocsPerRun(100, func() {
		h.recordAttempt(x, nil)
		h.recordOutcome(outlier.Outcome{Protocol: config.HTTP1, Status: 200, Code: protocol.NoCode}, 1)
	}); n != 0 {
		t.Errorf("%v allocations per good response, want 0", n)
	}
}

func BenchmarkRecordAttempt(b *testing.B) {
	_, c := newStatusSet(b, newStatusConnector(), withOutliers(outlierConfig(func(o *config.OutlierDetection) {
		o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100}
	}), "a"))
	h := c.state.Load().hosts[0]
	x := newExchange()
	x.Response.Status = 200
	b.ReportAllocs()
	for b.Loop() {
		h.recordAttempt(x, nil)
	}
}
