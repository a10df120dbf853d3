package router

import (
	"fmt"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// sizedTable returns a table with n routes of the path kind, divided among hosts virtual hosts, and
// a request for its last route. A single virtual host has the domain "*".
func sizedTable(kind config.PathKind, n, hosts int) (*config.RouteTable, *protocol.Exchange) {
	c := &config.RouteTable{Name: "sized"}
	for h := range hosts {
		vh := &config.VirtualHost{Name: fmt.Sprintf("host-%d", h), Domains: []string{fmt.Sprintf("host-%d.default.svc.cluster.local", h)}}
		if h == 0 && hosts == 1 {
			vh.Domains = []string{"*"}
		}
		for i := range n / hosts {
			vh.Routes = append(vh.Routes, &config.Route{
				Name:    fmt.Sprintf("host-%d/%d", h, i),
				Match:   config.RouteMatch{PathKind: kind, Path: fmt.Sprintf("/service-%05d/v1/items", i)},
				Forward: &config.Forward{Cluster: "cluster"},
			})
		}
		c.VirtualHosts = append(c.VirtualHosts, vh)
	}
	path := fmt.Sprintf("/service-%05d/v1/items", n/hosts-1)
	if kind == config.PathPrefix {
		path += "/17?color=blue"
	}
	return c, request("GET", fmt.Sprintf("host-%d.default.svc.cluster.local", hosts-1), path)
}

func BenchmarkMatch(b *testing.B) {
	kinds := []struct {
		name string
		kind config.PathKind
	}{{"exact", config.PathExact}, {"prefix", config.PathPrefix}}
	sizes := []struct{ routes, hosts int }{{10, 1}, {1000, 1}, {50_000, 1}, {10, 10}, {1000, 1000}, {50_000, 5000}}
	for _, kind := range kinds {
		for _, size := range sizes {
			b.Run(fmt.Sprintf("%s/routes=%d/hosts=%d", kind.name, size.routes, size.hosts), func(b *testing.B) {
				c, x := sizedTable(kind.kind, size.routes, size.hosts)
				table := mustCompileTable(b, c)
				b.ReportAllocs()
				for b.Loop() {
					if table.Match(x) == nil {
						b.Fatal("no route")
					}
				}
			})
		}
	}
}

// BenchmarkMatchSpread requests all routes in a scattered order, so that the processor's caches
// contain little of the table.
func BenchmarkMatchSpread(b *testing.B) {
	c, x := sizedTable(config.PathPrefix, 50_000, 1)
	table := mustCompileTable(b, c)
	paths := make([]string, 0, 50_000)
	for i := range 50_000 {
		paths = append(paths, c.VirtualHosts[0].Routes[(i*7919)%50_000].Match.Path)
	}
	i := 0
	for b.Loop() {
		x.Request.Path = paths[i%len(paths)]
		if table.Match(x) == nil {
			b.Fatal("no route")
		}
		i++
	}
}

func BenchmarkMatchMethods(b *testing.B) {
	var routes []*config.Route
	for _, m := range []string{"GET", "PUT", "POST", "PATCH", "DELETE"} {
		routes = append(routes, forward(m, config.RouteMatch{PathKind: config.PathExact, Path: "/items", Headers: []config.HeaderMatch{{Name: "method", Value: m}}}))
	}
	table := mustCompile(b, routes...)
	x := request("DELETE", "a.test", "/items", "Accept", "*/*")
	for b.Loop() {
		if table.Match(x) == nil {
			b.Fatal("no route")
		}
	}
}

func BenchmarkMatchServices(b *testing.B) {
	var routes []*config.Route
	for i := range 1000 {
		routes = append(routes, forward("r", config.RouteMatch{Headers: []config.HeaderMatch{{Name: "service", Value: fmt.Sprintf("com.shop.Service%d", i)}}}))
	}
	table := mustCompile(b, routes...)
	x := request("", "com.shop.Service999", "/com.shop.Service999/list", "service", "com.shop.Service999", "method", "list")
	x.Meta.Protocol = "dubbo"
	for b.Loop() {
		if table.Match(x) == nil {
			b.Fatal("no route")
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, hosts := range []int{1, 5000} {
		b.Run(fmt.Sprintf("routes=50000/hosts=%d", hosts), func(b *testing.B) {
			c, _ := sizedTable(config.PathPrefix, 50_000, hosts)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Compile(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkActions measures the cost of a plain forwarding route in addition to Match.
func BenchmarkActions(b *testing.B) {
	x := request("GET", "a.test", "/items", "Accept", "*/*")
	r := compileAndMatch(b, forward("c", config.RouteMatch{}), x)
	for b.Loop() {
		r.RewriteRequest(x)
		if name, _ := r.ChooseCluster(x, 1); name == "" {
			b.Fatal("no cluster")
		}
		r.MutateResponse(x)
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	c, exact := sizedTable(config.PathExact, 100, 10)
	hosts := mustCompileTable(t, c)
	mixed := mustCompile(t,
		forward("0", config.RouteMatch{PathKind: config.PathRegex, Path: "^/(a|b)+[0-9]{2,}$"}),
		forward("1", config.RouteMatch{PathKind: config.PathPrefix, Path: "/x", Headers: []config.HeaderMatch{{Name: "y", Value: "^1+$", Regex: true}, {Name: "host", Value: "a.test"}}}),
		forward("2", config.RouteMatch{Headers: []config.HeaderMatch{{Name: "service", Value: "s"}}}),
		forward("3", config.RouteMatch{PathKind: config.PathPrefix, Path: "/v", Variables: []config.VariableMatch{{Name: "x-mosn-method", Value: "PUT", Or: true}, {Name: "query", Value: "k"}}}),
	)
	tests := []struct {
		name  string
		table *Table
		x     *protocol.Exchange
		want  string
	}{
		{"an exact path of one of several hosts", hosts, exact, "host-9/9"},
		{"no virtual host", hosts, request("GET", "other", "/"), "none"},
		{"an authority in non-canonical form", hosts, request("GET", "HOST-9.default.svc.cluster.local.:80", exact.Request.Path), "host-9/9"},
		{"an IPv6 authority", hosts, request("GET", "[2001:db8::1]:80", "/"), "none"},
		{"an expression", mixed, request("GET", "a.test", "/abba99"), "0"},
		{"headers", mixed, request("GET", "a.test", "/x/y", "Y", "11"), "1"},
		{"only a header condition", mixed, request("GET", "a.test", "/", "service", "s"), "2"},
		{"variables", mixed, request("GET", "a.test", "/v?k"), "3"},
		{"no route", mixed, request("GET", "a.test", "/?k"), "none"},
	}
	for _, test := range tests {
		var got *Route
		if n := testing.AllocsPerRun(100, func() { got = test.table.Match(test.x) }); n != 0 {
			t.Errorf("%s: Match allocates %v times, want 0", test.name, n)
		}
		if nameOf(got) != test.want {
			t.Errorf("%s: Match = %s, want %s", test.name, nameOf(got), test.want)
		}
	}
}

func TestActionsThatDoNotAllocate(t *testing.T) {
	c := &config.Forward{
		WeightedClusters: []config.WeightedCluster{{Cluster: "a", Weight: 1}, {Cluster: "b", Weight: 2}},
		PrefixRewrite:    "/",
		HostRewrite:      "origin.test",
		Request: config.HeaderMutation{Remove: []string{"Cookie"}, Add: []config.HeaderValue{
			{Name: "x-const", Value: "1"}, {Name: "x-client", Value: "%downstream_remote_ip%"},
		}},
		Response: config.HeaderMutation{Add: []config.HeaderValue{{Name: "x-const", Value: "1"}}},
	}
	x := request("GET", "a.test", "/api/items")
	x.Meta.Conn = &protocol.ConnMeta{RemoteIP: "192.0.2.1"}
	r := compileAndMatch(t, &config.Route{Match: config.RouteMatch{PathKind: config.PathPrefix, Path: "/api/"}, Forward: c}, x)
	n := testing.AllocsPerRun(100, func() {
		x.Reset()
		x.Request.Path, x.Request.Authority = "/api/items", "a.test"
		x.Request.Header.Add("Cookie", "c")
		x.Request.Header.Add("x-client", "forged")
		r.RewriteRequest(x)
		r.Timeouts(x)
		r.ChooseCluster(x, 1)
		r.MutateResponse(x)
	})
	if n != 0 {
		t.Errorf("the actions allocate %v times, want 0", n)
	}
	if got := x.Request.Authority + x.Request.Path + x.Request.Header.Get("x-client"); got != "origin.test/items192.0.2.1" {
		t.Errorf("authority, path and x-client: %q; want origin.test, /items and 192.0.2.1", got)
	}
}
