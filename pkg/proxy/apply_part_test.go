package proxy

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// textConfig is the configuration of a filter for tests.
type textConfig struct{ text string }

func (c *textConfig) String() string { return c.text }

// directRouteNamed returns a route that responds to the path /name with a text.
func directRouteNamed(name, text string) *config.Route {
	return &config.Route{
		Name: name, Match: config.RouteMatch{PathKind: config.PathExact, Path: "/" + name}, DirectResponse: &config.DirectResponse{Status: 200, Body: text},
	}
}

// tableWith returns t with other routes in its only virtual host.
func tableWith(t *config.RouteTable, routes ...*config.Route) *config.RouteTable {
	next, vh := *t, *t.VirtualHosts[0]
	vh.Routes = routes
	next.VirtualHosts = []*config.VirtualHost{&vh}
	return &next
}

// noSnapshot is the Next of a Delta that the server must apply without the complete configuration.
func noSnapshot() *config.Snapshot { panic("the complete configuration was requested") }

func TestTableDeltaChangesOnlyRoutes(t *testing.T) {
	builds := make(map[string]int)
	counting := filter.StreamFilterFactory{
		Name: "counting", Stage: filter.AfterRoute,
		Config: func() any { return new(textConfig) },
		New: func(cfg any, _ filter.Env) (filter.Filter, error) {
			builds[fmt.Sprint(cfg)]++
			return func(next protocol.Service) protocol.Service { return next }, nil
		},
	}
	r, address := setup{filters: `{"type": "counting"}`, routes: directRoute("old")}.run(t, counting)
	c := dialClient(t, address)
	table := r.server.Running().Routes[0]
	a, b := directRouteNamed("a", "a1"), directRouteNamed("b", "b1")
	a.Filters = map[string]any{"counting": &textConfig{"of a"}}
	before := r.server.Running()
	for _, step := range []struct {
		name   string
		routes []*config.Route
		want   map[string]string // body by path; "": 404
	}{
		{"other routes", []*config.Route{a, b}, map[string]string{"/a": "a1", "/b": "b1", "/": ""}},
		{"changed route", []*config.Route{a, directRouteNamed("b", "b2")}, map[string]string{"/a": "a1", "/b": "b2"}},
		{"route inserted first", []*config.Route{directRouteNamed("c", "c1"), a, b}, map[string]string{"/a": "a1", "/b": "b1", "/c": "c1"}},
		{"reordered and removed", []*config.Route{b, a}, map[string]string{"/a": "a1", "/b": "b1", "/c": ""}},
		{"all routes removed", nil, map[string]string{"/a": "", "/b": ""}},
	} {
		table = tableWith(table, step.routes...)
		if err := r.server.Apply(context.Background(), config.Delta{Routes: []*config.RouteTable{table}, Next: noSnapshot}); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		for path, want := range step.want {
			status := 200
			if want == "" {
				status = 404
			}
			if got := c.roundTrip(get(path)); got.StatusCode != status || want != "" && got.body != want {
				t.Errorf("%s: %s = %d %q, want %d %q", step.name, path, got.StatusCode, got.body, status, want)
			}
		}
		running := r.server.Running()
		if running == before || running.Routes[0] != table || running.Listeners[0] != before.Listeners[0] {
			t.Errorf("%s: Running does not contain the new table, or more than the table has changed", step.name)
		}
	}
	if builds["of a"] != 1 {
		t.Errorf("the filter of an unchanged route was built %d times, want once", builds["of a"])
	}
	if n := r.value("weft_listener_connections_accepted_total", "front"); n != 1 {
		t.Errorf("%v connections were accepted, want 1", n)
	}
}

// TestTableDeltaKeepsMetrics verifies that changed and unchanged routes keep their metrics until
// they are removed.
func TestTableDeltaKeepsMetrics(t *testing.T) {
	r, address := setup{routes: directRoute("old")}.run(t)
	table := r.server.Running().Routes[0]
	checkRequests := func(want float64, name string) {
		t.Helper()
		roundTrip(t, address, get("/"+name))
		r.await(want, "weft_route_requests_total", name)
	}
	a := directRouteNamed("a", "a")
	for i, routes := range [][]*config.Route{
		{a, directRouteNamed("b", "b")},
		{directRouteNamed("b", "another b"), a},
		{a, directRouteNamed("c", "c"), directRouteNamed("b", "b")},
	} {
		table = tableWith(table, routes...)
		if err := r.server.Apply(context.Background(), config.Delta{Routes: []*config.RouteTable{table}, Next: noSnapshot}); err != nil {
			t.Fatal(err)
		}
		checkRequests(float64(i+1), "a")
		checkRequests(float64(i+1), "b")
	}
	if err := r.server.Apply(context.Background(), config.Delta{Routes: []*config.RouteTable{tableWith(table, a)}, Next: noSnapshot}); err != nil {
		t.Fatal(err)
	}
	r.await(0, "weft_route_requests_total", "b")
	r.await(3, "weft_route_requests_total", "a")
}

