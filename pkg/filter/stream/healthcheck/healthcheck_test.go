package healthcheck

import (
	"context"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

func TestReadme(t *testing.T) {
	examples := filtertest.Readme(t, Kind(), *update)
	if len(examples) != 3 {
		t.Fatalf("%d examples, want 3", len(examples))
	}
	for i, want := range []int{200, 404, 404} {
		x := request("GET", "/healthz")
		made, _ := filtertest.Build(t, Kind(), examples[i])
		if err := made(application()).Serve(t.Context(), x); err != nil || x.Response.Status != want {
			t.Errorf("example %d: %v, %d; want %d", i, err, x.Response.Status, want)
		}
	}
}

func request(method, path string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Path = method, path
	x.Request.Header.Add("Authorization", "secret-token")
	return x
}

// application knows none of the paths that it is asked for.
func application() protocol.Service {
	return protocol.ServiceFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.Reply(404, "text/plain", "from the application")
		return nil
	})
}

func TestHealthRequestsAreAnswered(t *testing.T) {
	for _, test := range []struct {
		name, endpoint, method, path string
		answered                     bool
	}{
		{"GET", "/healthz", "GET", "/healthz", true},
		{"HEAD", "/healthz", "HEAD", "/healthz", true},
		{"with a query", "/healthz", "GET", "/healthz?verbose", true},
		{"the root", "/", "GET", "/", true},
		{"a path below", "/healthz", "GET", "/healthz/db", false},
		{"a path that begins so", "/healthz", "GET", "/healthzz", false},
		{"a shorter path", "/healthz", "GET", "/health", false},
		{"another case", "/healthz", "GET", "/Healthz", false},
		{"what changes something", "/healthz", "POST", "/healthz", false},
		{"RPC", "/healthz", "", "/healthz", false},
		{"no endpoint", "", "GET", "/", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			made, counts := filtertest.Build(t, Kind(), filtertest.Settings(`{"endpoint": "`+test.endpoint+`"}`))
			x := request(test.method, test.path)
			if err := made(application()).Serve(t.Context(), x); err != nil {
				t.Fatal(err)
			}
			want, count := 404, 0.0
			if test.answered {
				want, count = 200, 1
			}
			if x.Response.Status != want || counts.Of(answered()) != count {
				t.Errorf("%s %s: %d, %v counted; want %d, %v", test.method, test.path, x.Response.Status, counts.Of(answered()), want, count)
			}
		})
	}
}

func TestTheAnswerCarriesNothingOfTheRequest(t *testing.T) {
	made, _ := filtertest.Build(t, Kind(), `{"endpoint": "/healthz"}`)
	x := request("GET", "/healthz")
	if err := made(application()).Serve(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	for name, value := range x.Response.Header.All() {
		if name != "Content-Type" {
			t.Errorf("the answer has %s: %s", name, value)
		}
	}
	if body, err := io.ReadAll(x.Response.Body); err != nil || string(body) != "ok\n" {
		t.Errorf("the answer is %q, %v", body, err)
	}
}

func TestWhatIsNotBuiltIsRefusedByName(t *testing.T) {
	for settings, want := range map[filtertest.Settings]string{
		`{"passthrough": true}`:                               "passthrough is not supported yet",
		`{"cluster_min_healthy_percentages": {"local": 70}}`:  "cluster_min_healthy_percentages is not supported yet",
		`{"endpoint": "healthz"}`:                             "endpoint is no path",
		`{"grpc_services": ["shop.Items"]}`:                   "grpc_services without grpc",
		`{"endpoint": "/healthz?a"}`:                          "endpoint is no path",
		`{"endpoints": "/healthz"}`:                           `did you mean "endpoint"?`,
		`{"passthrough": true, "cache_time": "10s"}`:          "passthrough",
		`{"endpoint": "/healthz", "cache_time": "ten"}`:       "cache_time",
		`{"cluster_min_healthy_percentages": {"a": "a lot"}}`: "cluster_min_healthy_percentages",
	} {
		if got := filtertest.Refused(t, Kind(), settings); !strings.Contains(got, want) {
			t.Errorf("%s is refused with %q, want %q in it", settings, got, want)
		}
	}
}

// TestFilesOfSidecarsLoad: what stands in them is off.
func TestFilesOfSidecarsLoad(t *testing.T) {
	for _, settings := range []filtertest.Settings{`{}`, `{"passthrough": false}`, `{"passthrough": false, "cluster_min_healthy_percentages": {}}`} {
		made, _ := filtertest.Build(t, Kind(), settings)
		x := request("GET", "/")
		if err := made(application()).Serve(t.Context(), x); err != nil || x.Response.Status != 404 {
			t.Errorf("%s: %v, %d; want what the application says", settings, err, x.Response.Status)
		}
	}
	const want = "warning: cache_time: cache_time is accepted and has no effect"
	if got := filtertest.Refused(t, Kind(), `{"cache_time": "360s"}`); !strings.Contains(got, want) {
		t.Errorf("cache_time: %q, want %q", got, want)
	}
}
