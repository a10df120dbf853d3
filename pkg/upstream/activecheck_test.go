package upstream

import (
	"bytes"
	"log/slog"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
)

// httpCheck returns a health check with HTTP/1.1 every 10 s.
func httpCheck() *config.HealthCheck {
	return &config.HealthCheck{
		Protocol: config.CheckHTTP1, Timeout: time.Second, Interval: 10 * time.Second,
		HealthyThreshold: 2, UnhealthyThreshold: 2,
	}
}

func withChecks(h *config.HealthCheck, hosts ...string) *config.Cluster {
	c := cluster("web", hosts...)
	c.HealthCheck = h
	return c
}

// respondingHosts serves n requests and returns the names of the hosts that responded, each once.
func respondingHosts(t testing.TB, c *Cluster, n int) string {
	t.Helper()
	seen := map[string]bool{}
	for range n {
		seen[serveOne(t, c)] = true
	}
	var names []string
	for _, h := range c.state.Load().hosts {
		if seen[h.address] {
			names = append(names, h.address)
		}
	}
	return strings.Join(names, " ")
}

func TestFailedChecksExcludeHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStatusConnector()
		f.set("a", 503)
		_, c := newStatusSet(t, f, withChecks(httpCheck(), "a", "b"))
		synctest.Wait() // the first check sets the health
		if got := respondingHosts(t, c, 10); got != "b" {
			t.Errorf("requests went to %q, want b", got)
		}
		f.set("a", 200)
		advanceClock(10 * time.Second)
		if got := respondingHosts(t, c, 10); got != "b" {
			t.Errorf("after one of two required passed checks, requests went to %q, want b", got)
		}
		advanceClock(10 * time.Second)
		if got := respondingHosts(t, c, 10); got != "a b" {
			t.Errorf("after two passed checks, requests went to %q, want a b", got)
		}
	})
}

// TestAllHostsFailingChecksAreUsed verifies that a cluster whose hosts all fail their checks still
// serves.
func TestAllHostsFailingChecksAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStatusConnector()
		f.set("a", 503)
		_, c := newStatusSet(t, f, withChecks(httpCheck(), "a"))
		synctest.Wait()
		if got := respondingHosts(t, c, 1); got != "a" {
			t.Errorf("the request went to %q, want a", got)
		}
	})
}

func TestChecksFollowHostChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStatusConnector()
		s, c := newStatusSet(t, f, withChecks(httpCheck(), "a", "b"))
		checkedHosts := func() string {
			f.mu.Lock()
			defer f.mu.Unlock()
			var names []string
			for _, name := range []string{"a", "b", "c"} {
				if f.checkCount[name] > 0 {
					names = append(names, name)
				}
			}
			clear(f.checkCount)
			return strings.Join(names, " ")
		}
		advanceClock(time.Minute)
		if got := checkedHosts(); got != "a b" {
			t.Errorf("checked hosts: %q, want a b", got)
		}
		apply(t, s, withChecks(httpCheck(), "b", "c"))
		advanceClock(time.Minute)
		if got := checkedHosts(); got != "b c" {
			t.Errorf("after a change of hosts, checked hosts: %q, want b c", got)
		}
		f.set("b", 500)
		advanceClock(time.Minute)
		b := hostNamed(t, c, "b")
		if !b.health.Has(hosthealth.FailedCheck) {
			t.Fatal("b does not have the flag FailedCheck")
		}
		delayed := httpCheck()
		delayed.Delay = time.Hour
		apply(t, s, withChecks(delayed, "b", "c"))
		advanceClock(time.Minute)
		if !b.health.Has(hosthealth.FailedCheck) {
			t.Error("b is healthy before it passed its new checks")
		}
		apply(t, s, withChecks(nil, "b", "c"))
		checkedHosts()
		advanceClock(2 * time.Hour)
		if got := checkedHosts(); got != "" || b.health.Has(hosthealth.FailedCheck) {
			t.Errorf("without checks: checked hosts %q, want none; FailedCheck = %v, want false", got, b.health.Has(hosthealth.FailedCheck))
		}
		apply(t, s)
	})
}

