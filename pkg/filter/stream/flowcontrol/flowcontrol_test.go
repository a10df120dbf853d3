package flowcontrol

import (
	"context"
	"flag"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 2 {
		t.Fatalf("%d examples, want 2", len(examples))
	}
	synctest.Test(t, func(t *testing.T) {
		first := newTestFilter(t, examples[0])
		if got := first.sendSequential(3, "/test"); got != 1 {
			t.Errorf("admitted %d of 3 requests for a path, want 1", got)
		}
		x := filtertest.NewRequest("/test")
		if first.send(x); x.Response.Status != 500 || bodyOf(t, x) != "blocked" {
			t.Errorf("rejection: status %d, want 500 with the body blocked", x.Response.Status)
		}
		start := time.Now()
		if got := first.sendSequential(5, "/report"); got != 5 || time.Since(start) != 400*time.Millisecond {
			t.Errorf("admitted %d of 5 throttled requests in %v, want 5 in 400ms", got, time.Since(start))
		}
		second := newTestFilter(t, examples[1])
		if got := second.sendSequential(300, "/org.example.Shop/find"); got != 100 {
			t.Errorf("admitted %d of 300 calls of a cold method, want 100", got)
		}
		if got := second.sendConcurrent(60, "/org.example.Shop/buy"); got != 50 {
			t.Errorf("admitted %d of 60 concurrent calls, want 50", got)
		}
	})
}

// testFilter is the filter in front of an application.
type testFilter struct {
	t       *testing.T
	service protocol.Service
	counts  *filtertest.Probe
	unblock chan struct{} // nil: the application responds immediately
}

func newTestFilter(t *testing.T, s filtertest.Settings) *testFilter {
	t.Helper()
	r := &testFilter{t: t}
	f, counts := filtertest.Build(t, Factory(), s)
	r.service, r.counts = f(protocol.BlockingFunc(r.serve)), counts
	return r
}

func (r *testFilter) serve(_ context.Context, x *protocol.Exchange) error {
	if r.unblock != nil {
		<-r.unblock
	}
	x.LocalReply(200, "text/plain", "from the application")
	return nil
}

