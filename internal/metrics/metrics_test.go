package metrics

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// exported returns the lines of a scrape that begin with prefix, in the order of the export and
// without the prefix "weft_".
func exported(t *testing.T, r *Registry, prefix string) []string {
	t.Helper()
	resp := httptest.NewRecorder()
	r.Handler().ServeHTTP(resp, httptest.NewRequest("GET", "/", nil))
	if resp.Code != 200 {
		t.Fatalf("scrape: status %d: %s; want 200", resp.Code, resp.Body)
	}
	var lines []string
	for line := range strings.Lines(resp.Body.String()) {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "weft_"); strings.HasPrefix(line, prefix) {
			lines = append(lines, line)
		}
	}
	return lines
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("exported\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func testRegistry() *Registry {
	return New(Options{Reasons: []string{"none", "no_route", "overflow"}, CloseReasons: []string{"done", "peer_closed"}})
}

func TestRequestsCountByProtocolClassAndReason(t *testing.T) {
	r := testRegistry()
	h, release := r.Host("shop", "10.0.0.1:80")
	defer release()
	h.Add(batchOf(requestOutcome{Status: 200, Duration: 3 * time.Millisecond, BytesIn: 5, BytesOut: 1024}))
	h.Add(batchOf(requestOutcome{Status: 204, Duration: time.Millisecond}))
	h.Add(batchOf(requestOutcome{Status: 404, Reason: 1}))
	h.Add(batchOf(requestOutcome{Status: 0, Reason: 2, Duration: -time.Second}))
	h.Add(batchOf(requestOutcome{Status: 999, Protocol: "dubbo", Duration: time.Hour, BytesIn: -1}))

	wantLines(t, exported(t, r, "host_requests_total"),
		`host_requests_total{cluster="shop",host="10.0.0.1:80",protocol="dubbo",status_class="none"} 1`,
		`host_requests_total{cluster="shop",host="10.0.0.1:80",protocol="none",status_class="2xx"} 2`,
		`host_requests_total{cluster="shop",host="10.0.0.1:80",protocol="none",status_class="4xx"} 1`,
		`host_requests_total{cluster="shop",host="10.0.0.1:80",protocol="none",status_class="none"} 1`)

	wantLines(t, exported(t, r, "host_request_failures_total"),
		`host_request_failures_total{cluster="shop",host="10.0.0.1:80",protocol="none",reason="no_route"} 1`,
		`host_request_failures_total{cluster="shop",host="10.0.0.1:80",protocol="none",reason="overflow"} 1`)
	wantLines(t, exported(t, r, `host_request_bytes_total{cluster="shop",host="10.0.0.1:80",protocol="none"`),
		`host_request_bytes_total{cluster="shop",host="10.0.0.1:80",protocol="none"} 5`)
	wantLines(t, exported(t, r, `host_response_bytes_total{cluster="shop",host="10.0.0.1:80",protocol="none"`),
		`host_response_bytes_total{cluster="shop",host="10.0.0.1:80",protocol="none"} 1024`)
	var figures []string
	for _, line := range exported(t, r, "host_request_duration_seconds") {
		if strings.Contains(line, `"none"`) && !strings.HasSuffix(line, " 4") {
			_, figure, _ := strings.Cut(line, `protocol="none"`)
			figures = append(figures, figure)
		}
	}
	wantLines(t, figures, `,le="0.0001"} 2`, `,le="0.00025"} 2`, `,le="0.0005"} 2`, `,le="0.001"} 3`, `,le="0.0025"} 3`, `} 0.004`)
}

func TestDurationBuckets(t *testing.T) {
	search := func(d time.Duration) int {
		i, _ := slices.BinarySearch(durationBounds[:], d)
		return i
	}
	for i := 1; i < len(durationBounds); i++ {
		if durationBounds[i] < 2*durationBounds[i-1] {
			t.Fatalf("bound %v is less than twice %v, which bucketOf requires", durationBounds[i], durationBounds[i-1])
		}
	}
	durations := []time.Duration{0, 1, time.Hour, 1<<63 - 1}
	for _, bound := range durationBounds {
		durations = append(durations, bound-1, bound, bound+1)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		durations = append(durations, time.Duration(rng.Int64()>>rng.IntN(63)))
	}
	for _, d := range durations {
		if got, want := bucketOf(d), search(d); got != want {
			t.Errorf("bucketOf(%d) = %d, want %d", d, got, want)
		}
	}
}

