package fault

import (
	"context"
	"flag"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 3 {
		t.Fatalf("%d examples, want 3", len(examples))
	}
	s := newFault(t, examples[0], 0) // selects every request
	synctest.Test(t, func(t *testing.T) {
		x := newRequest("end-user: tester-12")
		start := time.Now()
		if err := x.Serve(t.Context(), s); err != nil || x.Response.Status != 503 || time.Since(start) != 2*time.Second {
			t.Errorf("request of a tester: %v, %d after %v; want 503 after 2s", err, x.Response.Status, time.Since(start))
		}
	})
	x := newRequest("end-user: customer")
	if err := x.Serve(t.Context(), s); err != nil || x.Response.Status != 200 {
		t.Errorf("request of a customer: %v, %d; want 200", err, x.Response.Status)
	}
	for i, want := range map[int]int{1: 200, 2: 418} {
		x := newRequest()
		if err := x.Serve(t.Context(), newFault(t, examples[i], 0)); err != nil || x.Response.Status != want {
			t.Errorf("example %d: %v, %d; want %d", i, err, x.Response.Status, want)
		}
	}
}

// newFault returns the filter in front of an application that responds with 200. Every random
// sample has the value sample, in percent.
func newFault(t testing.TB, s filtertest.Settings, sample uint32) *fault {
	t.Helper()
	newService, _ := filtertest.Build(t, Factory(), s)
	f := newService(application()).(*fault)
	f.random = func() uint32 { return sample * (match.Million / 100) }
	return f
}

func application() protocol.Service {
	return protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "text/plain", "from the application")
		return nil
	})
}

// newRequest returns a request with headers in the form "name: value".
func newRequest(fields ...string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Authority, x.Request.Path = "GET", "shop.test", "/secret-path"
	x.Request.Header.Add("Authorization", "secret-token")
	filtertest.AddHeaders(&x.Request.Header, fields...)
	return x
}

func TestAbortPercentage(t *testing.T) {
	for _, test := range []struct {
		name    string
		percent string
		sample  uint32
		want    int
	}{
		{"0 percent", "0", 0, 200},
		{"1 percent, lowest sample", "1", 0, 418},
		{"1 percent, next sample", "1", 1, 200},
		{"sample below the fraction", "30", 29, 418},
		{"sample equal to the fraction", "30", 30, 200},
		{"99 percent, highest sample", "99", 99, 200},
		{"100 percent", "100", 99, 418},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFault(t, filtertest.Settings(`{"abort": {"status": 418, "percentage": `+test.percent+`}}`), test.sample)
			x := newRequest()
			if err := x.Serve(t.Context(), f); err != nil || x.Response.Status != test.want {
				t.Errorf("Serve = %v, status %d, want %d", err, x.Response.Status, test.want)
			}
		})
	}
}

// TestPercentageDistribution verifies the fraction of aborted requests with a seeded generator, so
// that the test cannot fail by chance.
func TestPercentageDistribution(t *testing.T) {
	f := newFault(t, `{"abort": {"percentage": 25}}`, 0)
	random := rand.New(rand.NewPCG(1, 2))
	f.random = func() uint32 { return random.Uint32N(match.Million) }
	aborted := 0
	for range 10_000 {
		x := newRequest()
		if err := x.Serve(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if x.Response.Status == 503 {
			aborted++
		}
	}
	if aborted < 2300 || aborted > 2700 {
		t.Errorf("%d of 10000 requests were aborted, want about 25 percent", aborted)
	}
}

func TestDelayDuration(t *testing.T) {
	for name, test := range map[string]struct {
		settings filtertest.Settings
		want     time.Duration
	}{
		"fixed delay":     {`{"delay": {"fixed_delay": "1500ms", "percentage": 100}}`, 1500 * time.Millisecond},
		"no percentage":   {`{"delay": {"fixed_delay": "1500ms"}}`, 0},
		"before an abort": {`{"delay": {"fixed_delay": "1s", "percentage": 100}, "abort": {"percentage": 100}}`, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				if err := newRequest().Serve(t.Context(), newFault(t, test.settings, 99)); err != nil {
					t.Fatal(err)
				}
				if elapsed := time.Since(start); elapsed != test.want {
					t.Errorf("the request took %v, want %v", elapsed, test.want)
				}
			})
		})
	}
}

const minuteDelay = `{"delay": {"fixed_delay": "1m", "percentage": 100}}`

func TestDelayEndsOnDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &fakeDownstream{disconnectAfter: 3 * time.Second}
		x := newRequest()
		x.Downstream = client
		start := time.Now()
		err := x.Serve(t.Context(), newFault(t, minuteDelay, 0))
		if got := protocol.ReasonOf(err); got != protocol.ReasonDownstreamDisconnect || time.Since(start) != 3*time.Second {
			t.Errorf("Serve = %v after %v, want %v after 3s", err, time.Since(start), protocol.ReasonDownstreamDisconnect)
		}
		if client.activeWatches != 0 {
			t.Error("OnDisconnect was not stopped")
		}
	})
}

func TestDelayEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		x := newRequest()
		x.Downstream = &fakeDownstream{}
		x.Request.Body, x.Request.ContentLength = unarrivedBody{}, 10
		start := time.Now()
		err := x.Serve(ctx, newFault(t, minuteDelay, 0))
		if got := protocol.ReasonOf(err); got != protocol.Draining || time.Since(start) != 2*time.Second {
			t.Errorf("Serve = %v after %v, want %v after 2s", err, time.Since(start), protocol.Draining)
		}
	})
}

// TestDelayDetaches verifies that the filter calls Detach only before a delay, so that an engine
// with many exchanges on one goroutine can continue.
func TestDelayDetaches(t *testing.T) {
	for name, test := range map[string]struct {
		settings filtertest.Settings
		want     []time.Duration // times of Detach since the start of the request
	}{
		"delay":         {minuteDelay, []time.Duration{0}},
		"no percentage": {`{"delay": {"fixed_delay": "1m"}}`, nil},
		"abort":         {`{"abort": {"percentage": 100}}`, nil},
		"other cluster": {`{"delay": {"fixed_delay": "1m", "percentage": 100}, "upstream_cluster": "other"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newRequest()
				engine := &detachRecorder{began: time.Now()}
				x.Downstream = engine
				if err := x.Serve(t.Context(), newFault(t, test.settings, 0)); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(engine.detached, test.want) {
					t.Errorf("detached after %v, want %v", engine.detached, test.want)
				}
			})
		})
	}
}

// detachRecorder is a protocol.Downstream that serves other exchanges on the same goroutine. It
// records when Detach is called.
type detachRecorder struct {
	fakeDownstream
	began    time.Time
	detached []time.Duration
}

func (b *detachRecorder) Detach() { b.detached = append(b.detached, time.Since(b.began)) }

// TestDisconnectIsWatchedForCompleteRequests verifies that the filter watches for a disconnect only
// when the body is complete: OnDisconnect reads from the connection, where the body may still
// arrive.
func TestDisconnectIsWatchedForCompleteRequests(t *testing.T) {
	for name, test := range map[string]struct {
		body   protocol.Body
		length int64
		want   int
	}{
		"no body":                {nil, -1, 1},
		"buffered body":          {protocol.NewStringBody("hello"), 5, 1},
		"body has not arrived":   {unarrivedBody{}, 5, 0},
		"body of unknown length": {protocol.NewStringBody("hello"), -1, 0},
		"partly buffered body":   {protocol.NewStringBody("hel"), 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &fakeDownstream{}
				x := newRequest()
				x.Downstream, x.Request.Body, x.Request.ContentLength = client, test.body, test.length
				if err := x.Serve(t.Context(), newFault(t, minuteDelay, 0)); err != nil {
					t.Fatal(err)
				}
				if client.watchCount != test.want {
					t.Errorf("%d calls of OnDisconnect, want %d", client.watchCount, test.want)
				}
			})
		})
	}
}

// fakeDownstream is a client that disconnects after disconnectAfter; 0: never.
type fakeDownstream struct {
	disconnectAfter time.Duration
	watchCount      int
	activeWatches   int // watches that are not stopped
}

func (d *fakeDownstream) SendInterim(int, *protocol.Header) error { return nil }

func (d *fakeDownstream) OnDisconnect(onDisconnect func()) (stop func()) {
	d.watchCount++
	d.activeWatches++
	if d.disconnectAfter == 0 {
		return func() { d.activeWatches-- }
	}
	timer := time.AfterFunc(d.disconnectAfter, onDisconnect)
	return func() { timer.Stop(); d.activeWatches-- }
}

// unarrivedBody is a body that has not arrived yet.
type unarrivedBody struct{}

func (unarrivedBody) Read([]byte) (int, error) { return 0, io.ErrNoProgress }
func (unarrivedBody) Buffered() int            { return 0 }
func (unarrivedBody) Close() error             { return nil }

func TestOnlyMatchingRequestsAreAborted(t *testing.T) {
	const abort = `"abort": {"status": 418, "percentage": 100}`
	for _, test := range []struct {
		name, settings, target string
		fields                 []string
		want                   int
	}{
		{"no conditions", `{` + abort + `}`, "reviews", nil, 418},
		{"matching cluster", `{` + abort + `, "upstream_cluster": "reviews"}`, "reviews", nil, 418},
		{"other cluster", `{` + abort + `, "upstream_cluster": "reviews"}`, "ratings", nil, 200},
		{"no cluster", `{` + abort + `, "upstream_cluster": "reviews"}`, "", nil, 200},
		{"matching value", `{` + abort + `, "headers": [{"name": "user", "value": "jason"}]}`, "", []string{"User: jason"}, 418},
		{"other value", `{` + abort + `, "headers": [{"name": "user", "value": "jason"}]}`, "", []string{"User: jasons"}, 200},
		{"header missing, empty value", `{` + abort + `, "headers": [{"name": "user", "value": ""}]}`, "", nil, 200},
		{"empty header, empty value", `{` + abort + `, "headers": [{"name": "user", "value": ""}]}`, "", []string{"User: "}, 418},
		{"value without regex", `{` + abort + `, "headers": [{"name": "user", "value": "j.*"}]}`, "", []string{"User: jason"}, 200},
		{"regex", `{` + abort + `, "headers": [{"name": "user", "value": "j.*|x", "regex": true}]}`, "", []string{"User: jason"}, 418},
		{"regex is anchored", `{` + abort + `, "headers": [{"name": "user", "value": "aso|jas", "regex": true}]}`, "", []string{"User: jason"}, 200},
		{"one of two conditions", `{` + abort + `, "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]}`, "", []string{"A: 1"}, 200},
		{"string_match prefix", `{` + abort + `, "headers": [{"name": "user", "string_match": {"prefix": "JAS", "ignore_case": true}}]}`, "", []string{"User: jason"}, 418},
		{"exact_match of :method", `{` + abort + `, "headers": [{"name": ":method", "exact_match": "GET"}]}`, "", nil, 418},
		{"present_match", `{` + abort + `, "headers": [{"name": "user", "present_match": true}]}`, "", []string{"User: jason"}, 418},
		{"present_match, header missing", `{` + abort + `, "headers": [{"name": "user", "present_match": true}]}`, "", nil, 200},
		{"inverted exact_match", `{` + abort + `, "headers": [{"name": "user", "exact_match": "jason", "invert_match": true}]}`, "", []string{"User: jason"}, 200},
		{"both conditions", `{` + abort + `, "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]}`, "", []string{"A: 1", "B: 2"}, 418},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := newRequest(test.fields...)
			x.Record.TargetCluster = test.target
			if err := x.Serve(t.Context(), newFault(t, filtertest.Settings(test.settings), 0)); err != nil || x.Response.Status != test.want {
				t.Errorf("Serve = %v, status %d, want %d", err, x.Response.Status, test.want)
			}
		})
	}
}

