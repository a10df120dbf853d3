package adaptiveconcurrency

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
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
		r := newTestFilter(t, examples[0])
		r.checkAdmitted(t, map[string]int{"batch": 1, "normal": 2, "high": 3}) // the initial limit is 3
		method := newTestFilter(t, examples[1])
		for _, name := range []string{"buy", "sell"} {
			if got := method.sendPending(t, 5, func() *protocol.Exchange { return rpcCall("org.example.Shop", name) }); got != 3 {
				t.Errorf("admitted %[2]d of 5 calls of %[1]s, want 3", name, got)
			}
		}
	})
}

// testFilter is the filter in front of an application that responds when the test allows it.
type testFilter struct {
	service  protocol.Service
	counts   *filtertest.Probe
	arrived  atomic.Int64
	unblock  chan struct{} // closed: the application responds to every request
	delay    time.Duration // duration of a request; 0: wait for unblock
	respond  func(x *protocol.Exchange) error
	requests sync.WaitGroup
}

func newTestFilter(t *testing.T, s filtertest.Settings) *testFilter {
	t.Helper()
	f, counts := filtertest.Build(t, Factory(), s)
	r := &testFilter{counts: counts, unblock: make(chan struct{})}
	r.service = f(protocol.BlockingFunc(r.serve))
	t.Cleanup(r.respondToAll)
	return r
}

// serve responds after the delay, or when unblock is closed.
//
//arch:clock tests that set a delay run in bubbles
func (r *testFilter) serve(_ context.Context, x *protocol.Exchange) error {
	r.arrived.Add(1)
	if r.delay > 0 {
		time.Sleep(r.delay)
	} else {
		<-r.unblock
	}
	if r.respond != nil {
		return r.respond(x)
	}
	x.LocalReply(200, "text/plain", "from the application")
	return nil
}

