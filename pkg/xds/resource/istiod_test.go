package resource

import (
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router"
)

// istiodTables returns the route tables of a real istiod, compiled, by name.
func istiodTables(t *testing.T) map[string]*router.Table {
	t.Helper()
	tables := map[string]*router.Table{}
	for _, body := range capturedResources(t, "04-RDS.pb") {
		parsed, err := ReadRoutes(body, testCapabilities())
		if err != nil {
			t.Fatal(err)
		}
		if tables[parsed.Config.Name], err = router.Compile(parsed.Config); err != nil {
			t.Fatal(err)
		}
	}
	return tables
}

// newRequest returns a request from "METHOD host/path" and headers.
func newRequest(line string, headers ...string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Meta.Protocol = string(config.HTTP1)
	method, url, _ := strings.Cut(line, " ")
	host, path, _ := strings.Cut(url, "/")
	x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path = method, "http", host, "/"+path
	for _, f := range headers {
		name, value, _ := strings.Cut(f, ": ")
		x.Request.Header.Add(name, value)
	}
	return x
}

// TestIstiodRoutes verifies the routes of the captured virtual services. They send user jason and
// requests for a version to v3 of reviews, and a fraction of /w/ to v2. Other routes redirect, send
// a direct response, mirror, or inject faults.
func TestIstiodRoutes(t *testing.T) {
	tables := istiodTables(t)
	const reviews = "reviews.default.svc.cluster.local"
	for _, test := range []struct {
		name, table string
		x           *protocol.Exchange
		random      uint64 // random number for the choice of a cluster
		cluster     string // "" for a direct response or redirect
		path        string // path of the upstream request; "" means unchanged
		status      int
		location    string
	}{
		{name: "user with a version", table: "9080", x: newRequest("GET reviews/api/1", "end-user: jason"), cluster: "outbound|9080|v3|" + reviews, path: "/1"},
		{name: "other user", table: "9080", x: newRequest("GET reviews/api/1", "end-user: jasons"), cluster: "outbound|9080|v1|" + reviews},
		{name: "no user", table: "9080", x: newRequest("GET reviews/api/1"), cluster: "outbound|9080|v1|" + reviews},
		{name: "version in the query", table: "9080", x: newRequest("GET reviews/x?v=12"), cluster: "outbound|9080|v3|" + reviews, path: "/x?v=12"},
		{name: "invalid version in the query", table: "9080", x: newRequest("GET reviews/x?v=a12"), cluster: "outbound|9080|v1|" + reviews},
		{name: "start of the larger fraction", table: "9080", x: newRequest("GET reviews/w/1"), random: 0, cluster: "outbound|9080|v1|" + reviews},
		{name: "inside the larger fraction", table: "9080", x: newRequest("GET reviews/w/1"), random: 1 << 63, cluster: "outbound|9080|v1|" + reviews},
		{name: "inside the smaller fraction", table: "9080", x: newRequest("GET reviews/w/1"), random: 15 << 60, cluster: "outbound|9080|v2|" + reviews},
		{name: "route without fractions", table: "9080", x: newRequest("GET reviews/a/w/1"), random: 15 << 60, cluster: "outbound|9080|v1|" + reviews},
		{name: "redirect", table: "9080", x: newRequest("GET reviews/old/x"), status: 308, location: "http://reviews.example.test/new"},
		{name: "direct response", table: "9080", x: newRequest("GET reviews/health"), status: 200},
		{name: "below the path of the direct response", table: "9080", x: newRequest("GET reviews/health/x"), cluster: "outbound|9080|v1|" + reviews},
		{name: "injected fault", table: "9080", x: newRequest("GET reviews/fault"), cluster: "outbound|9080|v1|" + reviews},
		{name: "full name with port", table: "9080", x: newRequest("GET " + reviews + ":9080/"), cluster: "outbound|9080|v1|" + reviews},
		{name: "full name with trailing dot", table: "9080", x: newRequest("GET " + reviews + "./"), cluster: "outbound|9080|v1|" + reviews},
		{name: "other namespace", table: "9080", x: newRequest("GET reviews.other/"), status: 502},
		{name: "namespace in upper case", table: "9080", x: newRequest("GET Reviews.Default.SVC/"), cluster: "outbound|9080|v1|" + reviews},
		{name: "other service", table: "9080", x: newRequest("GET ratings/"), cluster: "outbound|9080||ratings.default.svc.cluster.local"},
		{name: "table of another port", table: "80", x: newRequest("GET "+reviews+"/api/", "end-user: jason"), cluster: "outbound|80|v3|" + reviews, path: "/"},
		{name: "external host", table: "80", x: newRequest("GET external.example.test/"), cluster: "outbound|80||external.example.test"},
		{name: "unknown host", table: "80", x: newRequest("GET elsewhere.test/"), status: 502},
	} {
		t.Run(test.name, func(t *testing.T) {
			route := tables[test.table].Match(test.x)
			if route == nil {
				t.Fatal("no route was found")
			}
			cluster, _ := route.ChooseCluster(test.x, test.random)
			if cluster != test.cluster {
				t.Fatalf("%q goes to %q, want %q", route.Config.Name, cluster, test.cluster)
			}
			if test.cluster == "" {
				route.Reply(test.x)
				if got := test.x.Response.Header.Get("location"); test.x.Response.Status != test.status || got != test.location {
					t.Errorf("status %d, Location %q, want %d, %q", test.x.Response.Status, got, test.status, test.location)
				}
				return
			}
			want := test.path
			if want == "" {
				want = test.x.Request.Path
			}
			if route.RewriteRequest(test.x); test.x.Request.Path != want {
				t.Errorf("the path of the upstream request is %s, want %s", test.x.Request.Path, want)
			}
		})
	}
}

// TestIstiodRouteFilterSettings verifies that the filters receive the settings of routes.
func TestIstiodRouteFilterSettings(t *testing.T) {
	table := istiodTables(t)["9080"]
	for line, want := range map[string][]string{
		"GET reviews/fault": {"envoy.filters.http.fault"},
		"GET reviews/w/1":   {"envoy.filters.http.cors", "mirror"},
		"GET reviews/":      {},
	} {
		route := table.Match(newRequest(line))
		if len(route.Config.Filters) != len(want) {
			t.Errorf("%s has settings for %d filters, want %q", line, len(route.Config.Filters), want)
		}
		for _, name := range want {
			if route.Config.Filters[name] == nil {
				t.Errorf("route of %s: no settings for %s, want some", line, name)
			}
		}
	}
	route := table.Match(newRequest("GET reviews/w/1"))
	if r := route.Config.Forward.WeightedClusters; len(r) != 2 || r[0].Weight != 80 || r[1].Weight != 20 || len(r[0].Response.Add) != 1 || r[0].Response.Add[0].Name != "x-subset" {
		t.Errorf("weighted clusters = %+v, want weights 80 and 20, the first with x-subset", r)
	}
	if got := table.Match(newRequest("GET reviews/x?v=1")).Config.Forward.HashPolicies; len(got) != 1 || got[0].Header != "x-user" {
		t.Errorf("hash policies = %+v, want one by x-user", got)
	}
}
