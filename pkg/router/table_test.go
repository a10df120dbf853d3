package router

import (
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// request returns an HTTP/1.1 exchange; headers are pairs of name and value.
func request(method, authority, path string, headers ...string) *protocol.Exchange {
	x := &protocol.Exchange{}
	x.Meta.Protocol = "Http1"
	x.Request.Method = method
	x.Request.Scheme = "http"
	x.Request.Authority = authority
	x.Request.Path = path
	for i := 0; i < len(headers); i += 2 {
		x.Request.Header.Add(headers[i], headers[i+1])
	}
	return x
}

// forward returns a route called name that forwards requests that match m.
func forward(name string, m config.RouteMatch) *config.Route {
	return &config.Route{Name: name, Match: m, Forward: &config.Forward{Cluster: name}}
}

// mustCompile compiles a table with one virtual host, for "*".
func mustCompile(t testing.TB, routes ...*config.Route) *Table {
	t.Helper()
	return mustCompileTable(t, &config.RouteTable{Name: "table", VirtualHosts: []*config.VirtualHost{
		{Name: "all", Domains: []string{"*"}, Routes: routes},
	}})
}

func mustCompileTable(t testing.TB, c *config.RouteTable) *Table {
	t.Helper()
	table, err := Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func nameOf(r *Route) string {
	if r == nil {
		return "none"
	}
	return r.Config.Name
}

func TestMostSpecificDomainWins(t *testing.T) {
	tests := []struct {
		name      string
		domains   []string
		authority string
		scheme    string
		want      string
	}{
		{"exact port before any port", []string{"a.test:*", "a.test:81"}, "a.test:81", "http", "a.test:81"},
		{"any port before a suffix with the port", []string{"*.test:81", "a.test:*"}, "a.test:81", "http", "a.test:*"},
		{"suffix with the port before a longer suffix with any port", []string{"*.a.test:*", "*.test:81"}, "b.a.test:81", "http", "*.test:81"},
		{"the longest suffix", []string{"*.test", "*.a.test", "*.com"}, "b.a.test", "http", "*.a.test"},
		{"suffix before the catch-all", []string{"*", "*.test"}, "a.test", "http", "*.test"},
		{"catch-all last", []string{"*", "a.test", "*.b.test"}, "b.test", "http", "*"},
		{"no matching domain", []string{"a.test", "*.b.test"}, "b.test", "http", "none"},
		{"a star with a port", []string{"*:81", "*"}, "a.test:81", "http", "*:81"},
		{"star stands for at least one byte", []string{"*.test"}, ".test", "http", "none"},
		{"star stands for several labels", []string{"*.test"}, "c.b.a.test", "http", "*.test"},
		{"a suffix inside a label", []string{"*-eu.test"}, "shop-eu.test", "http", "*-eu.test"},

		{"the longest prefix", []string{"a.*", "a.b.*", "a*"}, "a.b.c", "http", "a.b.*"},
		{"a suffix before a longer prefix", []string{"a.b.c.*", "*.d"}, "a.b.c.d", "http", "*.d"},
		{"a host before a prefix", []string{"a.*", "a.test"}, "a.test", "http", "a.test"},
		{"prefix before the catch-all", []string{"*", "a.*"}, "a.test", "http", "a.*"},
		{"any port of a host before a prefix", []string{"a.tes*", "a.test:*"}, "a.test:81", "http", "a.test:*"},
		{"prefix matches any port", []string{"a.*"}, "a.test:81", "http", "a.*"},
		{"star of a prefix matches only a port", []string{"a*"}, "a:81", "http", "a*"},
		{"star of a prefix stands for at least one byte", []string{"a.test*"}, "a.test", "http", "none"},
		{"a prefix inside a label", []string{"shop-*"}, "Shop-eu.test", "http", "shop-*"},
		{"case of a prefix", []string{"A.*"}, "a.test", "http", "A.*"},
		{"prefix does not match in the middle", []string{"a.*"}, "b.a.test", "http", "none"},
		{"a prefix of an address", []string{"10.0.*"}, "10.0.0.1:81", "http", "10.0.*"},
		{"prefix of RPC interfaces", []string{"com.x.*"}, "com.x.Y:1.0", "", "com.x.*"},

		{"domain without a port does not match other ports", []string{"a.test", "*.test"}, "a.test:8080", "http", "none"},
		{"domain without a port matches port 80 for http", []string{"a.test"}, "a.test:80", "http", "a.test"},
		{"domain without a port does not match port 443 for http", []string{"a.test"}, "a.test:443", "http", "none"},
		{"domain without a port matches port 443 for https", []string{"a.test"}, "a.test:443", "https", "a.test"},
		{"domain with the default port matches no port", []string{"a.test:80"}, "a.test", "http", "a.test:80"},
		{"exact port before the default port", []string{"a.test", "a.test:80"}, "a.test:80", "http", "a.test:80"},
		{"no port before the default port", []string{"a.test:80", "a.test"}, "a.test", "http", "a.test"},
		{"suffix and the default port", []string{"*.test"}, "a.test:80", "http", "*.test"},
		{"empty port equals no port", []string{"a.test"}, "a.test:", "http", "a.test"},
		{"leading zeros of a port", []string{"a.test:81"}, "a.test:0081", "http", "a.test:81"},

		{"case of the authority", []string{"a.test"}, "A.Test", "http", "a.test"},
		{"case of the domain", []string{"A.Test"}, "a.test", "http", "A.Test"},
		{"a trailing dot of the authority", []string{"a.test:81"}, "a.test.:81", "http", "a.test:81"},
		{"a trailing dot of the domain", []string{"a.test."}, "a.test", "http", "a.test."},
		{"an IPv4 address", []string{"127.0.0.1:81"}, "127.0.0.1:81", "http", "127.0.0.1:81"},
		{"an IPv6 address", []string{"[::1]:81"}, "[::1]:81", "http", "[::1]:81"},
		{"an IPv6 address without a port", []string{"[::1]"}, "[::1]", "http", "[::1]"},
		{"an IPv6 address in its long form", []string{"[::1]:81"}, "[0:0:0:0:0:0:0:1]:81", "http", "[::1]:81"},
		{"an IPv6 address in upper case", []string{"[fe80::a]:*"}, "[FE80::A]:9", "http", "[fe80::a]:*"},
		{"an interface of an RPC protocol", []string{"com.x.Y"}, "com.x.Y", "", "com.x.Y"},
		{"an interface with version and group", []string{"com.x.Y:1.0:blue"}, "com.x.Y:1.0:blue", "", "com.x.Y:1.0:blue"},
		{"no authority", []string{"a.test", "*"}, "", "http", "*"},
		{"no authority, no catch-all", []string{"a.test"}, "", "http", "none"},
		{"an authority too long for a host", []string{"*", "*.test"}, strings.Repeat("a", 600) + ".test", "http", "*"},
		{"star in the authority is not a pattern", []string{"a.test:*", "*"}, "*", "http", "*"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := &config.RouteTable{}
			for _, d := range test.domains {
				c.VirtualHosts = append(c.VirtualHosts, &config.VirtualHost{
					Name: d, Domains: []string{d}, Routes: []*config.Route{forward(d, config.RouteMatch{})},
				})
			}
			table := mustCompileTable(t, c)
			x := request("GET", test.authority, "/")
			x.Request.Scheme = test.scheme
			if got := nameOf(table.Match(x)); got != test.want {
				t.Errorf("Match(%q) of %q = %s, want %s", test.authority, test.domains, got, test.want)
			}
		})
	}
}

func TestNoFallbackToOtherVirtualHost(t *testing.T) {
	table := mustCompileTable(t, &config.RouteTable{VirtualHosts: []*config.VirtualHost{
		{Name: "a", Domains: []string{"a.test"}, Routes: []*config.Route{forward("a", config.RouteMatch{PathKind: config.PathExact, Path: "/a"})}},
		{Name: "all", Domains: []string{"*"}, Routes: []*config.Route{forward("all", config.RouteMatch{})}},
	}})
	if got := table.Match(request("GET", "a.test", "/b")); got != nil {
		t.Errorf("Match = %s, want none", got.Config.Name)
	}
}

func TestFirstMatchingRouteWins(t *testing.T) {
	exact := func(p string) config.RouteMatch { return config.RouteMatch{PathKind: config.PathExact, Path: p} }
	prefix := func(p string) config.RouteMatch { return config.RouteMatch{PathKind: config.PathPrefix, Path: p} }
	regex := func(p string) config.RouteMatch { return config.RouteMatch{PathKind: config.PathRegex, Path: p} }
	withHeader := func(m config.RouteMatch, name, value string) config.RouteMatch {
		m.Headers = append(slices.Clone(m.Headers), config.HeaderMatch{Name: name, Value: value})
		return m
	}
	tests := []struct {
		name   string
		routes []config.RouteMatch
		x      *protocol.Exchange
		want   int // -1: none
	}{
		{"a short prefix before a long one", []config.RouteMatch{prefix("/"), prefix("/a/b")}, request("GET", "", "/a/b"), 0},
		{"a long prefix before a short one", []config.RouteMatch{prefix("/a/b"), prefix("/")}, request("GET", "", "/a/b/c"), 0},
		{"a prefix before the exact path", []config.RouteMatch{prefix("/a"), exact("/a")}, request("GET", "", "/a"), 0},
		{"the exact path before a prefix", []config.RouteMatch{exact("/a"), prefix("/a")}, request("GET", "", "/a"), 0},
		{"exact path does not match a longer path", []config.RouteMatch{exact("/a"), prefix("/a")}, request("GET", "", "/ab"), 1},
		{"an expression between prefixes", []config.RouteMatch{prefix("/b"), regex("^/a+$"), prefix("/a")}, request("GET", "", "/aa"), 1},
		{"an expression after a prefix", []config.RouteMatch{prefix("/a"), regex("^/a+$")}, request("GET", "", "/aa"), 0},
		{"an expression is not anchored", []config.RouteMatch{regex("b")}, request("GET", "", "/abc"), 0},
		{"no path condition matches any path", []config.RouteMatch{exact("/a"), {}, prefix("/b")}, request("GET", "", "/b"), 1},
		{"exact path ignores the query", []config.RouteMatch{exact("/a")}, request("GET", "", "/a?x=/b"), 0},
		{"expression ignores the query", []config.RouteMatch{regex("b")}, request("GET", "", "/a?b"), -1},
		{"prefix ignores the query", []config.RouteMatch{prefix("/a?")}, request("GET", "", "/a?b"), -1},
		{"path is case-sensitive", []config.RouteMatch{exact("/A"), prefix("/A")}, request("GET", "", "/a"), -1},
		{"the asterisk form", []config.RouteMatch{prefix("/"), exact("*")}, request("OPTIONS", "", "*"), 1},
		{"CONNECT has no path", []config.RouteMatch{prefix("/"), {}}, request("CONNECT", "a:1", ""), 1},

		{"failed condition falls through to a later route of the path", []config.RouteMatch{withHeader(exact("/a"), "x", "1"), exact("/a")}, request("GET", "", "/a"), 1},
		{"matching condition", []config.RouteMatch{withHeader(exact("/a"), "x", "1"), exact("/a")}, request("GET", "", "/a", "X", "1"), 0},
		{"all conditions must match", []config.RouteMatch{withHeader(withHeader(config.RouteMatch{}, "x", "1"), "y", "1")}, request("GET", "", "/a", "X", "1"), -1},
		{"later value of a repeated header", []config.RouteMatch{withHeader(config.RouteMatch{}, "x", "2")}, request("GET", "", "/", "X", "1", "X", "2"), 0},
		{"repeated headers are not joined", []config.RouteMatch{withHeader(config.RouteMatch{}, "x", "1,2")}, request("GET", "", "/", "X", "1", "X", "2"), -1},
		{"first route matches a later value of a repeated header", []config.RouteMatch{withHeader(config.RouteMatch{}, "x", "2"), withHeader(config.RouteMatch{}, "x", "1")}, request("GET", "", "/", "X", "1", "X", "2"), 0},
		{"service of a call comes before its attachments", []config.RouteMatch{withHeader(config.RouteMatch{}, "service", "org.B"), withHeader(config.RouteMatch{}, "service", "org.A")}, call("service", "org.B"), 1},
		{"methods of one path", []config.RouteMatch{withHeader(exact("/a"), "method", "GET"), withHeader(exact("/a"), "method", "POST")}, request("POST", "", "/a"), 1},
		{"a method is case-sensitive", []config.RouteMatch{withHeader(config.RouteMatch{}, "method", "GET")}, request("get", "", "/"), -1},
		{"header called method does not select an HTTP route", []config.RouteMatch{withHeader(config.RouteMatch{}, "method", "GET"), {}}, request("POST", "", "/", "method", "GET"), 1},
		{"a host in any case", []config.RouteMatch{withHeader(config.RouteMatch{}, "host", "a.test")}, request("GET", "A.TEST", "/"), 0},
		{"a path as a header, without the query", []config.RouteMatch{withHeader(config.RouteMatch{}, "path", "/a")}, request("GET", "", "/a?b"), 0},
		{":path, with the query", []config.RouteMatch{withHeader(config.RouteMatch{}, ":path", "/a"), withHeader(config.RouteMatch{}, ":path", "/a?b")}, request("GET", "", "/a?b"), 1},
		{":scheme, :method and :authority", []config.RouteMatch{withHeader(withHeader(withHeader(config.RouteMatch{}, ":scheme", "http"), ":method", "GET"), ":authority", "a")}, request("GET", "a", "/"), 0},
		{"value .* requires the header", []config.RouteMatch{withHeader(config.RouteMatch{}, "x", ".*"), {}}, request("GET", "", "/"), 1},
		{"value .* matches an empty header", []config.RouteMatch{withHeader(config.RouteMatch{}, "x", ".*")}, request("GET", "", "/", "x", ""), 0},
		{"an exact value may be empty", []config.RouteMatch{withHeader(config.RouteMatch{}, "x", "")}, request("GET", "", "/", "x", ""), 0},
		{"index by several headers", []config.RouteMatch{withHeader(config.RouteMatch{}, "x", "1"), withHeader(config.RouteMatch{}, "y", "1"), withHeader(config.RouteMatch{}, "x", "2"), withHeader(withHeader(config.RouteMatch{}, "x", "2"), "z", "1")},
			request("GET", "", "/", "x", "2", "y", "2", "z", "1"), 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var routes []*config.Route
			for _, m := range test.routes {
				routes = append(routes, forward("r", m))
			}
			table := mustCompile(t, routes...)
			if got := table.Find(test.x); got != test.want {
				t.Errorf("Find(%s %s %q) = %d, want %d", test.x.Request.Method, test.x.Request.Authority, test.x.Request.Path, got, test.want)
			}
		})
	}
}