// sendPending sends n requests that get no response yet, and returns how many were admitted.
func (r *testFilter) sendPending(t *testing.T, n int, request func() *protocol.Exchange) int {
	t.Helper()
	before := r.arrived.Load()
	for range n {
		x := request()
		r.requests.Go(func() {
			if err := x.Serve(t.Context(), r.service); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
	}
	return int(r.arrived.Load() - before)
}

// checkAdmitted sends many requests of each level, in ascending order of share, and checks how many
// are in flight.
func (r *testFilter) checkAdmitted(t *testing.T, want map[string]int) {
	t.Helper()
	admitted := 0
	for _, level := range []string{"batch", "normal", "high"} {
		admitted += r.sendPending(t, 10, func() *protocol.Exchange { return httpRequest("x-priority: " + level) })
		if admitted != want[level] {
			t.Errorf("after requests of level %s, %d are in flight, want %d", level, admitted, want[level])
		}
	}
}

// respondToAll lets the application respond to every request.
func (r *testFilter) respondToAll() {
	select {
	case <-r.unblock:
	default:
		close(r.unblock)
	}
	r.requests.Wait()
}

type route string

func (r route) Name() string { return string(r) }

// httpRequest returns a request with headers in the form "name: value".
func httpRequest(fields ...string) *protocol.Exchange {
	x := filtertest.NewRequest("/items", fields...)
	x.Record.Route = route("all")
	return x
}

func rpcCall(service, method string, attachments ...string) *protocol.Exchange {
	x := httpRequest(append([]string{"service: " + service, "method: " + method}, attachments...)...)
	x.Request.Method, x.Request.Authority = "", service
	return x
}

func grpcCall(path string) *protocol.Exchange {
	x := httpRequest("content-type: application/grpc")
	x.Request.Method, x.Request.Path, x.Meta.Protocol = "POST", path, "Http2"
	x.Request.Body = protocol.NewStringBody("\x00\x00\x00\x00\x00")
	return x
}

const minConcurrency2 = `"gradient_controller_config": {"min_rtt_calc_params": {"min_concurrency": 2}}`

func TestLimitScopes(t *testing.T) {
	withRoute := func(x *protocol.Exchange, name string) *protocol.Exchange {
		x.Record.Route = route(name)
		return x
	}
	type sent struct {
		request func() *protocol.Exchange
		want    int // number of admitted requests, of 3
	}
	for _, test := range []struct {
		name, settings string
		sent           []sent
	}{
		{"routes", `{` + minConcurrency2 + `}`, []sent{
			{func() *protocol.Exchange { return withRoute(httpRequest(), "a") }, 2}, {func() *protocol.Exchange { return withRoute(httpRequest(), "b") }, 2},
			{func() *protocol.Exchange { return withRoute(rpcCall("s", "m"), "a") }, 0}}},
		{"methods of RPC", `{` + minConcurrency2 + `, "per": "method"}`, []sent{
			{func() *protocol.Exchange { return rpcCall("s", "m") }, 2}, {func() *protocol.Exchange { return rpcCall("s", "n") }, 2},
			{func() *protocol.Exchange { return withRoute(rpcCall("s", "m"), "b") }, 0}, {func() *protocol.Exchange { return rpcCall("r", "m") }, 2}}},
		{"methods of gRPC", `{` + minConcurrency2 + `, "per": "method"}`, []sent{
			{func() *protocol.Exchange { return grpcCall("/shop.Items/List") }, 2}, {func() *protocol.Exchange { return grpcCall("/shop.Items/Get") }, 2},
			{func() *protocol.Exchange { return grpcCall("/shop.Items/List") }, 0}}},
		{"requests without a method use the route", `{` + minConcurrency2 + `, "per": "method"}`, []sent{
			{func() *protocol.Exchange { return withRoute(httpRequest(), "a") }, 2}, {func() *protocol.Exchange { return withRoute(httpRequest(), "b") }, 2},
			{func() *protocol.Exchange { return withRoute(rpcCall("", ""), "b") }, 0}}},
		{"methods beyond max_limits share a limit", `{` + minConcurrency2 + `, "per": "method", "max_limits": 1}`, []sent{
			{func() *protocol.Exchange { return rpcCall("s", "a") }, 2}, {func() *protocol.Exchange { return rpcCall("s", "b") }, 2},
			{func() *protocol.Exchange { return rpcCall("s", "c") }, 0}, {func() *protocol.Exchange { return rpcCall("s", "a") }, 0}}},
		{"methods with long names share a limit", `{` + minConcurrency2 + `, "per": "method"}`, []sent{
			{func() *protocol.Exchange { return rpcCall("s", strings.Repeat("a", 300)) }, 2}, {func() *protocol.Exchange { return rpcCall("s", strings.Repeat("b", 300)) }, 0}}},
		{"disabled", `{` + minConcurrency2 + `, "enabled": {"default_value": false}}`, []sent{{func() *protocol.Exchange { return httpRequest() }, 3}}},
		{"no controller", `{}`, []sent{{func() *protocol.Exchange { return httpRequest() }, 3}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTestFilter(t, filtertest.Settings(test.settings))
				for i, s := range test.sent {
					if got := r.sendPending(t, 3, s.request); got != s.want {
						t.Errorf("step %d: admitted %d of 3, want %d", i, got, s.want)
					}
				}
			})
		})
	}
}

func TestLowPriorityIsRejectedFirst(t *testing.T) {
	const levels = `"priority": {"attachment": "x-priority", "default": "normal", "levels": [
		{"value": "high", "share": 100}, {"value": "normal", "share": 60}, {"value": "batch", "share": 30}]}`
	settings := filtertest.Settings(`{"gradient_controller_config": {"min_rtt_calc_params": {"min_concurrency": 10}}, ` + levels + `}`)
	for name, request := range map[string]func(level string) *protocol.Exchange{
		"HTTP": func(level string) *protocol.Exchange { return httpRequest("X-Priority: " + level) },
		"RPC":  func(level string) *protocol.Exchange { return rpcCall("s", "m", "x-priority: "+level) },
		"gRPC": func(level string) *protocol.Exchange {
			x := grpcCall("/s/m")
			x.Request.Header.Add("x-priority", level)
			return x
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTestFilter(t, settings)
				for i, step := range []struct {
					level string
					want  int // number of admitted requests, of 20
				}{{"batch", 3}, {"unknown", 3}, {"normal", 0}, {"", 0}, {"high", 4}, {"HIGH", 0}, {"high", 0}} {
					if got := r.sendPending(t, 20, func() *protocol.Exchange { return request(step.level) }); got != step.want {
						t.Errorf("step %d: level %q: admitted %d of 20, want %d", i, step.level, got, step.want)
					}
				}
				if got := r.counts.Value(rejectedMetric()); got != 130 {
					t.Errorf("rejected counter = %v, want 130", got)
				}
			})
		})
	}
}