func bodyOf(t *testing.T, x *protocol.Exchange) string {
	t.Helper()
	body, err := io.ReadAll(x.Response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// send sends x and reports whether it was admitted.
func (r *testFilter) send(x *protocol.Exchange) bool {
	r.t.Helper()
	if err := x.Serve(r.t.Context(), r.service); err != nil {
		r.t.Error(err)
	}
	if limited := x.Record.Reason == protocol.RateLimited; limited != (x.Response.Status != 200) {
		r.t.Errorf("status %d with the reason %v, want a status other than 200 exactly for %v", x.Response.Status, x.Record.Reason, protocol.RateLimited)
	}
	return x.Response.Status == 200
}

// sendSequential sends n requests sequentially and returns how many were admitted.
func (r *testFilter) sendSequential(n int, path string) (admitted int) {
	r.t.Helper()
	for range n {
		if r.send(filtertest.NewRequest(path)) {
			admitted++
		}
	}
	return admitted
}

// sendConcurrent sends n concurrent requests and lets the application respond once all have been
// admitted or rejected. It returns how many were admitted.
func (r *testFilter) sendConcurrent(n int, path string) (admitted int) {
	r.t.Helper()
	r.unblock = make(chan struct{})
	results := make(chan bool, n)
	var requests sync.WaitGroup
	for range n {
		requests.Go(func() { results <- r.send(filtertest.NewRequest(path)) })
	}
	synctest.Wait()
	close(r.unblock)
	requests.Wait()
	r.unblock = nil
	close(results)
	for ok := range results {
		if ok {
			admitted++
		}
	}
	return admitted
}

func TestResourceKeys(t *testing.T) {
	settings := func(key, resource string) filtertest.Settings {
		return filtertest.Settings(`{"global_switch": true, "limit_key_type": "` + key + `", "rules": [{"resource": "` + resource + `", "threshold": 1}]}`)
	}
	type sent struct {
		path string
		want int // number of admitted requests, of 2
	}
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		sent     []sent
	}{
		{"path", settings("PATH", "/a"), []sent{{"/a?x", 1}, {"/a", 0}, {"/a/", 2}, {"/A", 2}}},
		{"query", settings("ARG", "x=1"), []sent{{"/a?x=1", 1}, {"/b?x=1", 0}, {"/a?x=2", 2}, {"/a", 2}}},
		{"URI", settings("URI", "/a?x=1"), []sent{{"/a?x=1", 1}, {"/a", 2}}},
		{"URL in lower case", settings("url", "/a?x=1"), []sent{{"/a?x=1", 1}, {"/b?x=1", 2}}},
		{"RPC method", settings("PATH", "/org.example.Shop/buy"), []sent{{"/org.example.Shop/buy", 1}, {"/org.example.Shop/sell", 2}}},
		{"regex", `{"global_switch": true, "rules": [{"resource": "^/a", "regex": true, "threshold": 1}]}`,
			[]sent{{"/a", 1}, {"/ab", 0}, {"/b/a", 2}}},
		{"two rules", `{"global_switch": true, "rules": [{"resource": "/a", "threshold": 1}, {"resource": ".", "regex": true, "threshold": 2}]}`,
			[]sent{{"/a", 1}, {"/b", 1}, {"/c", 0}}},
		{"global_switch off", `{"global_switch": false, "rules": [{"resource": "/a", "threshold": 0}]}`, []sent{{"/a", 2}}},
		{"no rules", `{"global_switch": true}`, []sent{{"/a", 2}}},
		{"monitor", `{"global_switch": true, "monitor": true, "rules": [{"resource": "/a", "threshold": 0}]}`, []sent{{"/a", 2}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTestFilter(t, test.settings)
				for i, s := range test.sent {
					if got := r.sendSequential(2, s.path); got != s.want {
						t.Errorf("step %d: %s: admitted %d of 2, want %d", i, s.path, got, s.want)
					}
				}
			})
		})
	}
}

// TestRejectionRefundsOtherRules verifies that a rejected request is not counted by the other
// rules.
func TestRejectionRefundsOtherRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestFilter(t, `{"global_switch": true, "rules": [
			{"resource": "/a", "threshold": 5}, {"resource": "/a", "grade": "concurrency", "threshold": 5}, {"resource": "^/[ab]", "regex": true, "threshold": 2}]}`)
		if got := r.sendSequential(2, "/b"); got != 2 {
			t.Fatalf("admitted %d of 2, want 2", got)
		}
		if got := r.sendSequential(20, "/a"); got != 0 {
			t.Fatalf("admitted %d of 20, want 0", got)
		}
		rules := *r.service.(*limitedService).rules
		if n := rules[1].inFlight.Load(); n != 0 {
			t.Errorf("%d requests are in flight, want 0", n)
		}
		if got, _ := takeEvenly(rules[0], 20, time.Since(r.service.(*limitedService).start), time.Since(r.service.(*limitedService).start)); got != 5 {
			t.Errorf("the first rule admits %d, want 5", got)
		}
	})
}

func TestConcurrencyIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestFilter(t, `{"global_switch": true, "rules": [{"resource": "/a", "grade": 0, "count": 3}]}`)
		for range 3 {
			if got := r.sendConcurrent(10, "/a"); got != 3 {
				t.Errorf("admitted %d of 10 concurrent requests, want 3", got)
			}
		}
		if got := r.sendSequential(10, "/a"); got != 10 {
			t.Errorf("admitted %d of 10 sequential requests, want 10", got)
		}
	})
}

const throttlingSettings = `{"global_switch": true, "rules": [{"resource": "/a", "threshold": 10, "controlBehavior": "throttling", "maxQueueingTimeMs": 1000}]}`