func TestReleaseRemovesSeries(t *testing.T) {
	r := testRegistry()
	counts := func() (n [4]int) {
		for i, prefix := range []string{"listener_", "route_", "cluster_", "host_"} {
			n[i] = len(exported(t, r, prefix))
		}
		return n
	}
	listener, releaseListener := r.Listener("in")
	cluster, releaseCluster := r.Cluster("shop")
	host, releaseHost := r.Host("shop", "10.0.0.1:80")
	routes := r.Routes("table")
	var route Route
	route.Open(routes, "all", "all/0")
	s := requestOutcome{Status: 200}
	listener.Add(batchOf(s))
	cluster.Add(batchOf(s))
	host.Add(batchOf(s))
	route.Add("all", "all/0", batchOf(s))
	for i, n := range counts() {
		if n == 0 {
			t.Errorf("no series of scope %d while it is configured", i)
		}
	}

	releaseListener()
	releaseCluster()
	releaseHost()
	routes.Release()
	listener.Add(batchOf(s)) // like exchanges in flight
	route.Add("all", "all/0", batchOf(s))
	if got := counts(); got != [4]int{} {
		t.Errorf("series after release: %v, want none", got)
	}
	releaseHost() // a second release does nothing
	if _, reacquired := r.Host("shop", "10.0.0.1:80"); reacquired == nil {
		t.Error("Host returns no release function after the host was removed")
	}
}

func TestSharedScopeKeepsCounters(t *testing.T) {
	r := testRegistry()
	sample := batchOf(requestOutcome{Status: 200})
	open := func(routes *Routes, name string) *Route {
		route := new(Route)
		route.Open(routes, "vh", name)
		return route
	}
	previous, otherTable := r.Routes("table"), r.Routes("other")
	a := open(previous, "a")
	for _, name := range []string{"b", "gone"} {
		open(previous, name).Add("vh", name, sample)
	}
	a.Add("vh", "a", sample)
	otherRoute := open(otherTable, "a")
	current := r.Routes("table")
	open(current, "b")
	reopened := open(current, "a")
	previous.Release()
	a.Add("vh", "a", sample) // a late request counts, because the route still exists
	reopened.Add("vh", "a", sample)
	otherRoute.Add("vh", "a", sample)

	wantLines(t, exported(t, r, "route_requests_total"),
		`route_requests_total{protocol="none",route="a",status_class="2xx",table="other",virtual_host="vh"} 1`,
		`route_requests_total{protocol="none",route="a",status_class="2xx",table="table",virtual_host="vh"} 3`,
		`route_requests_total{protocol="none",route="b",status_class="2xx",table="table",virtual_host="vh"} 1`)
}

func TestCloseRemovesRouteCounters(t *testing.T) {
	r := testRegistry()
	routes := r.Routes("table")
	batch := batchOf(requestOutcome{Status: 200})
	var oldRoute, unused, newRoute Route
	oldRoute.Open(routes, "vh", "a")
	oldRoute.Add("vh", "a", batch)
	unused.Open(routes, "vh", "b")
	newRoute.Open(routes, "vh", "a") // the route has changed
	oldRoute.Close()
	oldRoute.Add("vh", "a", batch) // a late request
	newRoute.Add("vh", "a", batch)
	unused.Close()
	unused.Add("vh", "b", batch) // ignored: nothing would remove the counters
	wantLines(t, exported(t, r, "route_requests_total"),
		`route_requests_total{protocol="none",route="a",status_class="2xx",table="table",virtual_host="vh"} 3`)
	newRoute.Close()
	wantLines(t, exported(t, r, "route_"))
	routes.Release()
}

func TestScopesBeyondLimitShareOneSeries(t *testing.T) {
	r := New(Options{MaxScopes: 2})
	var releases []func()
	for i := range 5 {
		h, release := r.Host("shop", fmt.Sprint("host", i))
		h.Add(batchOf(requestOutcome{Status: 200}))
		releases = append(releases, release)
		r.Counter(Metric{"weft_test_total", "Test.", KindCounter, []string{"key"}}, fmt.Sprint(i)).Add(1)
	}
	wantLines(t, exported(t, r, "host_requests_total"),
		`host_requests_total{cluster="_other",host="_other",protocol="none",status_class="2xx"} 3`,
		`host_requests_total{cluster="shop",host="host0",protocol="none",status_class="2xx"} 1`,
		`host_requests_total{cluster="shop",host="host1",protocol="none",status_class="2xx"} 1`)
	wantLines(t, exported(t, r, "test_total"), `test_total{key="0"} 1`, `test_total{key="1"} 1`, `test_total{key="_other"} 3`)
	for _, release := range releases {
		release()
	}
	wantLines(t, exported(t, r, "host_"))
}