func TestRejectionIsOverflow(t *testing.T) {
	for settings, want := range map[filtertest.Settings]int{
		`{` + minConcurrency2 + `}`: 503,
		`{` + minConcurrency2 + `, "concurrency_limit_exceeded_status": {"code": 429}}`: 429,
		`{` + minConcurrency2 + `, "concurrency_limit_exceeded_status": {"code": 200}}`: 503,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newTestFilter(t, settings)
			r.sendPending(t, 2, func() *protocol.Exchange { return httpRequest() })
			x := httpRequest("secret: token")
			if err := x.Serve(t.Context(), r.service); err != nil || x.Response.Status != want || x.Record.Reason != protocol.Overflow || x.Record.Detail == "" || x.Response.Header.Get("secret") != "" {
				t.Errorf("%s: %v, %d, %v; want %d", settings, err, x.Response.Status, x.Record.Reason, want)
			}
		})
	}
}

// bodyWithState is a body that implements protocol.CompleteBody.
type bodyWithState struct {
	protocol.Body
	complete bool
}

// Complete implements protocol.CompleteBody.
func (b bodyWithState) Complete() (complete, empty bool) { return b.complete, false }

// onlyLimiter returns the only limiter of the filter.
func onlyLimiter(t *testing.T, s protocol.Service) *limiter {
	t.Helper()
	limiters := *s.(*limitedService).limits.byScope.Load()
	if len(limiters) != 1 {
		t.Fatalf("%d limiters, want 1", len(limiters))
	}
	for _, l := range limiters {
		return l
	}
	return nil
}

// TestSampledRequests verifies which requests are sampled, and that no request stays in flight.
func TestSampledRequests(t *testing.T) {
	respondText := func(x *protocol.Exchange) error { x.LocalReply(200, "text/plain", "hello"); return nil }
	respondHead := func(status string) func(x *protocol.Exchange) error {
		return func(x *protocol.Exchange) error {
			x.Response.Status = 200
			x.Response.Header.Add("Content-Type", "application/grpc")
			if status != "" {
				x.Response.Header.Add("Grpc-Status", status)
			}
			return nil
		}
	}
	for _, test := range []struct {
		name    string
		request func() *protocol.Exchange
		respond func(x *protocol.Exchange) error
		want    bool
	}{
		{"HTTP response", func() *protocol.Exchange { return httpRequest() }, respondText, true},
		{"RPC response", func() *protocol.Exchange { return rpcCall("s", "m") }, respondText, true},
		{"500 response", func() *protocol.Exchange { return httpRequest() }, func(x *protocol.Exchange) error { x.LocalReply(500, "", ""); return nil }, false},
		{"fault", func() *protocol.Exchange { return httpRequest() }, func(*protocol.Exchange) error { return protocol.NewFault(protocol.ConnectFailure, nil) }, false},
		{"client disconnects", func() *protocol.Exchange { return httpRequest() }, func(*protocol.Exchange) error { return protocol.NewFault(protocol.ReasonDownstreamDisconnect, nil) }, false},
		{"panic", func() *protocol.Exchange { return httpRequest() }, func(*protocol.Exchange) error { panic("of the test") }, false},
		{"one-way call", func() *protocol.Exchange { x := rpcCall("s", "m"); x.Request.OneWay = true; return x }, func(*protocol.Exchange) error { return nil }, false},
		{"WebSocket", func() *protocol.Exchange { x := httpRequest(); x.Request.Upgrade = "websocket"; return x }, respondText, false},
		{"gRPC response", func() *protocol.Exchange { return grpcCall("/s/m") }, respondText, true},
		{"gRPC status without a message", func() *protocol.Exchange { return grpcCall("/s/m") }, respondHead("0"), true},
		{"gRPC failure", func() *protocol.Exchange { return grpcCall("/s/m") }, respondHead("14"), false},
		{"gRPC NOT_FOUND", func() *protocol.Exchange { return grpcCall("/s/m") }, respondHead("5"), true},
		{"404 response", func() *protocol.Exchange { return httpRequest() }, func(x *protocol.Exchange) error { x.LocalReply(404, "", ""); return nil }, true},
		{"429 response", func() *protocol.Exchange { return httpRequest() }, func(x *protocol.Exchange) error { x.LocalReply(429, "", ""); return nil }, false},
		{"gRPC with a complete request", func() *protocol.Exchange {
			x := grpcCall("/s/m")
			x.Request.Body = bodyWithState{x.Request.Body, true}
			return x
		}, respondText, true},
		{"gRPC stream with an incomplete request", func() *protocol.Exchange {
			x := grpcCall("/s/m")
			x.Request.Body = bodyWithState{x.Request.Body, false}
			return x
		}, respondText, false},
		{"gRPC head before the message", func() *protocol.Exchange { return grpcCall("/s/m") }, respondHead(""), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTestFilter(t, `{`+minConcurrency2+`}`)
				r.delay, r.respond = time.Millisecond, test.respond
				x := test.request()
				_ = x.Serve(t.Context(), r.service) // the test checks the limiter, not the error
				if x.Record.Reason == protocol.Overflow {
					t.Fatal("the request was rejected")
				}
				l := onlyLimiter(t, r.service)
				if n := l.inFlight.Load(); n != 0 {
					t.Errorf("%d requests are in flight, want 0", n)
				}
				if got := l.samples.hasAtLeast(1); got != test.want {
					t.Errorf("sampled = %t, want %t", got, test.want)
				}
			})
		})
	}
}

