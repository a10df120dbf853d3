package router

import (
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// compileAndMatch compiles a table with one route, which x must match, and returns the route.
func compileAndMatch(t testing.TB, r *config.Route, x *protocol.Exchange) *Route {
	t.Helper()
	compiled := mustCompile(t, r).Match(x)
	if compiled == nil {
		t.Fatal("the route does not match")
	}
	return compiled
}

// headerLines returns h as "name: value" lines.
func headerLines(h *protocol.Header) []string {
	var lines []string
	for name, value := range h.All() {
		lines = append(lines, name+": "+value)
	}
	return lines
}

func TestPathRewrite(t *testing.T) {
	prefix := func(p string) config.RouteMatch { return config.RouteMatch{PathKind: config.PathPrefix, Path: p} }
	tests := []struct {
		name     string
		match    config.RouteMatch
		forward  config.Forward
		path     string
		want     string
		original string // value of x-mosn-original-path; "": the path does not change
	}{
		{"a prefix", prefix("/api"), config.Forward{PrefixRewrite: "/v2"}, "/api/x?q=/api", "/v2/x?q=/api", "/api/x"},
		{"a prefix that becomes shorter", prefix("/api/"), config.Forward{PrefixRewrite: "/"}, "/api/x?q", "/x?q", "/api/x"},
		{"a prefix is replaced literally", prefix("/api"), config.Forward{PrefixRewrite: "/"}, "/api/x", "//x", "/api/x"},
		{"a prefix replaced with itself", prefix("/api"), config.Forward{PrefixRewrite: "/api"}, "/api/x", "/api/x", ""},
		{"an exact path", config.RouteMatch{PathKind: config.PathExact, Path: "/a"}, config.Forward{PrefixRewrite: "/b"}, "/a?q", "/b?q", "/a"},
		{"any path gets the prefix", config.RouteMatch{}, config.Forward{PrefixRewrite: "/b"}, "/a?q", "/b/a?q", "/a"},
		{"first match of an expression", config.RouteMatch{PathKind: config.PathRegex, Path: "/v[0-9]"}, config.Forward{PrefixRewrite: "/new"}, "/a/v1/v2", "/a/new/v2", "/a/v1/v2"},
		{"a prefix with a query", prefix("/api"), config.Forward{PrefixRewrite: "/b?k=v"}, "/api?q=1", "/b?k=v&q=1", "/api"},
		{"an encoded path stays encoded", prefix("/api"), config.Forward{PrefixRewrite: "/b"}, "/api/%2e%2e//%41;v", "/b/%2e%2e//%41;v", "/api/%2e%2e//%41;v"},
		{"the asterisk form", config.RouteMatch{}, config.Forward{PrefixRewrite: "/b"}, "*", "*", ""},
		{"CONNECT", config.RouteMatch{}, config.Forward{PrefixRewrite: "/b"}, "", "", ""},

		{"groups as \\1", prefix("/"), config.Forward{RegexRewrite: &config.RegexRewrite{Pattern: "^/service/([^/]+)(/.*)$", Substitution: `\2/instance/\1`}},
			"/service/foo/v1?q", "/v1/instance/foo?q", "/service/foo/v1"},
		{"groups as ${1}", prefix("/"), config.Forward{RegexRewrite: &config.RegexRewrite{Pattern: "^/service/([^/]+)(/.*)$", Substitution: "${2}/instance/${1}"}},
			"/service/foo/v1", "/v1/instance/foo", "/service/foo/v1"},
		{"all matches", prefix("/"), config.Forward{RegexRewrite: &config.RegexRewrite{Pattern: "one", Substitution: "two"}},
			"/one/one?one", "/two/two?one", "/one/one"},
		{"a group before a digit", prefix("/"), config.Forward{RegexRewrite: &config.RegexRewrite{Pattern: "^/(.)x", Substitution: `/\1\\0`}},
			"/ax", `/a\0`, "/ax"},
		{"no match", prefix("/"), config.Forward{RegexRewrite: &config.RegexRewrite{Pattern: "zzz", Substitution: "two"}}, "/one", "/one", ""},
		{"result gets a leading slash", prefix("/"), config.Forward{RegexRewrite: &config.RegexRewrite{Pattern: "^/strip/", Substitution: ""}}, "/strip/x?q", "/x?q", "/strip/x"},
		{"empty result", prefix("/"), config.Forward{RegexRewrite: &config.RegexRewrite{Pattern: ".*", Substitution: ""}}, "/strip", "/", "/strip"},
		{"prefix_rewrite takes precedence over regex_rewrite", prefix("/a"), config.Forward{PrefixRewrite: "/b", RegexRewrite: &config.RegexRewrite{Pattern: ".*", Substitution: "/c"}}, "/a", "/b", "/a"},
		{"no rewrite", prefix("/a"), config.Forward{}, "/a", "/a", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := test.forward
			f.Cluster = "c"
			x := request("GET", "a.test", test.path, "X-Mosn-Original-Path", "/spoofed")
			compileAndMatch(t, &config.Route{Match: test.match, Forward: &f}, x).RewriteRequest(x)
			if x.Request.Path != test.want {
				t.Errorf("path %q becomes %q, want %q", test.path, x.Request.Path, test.want)
			}
			wantHeader, wantRecord := test.original, test.path
			if test.original == "" {
				wantHeader, wantRecord = "/spoofed", ""
			}
			if got := headerLines(&x.Request.Header); len(got) != 1 || got[0] != "X-Mosn-Original-Path: "+wantHeader {
				t.Errorf("headers %q, want x-mosn-original-path: %q", got, wantHeader)
			}
			if x.Record.OriginalPath != wantRecord {
				t.Errorf("Record.OriginalPath = %q, want %q", x.Record.OriginalPath, wantRecord)
			}
		})
	}
}