// TestPassedCheckEndsEjection verifies that a passed check ends an ejection only if
// UnejectOnHealthCheck is set.
func TestPassedCheckEndsEjection(t *testing.T) {
	for _, uneject := range []bool{false, true} {
		t.Run(strconv.FormatBool(uneject), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := withChecks(httpCheck(), "a", "b")
				cfg.OutlierDetection = outlierConfig(func(o *config.OutlierDetection) {
					o.Consecutive5xx = config.Consecutive{Failures: 1, Enforce: 100}
					o.UnejectOnHealthCheck = uneject
				})
				_, c := newStatusSet(t, newStatusConnector(), cfg)
				synctest.Wait()
				a := hostNamed(t, c, "a")
				recordAttempts(a, 1, 500, protocol.ReasonNone)
				advanceClock(11 * time.Second) // its second check
				if ejected := a.health.Has(hosthealth.Ejected); ejected == uneject {
					t.Errorf("after a passed check: ejected = %v, want %v", ejected, !uneject)
				}
			})
		})
	}
}

func TestPassedCheckEndsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newStatusSet(t, newStatusConnector(), withChecks(httpCheck(), "a", "b"))
		synctest.Wait()
		a := hostNamed(t, c, "a")
		a.recordConnectFailure(protocol.Faultf(protocol.ConnectFailure, "a test"))
		advanceClock(10 * time.Second)
		if !a.health.Up() {
			t.Errorf("after a passed check the health flags are %v, want none", a.health.Flags())
		}
	})
}

func TestCheckAuthority(t *testing.T) {
	m := newStatusConnector()
	for _, test := range []struct{ address, hostname, want string }{
		{"10.0.0.1:80", "", "10.0.0.1:80"},
		{"10.0.0.1:80", "shop", "shop"},
		{"/run/web.sock", "", "localhost"},
		{"./web.sock", "", "localhost"},
		{"@web", "", "localhost"},
		{"@web", "shop", "shop"},
	} {
		_, c := newStatusSet(t, m, cluster("web", test.address))
		host := newHost(c, &config.Host{Address: test.address, Hostname: test.hostname})
		if got := (checkTarget{host}).Authority(); got != test.want {
			t.Errorf("Authority of %q with host name %q = %q, want %q", test.address, test.hostname, got, test.want)
		}
	}
}

func TestChecksWithoutConnectorAreRejected(t *testing.T) {
	s := newTestSet(t, newFakeConnector())
	_, err := s.Prepare([]*config.Cluster{withChecks(&config.HealthCheck{Protocol: config.CheckDubbo}, "a")})
	if err == nil || !strings.Contains(err.Error(), "dubbo") {
		t.Errorf("Prepare = %v, want an error that names dubbo", err)
	}
}

func TestHealthChangesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		var counts eventCounts
		f := newStatusConnector()
		s := newTestSet(t, nil, func(o *Options) {
			o.Connectors = map[config.Protocol]Connector{config.HTTP1: f}
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			o.Meter = &counts
		})
		cfg := withChecks(httpCheck(), "a", "b")
		cfg.OutlierDetection = outlierConfig(func(o *config.OutlierDetection) { o.Consecutive5xx = config.Consecutive{Failures: 1, Enforce: 100} })
		apply(t, s, cfg)
		advanceClock(11 * time.Second)
		f.set("a", 503)
		advanceClock(30 * time.Second)
		f.set("a", 200)
		recordAttempts(hostNamed(t, s.Get("web"), "a"), 1, 500, protocol.ReasonNone)
		advanceClock(time.Minute)
		for _, want := range []string{
			`level=WARN msg="upstream host fails its health checks" cluster=web host=a protocol=Http1 error="status 503"`,
			`level=INFO msg="upstream host passes its health checks" cluster=web host=a`,
			`level=WARN msg="upstream host ejected" cluster=web host=a detector=consecutive_5xx pause=30s`,
			`level=INFO msg="upstream host returns from its ejection" cluster=web host=a`,
		} {
			if n := strings.Count(log.String(), want); n != 1 {
				t.Errorf("%d log lines with %s, want 1, in\n%s", n, want, log.String())
			}
		}
		counts.mu.Lock()
		defer counts.mu.Unlock()
		// The host went down once, for two overlapping reasons.
		want := map[Event]int{CheckFailed: 3, HostEjected: 1, HostDown: 1, HostUp: 1}
		if !maps.Equal(counts.events, want) {
			t.Errorf("events = %v, want %v", counts.events, want)
		}
	})
}