func TestInvalidTableChangesNothing(t *testing.T) {
	r, address := setup{routes: directRoute("old")}.run(t)
	table := r.server.Running().Routes[0]
	invalid := directRouteNamed("wrong", "")
	invalid.Match = config.RouteMatch{PathKind: config.PathRegex, Path: "("}
	for name, route := range map[string]*config.Route{"invalid expression": invalid, "no action": {Name: "nothing"}} {
		next := tableWith(table, directRouteNamed("a", "a"), route)
		err := r.server.Apply(context.Background(), config.Delta{Routes: []*config.RouteTable{next}, Next: noSnapshot})
		if err == nil || !strings.Contains(err.Error(), `route table "table"`) {
			t.Errorf("%s: Apply = %v, want an error that names the route table", name, err)
		}
		if got := roundTrip(t, address, get("/a")); got.body != "old" {
			t.Errorf("%s: response %q, want the previous one", name, got.body)
		}
	}
	r.await(0, "weft_route_requests_total", "a")
}

// failingFilter returns a filter that rejects route-specific configuration.
func failingFilter() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name: "failing", Stage: filter.AfterRoute,
		Config: func() any { return new(textConfig) },
		New: func(cfg any, _ filter.Env) (filter.Filter, error) {
			if c, ok := cfg.(*textConfig); ok && c.text != "" {
				return nil, fmt.Errorf("cannot be %v", c)
			}
			return func(next protocol.Service) protocol.Service { return next }, nil
		},
	}
}

func TestInvalidRouteFilterChangesNothing(t *testing.T) {
	r, address := setup{filters: `{"type": "failing"}`, routes: directRoute("old")}.run(t, failingFilter())
	next := directRouteNamed("a", "a")
	next.Filters = map[string]any{"failing": &textConfig{"made"}}
	table := tableWith(r.server.Running().Routes[0], directRouteNamed("b", "b"), next)
	err := r.server.Apply(context.Background(), config.Delta{Routes: []*config.RouteTable{table}, Next: noSnapshot})
	if err == nil || !strings.Contains(err.Error(), "cannot be made") {
		t.Errorf("Apply = %v, want the error of the filter", err)
	}
	if got := roundTrip(t, address, get("/b")); got.body != "old" {
		t.Errorf("response %q, want the previous one", got.body)
	}
}

func TestUnusedTableNeedsCompleteConfiguration(t *testing.T) {
	r, address := setup{routes: directRoute("old")}.run(t)
	next := setup{routes: directRoute("new"), clusters: cluster("c", "127.0.0.1:1")}.snapshot(t)
	other := &config.RouteTable{Name: "other"}
	next.Routes = append(next.Routes, other)
	calls := 0
	if err := r.server.Apply(context.Background(), config.Delta{Routes: []*config.RouteTable{other}, Next: func() *config.Snapshot { calls++; return next }}); err != nil {
		t.Fatal(err)
	}
	if got := roundTrip(t, address, get("/")); got.body != "new" || calls != 1 {
		t.Errorf("response %q, complete configuration requested %d times; want new and 1", got.body, calls)
	}
}

// TestRequestKeepsItsRoute verifies that a request in flight finishes on its route after the route
// is removed.
func TestRequestKeepsItsRoute(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	host := origin(t, func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		_, _ = w.Write([]byte("late"))
	})
	r, address := setup{routes: routeTo("c"), clusters: cluster("c", host)}.run(t)
	c := dialClient(t, address)
	c.send(get("/"))
	<-arrived
	table := tableWith(r.server.Running().Routes[0], directRouteNamed("a", "a"))
	if err := r.server.Apply(context.Background(), config.Delta{Routes: []*config.RouteTable{table}, Next: noSnapshot}); err != nil {
		t.Fatal(err)
	}
	if got := roundTrip(t, address, get("/a")); got.body != "a" {
		t.Errorf("response %q during the request in flight, want that of the new route", got.body)
	}
	close(release)
	if got := c.read(get("/")); got.body != "late" {
		t.Errorf("response %q, want that of the cluster", got.body)
	}
}