// TestPathsAreComparedAsSent verifies that paths are not normalized. An upstream that normalizes
// may treat paths of the route "rest" as /admin, so access rules must list the allowed paths.
func TestPathsAreComparedAsSent(t *testing.T) {
	table := mustCompile(t,
		forward("exact", config.RouteMatch{PathKind: config.PathExact, Path: "/admin"}),
		forward("prefix", config.RouteMatch{PathKind: config.PathPrefix, Path: "/admin/"}),
		forward("rest", config.RouteMatch{PathKind: config.PathPrefix, Path: "/"}),
	)
	tests := []struct{ path, want string }{
		{"/admin", "exact"},
		{"/admin/", "prefix"},
		{"//admin", "rest"},
		{"/admin//", "prefix"},
		{"/./admin", "rest"},
		{"/x/../admin", "rest"},
		{"/x/%2e%2e/admin", "rest"},
		{"/%61dmin", "rest"},
		{"/admin%2f", "rest"},
		{"/admin%2fusers", "rest"},
		{"/admin;v=1", "rest"},
		{"/admin/;v=1", "prefix"},
		{"/Admin", "rest"},
		{`/x\..\admin`, "rest"},
		{"/admin/../public", "prefix"},
		{"/admin/%2e%2e/public", "prefix"},
	}
	for _, test := range tests {
		x := request("GET", "a.test", test.path)
		if got := nameOf(table.Match(x)); got != test.want {
			t.Errorf("Match(%q) = %s, want %s", test.path, got, test.want)
		}
		if x.Request.Path != test.path {
			t.Errorf("Match(%q) changed the path to %q", test.path, x.Request.Path)
		}
	}
}