func TestAbortContainsNothingOfRequest(t *testing.T) {
	x := newRequest()
	if err := x.Serve(t.Context(), newFault(t, `{"abort": {"percentage": 100}}`, 0)); err != nil {
		t.Fatal(err)
	}
	if x.Response.Status != 503 || x.Record.Reason != protocol.FaultInjected {
		t.Errorf("status %d, reason %v; want 503, %v", x.Response.Status, x.Record.Reason, protocol.FaultInjected)
	}
	for name, value := range x.Response.Header.All() {
		if name != "Content-Type" {
			t.Errorf("unexpected response header %s: %s, want only Content-Type", name, value)
		}
	}
	body, err := io.ReadAll(x.Response.Body)
	if err != nil || string(body) != "fault injected\n" {
		t.Errorf("response body = %q, %v; want %q", body, err, "fault injected\n")
	}
}

// TestGRPCAbortStatus verifies that gRPC clients get grpc_status in a response without a body, and
// that other clients get Envoy's HTTP status for it.
func TestGRPCAbortStatus(t *testing.T) {
	for _, test := range []struct {
		name, code, contentType string
		status                  int
		grpc                    string
	}{
		{"gRPC", "7", "application/grpc+proto", 200, "7"},
		{"gRPC, code 0", "0", "application/grpc", 200, "0"},
		{"JSON", "7", "application/json", 403, ""},
		{"no content type", "14", "", 503, ""},
		{"no content type, highest code", "16", "", 401, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := newRequest("content-type: " + test.contentType)
			if err := x.Serve(t.Context(), newFault(t, filtertest.Settings(`{"abort": {"percentage": 100, "grpc_status": `+test.code+`}}`), 0)); err != nil {
				t.Fatal(err)
			}
			if got := x.Response.Header.Get("grpc-status"); x.Response.Status != test.status || got != test.grpc {
				t.Errorf("status %d, grpc-status %q, want %d, %q", x.Response.Status, got, test.status, test.grpc)
			}
			if test.grpc != "" && (x.Response.Body != nil || x.Response.Header.Get("content-type") != "application/grpc") {
				t.Errorf("the response has a body or the content type %q, want no body and application/grpc", x.Response.Header.Get("content-type"))
			}
			if x.Record.Reason != protocol.FaultInjected {
				t.Errorf("reason = %v, want %v", x.Record.Reason, protocol.FaultInjected)
			}
		})
	}
}

func TestFaultsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, counts := filtertest.Build(t, Factory(),
			`{"delay": {"fixed_delay": "1s", "percentage": 100}, "abort": {"percentage": 100}, "headers": [{"name": "a", "value": "1"}]}`)
		s := f(application())
		for _, x := range []*protocol.Exchange{newRequest("a: 1"), newRequest("a: 1"), newRequest()} {
			if err := x.Serve(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range []metrics.Metric{delaysMetric(), abortsMetric()} {
			if got := counts.Value(m); got != 2 {
				t.Errorf("%s = %v, want 2", m.Name, got)
			}
		}
	})
}

func TestMaxActiveFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, counts := filtertest.Build(t, Factory(), `{"max_active_faults": 2, "delay": {"fixed_delay": "1s", "percentage": 100}}`)
		s := f(application())
		start := time.Now()
		var durations [5]time.Duration
		var requests sync.WaitGroup
		for i := range durations {
			requests.Go(func() {
				if err := newRequest().Serve(t.Context(), s); err != nil {
					t.Error(err)
				}
				durations[i] = time.Since(start)
			})
		}
		requests.Wait()
		slices.Sort(durations[:])
		if want := [5]time.Duration{3: time.Second, 4: time.Second}; durations != want {
			t.Errorf("durations of five concurrent requests = %v, want %v", durations, want)
		}
		if err := newRequest().Serve(t.Context(), s); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("a later request ended after %v, %v, want 2s", time.Since(start), err)
		}
		if delayed, overflowed := counts.Value(delaysMetric()), counts.Value(overflowsMetric()); delayed != 3 || overflowed != 3 {
			t.Errorf("delay counter = %v, overflow counter = %v, want 3 and 3", delayed, overflowed)
		}
	})
	x := newRequest()
	if err := x.Serve(t.Context(), newFault(t, `{"max_active_faults": 0, "abort": {"percentage": 100}}`, 0)); err != nil || x.Response.Status == 503 {
		t.Errorf("max_active_faults 0: status %d, %v, want no abort", x.Response.Status, err)
	}
}

// TestOverflowIsCountedOncePerRequest verifies that a request that would have got both faults
// counts once.
func TestOverflowIsCountedOncePerRequest(t *testing.T) {
	f, counts := filtertest.Build(t, Factory(), `{"max_active_faults": 0, "delay": {"fixed_delay": "1s", "percentage": 100}, "abort": {"percentage": 100}}`)
	x := newRequest()
	if err := x.Serve(t.Context(), f(application())); err != nil || x.Response.Status != 200 {
		t.Errorf("Serve = %v, status %d, want 200", err, x.Response.Status)
	}
	if got := counts.Value(overflowsMetric()); got != 1 {
		t.Errorf("%s = %v, want 1", overflowsMetric().Name, got)
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, test := range map[string]struct{ settings, want string }{
		"percentage without a delay": {`{"delay": {"percentage": 10}}`, "fixed_delay is not"},
		"percentage above 100":       {`{"abort": {"percentage": 101}}`, "percentage"},
		"invalid status":             {`{"abort": {"status": 99}}`, "status"},
		"invalid regex":              {`{"headers": [{"name": "a", "value": "(", "regex": true}]}`, "headers[0].value"},
		"header without a name":      {`{"headers": [{"value": "a"}]}`, "name"},
		"unknown key":                {`{"abortion": {}}`, "abort"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtertest.DecodeErrors(t, Factory(), filtertest.Settings(test.settings)); !strings.Contains(got, test.want) {
				t.Errorf("rejected with %q, want an error with %q", got, test.want)
			}
		})
	}
}

func TestRequestsThatPassDoNotAllocate(t *testing.T) {
	f, err := Factory().New(&Config{Abort: Abort{Status: 503, Percent: 100}, Headers: []HeaderMatch{{HeaderMatcherConfig: match.HeaderMatcherConfig{Name: "a"}, Value: "1.", Regex: true}}},
		filter.Env{Metrics: metrics.New(metrics.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	s := f(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }))
	x := newRequest("a: 2")
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = x.Serve(ctx, s) }); n != 0 {
		t.Errorf("Serve allocates %v times, want 0", n)
	}
}