// TestSlowFailuresAreSampled verifies that slow failures are sampled, because they are a
// sign of overload.
func TestSlowFailuresAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestFilter(t, `{"gradient_controller_config": {"min_rtt_calc_params": {"fixed_value": "10ms"}}}`)
		r.respond = func(*protocol.Exchange) error { return protocol.NewFault(protocol.UpstreamTimeout, nil) }
		for delay, want := range map[time.Duration]bool{time.Millisecond: false, 20 * time.Millisecond: true} {
			r.delay = delay
			_ = httpRequest().Serve(t.Context(), r.service) // returns the fault
			l := onlyLimiter(t, r.service)
			if _, n := l.samples.drain(50); (n == 1) != want {
				t.Errorf("a failure after %v makes %d samples, want a sample: %t", delay, n, want)
			}
		}
	})
}

func TestLimitGrowsUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestFilter(t, `{"gradient_controller_config": {"min_rtt_calc_params": {"min_concurrency": 2, "request_count": 10}}}`)
		r.delay = 10 * time.Millisecond
		stop := make(chan struct{})
		var clients sync.WaitGroup
		for range 20 {
			clients.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					x := httpRequest()
					_ = x.Serve(t.Context(), r.service) // a rejection is a response
					if x.Record.Reason != protocol.ReasonNone {
						time.Sleep(time.Millisecond) // in fake time
					}
				}
			})
		}
		time.Sleep(5 * time.Second) // in fake time
		close(stop)
		clients.Wait()
		l := onlyLimiter(t, r.service)
		if got := l.limit.Load(); got < 20 {
			t.Errorf("limit = %d, want at least 20: 20 concurrent requests take no longer than 2", got)
		}
		if got := time.Duration(l.minRTT.Load()); got < 9*time.Millisecond || got > 11*time.Millisecond {
			t.Errorf("minRTT = %v, want 10ms", got)
		}
		runtime.KeepAlive(r)
	})
}

// TestLimitsSurviveReload verifies that a factory reuses limits for the same settings and key.
func TestLimitsSurviveReload(t *testing.T) {
	factory := Factory()
	build := func(s filtertest.Settings, key string) *limitedService {
		f, err := factory.New(filtertest.Decode(t, factory, s), filter.Env{Metrics: metrics.New(metrics.Options{}), Key: key})
		if err != nil {
			t.Fatal(err)
		}
		return f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil })).(*limitedService)
	}
	const settings = `{` + minConcurrency2 + `}`
	before := build(settings, "a")
	for _, test := range []struct {
		name     string
		settings filtertest.Settings
		key      string
		want     bool
	}{
		{"same settings and key", settings, "a", true},
		{"other key", settings, "b", false},
		{"other settings", `{` + minConcurrency2 + `, "per": "method"}`, "a", false},
	} {
		if got := build(test.settings, test.key).limits == before.limits; got != test.want {
			t.Errorf("%s: limits are reused: %t, want %t", test.name, got, test.want)
		}
	}
	runtime.KeepAlive(before)
}