// eventCounts is a Meter that counts events.
type eventCounts struct {
	mu     sync.Mutex
	events map[Event]int // guarded by mu
}

func (c *eventCounts) Cluster(string, Gauges) ClusterRecorder { return c }
func (c *eventCounts) Host(string, string) Recorder           { return c }
func (*eventCounts) Add(metrics.Batch)                        {}
func (*eventCounts) Close()                                   {}

func (c *eventCounts) LimitReached(_ config.Priority, e Event) { c.Count(e) }

func (c *eventCounts) Count(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events == nil {
		c.events = make(map[Event]int)
	}
	c.events[e]++
}

// lockedBuffer is a bytes.Buffer that is safe for concurrent use.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// TestChecksUseLittleMemory verifies that a thousand clusters of three hosts with active checks and
// outlier detection use at most 8 MiB, and at most ten goroutines between checks.
func TestChecksUseLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clusters, maxBytes = 1000, 8 << 20
		f := newStatusConnector()
		s := newTestSet(t, nil, func(o *Options) { o.Connectors = map[config.Protocol]Connector{config.HTTP1: f} })
		before, goroutines := heap(), runtime.NumGoroutine()
		var cfgs []*config.Cluster
		for i := range clusters {
			c := withChecks(httpCheck(), "a", "b", "c")
			c.Name = "cluster-" + strconv.Itoa(i)
			c.OutlierDetection = outlierConfig(func(o *config.OutlierDetection) { o.Consecutive5xx = config.Consecutive{Failures: 5, Enforce: 100} })
			cfgs = append(cfgs, c)
		}
		apply(t, s, cfgs...)
		advanceClock(time.Minute)
		extra := runtime.NumGoroutine() - goroutines
		for range 50 { // some samples fall into running checks
			advanceClock(97 * time.Millisecond)
			extra = min(extra, runtime.NumGoroutine()-goroutines)
		}
		if extra > 10 {
			t.Errorf("%d additional goroutines between checks, want at most 10", extra)
		}
		used := heap() - before
		t.Logf("%d bytes for %d clusters with three hosts each: %d per host", used, clusters, used/clusters/3)
		if used > maxBytes {
			t.Errorf("%d clusters use %d bytes, want at most %d", clusters, used, maxBytes)
		}
		runtime.KeepAlive(s)
	})
}

// heap returns the number of live heap bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below 2^63
}

// TestCheckPortReplacesBothPorts verifies that a check with a port of its own uses this port with the
// address and with the resolved address of a host.
func TestCheckPortReplacesBothPorts(t *testing.T) {
	_, c := newTestCluster(t, newFakeConnector(), cluster("web", "10.0.0.1:80"))
	h := c.state.Load().hosts[0]
	entry := *h.Config()
	entry.ResolvedAddress = "10.0.0.2:80"
	h.entry.Store(&entry)
	got, err := checkTarget{h}.hostAtPort(8080)
	if err != nil {
		t.Fatal(err)
	}
	if got.Name() != "10.0.0.1:8080" || got.ResolvedAddress() != "10.0.0.2:8080" {
		t.Errorf("the check connects to %s for %s, want 10.0.0.2:8080 for 10.0.0.1:8080", got.ResolvedAddress(), got.Name())
	}
	entry.ResolvedAddress = ""
	if got, err := (checkTarget{h}).hostAtPort(0); err != nil || got != h {
		t.Errorf("hostAtPort(0) = %v, %v, want the host itself", got, err)
	}
}