func TestThrottling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestFilter(t, throttlingSettings)
		start := time.Now()
		results := make(chan time.Duration, 20)
		var requests sync.WaitGroup
		for range 20 {
			requests.Go(func() {
				if r.send(filtertest.NewRequest("/a")) {
					results <- time.Since(start)
				}
			})
		}
		requests.Wait()
		close(results)
		for i := 0; ; i++ {
			delay, ok := <-results
			if !ok {
				if i != 11 {
					t.Errorf("admitted %d of 20, want the 11 that wait for at most one second", i)
				}
				break
			}
			if want := time.Duration(i) * 100 * time.Millisecond; delay != want {
				t.Errorf("request %d was delayed by %v, want %v", i, delay, want)
			}
		}
		if passed, queued, blocked, rejected := r.counts.Value(passedMetric()), r.counts.Value(queuedMetric()), r.counts.Value(blockedMetric()), r.counts.Value(rejectedMetric()); passed != 11 || queued != 10 || blocked != 9 || rejected != 9 {
			t.Errorf("counted %v passed, %v queued, %v blocked, %v rejected; want 11, 10, 9, 9", passed, queued, blocked, rejected)
		}
	})
}

func TestWaitIsBoundedByDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestFilter(t, throttlingSettings)
		r.send(filtertest.NewRequest("/a"))
		for _, test := range []struct {
			timeout time.Duration
			want    bool
		}{{50 * time.Millisecond, false}, {5 * time.Second, true}} {
			x, start := filtertest.NewRequest("/a"), time.Now()
			x.Deadline = start.Add(test.timeout)
			if got := r.send(x); got != test.want || !got && time.Since(start) != 0 {
				t.Errorf("deadline of %v: admitted %t after %v, want %t", test.timeout, got, time.Since(start), test.want)
			}
		}
	})
}

// TestShortDeadlineDoesNotQueue verifies that requests with a short deadline do not take turns that
// they cannot use.
func TestShortDeadlineDoesNotQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestFilter(t, throttlingSettings)
		admitted := 0
		for range 500 { // 5s with ten requests per turn
			x := filtertest.NewRequest("/a")
			x.Deadline = time.Now().Add(20 * time.Millisecond)
			if r.send(x) {
				admitted++
			}
			<-time.After(10 * time.Millisecond) // in the synctest bubble's fake time
		}
		if admitted < 45 {
			t.Errorf("admitted %d requests for the 50 turns of 5s, want at least 45", admitted)
		}
	})
}

// disconnectingClient is a client that disconnects after a time.
type disconnectingClient struct{ after time.Duration }

// SendInterim implements protocol.Downstream.
func (disconnectingClient) SendInterim(int, *protocol.Header) error { return nil }

// OnDisconnect implements protocol.Downstream.
func (c disconnectingClient) OnDisconnect(onDisconnect func()) (stop func()) {
	timer := time.AfterFunc(c.after, onDisconnect)
	return func() { timer.Stop() }
}

func TestDisconnectEndsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestFilter(t, throttlingSettings)
		for range 6 {
			go r.send(filtertest.NewRequest("/a"))
		}
		synctest.Wait()
		x, start := filtertest.NewRequest("/a"), time.Now()
		x.Downstream = disconnectingClient{50 * time.Millisecond}
		err := x.Serve(t.Context(), r.service)
		if got := protocol.ReasonOf(err); got != protocol.ReasonDownstreamDisconnect || time.Since(start) != 50*time.Millisecond {
			t.Errorf("Serve = %v after %v, want %v after 50ms", err, time.Since(start), protocol.ReasonDownstreamDisconnect)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err = filtertest.NewRequest("/a").Serve(ctx, r.service)
		if got := protocol.ReasonOf(err); got != protocol.Draining {
			t.Errorf("Serve = %v, want %v", err, protocol.Draining)
		}
		<-time.After(time.Minute) // in fake time, until the other requests have ended
	})
}

func TestMonitorOnlyCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestFilter(t, `{"global_switch": true, "monitor": true, "rules": [{"resource": "/a", "threshold": 10, "controlBehavior": 1, "maxQueueingTimeMs": 500},
			{"resource": "/b", "grade": 0, "threshold": 1}]}`)
		start := time.Now()
		if got := r.sendSequential(20, "/a"); got != 20 || time.Since(start) != 0 {
			t.Errorf("admitted %d of 20 after %v, want all immediately", got, time.Since(start))
		}
		if got := r.sendConcurrent(3, "/b"); got != 3 {
			t.Errorf("admitted %d of 3, want all", got)
		}
		if passed, queued, blocked, rejected := r.counts.Value(passedMetric()), r.counts.Value(queuedMetric()), r.counts.Value(blockedMetric()), r.counts.Value(rejectedMetric()); passed != 7 || queued != 5 || blocked != 16 || rejected != 0 {
			t.Errorf("counted %v passed, %v queued, %v blocked, %v rejected; want 7, 5, 16, 0", passed, queued, blocked, rejected)
		}
		if n := (*r.service.(*limitedService).rules)[1].inFlight.Load(); n != 0 {
			t.Errorf("%d requests are in flight at the end, want 0", n)
		}
	})
}

func TestRejectionResponse(t *testing.T) {
	for settings, want := range map[string]struct {
		status int
		body   string
	}{
		`{}`:                               {509, "current request is limited"},
		`{"status": 0, "body": ""}`:        {509, ""},
		`{"status": 429, "body": "later"}`: {429, "later"},
	} {
		r := newTestFilter(t, filtertest.Settings(`{"global_switch": true, "action": `+settings+`, "rules": [{"resource": "/a", "threshold": 0}]}`))
		x := filtertest.NewRequest("/a")
		x.Request.Header.Add("secret", "token")
		r.send(x)
		got := ""
		if x.Response.Body != nil {
			got = bodyOf(t, x)
		}
		if x.Response.Status != want.status || got != want.body || x.Response.Header.Get("secret") != "" || x.Record.Detail == "" {
			t.Errorf("%s: %d %q, %q; want %d %q", settings, x.Response.Status, got, x.Record.Detail, want.status, want.body)
		}
	}
}