func TestPathChangedByFilterIsNotRewritten(t *testing.T) {
	x := request("GET", "a.test", "/api/x")
	r := compileAndMatch(t, &config.Route{Match: config.RouteMatch{PathKind: config.PathPrefix, Path: "/api"}, Forward: &config.Forward{Cluster: "c", PrefixRewrite: "/b"}}, x)
	for _, path := range []string{"/", "/other"} {
		x.Request.Path = path
		r.RewriteRequest(x)
		if x.Request.Path != path || x.Record.OriginalPath != "" {
			t.Errorf("path %q becomes %q; want no change", path, x.Request.Path)
		}
	}
}

func TestHostRewrite(t *testing.T) {
	host := config.HeaderMutation{Add: []config.HeaderValue{{Name: "Host", Value: "%request_header_x-host%"}}}
	first := config.RegexRewrite{Pattern: "^/([^/]+)/.*$", Substitution: `\1`}
	tests := []struct {
		name    string
		forward config.Forward
		headers []string
		want    string
	}{
		{"no host rewrite", config.Forward{}, nil, "a.test"},
		{"host_rewrite", config.Forward{HostRewrite: "b.test:81"}, nil, "b.test:81"},
		{"auto_host_rewrite_header", config.Forward{AutoHostRewriteHeader: "X-Host"}, []string{"x-host", "c.test"}, "c.test"},
		{"missing header", config.Forward{AutoHostRewriteHeader: "X-Host"}, nil, "a.test"},
		{"invalid host in the header", config.Forward{AutoHostRewriteHeader: "X-Host"}, []string{"x-host", "c.test/x\r\n"}, "a.test"},
		{"auto_host_rewrite", config.Forward{AutoHostRewrite: true}, nil, "origin.test"},
		{"host_rewrite before auto_host_rewrite", config.Forward{AutoHostRewrite: true, HostRewrite: "b.test"}, nil, "b.test"},
		{"host_rewrite before auto_host_rewrite_header", config.Forward{AutoHostRewriteHeader: "X-Host", HostRewrite: "b.test"}, []string{"x-host", "c.test"}, "b.test"},
		{"host_rewrite_path_regex", config.Forward{HostRewritePath: &first}, nil, "e.test:81"},
		{"path does not match", config.Forward{HostRewritePath: &config.RegexRewrite{Pattern: "^/none", Substitution: "f.test"}}, nil, "a.test"},
		{"invalid host in the path", config.Forward{HostRewritePath: &config.RegexRewrite{Pattern: "e.test", Substitution: "f.test"}}, nil, "a.test"},
		{"host_rewrite before host_rewrite_path_regex", config.Forward{HostRewritePath: &first, HostRewrite: "b.test"}, nil, "b.test"},
		{"header mutation", config.Forward{Request: host}, []string{"x-host", "d.test"}, "d.test"},
		{"invalid host in a header mutation", config.Forward{Request: host}, []string{"x-host", "d test"}, "a.test"},
		{"header mutation with a missing variable", config.Forward{Request: host}, nil, "a.test"},
		{"host_rewrite after a header mutation", config.Forward{Request: host, HostRewrite: "b.test"}, []string{"x-host", "d.test"}, "b.test"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := test.forward
			f.Cluster = "c"
			x := request("GET", "a.test", "/e.test:81/path?q=/x/y", test.headers...)
			r := compileAndMatch(t, &config.Route{Forward: &f}, x)
			r.RewriteRequest(x)
			r.RewriteHost(x, "origin.test")
			if x.Request.Authority != test.want {
				t.Errorf("authority becomes %q, want %q", x.Request.Authority, test.want)
			}
			if x.Request.Header.Len() != len(test.headers)/2 {
				t.Errorf("headers %q, want them unchanged", headerLines(&x.Request.Header))
			}
			r.RewriteHost(x, "")
			if x.Request.Authority != test.want {
				t.Errorf("authority after RewriteHost without a name: %q, want %q", x.Request.Authority, test.want)
			}
		})
	}
}