func TestRPCRoutesMatchHeaders(t *testing.T) {
	rpc := func(headers ...string) *protocol.Exchange {
		x := request("", "com.x.Y", "/com.x.Y/list", headers...)
		x.Meta.Protocol = "dubbo"
		return x
	}
	table := mustCompile(t,
		forward("listing", config.RouteMatch{Headers: []config.HeaderMatch{{Name: "service", Value: "com.x.Y"}, {Name: "method", Value: "list"}}}),
		forward("versions", config.RouteMatch{Headers: []config.HeaderMatch{{Name: "service", Value: "^com\\.x\\.", Regex: true}, {Name: "version", Value: "1.0"}}}),
		forward("usual", config.RouteMatch{Headers: []config.HeaderMatch{{Name: "service", Value: ".*"}}}),
		forward("path", config.RouteMatch{PathKind: config.PathPrefix, Path: "/com.x.Y/", Headers: []config.HeaderMatch{{Name: "host", Value: "com.x.Y"}}}),
	)
	tests := []struct {
		name string
		x    *protocol.Exchange
		want string
	}{
		{"service and method", rpc("service", "com.x.Y", "method", "list"), "listing"},
		{"service by expression", rpc("service", "com.x.Z", "method", "list", "version", "1.0"), "versions"},
		{"any service", rpc("service", "org.z"), "usual"},
		{"no service header", rpc("method", "list"), "path"},
		{"host header replaces the interface", rpc("host", "other"), "none"},
	}
	for _, test := range tests {
		if got := nameOf(table.Match(test.x)); got != test.want {
			t.Errorf("%s: Match = %s, want %s", test.name, got, test.want)
		}
	}
}