func TestRulesSurviveReload(t *testing.T) {
	factory := Factory()
	build := func(s filtertest.Settings, key string) *testFilter {
		f, err := factory.New(filtertest.Decode(t, factory, s), filter.Env{Metrics: metrics.New(metrics.Options{}), Key: key})
		if err != nil {
			t.Fatal(err)
		}
		r := &testFilter{t: t}
		r.service = f(protocol.BlockingFunc(r.serve))
		return r
	}
	const settings = `{"global_switch": true, "rules": [{"resource": "/a", "threshold": 2, "statIntervalInMs": 600000}]}`
	before := build(settings, "a")
	if got := before.sendSequential(3, "/a"); got != 2 {
		t.Fatalf("admitted %d of 3, want 2", got)
	}
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		key      string
		want     int
	}{
		{"same settings and key", settings, "a", 0},
		{"other key", settings, "b", 2},
		{"other threshold", `{"global_switch": true, "rules": [{"resource": "/a", "threshold": 3, "statIntervalInMs": 600000}]}`, "a", 3},
	} {
		if got := build(test.settings, test.key).sendSequential(5, "/a"); got != test.want {
			t.Errorf("%s: admitted %d of 5, want %d", test.name, got, test.want)
		}
	}
	runtime.KeepAlive(before)
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	rule := func(members string) filtertest.Settings {
		return filtertest.Settings(`{"global_switch": true, "rules": [{"resource": "/a", ` + members + `}]}`)
	}
	for name, test := range map[string]struct {
		settings filtertest.Settings
		want     string
	}{
		"rules without global_switch":      {`{"rules": [{"resource": "/a", "threshold": 1}]}`, "global_switch"},
		"empty resource":                   {`{"global_switch": true, "rules": [{"resource": "", "threshold": 1}]}`, "resource is empty"},
		"no threshold":                     {rule(`"grade": 1`), "threshold"},
		"negative threshold":               {rule(`"threshold": -1`), "threshold"},
		"unknown limit_key_type":           {`{"limit_key_type": "HEADER"}`, "PATH"},
		"limitApp of another client":       {rule(`"threshold": 1, "limitApp": "shop"`), "limitApp"},
		"refResource":                      {rule(`"threshold": 1, "relationStrategy": 1, "refResource": "/b"`), "refResource"},
		"unsupported relationStrategy":     {rule(`"threshold": 1, "strategy": 2`), "relationStrategy"},
		"MemoryAdaptive":                   {rule(`"threshold": 1, "tokenCalculateStrategy": "MemoryAdaptive"`), "MemoryAdaptive"},
		"invalid regex":                    {rule(`"threshold": 1, "regex": true, "resource": "("`), "resource"},
		"short interval":                   {rule(`"threshold": 1, "statIntervalInMs": 5`), "statIntervalInMs"},
		"Throttling of concurrency":        {rule(`"threshold": 1, "grade": 0, "controlBehavior": 1`), "Throttling"},
		"fractional concurrency":           {rule(`"threshold": 0.5, "grade": 0`), "0.5"},
		"WarmUp without a period":          {rule(`"threshold": 1, "tokenCalculateStrategy": 1`), "warmUpPeriodSec"},
		"invalid warmUpColdFactor":         {rule(`"threshold": 1, "tokenCalculateStrategy": 1, "warmUpPeriodSec": 1, "warmUpColdFactor": 1`), "warmUpColdFactor"},
		"WarmUp with threshold 0":          {rule(`"threshold": 0, "tokenCalculateStrategy": 1, "warmUpPeriodSec": 1`), "threshold"},
		"period without WarmUp":            {rule(`"threshold": 1, "warmUpPeriodSec": 1`), "WarmUp"},
		"queueing time without Throttling": {rule(`"threshold": 1, "maxQueueingTimeMs": 1`), "maxQueueingTimeMs"},
		"dynamic_data_resources":           {`{"dynamic_data_resources": [{"resource_type": "nacos"}]}`, "dynamic_data_resources"},
		"callback_name":                    {`{"callback_name": "mine"}`, "callback_name"},
		"invalid response status":          {`{"action": {"status": 101}}`, "status"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), test.settings); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func newService(t testing.TB) protocol.Service {
	f, _ := filtertest.Build(t, Factory(), `{"global_switch": true, "rules": [
		{"resource": "/items", "threshold": 1e15}, {"resource": "/items", "grade": 0, "threshold": 1000}]}`)
	return f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
}

func TestPassingDoesNotAllocate(t *testing.T) {
	filtertest.CheckNoAllocs(t, newService(t), filtertest.NewRequest("/items?a=b"))
	filtertest.CheckNoAllocs(t, newService(t), filtertest.NewRequest("/other"))
}

func rejectingService(t testing.TB) protocol.Service {
	f, _ := filtertest.Build(t, Factory(), `{"global_switch": true, "rules": [{"resource": "/items", "threshold": 0}]}`)
	return f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
}

func TestRejectingDoesNotAllocate(t *testing.T) {
	x := filtertest.NewRequest("/items")
	filtertest.CheckNoAllocs(t, rejectingService(t), x)
	if x.Record.Reason != protocol.RateLimited {
		t.Errorf("reason = %v, want %v", x.Record.Reason, protocol.RateLimited)
	}
}

func BenchmarkServe(b *testing.B) {
	b.Run("two rules", func(b *testing.B) { filtertest.Bench(b, newService(b), filtertest.NewRequest("/items?a=b")) })
	b.Run("rejected", func(b *testing.B) { filtertest.Bench(b, rejectingService(b), filtertest.NewRequest("/items")) })
	b.Run("no rule", func(b *testing.B) { filtertest.Bench(b, newService(b), filtertest.NewRequest("/other")) })
}