func TestHeaderMutation(t *testing.T) {
	set := func(name, value string) config.HeaderValue { return config.HeaderValue{Name: name, Value: value} }
	add := func(name, value string) config.HeaderValue {
		return config.HeaderValue{Name: name, Value: value, Append: true}
	}
	tests := []struct {
		name    string
		m       config.HeaderMutation
		headers []string
		want    []string
	}{
		{"append without a present header", config.HeaderMutation{Add: []config.HeaderValue{add("X-A", "1")}}, nil, []string{"X-A: 1"}},
		{"append", config.HeaderMutation{Add: []config.HeaderValue{add("x-a", "2")}}, []string{"X-A", "1"}, []string{"X-A: 1", "x-a: 2"}},
		{"replace", config.HeaderMutation{Add: []config.HeaderValue{set("x-a", "2")}}, []string{"X-A", "1", "x-a", "3", "b", "1"}, []string{"X-A: 2", "b: 1"}},
		{"remove", config.HeaderMutation{Remove: []string{"x-a"}}, []string{"X-A", "1", "b", "1", "x-a", "2"}, []string{"b: 1"}},
		{"removals come before additions", config.HeaderMutation{Remove: []string{"x-a"}, Add: []config.HeaderValue{add("x-a", "2")}}, []string{"X-A", "1"}, []string{"x-a: 2"}},
		{"a template", config.HeaderMutation{Add: []config.HeaderValue{set("v", "%method% of %authority%: 100%%")}}, nil, []string{"v: GET of a.test: 100%"}},
		{"single variable", config.HeaderMutation{Add: []config.HeaderValue{set("v", "%request_header_b%")}}, []string{"b", "1"}, []string{"b: 1", "v: 1"}},
		{"single variable that is not text", config.HeaderMutation{Add: []config.HeaderValue{set("v", "%attempts%")}}, nil, []string{"v: 0"}},
		{"missing variable, append", config.HeaderMutation{Add: []config.HeaderValue{add("v", "%request_header_b%")}}, []string{"v", "1"}, []string{"v: 1"}},
		{"missing variable removes the client's header", config.HeaderMutation{Add: []config.HeaderValue{set("v", "%request_header_b%")}}, []string{"v", "forged"}, nil},
		{"missing variable in text", config.HeaderMutation{Add: []config.HeaderValue{set("v", "b=%request_header_b%")}}, nil, []string{"v: b=-"}},
		{"control characters are escaped", config.HeaderMutation{Add: []config.HeaderValue{set("v", "%request_header_b%"), set("w", "<%request_header_b%>")}},
			[]string{"b", "1\r\nX: 2\x00"}, []string{"b: 1\r\nX: 2\x00", `v: 1\x0d\x0aX: 2\x00`, `w: <1\x0d\x0aX: 2\x00>`}},
		{"an empty value", config.HeaderMutation{Add: []config.HeaderValue{set("v", "")}}, nil, []string{"v: "}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			x := request("GET", "a.test", "/", test.headers...)
			compileAndMatch(t, &config.Route{Forward: &config.Forward{Cluster: "c", Request: test.m}}, x).RewriteRequest(x)
			if got := headerLines(&x.Request.Header); !slices.Equal(got, test.want) {
				t.Errorf("request headers %q, want %q", got, test.want)
			}
			// Response mutations behave the same. The request has the headers too, for the variables.
			x = request("GET", "a.test", "/", test.headers...)
			for i := 0; i < len(test.headers); i += 2 {
				x.Response.Header.Add(test.headers[i], test.headers[i+1])
			}
			compileAndMatch(t, &config.Route{Forward: &config.Forward{Cluster: "c", Response: test.m}}, x).MutateResponse(x)
			if got := headerLines(&x.Response.Header); !slices.Equal(got, test.want) {
				t.Errorf("response headers %q, want %q", got, test.want)
			}
		})
	}
}