func TestConnectionsAreCounted(t *testing.T) {
	r := testRegistry()
	l, _ := r.Listener("in")
	c, _ := r.Cluster("shop")
	for range 5 {
		l.Accepted()
	}
	l.Closed(0)
	l.Closed(1)
	l.Closed(1)
	l.Refused()
	l.AcceptError()
	l.Active.Add(2)
	l.Active.Add(-1)
	c.Opened.Add(4)
	c.Closed.Add(3)
	c.MaxRequestsReached.Add(2)
	c.ConnectFailures.Add(1)
	c.Retries.Add(5)
	c.Resent.Add(6)
	c.Overflow[0][LimitRetries].Add(7)
	c.Hedges.Add(12)
	c.HedgesWon.Add(11)
	c.Canceled.Add(10)
	c.Overflow[0][LimitRetryBudget].Add(3)
	c.HostDown.Add(2)
	c.HostUp.Add(1)
	c.CheckFailures.Add(9)
	c.Ejections.Add(4)
	c.Active.SetFunc(func() int64 { return 8 })
	c.Overflow[1][LimitPending].Add(13)
	c.LimitUsage.SetFunc(func(priority int, l Limit) (used, limit int64) {
		switch {
		case priority == 1 && l == LimitRequests:
			return 3, 3
		case priority == 0 && l == LimitConnections:
			return 1, 5
		}
		return 7, 0
	})
	wantLines(t, exported(t, r, "listener_"),
		`listener_accept_errors_total{listener="in"} 1`,
		`listener_connections_accepted_total{listener="in"} 5`,
		`listener_connections_active{listener="in"} 2`,
		`listener_connections_closed_total{cause="done",listener="in"} 1`,
		`listener_connections_closed_total{cause="peer_closed",listener="in"} 2`,
		`listener_connections_refused_total{listener="in"} 1`,
		`listener_requests_active{listener="in"} 1`)
	wantLines(t, exported(t, r, "cluster_"),
		`cluster_attempts_cancelled_total{cluster="shop"} 10`,
		`cluster_breaker_open{cluster="shop",limit="connections",priority="default"} 0`,
		`cluster_breaker_open{cluster="shop",limit="requests",priority="high"} 1`,
		`cluster_breaker_remaining{cluster="shop",limit="connections",priority="default"} 4`,
		`cluster_breaker_remaining{cluster="shop",limit="requests",priority="high"} 0`,
		`cluster_connect_failures_total{cluster="shop"} 1`,
		`cluster_connections_active{cluster="shop"} 1`,
		`cluster_connections_closed_total{cluster="shop"} 3`,
		`cluster_connections_max_requests_total{cluster="shop"} 2`,
		`cluster_connections_opened_total{cluster="shop"} 4`,
		`cluster_ejections_overflow_total{cluster="shop"} 0`,
		`cluster_ejections_total{cluster="shop"} 4`,
		`cluster_health_check_failures_total{cluster="shop"} 9`,
		`cluster_hedges_total{cluster="shop"} 12`,
		`cluster_hedges_won_total{cluster="shop"} 11`,
		`cluster_host_down_total{cluster="shop"} 2`,
		`cluster_host_up_total{cluster="shop"} 1`,
		`cluster_overflow_total{cluster="shop",limit="connections",priority="default"} 0`,
		`cluster_overflow_total{cluster="shop",limit="pending_requests",priority="default"} 0`,
		`cluster_overflow_total{cluster="shop",limit="pending_requests",priority="high"} 13`,
		`cluster_overflow_total{cluster="shop",limit="requests",priority="default"} 0`,
		`cluster_overflow_total{cluster="shop",limit="retries",priority="default"} 7`,
		`cluster_overflow_total{cluster="shop",limit="retry_budget",priority="default"} 3`,
		`cluster_requests_active{cluster="shop"} 8`,
		`cluster_resent_total{cluster="shop"} 6`,
		`cluster_retries_total{cluster="shop"} 5`)
}