func TestVariableConditionsFormGroups(t *testing.T) {
	v := func(name, value string, or bool) config.VariableMatch {
		return config.VariableMatch{Name: name, Value: value, Or: or}
	}
	tests := []struct {
		name       string
		conditions []config.VariableMatch
		want       bool
	}{
		{"both match", []config.VariableMatch{v("x-mosn-method", "GET", false), v("x-mosn-path", "/a", false)}, true},
		{"one does not match", []config.VariableMatch{v("x-mosn-method", "GET", false), v("x-mosn-path", "/b", false)}, false},
		{"or, the first matches", []config.VariableMatch{v("x-mosn-method", "GET", true), v("x-mosn-path", "/b", false)}, true},
		{"or, the second matches", []config.VariableMatch{v("x-mosn-method", "PUT", true), v("x-mosn-path", "/a", false)}, true},
		{"or, none matches", []config.VariableMatch{v("x-mosn-method", "PUT", true), v("x-mosn-path", "/b", false)}, false},
		{"and binds tighter than or", []config.VariableMatch{v("x-mosn-method", "PUT", false), v("x-mosn-path", "/a", true), v("x-mosn-scheme", "http", false)}, true},
		{"or after the last condition has no effect", []config.VariableMatch{v("x-mosn-method", "PUT", true)}, false},
		{"an expression", []config.VariableMatch{{Name: "x-mosn-querystring", Value: "^k=[0-9]+$", Regex: true}}, true},
		{"missing variable equals the empty string", []config.VariableMatch{v("request_header_none", "", false)}, true},
		{"a number", []config.VariableMatch{v("connection_id", "7", false)}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table := mustCompile(t, forward("r", config.RouteMatch{Variables: test.conditions}))
			x := request("GET", "a.test", "/a?k=12")
			x.Meta.Conn = &protocol.ConnMeta{ID: 7}
			if got := table.Match(x) != nil; got != test.want {
				t.Errorf("Match = %v, want %v", got, test.want)
			}
		})
	}
}

