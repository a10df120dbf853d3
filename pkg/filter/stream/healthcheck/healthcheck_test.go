package healthcheck

import (
	"context"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 5 {
		t.Fatalf("%d examples, want 5", len(examples))
	}
	for i, want := range []int{200, 404, 503, 404, 404} {
		x := newRequest("GET", "/healthz")
		f, _ := filtertest.Build(t, Factory(), examples[i])
		if err := x.Serve(t.Context(), f(application())); err != nil || x.Response.Status != want {
			t.Errorf("example %d: %v, %d; want %d", i, err, x.Response.Status, want)
		}
	}
}

func newRequest(method, path string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Path = method, path
	x.Request.Header.Add("Authorization", "secret-token")
	return x
}

// application returns a service that responds to every request with 404.
func application() protocol.Service {
	return protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(404, "text/plain", "from the application")
		return nil
	})
}

func TestHealthRequestsGetLocalReply(t *testing.T) {
	for _, test := range []struct {
		name, endpoint, method, path string
		filterResponds               bool
	}{
		{"GET", "/healthz", "GET", "/healthz", true},
		{"HEAD", "/healthz", "HEAD", "/healthz", true},
		{"query", "/healthz", "GET", "/healthz?verbose", true},
		{"root path", "/", "GET", "/", true},
		{"path below", "/healthz", "GET", "/healthz/db", false},
		{"endpoint as a prefix", "/healthz", "GET", "/healthzz", false},
		{"shorter path", "/healthz", "GET", "/health", false},
		{"other case", "/healthz", "GET", "/Healthz", false},
		{"POST", "/healthz", "POST", "/healthz", false},
		{"RPC", "/healthz", "", "/healthz", false},
		{"no endpoint", "", "GET", "/", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, counts := filtertest.Build(t, Factory(), filtertest.Settings(`{"endpoint": "`+test.endpoint+`"}`))
			x := newRequest(test.method, test.path)
			if err := x.Serve(t.Context(), f(application())); err != nil {
				t.Fatal(err)
			}
			want, count := 404, 0.0
			if test.filterResponds {
				want, count = 200, 1
			}
			if x.Response.Status != want || counts.Value(respondedMetric()) != count {
				t.Errorf("%s %s: %d, %v counted; want %d, %v", test.method, test.path, x.Response.Status, counts.Value(respondedMetric()), want, count)
			}
		})
	}
}

func TestResponseContainsNothingOfRequest(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), `{"endpoint": "/healthz"}`)
	x := newRequest("GET", "/healthz")
	if err := x.Serve(t.Context(), f(application())); err != nil {
		t.Fatal(err)
	}
	for name, value := range x.Response.Header.All() {
		if name != "Content-Type" {
			t.Errorf("unexpected response header %s: %s, want only Content-Type", name, value)
		}
	}
	if body, err := io.ReadAll(x.Response.Body); err != nil || string(body) != "ok\n" {
		t.Errorf("response body = %q, %v, want ok", body, err)
	}
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for settings, want := range map[filtertest.Settings]string{
		`{"passthrough": true}`:                                                                     "it requires endpoint or headers",
		`{"passthrough": true, "cache_time": "10s"}`:                                                "it requires endpoint or headers",
		`{"pass_through_mode": true, "endpoint": "/a", "grpc": true}`:                               "mutually exclusive with grpc",
		`{"passthrough": true, "endpoint": "/a", "cluster_min_healthy_percentages": {"local": 70}}`: "mutually exclusive",
		`{"cluster_min_healthy_percentages": {"local": 70}}`:                                        "requires endpoint, headers or grpc",
		`{"endpoint": "/a", "cluster_min_healthy_percentages": {"a": 101}}`:                         "not a percentage",
		`{"endpoint": "/a", "cluster_min_healthy_percentages": {"a": -1}}`:                          "not a percentage",
		`{"cluster_min_healthy_percentages": {"a": "a lot"}}`:                                       "cluster_min_healthy_percentages",
		`{"endpoint": "healthz"}`:                                                                   "endpoint is not a valid path",
		`{"grpc_services": ["shop.Items"]}`:                                                         "grpc_services requires grpc",
		`{"endpoint": "/healthz?a"}`:                                                                "endpoint is not a valid path",
		`{"endpoints": "/healthz"}`:                                                                 `did you mean "endpoint"?`,
		`{"endpoint": "/healthz", "cache_time": "ten"}`:                                             "cache_time",
		`{"headers": [{"name": "x", "prefix_match": ""}]}`:                                          "prefix is empty",
	} {
		if got := filtertest.DecodeErrors(t, Factory(), settings); !strings.Contains(got, want) {
			t.Errorf("%s is rejected with %q, want an error with %q", settings, got, want)
		}
	}
}