func TestUnusedLimitIsNotExported(t *testing.T) {
	registry := metrics.New(metrics.Options{})
	factory := Factory()
	series := func() (n int) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == limitMetric().Name {
				n += len(family.GetMetric())
			}
		}
		return n
	}
	func() {
		f, err := factory.New(filtertest.Decode(t, factory, `{`+minConcurrency2+`}`), filter.Env{Metrics: registry})
		if err != nil {
			t.Fatal(err)
		}
		s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
		if err := httpRequest().Serve(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if n := series(); n != 1 {
			t.Errorf("%d series of the limit, want 1", n)
		}
		runtime.KeepAlive(s)
	}()
	for range 100 {
		runtime.GC()
		if series() == 0 {
			return
		}
		runtime.Gosched()
	}
	t.Error("the unused limit is still exported")
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	priority := func(members string) filtertest.Settings {
		return filtertest.Settings(`{"priority": {` + members + `}}`)
	}
	for name, test := range map[string]struct {
		settings filtertest.Settings
		want     string
	}{
		"minimum above the maximum": {`{"gradient_controller_config": {"concurrency_limit_params": {"max_concurrency_limit": 2}}}`, "min_concurrency"},
		"percentile above 100":      {`{"gradient_controller_config": {"sample_aggregate_percentile": {"value": 101}}}`, "100"},
		"interval of 0":             {`{"gradient_controller_config": {"min_rtt_calc_params": {"interval": "0s"}}}`, "interval"},
		"unknown scope":             {`{"per": "listener"}`, "route"},
		"share of 0":                {priority(`"header": "a", "levels": [{"value": "x", "share": 0}], "default": "x"`), "share"},
		"duplicate level":           {priority(`"header": "a", "levels": [{"value": "x", "share": 100}, {"value": "x", "share": 50}], "default": "x"`), "duplicate level"},
		"unknown default level":     {priority(`"header": "a", "levels": [{"value": "x", "share": 100}], "default": "y"`), "default"},
		"no default":                {priority(`"header": "a", "levels": [{"value": "x", "share": 100}]`), "default"},
		"no level with share 100":   {priority(`"header": "a", "levels": [{"value": "x", "share": 99}], "default": "x"`), "100"},
		"invalid header name":       {priority(`"header": ":x", "levels": [{"value": "x", "share": 100}], "default": "x"`), ":x"},
		"no header":                 {priority(`"levels": [{"value": "x", "share": 100}], "default": "x"`), "header"},
		"too many levels":           {priority(`"header": "a", "default": "0", "levels": [` + manyLevels(17) + `]`), "16"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), test.settings); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func manyLevels(n int) string {
	var levels []string
	for i := range n {
		levels = append(levels, fmt.Sprintf(`{"value": "%d", "share": 100}`, i))
	}
	return strings.Join(levels, ", ")
}

func newService(t testing.TB, settings filtertest.Settings) protocol.Service {
	f, _ := filtertest.Build(t, Factory(), settings)
	return f(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.Response.Status = 200
		return nil
	}))
}

const byMethod = `{` + minConcurrency2 + `, "per": "method", "priority": {"header": "x-priority", "default": "normal",
	"levels": [{"value": "high", "share": 100}, {"value": "normal", "share": 60}]}}`

func TestPassingDoesNotAllocate(t *testing.T) {
	filtertest.CheckNoAllocs(t, newService(t, `{`+minConcurrency2+`}`), httpRequest())
	filtertest.CheckNoAllocs(t, newService(t, byMethod), rpcCall("org.example.Shop", "buy", "x-priority: high"))
	filtertest.CheckNoAllocs(t, newService(t, byMethod), grpcCall("/org.example.Shop/buy"))
}

// saturatedService returns a service whose limit is reached.
func saturatedService(t testing.TB) protocol.Service {
	s := newService(t, byMethod)
	x := rpcCall("org.example.Shop", "buy")
	f := s.(*limitedService)
	for f.limits.limiterFor(x, perMethod).acquire(100) {
		continue
	}
	return s
}

func TestRejectingDoesNotAllocate(t *testing.T) {
	x := rpcCall("org.example.Shop", "buy", "x-priority: high")
	filtertest.CheckNoAllocs(t, saturatedService(t), x)
	if x.Record.Reason != protocol.Overflow {
		t.Errorf("reason = %v, want %v", x.Record.Reason, protocol.Overflow)
	}
}

func BenchmarkServe(b *testing.B) {
	b.Run("route", func(b *testing.B) { filtertest.Bench(b, newService(b, `{`+minConcurrency2+`}`), httpRequest()) })
	b.Run("rejected", func(b *testing.B) {
		filtertest.Bench(b, saturatedService(b), rpcCall("org.example.Shop", "buy", "x-priority: high"))
	})
	b.Run("method", func(b *testing.B) {
		filtertest.Bench(b, newService(b, byMethod), rpcCall("org.example.Shop", "buy", "x-priority: high"))
	})
}