func TestExclusions(t *testing.T) {
	for _, c := range []struct {
		name      string
		exclusion Exclusion
		exported  map[string]bool // by prefix of a line
	}{
		{"no exclusion", Exclusion{}, map[string]bool{"host_requests_total": true, "listener_accept": true, "go_goroutines": true, "process_cpu": true}},
		{"all", Exclusion{All: true}, map[string]bool{"host_requests_total": false, "listener_accept": false, "go_goroutines": false, "process_cpu": false}},
		{"label", Exclusion{Labels: []string{"host"}}, map[string]bool{"host_requests_total": false, "host_request_duration": false, "cluster_requests_total": true, "go_goroutines": true}},
		{"names", Exclusion{Names: []string{"weft_host_requests_total", "listener_accept_errors_total", "go_goroutines"}},
			map[string]bool{"host_requests_total": false, "host_request_bytes": true, "listener_accept_errors": false, "listener_connections": true, "go_goroutines": false, "go_gc": true}},
		{"label of a runtime metric", Exclusion{Labels: []string{"quantile"}}, map[string]bool{"go_goroutines": true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := testRegistry()
			h, _ := r.Host("shop", "a")
			h.Add(batchOf(requestOutcome{Status: 200}))
			cluster, _ := r.Cluster("shop")
			cluster.Add(batchOf(requestOutcome{Status: 200}))
			r.Listener("in")
			r.Exclude(c.exclusion)
			for prefix, want := range c.exported {
				if got := len(exported(t, r, prefix)) > 0; got != want {
					t.Errorf("%s exported: %v, want %v", prefix, got, want)
				}
			}
			r.Exclude(Exclusion{})
			if len(exported(t, r, "host_requests_total")) == 0 {
				t.Error("not exported after the exclusion was removed")
			}
		})
	}
}

func TestCounterAndFunc(t *testing.T) {
	r := New(Options{Version: "1.2", Revision: "abc"})
	r.Counter(ConfigReloads, ResultApplied).Add(2)
	r.Counter(ConfigReloads, ResultApplied).Add(1)
	r.Counter(ConfigReloads, ResultRejected)
	removeOld := r.Func(LogDropped, func() float64 { return 1 }, "a.log")
	remove := r.Func(LogDropped, func() float64 { return 7 }, "a.log")
	removeOld() // the series belongs to the second Func
	wantLines(t, exported(t, r, "config_reloads"), `config_reloads_total{result="applied"} 3`, `config_reloads_total{result="rejected"} 0`)
	wantLines(t, exported(t, r, "access_log"), `access_log_dropped_total{log="a.log"} 7`)
	wantLines(t, exported(t, r, "build_info"), fmt.Sprintf(`build_info{go_version=%q,revision="abc",version="1.2"} 1`, runtime.Version()))
	remove()
	wantLines(t, exported(t, r, "access_log"))
}

func TestInvalidMetricUsePanics(t *testing.T) {
	counter := Metric{"weft_a_total", "A.", KindCounter, []string{"x"}}
	for name, misuse := range map[string]func(*Registry){
		"missing values":     func(r *Registry) { r.Counter(counter) },
		"gauge as a counter": func(r *Registry) { r.Counter(Draining) },
		"histogram":          func(r *Registry) { r.Func(Metric{"weft_a_seconds", "A.", KindHistogram, nil}, nil) },
		"other labels": func(r *Registry) {
			r.Counter(counter, "1")
			r.Counter(Metric{"weft_a_total", "A.", KindCounter, []string{"y"}}, "1")
		},
		"func series as a counter": func(r *Registry) {
			r.Func(counter, func() float64 { return 0 }, "1")
			r.Counter(counter, "1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if p := recover(); p == nil || !strings.HasPrefix(fmt.Sprint(p), "metrics: ") {
					t.Errorf("panic value %v, want one of this package", p)
				}
			}()
			misuse(New(Options{}))
		})
	}
}

func TestInvalidUTF8LabelsAreReplaced(t *testing.T) {
	r := testRegistry()
	c, _ := r.Cluster("bad\xff\"name\n")
	c.Add(batchOf(requestOutcome{Status: 200}))
	wantLines(t, exported(t, r, "cluster_requests_total"),
		`cluster_requests_total{cluster="bad`+"\uFFFD"+`\"name\n",protocol="none",status_class="2xx"} 1`)
}