func TestRoutesAreListedInOrder(t *testing.T) {
	table := mustCompileTable(t, &config.RouteTable{Name: "named", VirtualHosts: []*config.VirtualHost{
		{Name: "a", Domains: []string{"a"}, Routes: []*config.Route{forward("0", config.RouteMatch{}), forward("1", config.RouteMatch{})}},
		{Name: "b", Domains: []string{"b"}, Routes: []*config.Route{forward("2", config.RouteMatch{})}},
	}})
	if table.Name() != "named" || len(table.Routes()) != 3 {
		t.Fatalf("table %q has %d routes, want named with 3", table.Name(), len(table.Routes()))
	}
	for i, r := range table.Routes() {
		if want := string(rune('0' + i)); r.Config.Name != want {
			t.Errorf("Routes()[%d] = %s, want %s", i, r.Config.Name, want)
		}
	}
	x := request("GET", "b", "/")
	if got := table.Match(x); got != table.Routes()[2] || got.VirtualHost != "b" {
		t.Errorf("Match = %v, want the listed route of b", got)
	}
	if got := table.Find(x); got != 2 {
		t.Errorf("Find = %d, want 2", got)
	}
}

func TestCompileReportsAllErrors(t *testing.T) {
	invalid := func(name string, m config.RouteMatch) *config.Route { return forward(name, m) }
	huge := strings.Repeat("(a|b){100}", 100)
	c := &config.RouteTable{Name: "t",
		Request: config.HeaderMutation{Remove: []string{"Transfer-Encoding"}},
		VirtualHosts: []*config.VirtualHost{
			{Name: "v", Domains: []string{"a.test", "x*y", "a:b:*", "*x*", "x.*:80", "x:8*", "a.tes*", ""}, Routes: []*config.Route{
				invalid("regex", config.RouteMatch{PathKind: config.PathRegex, Path: "("}),
				invalid("huge", config.RouteMatch{PathKind: config.PathRegex, Path: huge}),
				invalid("long", config.RouteMatch{PathKind: config.PathRegex, Path: strings.Repeat("a", 5000)}),
				invalid("header", config.RouteMatch{Headers: []config.HeaderMatch{{Name: "x", Value: "[", Regex: true}}}),
				invalid("pseudo", config.RouteMatch{Headers: []config.HeaderMatch{{Name: ":status", Value: "1"}}}),
				invalid("nameless", config.RouteMatch{Headers: []config.HeaderMatch{{Value: "1"}}}),
				invalid("variable", config.RouteMatch{Variables: []config.VariableMatch{{Name: "x-mosn-pth", Value: "1"}}}),
				invalid("variable expression", config.RouteMatch{Variables: []config.VariableMatch{{Name: "path", Value: "*", Regex: true}}}),
				{Name: "nothing"},
				{Name: "two things", DirectResponse: &config.DirectResponse{Status: 200}, Redirect: &config.Redirect{}},
			}},
			{Name: "w", Domains: []string{"A.test.", "A.TES*", "*", strings.Repeat("a", 600)}, Response: config.HeaderMutation{Add: []config.HeaderValue{{Name: "Host", Value: "x"}}}},
			{Name: "none"},
			{Name: "z", Domains: []string{"*:*"}},
		}}
	_, err := Compile(c)
	if err == nil {
		t.Fatal("Compile accepted the table")
	}
	for _, want := range []string{
		`request headers: "Transfer-Encoding" cannot be changed`,
		`virtual host "v": domain "x*y" is not valid: expected a host, *.suffix or *`,
		`virtual host "v": domain "*x*" is not valid: expected a host, *.suffix or *`,
		`virtual host "v": domain "x.*:80" is not valid: expected a host, *.suffix or *`,
		`virtual host "v": domain "x:8*" is not valid: expected a host, *.suffix or *`,
		`virtual host "v": domain "" is not valid: expected a host`,
		`virtual host "v": route "regex": path: error parsing regexp: missing closing )`,
		`virtual host "v": route "huge": path: the expression`,
		`virtual host "v": route "long": path: an expression has 5000 bytes: at most 4096`,
		`virtual host "v": route "header": header condition on "x": error parsing regexp`,
		`virtual host "v": route "pseudo": header condition on ":status"`,
		`virtual host "v": route "nameless": a header condition has no name`,
		`virtual host "v": route "variable": variable condition: unknown variable "x-mosn-pth": did you mean "x-mosn-path"?`,
		`virtual host "v": route "variable expression": variable condition on "path": error parsing`,
		`virtual host "v": route "nothing": exactly one of`,
		`virtual host "v": route "two things": exactly one of`,
		`virtual host "w": domain "A.test." already belongs to virtual host "v"`,
		`virtual host "w": domain "A.TES*" already belongs to virtual host "v"`,
		`at most 512 are allowed`,
		`virtual host "w": response headers: "Host" cannot be added`,
		`virtual host "none": it has no domains`,
		`virtual host "z": domain "*:*" already belongs to virtual host "w"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %s:\n%v", want, err)
		}
	}
}