func TestHeaderMutationOrder(t *testing.T) {
	level := func(name string) config.HeaderMutation {
		return config.HeaderMutation{Add: []config.HeaderValue{{Name: "level", Value: name, Append: true}, {Name: "last", Value: name}}}
	}
	route := forward("own", config.RouteMatch{PathKind: config.PathExact, Path: "/own"})
	route.Forward.Request, route.Forward.Response = level("route"), level("route")
	table := mustCompileTable(t, &config.RouteTable{Request: level("table"), Response: level("table"), VirtualHosts: []*config.VirtualHost{
		{Domains: []string{"a"}, Request: level("host"), Response: level("host"), Routes: []*config.Route{route, forward("none", config.RouteMatch{})}},
		{Domains: []string{"*"}, Routes: []*config.Route{forward("table only", config.RouteMatch{})}},
	}})
	tests := []struct {
		authority, path string
		want            []string
	}{
		{"a", "/own", []string{"level: route", "last: table", "level: host", "level: table"}},
		{"a", "/", []string{"level: host", "last: table", "level: table"}},
		{"b", "/", []string{"level: table", "last: table"}},
	}
	for _, test := range tests {
		x := request("GET", test.authority, test.path)
		r := table.Match(x)
		r.RewriteRequest(x)
		r.MutateResponse(x)
		if got := headerLines(&x.Request.Header); !slices.Equal(got, test.want) {
			t.Errorf("%s%s: request headers %q, want %q", test.authority, test.path, got, test.want)
		}
		if got := headerLines(&x.Response.Header); !slices.Equal(got, test.want) {
			t.Errorf("%s%s: response headers %q, want %q", test.authority, test.path, got, test.want)
		}
	}
}

