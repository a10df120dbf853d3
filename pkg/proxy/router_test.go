package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestRequestWithoutRouteGets404(t *testing.T) {
	r, address := setup{routes: `{"match": {"prefix": "/shop"}, "direct_response": {"status": 200}}`}.run(t)
	got := roundTrip(t, address, get("/secret-path", "Cookie: secret-cookie"))
	if got.StatusCode != 404 || got.body != "no route matched\n" {
		t.Errorf("response %d %q, want 404 %q", got.StatusCode, got.body, "no route matched\n")
	}
	for name, values := range got.Header {
		if strings.Contains(strings.Join(values, ""), "secret") {
			t.Errorf("the response has %s: %v, want no secret", name, values)
		}
	}
	r.await(1, "weft_listener_request_failures_total", protocol.ReasonNoRoute.String())
}

func TestRedirectAndDirectResponse(t *testing.T) {
	_, address := setup{routes: `
		{"match": {"prefix": "/direct"}, "direct_response": {"status": 418, "body": "short and stout"}},
		{"match": {"prefix": "/moved"}, "redirect": {"response_code": 307, "host_redirect": "new.test", "path_redirect": "/there"}}`}.run(t)
	if got := roundTrip(t, address, get("/direct", "Cookie: secret")); got.StatusCode != 418 || got.body != "short and stout" || got.Header.Get("Cookie") != "" {
		t.Errorf("direct_response: %d %q %v; want 418 \"short and stout\" and no Cookie", got.StatusCode, got.body, got.Header)
	}
	if got := roundTrip(t, address, get("/moved?a=b")); got.StatusCode != 307 || got.Header.Get("Location") != "http://new.test/there?a=b" {
		t.Errorf("redirect: %d to %q; want 307, %q", got.StatusCode, got.Header.Get("Location"), "http://new.test/there?a=b")
	}
}

func TestRouteChoosesCluster(t *testing.T) {
	one, two := origin(t, respondText("one")), origin(t, respondText("two"))
	_, address := setup{
		routes: `
			{"match": {"prefix": "/variable"}, "route": {"cluster_variable": "request_header_x-cluster"}},
			{"match": {"prefix": "/all"}, "route": {"weighted_clusters": [{"cluster": {"name": "one", "weight": 0}}, {"cluster": {"name": "two", "weight": 100}}]}},
			{"match": {"prefix": "/half"}, "route": {"weighted_clusters": [{"cluster": {"name": "one", "weight": 50}}, {"cluster": {"name": "two", "weight": 50}}]}},
			{"match": {"prefix": "/"}, "route": {"cluster_name": "one"}}`,
		clusters: cluster("one", one) + "," + cluster("two", two),
	}.run(t)
	c := dialClient(t, address)
	for _, test := range []struct {
		path, header string
		status       int
		want         string
	}{
		{"/", "A: b", 200, "one"},
		{"/variable", "X-Cluster: two", 200, "two"},
		{"/variable", "X-Cluster: one", 200, "one"},
		{"/variable", "X-Cluster: three", 404, "no such cluster\n"},
		{"/variable", "A: b", 404, "no such cluster\n"},
		{"/all", "A: b", 200, "two"},
	} {
		if got := c.roundTrip(get(test.path, test.header)); got.StatusCode != test.status || got.body != test.want {
			t.Errorf("%s with %s: response %d %q, want %d %q", test.path, test.header, got.StatusCode, got.body, test.status, test.want)
		}
	}
	counts := map[string]int{}
	for range 200 {
		counts[c.roundTrip(get("/half")).body]++
	}
	if counts["one"] < 50 || counts["two"] < 50 || len(counts) != 2 { // seven standard deviations
		t.Errorf("requests per cluster with equal weights: %v, want at least 50 each", counts)
	}
}

func TestAutoHostRewrite(t *testing.T) {
	app := origin(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) })
	_, address := setup{
		routes:   `{"match": {"prefix": "/"}, "route": {"cluster_name": "app", "auto_host_rewrite": true}}`,
		clusters: `{"name": "app", "hosts": [{"address": "` + app + `", "hostname": "app.internal"}]}`,
	}.run(t)
	if got := roundTrip(t, address, get("/")); got.body != "app.internal" {
		t.Errorf("the upstream received the authority %q, want %q", got.body, "app.internal")
	}
}

// mark is the configuration of a filter that adds its name to requests and responses and may
// replace the path.
type mark struct {
	Name string `key:"name" doc:"Name to add." example:"\"a\""`
	Path string `key:"path" doc:"New path of the request." example:"\"/\""`
}