func TestConcurrentUseIsConsistent(t *testing.T) {
	r := testRegistry()
	const workers, rounds = 8, 500
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				table, name := r.Routes("table"), fmt.Sprint(i%2)
				var route Route
				route.Open(table, "vh", name)
				h, release := r.Host("shop", "kept")
				route.Add("vh", name, batchOf(requestOutcome{Status: 200, Protocol: [...]string{"Http1", "dubbo"}[w%2]}))
				h.Add(batchOf(requestOutcome{Status: 200 + 100*(i%4), Protocol: [...]string{"Http1", "dubbo"}[w%2], Reason: uint8(i % 3)}))
				release()
				table.Release()
			}
		})
	}
	host, release := r.Host("shop", "kept")
	wg.Go(func() {
		for range 20 {
			if _, err := r.Gather(); err != nil {
				t.Errorf("Gather: %v; want no error", err)
			}
		}
	})
	wg.Wait()
	defer release()
	host.Add(batchOf(requestOutcome{Status: 200}))
	// The workers may have released the host before this test acquired it, so the expected number
	// is unknown. The counters must be consistent.
	total, inHistogram := uint64(0), uint64(0)
	for counters := host.firstProtocol.Load(); counters != nil; counters = counters.next.Load() {
		for class := range counters.rows {
			if cells := counters.rows[class].Load(); cells != nil {
				for i := range cells {
					total += cells[i].Load()
				}
			}
		}
	}
	for _, line := range exported(t, r, "host_request_duration_seconds_count") {
		var n uint64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n); err != nil {
			t.Fatal(err)
		}
		inHistogram += n
	}
	if total == 0 || total != inHistogram {
		t.Errorf("counted %d, exported %d; want equal numbers above 0", total, inHistogram)
	}
	wantLines(t, exported(t, r, "route_requests_total"))
}

func TestAddDoesNotAllocate(t *testing.T) {
	r := testRegistry()
	h, _ := r.Host("shop", "a")
	var route Route
	route.Open(r.Routes("table"), "vh", "3")
	observe := func() {
		s := requestOutcome{Status: 200, Reason: 2, Duration: 123456, BytesIn: 1, BytesOut: 2}
		h.Add(batchOf(s))
		route.Add("vh", "3", batchOf(s))
	}
	observe()
	if n := testing.AllocsPerRun(100, observe); n != 0 {
		t.Errorf("%v allocations per request, want 0", n)
	}
}

func TestIdleRoutesAreCheap(t *testing.T) {
	r := testRegistry()
	const n, limit = 50_000, 3 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table, routes := r.Routes("table"), make([]Route, n)
	for i := range routes {
		routes[i].Open(table, "vh", "a")
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if used := int64(after.HeapAlloc) - int64(before.HeapAlloc); used > limit {
		t.Errorf("%d unused routes take %d bytes, want at most %d", n, used, limit)
	}
	table.Release()
	runtime.KeepAlive(routes)
}

func TestScrapeFormat(t *testing.T) {
	r := testRegistry()
	resp := httptest.NewRecorder()
	r.Handler().ServeHTTP(resp, httptest.NewRequest("GET", "/", nil))
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4") {
		t.Errorf("Content-Type %q, want text/plain; version=0.0.4", got)
	}
	for _, want := range []string{"# TYPE weft_build_info gauge", "# TYPE go_goroutines gauge", "# TYPE process_cpu_seconds_total counter"} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the scrape does not contain %q", want)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	r := testRegistry()
	h, _ := r.Host("shop", "a")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.Add(batchOf(requestOutcome{Status: 200, Duration: time.Duration(i), BytesOut: 1024}))
	}
}

func BenchmarkObserveContended(b *testing.B) {
	r := testRegistry()
	h, _ := r.Host("shop", "a")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			h.Add(batchOf(requestOutcome{Status: 200, Duration: time.Millisecond, BytesOut: 1024}))
		}
	})
}

func BenchmarkScrape5000Hosts(b *testing.B) {
	r := testRegistry()
	for i := range 5000 {
		h, _ := r.Host("shop", fmt.Sprint("10.0.0.", i))
		h.Add(batchOf(requestOutcome{Status: 200, Duration: time.Millisecond}))
	}
	for b.Loop() {
		if _, err := r.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