func TestRedirect(t *testing.T) {
	tests := []struct {
		name      string
		c         config.Redirect
		authority string
		scheme    string
		path      string
		status    int
		want      string
	}{
		{"target unchanged", config.Redirect{}, "a.test:81", "http", "/x/%41?q=1", 301, "http://a.test:81/x/%41?q=1"},
		{"another path keeps the query", config.Redirect{Code: 302, Path: "/new"}, "a.test", "http", "/x?q=1", 302, "http://a.test/new?q=1"},
		{"another path with a query", config.Redirect{Path: "/new?k=v"}, "a.test", "http", "/x?q=1", 301, "http://a.test/new?k=v"},
		{"a path without a slash gets one", config.Redirect{Path: "new"}, "a.test", "http", "/x", 301, "http://a.test/new"},
		{"another host", config.Redirect{Code: 307, Host: "b.test:82"}, "a.test:81", "http", "/x?q", 307, "http://b.test:82/x?q"},
		{"another scheme", config.Redirect{Code: 308, Scheme: "HTTPS"}, "a.test", "http", "/x", 308, "https://a.test/x"},
		{"https removes port 80", config.Redirect{Scheme: "https"}, "a.test:80", "http", "/x", 301, "https://a.test/x"},
		{"http removes port 443", config.Redirect{Scheme: "http"}, "a.test:443", "https", "/x", 301, "http://a.test/x"},
		{"another scheme keeps another port", config.Redirect{Scheme: "https"}, "a.test:8080", "http", "/x", 301, "https://a.test:8080/x"},
		{"the same scheme keeps any port", config.Redirect{Scheme: "https"}, "a.test:80", "https", "/x", 301, "https://a.test:80/x"},
		{"an IPv6 authority", config.Redirect{Scheme: "https"}, "[::1]:80", "http", "/x", 301, "https://[::1]/x"},
		{"an empty query", config.Redirect{}, "a.test", "http", "/x?", 301, "http://a.test/x?"},
		{"the asterisk form", config.Redirect{}, "a.test", "http", "*", 301, "http://a.test/"},
		{"bytes that are invalid in a URI", config.Redirect{}, "a.test", "http", "/a b\r\nX: y\"<é>?\x7f", 301, "http://a.test/a%20b%0D%0AX:%20y%22%3C%C3%A9%3E?%7F"},
		{"no scheme", config.Redirect{}, "a.test", "", "/", 301, "http://a.test/"},
		{"no authority", config.Redirect{}, "", "http", "/x?q", 301, "/x?q"},
		{"no authority, path that looks like one", config.Redirect{}, "", "http", "//evil.test/x", 301, "/evil.test/x"},
		{"invalid authority", config.Redirect{}, "a.test/\r\n", "http", "//evil.test/x", 301, "/evil.test/x"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			x := request("GET", test.authority, test.path, "Authorization", "secret", "Cookie", "secret")
			x.Request.Scheme = test.scheme
			compileAndMatch(t, &config.Route{Redirect: &test.c}, x).Reply(x)
			if got, want := headerLines(&x.Response.Header), []string{"Location: " + test.want}; !slices.Equal(got, want) || x.Response.Status != test.status {
				t.Errorf("response %d %q, want %d %q", x.Response.Status, got, test.status, want)
			}
			if x.Response.Body != nil || x.Response.ContentLength != 0 {
				t.Errorf("the response has a body of length %d, want none", x.Response.ContentLength)
			}
		})
	}
}

func TestDirectResponseContainsNothingOfRequest(t *testing.T) {
	table := mustCompileTable(t, &config.RouteTable{VirtualHosts: []*config.VirtualHost{{
		Domains:  []string{"*"},
		Response: config.HeaderMutation{Add: []config.HeaderValue{{Name: "Strict-Transport-Security", Value: "max-age=1"}}},
		Routes: []*config.Route{
			{Match: config.RouteMatch{PathKind: config.PathExact, Path: "/body"}, DirectResponse: &config.DirectResponse{Status: 503, Body: "closed"}},
			{DirectResponse: &config.DirectResponse{Status: 204}},
		},
	}}})
	tests := []struct {
		path    string
		status  int
		headers []string
		body    string
	}{
		{"/body", 503, []string{"Content-Type: text/plain; charset=utf-8", "Strict-Transport-Security: max-age=1"}, "closed"},
		{"/", 204, []string{"Strict-Transport-Security: max-age=1"}, ""},
	}
	for _, test := range tests {
		x := request("GET", "a.test", test.path, "Authorization", "secret", "Cookie", "secret")
		table.Match(x).Reply(x)
		var body []byte
		if x.Response.Body != nil {
			var err error
			if body, err = io.ReadAll(x.Response.Body); err != nil {
				t.Fatal(err)
			}
		}
		if got := headerLines(&x.Response.Header); x.Response.Status != test.status || !slices.Equal(got, test.headers) || string(body) != test.body {
			t.Errorf("%s: response %d %q %q, want %d %q %q", test.path, x.Response.Status, got, body, test.status, test.headers, test.body)
		}
	}
}