func newMarkFilter(name string, stage filter.Stage) filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:   name,
		Stage:  stage,
		Config: func() any { return new(mark) },
		New: func(cfg any, _ filter.Env) (filter.Filter, error) {
			m := *cfg.(*mark)
			if m.Name == "broken" {
				return nil, fmt.Errorf("it is %s", m.Name)
			}
			return func(next protocol.Service) protocol.Service {
				return protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
					if m.Path != "" {
						x.Request.Path = m.Path
					}
					x.Request.Header.Add("X-Mark", m.Name+"@"+x.Request.Path+"@"+x.Record.TargetCluster)
					if err := x.Serve(ctx, next); err != nil {
						return err
					}
					x.Response.Header.Add("X-Mark", m.Name)
					return nil
				})
			}, nil
		},
	}
}

// TestServicesAreComposedInOrder verifies the order of services on the request path: filters before
// the router, rewrites of the route, and filters of the route in the order of the listener.
// Responses take the reverse path.
func TestServicesAreComposedInOrder(t *testing.T) {
	app := origin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("X-Mark", "app")
		fmt.Fprint(w, strings.Join(r.Header["X-Mark"], " "))
	})
	factories := []filter.StreamFilterFactory{newMarkFilter("before", filter.BeforeRoute), newMarkFilter("after", filter.AfterRoute), newMarkFilter("late", filter.AfterRoute)}
	_, address := setup{
		filters: `
			{"type": "late", "config": {"name": "1"}},
			{"type": "before", "config": {"name": "2"}},
			{"type": "after", "config": {"name": "3"}},
			{"type": "before", "config": {"name": "4", "path": "/changed"}}`,
		routes: `
			{"match": {"prefix": "/changed"},
			 "route": {"cluster_name": "app", "prefix_rewrite": "/rewritten",
				"request_headers_to_add": [{"header": {"key": "x-mark", "value": "route"}}],
				"response_headers_to_add": [{"header": {"key": "x-mark", "value": "route"}}]},
			 "per_filter_config": {"after": {"name": "own"}}},
			{"match": {"prefix": "/"}, "direct_response": {"status": 500}}`,
		clusters: cluster("app", app),
	}.run(t, factories...)
	got := roundTrip(t, address, get("/asked"))
	if want := "2@/asked@ 4@/changed@ route 1@/rewritten@app own@/rewritten@app"; got.body != want {
		t.Errorf("request path: %q, want %q", got.body, want)
	}
	if got, want := strings.Join(got.Header["X-Mark"], " "), "app own 1 route 4 2"; got != want {
		t.Errorf("response path: %q, want %q", got, want)
	}
}

func TestRouteFiltersRunOnlyOnMatch(t *testing.T) {
	_, address := setup{
		filters: `{"type": "before", "config": {"name": "before"}}, {"type": "after", "config": {"name": "after"}}`,
		routes:  `{"match": {"prefix": "/direct"}, "direct_response": {"status": 200}}`,
	}.run(t, newMarkFilter("before", filter.BeforeRoute), newMarkFilter("after", filter.AfterRoute))
	if got := strings.Join(roundTrip(t, address, get("/direct")).Header["X-Mark"], " "); got != "after before" {
		t.Errorf("a local reply of the route has X-Mark %q, want %q", got, "after before")
	}
	if got := roundTrip(t, address, get("/nowhere")); got.StatusCode != 404 || len(got.Header["X-Mark"]) != 0 {
		t.Errorf("without a route: status %d, X-Mark %v; want 404, none", got.StatusCode, got.Header["X-Mark"])
	}
}

func TestFilterBuildErrorNamesFilter(t *testing.T) {
	factory := newMarkFilter("after", filter.AfterRoute)
	for name, s := range map[string]setup{
		`listener "front": stream filter "after": it is broken`: {
			filters: `{"type": "after", "config": {"name": "broken"}}`, routes: `{"direct_response": {"status": 200}}`},
		`listener "front": route "all/0": per_filter_config "after": it is broken`: {
			filters: `{"type": "after"}`, routes: `{"direct_response": {"status": 200}, "per_filter_config": {"after": {"name": "broken"}}}`},
	} {
		r := newRig(t, factory)
		if err := r.server.Apply(t.Context(), config.FullDelta(s.snapshot(t, factory))); err == nil || err.Error() != name {
			t.Errorf("Apply = %v, want %s", err, name)
		}
		if got := r.server.Running(); got != nil {
			t.Error("the rejected configuration is active")
		}
	}
}