// TestFirstProblemIsStable verifies that settings with several problems always get the same error.
func TestFirstProblemIsStable(t *testing.T) {
	settings := filtertest.Settings(`{"endpoint": "/a", "cluster_min_healthy_percentages": {"c": -1, "b": -1, "a": -1, "d": -1}}`)
	for range 100 {
		if got := filtertest.DecodeErrors(t, Factory(), settings); !strings.Contains(got, `of "a"`) {
			t.Fatalf("rejected with %q, want an error of cluster a, whose name comes first", got)
		}
	}
}

// TestSidecarConfigHasNoEffect verifies that the settings of sidecar files are accepted and disable
// the filter.
func TestSidecarConfigHasNoEffect(t *testing.T) {
	for _, settings := range []filtertest.Settings{
		`{}`, `{"passthrough": false}`, `{"passthrough": false, "cache_time": "360s", "cluster_min_healthy_percentages": {}}`,
	} {
		f, _ := filtertest.Build(t, Factory(), settings)
		x := newRequest("GET", "/")
		if err := x.Serve(t.Context(), f(application())); err != nil || x.Response.Status != 404 {
			t.Errorf("%s: %v, %d; want the response of the application", settings, err, x.Response.Status)
		}
	}
}

func TestHealthCheckByHeaders(t *testing.T) {
	for _, test := range []struct {
		name, settings, method, path, prober string
		filterResponds                       bool
	}{
		{"header only", `{"headers": [{"name": "user-agent", "prefix_match": "probe/"}]}`, "POST", "/any", "probe/1", true},
		{"other header value", `{"headers": [{"name": "user-agent", "prefix_match": "probe/"}]}`, "GET", "/any", "curl/8", false},
		{"path and header", `{"endpoint": "/healthz", "headers": [{"name": "user-agent", "prefix_match": "probe/"}]}`, "GET", "/healthz", "probe/1", true},
		{"path without the header", `{"endpoint": "/healthz", "headers": [{"name": "user-agent", "prefix_match": "probe/"}]}`, "GET", "/healthz", "", false},
		{":path condition", `{"headers": [{"name": ":path", "exact_match": "/healthz"}]}`, "GET", "/healthz", "", true},
		{"RPC", `{"headers": [{"name": "user-agent", "prefix_match": "probe/"}]}`, "", "/any", "probe/1", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, counts := filtertest.Build(t, Factory(), filtertest.Settings(test.settings))
			x := newRequest(test.method, test.path)
			if test.prober != "" {
				x.Request.Header.Add("User-Agent", test.prober)
			}
			if err := x.Serve(t.Context(), f(application())); err != nil {
				t.Fatal(err)
			}
			if got := x.Response.Status == 200; got != test.filterResponds || counts.Value(respondedMetric()) == 1 != test.filterResponds {
				t.Errorf("local reply: %t, counter = %v; want %t", got, counts.Value(respondedMetric()), test.filterResponds)
			}
		})
	}
}