func TestWeightedClusterDistribution(t *testing.T) {
	rng := generator{rand.New(rand.NewPCG(1, 2))}
	x := request("GET", "a.test", "/")
	for range 50 {
		var weighted []config.WeightedCluster
		total := uint64(0)
		for i := range 1 + rng.IntN(6) {
			w := pick(rng, 0, 0, 1, 5, 50, 1000, uint32(rng.IntN(100)))
			weighted = append(weighted, config.WeightedCluster{Cluster: string(rune('a' + i)), Weight: w})
			total += uint64(w)
		}
		r := compileAndMatch(t, &config.Route{Forward: &config.Forward{WeightedClusters: weighted}}, x)
		const rounds = 20_000
		got := make(map[string]int)
		for range rounds {
			name, index := r.ChooseCluster(x, rng.Uint64())
			if name != "" && weighted[index].Cluster != name {
				t.Fatalf("weights %v: cluster %q does not have the index %d", weighted, name, index)
			}
			got[name]++
		}
		if total == 0 {
			if got[""] != rounds {
				t.Errorf("weights %v: %v, want no cluster", weighted, got)
			}
			continue
		}
		for _, w := range weighted {
			p := float64(w.Weight) / float64(total)
			want := p * rounds
			// Five standard deviations: a fair choice fails once in a million.
			if bound := 5*math.Sqrt(rounds*p*(1-p)) + 0.5; math.Abs(float64(got[w.Cluster])-want) > bound {
				t.Errorf("weights %v: cluster %s is chosen %d times of %d, want %.0f ± %.0f", weighted, w.Cluster, got[w.Cluster], rounds, want, bound)
			}
		}
	}
}

func TestWeightedChoiceBoundaries(t *testing.T) {
	x := request("GET", "a.test", "/")
	r := compileAndMatch(t, &config.Route{Forward: &config.Forward{WeightedClusters: []config.WeightedCluster{
		{Cluster: "none"}, {Cluster: "half", Weight: math.MaxUint32}, {Cluster: "never"}, {Cluster: "other", Weight: math.MaxUint32}, {Cluster: "last"},
	}}}, x)
	tests := []struct {
		random uint64
		want   string
	}{{0, "half"}, {math.MaxUint64/2 - 1<<33, "half"}, {math.MaxUint64/2 + 1<<33, "other"}, {math.MaxUint64, "other"}}
	for _, test := range tests {
		if got, _ := r.ChooseCluster(x, test.random); got != test.want {
			t.Errorf("ChooseCluster(%d) = %q, want %q", test.random, got, test.want)
		}
	}
}

func TestChooseClusterByNameOrVariable(t *testing.T) {
	tests := []struct {
		name string
		c    config.Route
		want string
	}{
		{"cluster name", config.Route{Forward: &config.Forward{Cluster: "c"}}, "c"},
		{"cluster variable", config.Route{Forward: &config.Forward{ClusterVariable: "request_header_x-cluster"}}, "blue"},
		{"missing variable", config.Route{Forward: &config.Forward{ClusterVariable: "request_header_none"}}, ""},
		{"cluster name before the variable", config.Route{Forward: &config.Forward{Cluster: "c", ClusterVariable: "request_header_x-cluster"}}, "c"},
		{"route that does not forward", config.Route{DirectResponse: &config.DirectResponse{Status: 200}}, ""},
	}
	for _, test := range tests {
		x := request("GET", "a.test", "/", "x-cluster", "blue")
		if got, _ := compileAndMatch(t, &test.c, x).ChooseCluster(x, 1); got != test.want {
			t.Errorf("%s: ChooseCluster = %q, want %q", test.name, got, test.want)
		}
	}
}