// TestNoRequestIsLostWhileRoutesChange verifies that no request fails while routes are added,
// removed and changed under load.
func TestNoRequestIsLostWhileRoutesChange(t *testing.T) {
	r, address := setup{routes: directRoute("old")}.run(t)
	table := r.server.Running().Routes[0]
	stop, counts := make(chan struct{}), make(chan int)
	for range 4 {
		go func() { counts <- requestUntil(t, address, stop) }()
	}
	unchanged := table.VirtualHosts[0].Routes
	var routes []*config.Route
	for i := range 300 {
		route := directRouteNamed(fmt.Sprintf("r%d", i%7), fmt.Sprint(i))
		switch i % 3 {
		case 0:
			routes = append(routes, route)
		case 1:
			routes = slices.Insert(slices.Clone(routes), 0, route)
		default:
			routes = slices.Delete(slices.Clone(routes), 0, len(routes)/2)
		}
		table = tableWith(table, slices.Concat(routes, unchanged)...)
		if err := r.server.Apply(context.Background(), config.Delta{Routes: []*config.RouteTable{table}, Next: noSnapshot}); err != nil {
			t.Fatal(err)
		}
		if got := roundTrip(t, address, get("/")); got.body != "old" {
			t.Fatalf("after change %d: response %q, want that of the unchanged route", i, got.body)
		}
	}
	close(stop)
	for range 4 {
		if <-counts == 0 {
			t.Error("a client completed no request")
		}
	}
}

// partialDelta returns a delta with the clusters of s, and with its virtual hosts in the only route
// table of the active configuration. The server must not request the complete configuration.
func (r *rig) partialDelta(s setup) config.Delta {
	r.t.Helper()
	next := s.snapshot(r.t)
	table := *r.server.Running().Routes[0]
	table.VirtualHosts = next.Routes[0].VirtualHosts
	return config.Delta{Clusters: next.Clusters, Routes: []*config.RouteTable{&table}, Next: noSnapshot}
}

// TestPartialApplyOfClustersAndRoutes verifies that one delta adds a cluster and the route to it.
func TestPartialApplyOfClustersAndRoutes(t *testing.T) {
	host := origin(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("from c")) })
	r, address := setup{routes: directRoute("old")}.run(t)
	if err := r.server.Apply(t.Context(), r.partialDelta(setup{routes: routeTo("c"), clusters: cluster("c", host)})); err != nil {
		t.Fatal(err)
	}
	if got := roundTrip(t, address, get("/")); got.body != "from c" {
		t.Errorf("response %d %q, want that of the new cluster", got.StatusCode, got.body)
	}
}

// TestFailedPartialApplyChangesNothing verifies that neither clusters nor routes of a delta become
// active if one of them is rejected.
func TestFailedPartialApplyChangesNothing(t *testing.T) {
	r, address := setup{routes: directRoute("old")}.run(t)
	invalidTable := r.partialDelta(setup{routes: routeTo("c"), clusters: cluster("c", "127.0.0.1:1")})
	invalid := directRouteNamed("wrong", "")
	invalid.Match = config.RouteMatch{PathKind: config.PathRegex, Path: "("}
	invalidTable.Routes[0] = tableWith(invalidTable.Routes[0], invalid)
	invalidCluster := r.partialDelta(setup{routes: directRoute("new"), clusters: cluster("c", "127.0.0.1:1")})
	c := *invalidCluster.Clusters[0]
	c.LBPolicy = "unknown"
	invalidCluster.Clusters = []*config.Cluster{&c}
	before := r.server.Running()
	for name, d := range map[string]config.Delta{"route table": invalidTable, "cluster": invalidCluster} {
		if err := r.server.Apply(t.Context(), d); err == nil {
			t.Errorf("an invalid %s was applied", name)
		}
		if got := roundTrip(t, address, get("/")); got.body != "old" || r.server.Clusters().Find("c") != nil || r.server.Running() != before {
			t.Errorf("invalid %s: response %q; cluster c: %v; want the previous response and configuration, and no cluster c", name, got.body, r.server.Clusters().Find("c"))
		}
	}
	if err := r.server.Apply(t.Context(), r.partialDelta(setup{routes: directRoute("new"), clusters: cluster("c", "127.0.0.1:1")})); err != nil {
		t.Fatalf("a valid delta after the rejected ones: %v", err)
	}
}

// TestTLSChangeNeedsCompleteConfiguration verifies that the server requests the complete
// configuration when the TLS settings of a cluster change, because credentials do not belong to the
// cluster.
func TestTLSChangeNeedsCompleteConfiguration(t *testing.T) {
	r, address := setup{routes: directRoute("old")}.run(t)
	next := setup{routes: directRoute("new"), clusters: cluster("c", "127.0.0.1:1")}.snapshot(t)
	next.Clusters[0].TLS = &config.TLS{}
	calls := 0
	d := config.Delta{Clusters: next.Clusters, Next: func() *config.Snapshot { calls++; return next }}
	if err := r.server.Apply(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if got := roundTrip(t, address, get("/")); got.body != "new" || calls != 1 {
		t.Errorf("response %q, the complete configuration was requested %d times; want new and 1", got.body, calls)
	}
}