func TestMinHealthyPercentages(t *testing.T) {
	app := application()
	clusters := &filtertest.ClusterClient{
		Clusters:   map[string]protocol.Service{"shop": app, "empty": app, "down": app},
		HostCounts: map[string]int{"shop": 10, "empty": 0, "down": 4}, UnusableHosts: map[string]int{"shop": 3, "down": 4},
	}
	for percentages, want := range map[string]int{
		`{"shop": 70}`: 200, `{"shop": 70.1}`: 503, `{"shop": 100}`: 503, `{"down": 1}`: 503, `{"down": 0}`: 200,
		`{"empty": 1}`: 503, `{"empty": 0}`: 200, `{"none": 1}`: 503, `{"shop": 50, "down": 50}`: 503,
	} {
		f, _ := filtertest.BuildWith(t, Factory(), filtertest.Settings(`{"endpoint": "/healthz", "grpc": true, "cluster_min_healthy_percentages": `+percentages+`}`), clusters)
		x := newRequest("GET", "/healthz")
		if err := x.Serve(t.Context(), f(app)); err != nil || x.Response.Status != want {
			t.Errorf("%s: %d, %v; want %d", percentages, x.Response.Status, err, want)
		}
		x = newGRPCHealthCheck("/grpc.health.v1.Health/Check", grpcMessage(""))
		if err := x.Serve(t.Context(), f(app)); err != nil {
			t.Fatal(err)
		}
		if content, err := io.ReadAll(x.Response.Body); err != nil || (string(content) == servingMessage) != (want == 200) || (string(content) == notServingMessage) != (want == 503) {
			t.Errorf("%s: gRPC response %q, %v, want the message for status %d", percentages, content, err, want)
		}
	}
	f, _ := filtertest.Build(t, Factory(), `{"endpoint": "/healthz"}`)
	x := newRequest("GET", "/healthz")
	x.Meta.Conn = &protocol.ConnMeta{DownstreamConn: fakeConn{draining: true}}
	if err := x.Serve(t.Context(), f(app)); err != nil || x.Response.Status != 503 {
		t.Errorf("draining: %d, %v; want 503", x.Response.Status, err)
	}
}

// TestPassThroughCache verifies that passthrough forwards health checks and that
// cache_time caches the status.
func TestPassThroughCache(t *testing.T) {
	clock := time.Unix(1, 0)
	f, counts := filtertest.Build(t, newFactory(func() time.Time { return clock }), `{"endpoint": "/healthz", "pass_through_mode": true, "cache_time": "10s"}`)
	status, appErr, hits := 200, error(nil), 0
	s := f(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		hits++
		if appErr != nil {
			return appErr
		}
		x.LocalReply(status, "text/plain", "from the application")
		return nil
	}))
	for _, step := range []struct {
		name   string
		after  time.Duration
		path   string
		status int
		err    error
		want   int // status; 0: Serve fails
		hits   int
		body   string
	}{
		{"first check", 0, "/healthz", 200, nil, 200, 1, "from the application"},
		{"cached status", 9 * time.Second, "/healthz?a", 503, nil, 200, 1, ""},
		{"other path", 0, "/other", 418, nil, 418, 2, "from the application"},
		{"expired status", time.Second, "/healthz", 503, nil, 503, 3, "from the application"},
		{"cached failure", 9 * time.Second, "/healthz", 200, nil, 503, 3, ""},
		{"expired failure, then a fault", time.Second, "/healthz", 0, protocol.NewFault(protocol.ConnectFailure, nil), 0, 4, ""},
		{"cached fault", time.Second, "/healthz", 200, nil, 502, 4, ""},
		{"client disconnects", 9 * time.Second, "/healthz", 0, protocol.NewFault(protocol.ReasonDownstreamDisconnect, nil), 0, 5, ""},
		{"disconnect is not cached", 0, "/healthz", 200, nil, 200, 6, "from the application"},
		{"unauthenticated client", 10 * time.Second, "/healthz", 0, protocol.NewFault(protocol.Unauthenticated, nil), 0, 7, ""},
		{"rate limited client", 0, "/healthz", 0, protocol.NewFault(protocol.RateLimited, nil), 0, 8, ""},
		{"client errors are not cached", 0, "/healthz", 200, nil, 200, 9, "from the application"},
	} {
		clock = clock.Add(step.after)
		status, appErr = step.status, step.err
		x := newRequest("GET", step.path)
		err := x.Serve(t.Context(), s)
		body := ""
		if x.Response.Body != nil {
			content, _ := io.ReadAll(x.Response.Body) // a string body returns no error
			body = string(content)
		}
		if !errors.Is(err, step.err) || x.Response.Status != step.want || hits != step.hits || body != step.body {
			t.Errorf("%s: %d %q, %v after %d hits; want %d %q, %d", step.name, x.Response.Status, body, err, hits, step.want, step.body, step.hits)
		}
	}
	if n := counts.Value(respondedMetric()); n != 3 {
		t.Errorf("counter = %v, want 3", n)
	}
}