func TestTimeouts(t *testing.T) {
	f := &config.Forward{Cluster: "c", Timeout: 10 * time.Second, Retry: &config.RetryPolicy{PerTryTimeout: 2 * time.Second}}
	tests := []struct {
		name           string
		f              *config.Forward
		headers        []string
		global, perTry time.Duration
	}{
		{"timeouts of the route", f, nil, 10 * time.Second, 2 * time.Second},
		{"no retry policy", &config.Forward{Cluster: "c", Timeout: time.Second}, nil, time.Second, 0},
		{"timeouts of the request", f, []string{"X-Mosn-Global-Timeout", "500", "x-mosn-try-timeout", "50"}, 500 * time.Millisecond, 50 * time.Millisecond},
		{"per-try timeout as long as the global timeout", f, []string{"x-mosn-global-timeout", "2000"}, 2 * time.Second, 0},
		{"zero", f, []string{"x-mosn-global-timeout", "0", "x-mosn-try-timeout", "0"}, 10 * time.Second, 2 * time.Second},
		{"not a number", f, []string{"x-mosn-global-timeout", "1s", "x-mosn-try-timeout", "-5"}, 10 * time.Second, 2 * time.Second},
		{"more than a day", f, []string{"x-mosn-global-timeout", "4000000000"}, 24 * time.Hour, 2 * time.Second},
		{"out of range", f, []string{"x-mosn-global-timeout", "99999999999999999999"}, 10 * time.Second, 2 * time.Second},
		{"no global timeout", &config.Forward{Cluster: "c"}, []string{"x-mosn-try-timeout", "50"}, 0, 50 * time.Millisecond},
	}
	for _, test := range tests {
		x := request("GET", "a.test", "/", test.headers...)
		global, gotPerTry := compileAndMatch(t, &config.Route{Forward: test.f}, x).WithTimeoutHeaders().Timeouts(x)
		if global != test.global || gotPerTry != test.perTry {
			t.Errorf("%s: Timeouts = %v, %v, want %v, %v", test.name, global, gotPerTry, test.global, test.perTry)
		}
	}
	x := request("GET", "a.test", "/")
	if global, gotPerTry := compileAndMatch(t, &config.Route{DirectResponse: &config.DirectResponse{Status: 200}}, x).Timeouts(x); global != 0 || gotPerTry != 0 {
		t.Errorf("Timeouts of a direct response = %v, %v, want 0, 0", global, gotPerTry)
	}
}

func TestCompileRejectsActions(t *testing.T) {
	mutation := func(name, value string) config.Route {
		return config.Route{Forward: &config.Forward{Cluster: "c", Request: config.HeaderMutation{Add: []config.HeaderValue{{Name: name, Value: value}}}}}
	}
	regex := func(pattern, substitution string) config.Route {
		return config.Route{Forward: &config.Forward{Cluster: "c", RegexRewrite: &config.RegexRewrite{Pattern: pattern, Substitution: substitution}}}
	}
	tests := []struct {
		name string
		c    config.Route
		want string
	}{
		{"no cluster", config.Route{Forward: &config.Forward{}}, "one of cluster_name, cluster_variable and weighted_clusters"},
		{"an unknown cluster variable", config.Route{Forward: &config.Forward{ClusterVariable: "upstream_clustr"}}, `did you mean "upstream_cluster"?`},
		{"a weighted cluster without a name", config.Route{Forward: &config.Forward{WeightedClusters: []config.WeightedCluster{{Weight: 1}}}}, "a cluster has no name"},
		{"framing header", mutation("Content-Length", "1"), `"Content-Length" cannot be changed`},
		{"connection header", mutation("connection", "close"), `"connection" cannot be changed`},
		{"no name", mutation("", "1"), "has no name"},
		{"invalid name", mutation("a b", "1"), `byte 2 is ' '`},
		{"pseudo-header", mutation(":path", "/"), `":path" is not a header name`},
		{"a line feed", mutation("a", "x\ny"), `control character '\n' at byte 2`},
		{"a NUL", mutation("a", "\x00"), `control character '\x00' at byte 1`},
		{"an unknown variable", mutation("a", "%pth%"), `the value of "a": byte 1 of "%pth%": unknown variable "pth": did you mean "path"?`},
		{"invalid host", mutation("host", "a b"), `the value of "host" is not a host`},
		{"removal of Host", config.Route{Forward: &config.Forward{Cluster: "c", Request: config.HeaderMutation{Remove: []string{"Host"}}}}, `"Host" cannot be removed: every request needs a host`},
		{"removal of Host from responses", config.Route{Forward: &config.Forward{Cluster: "c", Response: config.HeaderMutation{Remove: []string{"Host"}}}}, `"Host" cannot be removed: a response has no host`},
		{"removal of a framing header", config.Route{Forward: &config.Forward{Cluster: "c", Response: config.HeaderMutation{Remove: []string{"trailer"}}}}, `"trailer" cannot be changed`},
		{"prefix without a slash", config.Route{Forward: &config.Forward{Cluster: "c", PrefixRewrite: "x"}}, "does not begin with a slash"},
		{"a prefix with a space", config.Route{Forward: &config.Forward{Cluster: "c", PrefixRewrite: "/a b"}}, "byte 3 is ' '"},
		{"a prefix with a fragment", config.Route{Forward: &config.Forward{Cluster: "c", PrefixRewrite: "/a#b"}}, "byte 3 is '#'"},
		{"invalid pattern", regex("(", ""), "missing closing )"},
		{"a substitution with a line feed", regex("a", "\n"), `byte 1 is '\n'`},
		{"missing group", regex("(a)", `\2`), "the pattern has 1 groups"},
		{"group number out of range", regex("(a)", `\99999999999999999999`), "the pattern has 1 groups"},
		{"a lone backslash", regex("(a)", `\x`), "a backslash must be followed by"},
		{"invalid host_rewrite", config.Route{Forward: &config.Forward{Cluster: "c", HostRewrite: "a/b"}}, `host_rewrite "a/b" is not a host`},
		{"auto_host_rewrite_header is Host", config.Route{Forward: &config.Forward{Cluster: "c", AutoHostRewriteHeader: "Host"}}, "names the host itself"},
		{"invalid pattern in host_rewrite_path_regex", config.Route{Forward: &config.Forward{Cluster: "c", HostRewritePath: &config.RegexRewrite{Pattern: "("}}}, "host_rewrite_path_regex: "},
		{"missing group in host_rewrite_path_regex", config.Route{Forward: &config.Forward{Cluster: "c", HostRewritePath: &config.RegexRewrite{Pattern: "a", Substitution: `\1`}}}, "host_rewrite_path_regex: "},
		{"invalid redirect status", config.Route{Redirect: &config.Redirect{Code: 200}}, "response_code 200 is not one of"},
		{"invalid redirect host", config.Route{Redirect: &config.Redirect{Host: "user@a"}}, `host_redirect "user@a" is not a host`},
		{"invalid redirect scheme", config.Route{Redirect: &config.Redirect{Scheme: "1http"}}, "is not a scheme"},
		{"an informational status", config.Route{DirectResponse: &config.DirectResponse{Status: 100}}, "status 100 is not from 200"},
		{"body with status 304", config.Route{DirectResponse: &config.DirectResponse{Status: 304, Body: "x"}}, "status 304 has no body"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.c.Name = "r"
			_, err := Compile(&config.RouteTable{VirtualHosts: []*config.VirtualHost{{Domains: []string{"*"}, Routes: []*config.Route{&test.c}}}})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `route "r": `) {
				t.Errorf("Compile: error %v, want an error for route r that contains %s", err, test.want)
			}
		})
	}
}

func TestHeaderAppendConditions(t *testing.T) {
	for _, tt := range []struct {
		name     string
		add      config.HeaderValue
		existing string // value of X-Here before the mutation; "": absent
		want     string
	}{
		{"if absent, header present", config.HeaderValue{Name: "X-Here", Value: "new", If: config.AddIfAbsent}, "old", "old"},
		{"if absent, header absent", config.HeaderValue{Name: "X-Here", Value: "new", If: config.AddIfAbsent}, "", "new"},
		{"if present, header present", config.HeaderValue{Name: "X-Here", Value: "new", If: config.AddIfPresent}, "old", "new"},
		{"if present, header absent", config.HeaderValue{Name: "X-Here", Value: "new", If: config.AddIfPresent}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := CompileMutation(config.HeaderMutation{Add: []config.HeaderValue{tt.add}})
			if err != nil {
				t.Fatal(err)
			}
			x := &protocol.Exchange{}
			if tt.existing != "" {
				x.Request.Header.Add("x-here", tt.existing)
			}
			m.Apply(x, &x.Request.Header)
			if got := x.Request.Header.Get("x-here"); got != tt.want {
				t.Errorf("X-Here = %q, want %q", got, tt.want)
			}
		})
	}
}
