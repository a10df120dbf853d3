package router

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestWeightSource verifies which number selects a weighted cluster, with the results of Envoy 1.40.
func TestWeightSource(t *testing.T) {
	r := mustCompile(t, &config.Route{Name: "r", Forward: &config.Forward{
		WeightedClusters: []config.WeightedCluster{{Cluster: "a", Weight: 10}, {Cluster: "b", Weight: 90}, {Weight: 100, Extras: &config.WeightedExtras{ClusterVariable: "request_header_x-to"}}},
		Extras:           &config.ForwardExtras{WeightSource: config.WeightSource{Header: "x-random", Hash: true}},
	}}).Routes()[0]
	const random = 1 << 62 // a quarter: point 50
	for _, test := range []struct {
		name    string
		hash    uint64
		headers []string
		want    string
		index   int
	}{
		{"the first point", 0, []string{"x-random", "0"}, "a", 0},
		{"the last point of a", 0, []string{"x-random", "9"}, "a", 0},
		{"the first point of b", 0, []string{"X-Random", "10"}, "b", 1},
		{"modulo the sum", 0, []string{"x-random", "205"}, "a", 0},
		{"the largest number", 0, []string{"x-random", "18446744073709551615"}, "b", 1}, // 15
		{"a number that is too large", 0, []string{"x-random", "18446744073709551616"}, "b", 1},
		{"no number", 0, []string{"x-random", "x"}, "b", 1},
		{"two numbers", 0, []string{"x-random", "5", "x-random", "5"}, "b", 1},
		{"no header", 0, nil, "b", 1},
		{"the hash precedes the header", 203, []string{"x-random", "150"}, "a", 0},
		{"a cluster that the request names", 0, []string{"x-random", "150", "x-to", "c"}, "c", 2},
		{"a cluster that the request does not name", 0, []string{"x-random", "150"}, "", 2},
	} {
		x := request("GET", "a.test", "/", test.headers...)
		x.Record.Hash = test.hash
		if got, index := r.ChooseCluster(x, random); got != test.want || index != test.index {
			t.Errorf("%s: cluster %q with index %d, want %q, %d", test.name, got, index, test.want, test.index)
		}
	}
}

func TestWeightedHostRewrite(t *testing.T) {
	f := &config.Forward{HostRewrite: "route.test", AppendForwardedHost: true, WeightedClusters: []config.WeightedCluster{{Cluster: "a", Weight: 1, Extras: &config.WeightedExtras{HostRewrite: "a.test"}}, {Cluster: "b", Weight: 1}}}
	r := mustCompile(t, &config.Route{Name: "r", Forward: f}).Routes()[0]
	for index, want := range []string{"a.test", "route.test"} {
		x := request("GET", "client.test", "/")
		x.Record.WeightedIndex = uint16(index)
		r.RewriteRequest(x)
		if got := x.Request.Header.Get("X-Forwarded-Host"); x.Request.Authority != want || got != "client.test" {
			t.Errorf("cluster %d: authority %q, x-forwarded-host %q, want %q, client.test", index, x.Request.Authority, got, want)
		}
	}
	for present, want := range map[string]string{"": "client.test", "a.test": "a.test,client.test", "client.test": "client.test", "a.test,client.test": "a.test,client.test"} {
		x := request("GET", "client.test", "/", "x-forwarded-host", present)
		r.RewriteRequest(x)
		if got := x.Request.Header.Get("x-forwarded-host"); got != want {
			t.Errorf("x-forwarded-host %q becomes %q, want %q", present, got, want)
		}
	}
}

func TestEmptyHeaderValues(t *testing.T) {
	for _, test := range []struct {
		name, value string
		empty       config.EmptyValue
		appends     bool
		present     []string
		want        []string
	}{
		{"empty", "", config.EmptyAdded, true, nil, []string{"x-a: "}},
		{"a missing variable", "%request_header_x-none%", config.EmptyAdded, true, nil, nil},
		{"a skipped empty value", "", config.EmptySkipped, true, []string{"x-a", "c"}, []string{"x-a: c"}},
		{"a skipped empty value that would replace", "", config.EmptySkipped, false, []string{"x-a", "c"}, []string{"x-a: c"}},
		{"a skipped missing variable that would replace", "%request_header_x-none%", config.EmptySkipped, false, []string{"x-a", "c"}, nil},
		{"a value", "v", config.EmptySkipped, true, nil, []string{"x-a: v"}},
		{"an empty value that is always added", "", config.EmptyAlwaysAdded, true, nil, []string{"x-a: "}},
		{"a missing variable that is always added", "%request_header_x-none%", config.EmptyAlwaysAdded, true, nil, []string{"x-a: "}},
	} {
		f := &config.Forward{Cluster: "c", Request: config.HeaderMutation{Add: []config.HeaderValue{{Name: "x-a", Value: test.value, Append: test.appends, Empty: test.empty}}}}
		x := request("GET", "a.test", "/", test.present...)
		mustCompile(t, &config.Route{Name: "r", Forward: f}).Routes()[0].RewriteRequest(x)
		if got := headerLines(&x.Request.Header); !slices.Equal(got, test.want) {
			t.Errorf("%s: headers %q, want %q", test.name, got, test.want)
		}
	}
}

// TestRedirectPorts verifies which ports a location has, with the results of Envoy 1.40.
func TestRedirectPorts(t *testing.T) {
	for _, test := range []struct {
		redirect           config.Redirect
		scheme, host, want string
	}{
		{config.Redirect{Scheme: "ftp"}, "http", "a.test:80", "ftp://a.test/"},
		{config.Redirect{Scheme: "ftp"}, "https", "a.test:443", "ftp://a.test/"},
		{config.Redirect{Scheme: "ftp"}, "http", "a.test:443", "ftp://a.test:443/"},
		{config.Redirect{Scheme: "https"}, "http", "a.test:80", "https://a.test/"},
		{config.Redirect{Scheme: "https", Port: 443}, "http", "a.test", "https://a.test/"},
		{config.Redirect{Scheme: "https", Port: 443, WriteDefaultPort: true}, "http", "a.test", "https://a.test:443/"},
	} {
		x := request("GET", test.host, "/")
		x.Request.Scheme = test.scheme
		mustCompile(t, &config.Route{Name: "r", Redirect: &test.redirect}).Routes()[0].Reply(x)
		if got := x.Response.Header.Get("Location"); got != test.want {
			t.Errorf("%+v of %s://%s: location %q, want %q", test.redirect, test.scheme, test.host, got, test.want)
		}
	}
}

func TestLocationOfDirectResponse(t *testing.T) {
	for status, want := range map[int]string{200: "", 201: "http://a.test/p?q", 304: "http://a.test/p?q", 404: ""} {
		r := mustCompile(t, &config.Route{Name: "r", DirectResponse: &config.DirectResponse{Status: status, ContentType: "text/x", Location: true}}).Routes()[0]
		x := request("GET", "a.test", "/p?q")
		r.Reply(x)
		if got := x.Response.Header.Get("Location"); got != want {
			t.Errorf("status %d: location %q, want %q", status, got, want)
		}
	}
	r := mustCompile(t, &config.Route{Name: "r", DirectResponse: &config.DirectResponse{Status: 204, BodyFile: "/f"}}).Routes()[0]
	if _, err := r.WithBody("text"); err == nil {
		t.Error("WithBody: no error for a body with status 204")
	}
}

func TestConnectRoutes(t *testing.T) {
	routes := []*config.Route{
		forward("all", config.RouteMatch{PathKind: config.PathPrefix}),
		forward("any regex", config.RouteMatch{PathKind: config.PathRegex, Path: ".*"}),
		forward("other host", config.RouteMatch{PathKind: config.PathConnect, Headers: []config.HeaderMatch{{Name: ":authority", Value: "b.test:80"}}}),
		forward("connect", config.RouteMatch{PathKind: config.PathConnect}),
	}
	for _, only := range []bool{false, true} {
		table := mustCompileTable(t, &config.RouteTable{ConnectRoutesOnly: only, VirtualHosts: []*config.VirtualHost{{Name: "v", Domains: []string{"*"}, Routes: routes}}})
		for _, test := range []struct{ method, host, path, want string }{
			{"GET", "a.test", "/", "all"},
			{"CONNECT", "a.test:80", "", "connect"},
			{"CONNECT", "b.test:80", "", "other host"},
		} {
			want := test.want
			if !only {
				want = "all"
			}
			x := request(test.method, test.host, test.path)
			if got := nameOf(table.Match(x)); got != want {
				t.Errorf("ConnectRoutesOnly %v: %s %s leads to %s, want %s", only, test.method, test.host, got, want)
			}
			if got := nameOf(table.Explain(x).Route); got != want {
				t.Errorf("ConnectRoutesOnly %v: explained route of %s %s is %s, want %s", only, test.method, test.host, got, want)
			}
		}
	}
	table := mustCompileTable(t, &config.RouteTable{VirtualHosts: []*config.VirtualHost{{Name: "v", Domains: []string{"*"}, Routes: routes}}})
	next, err := table.Recompile(&config.RouteTable{ConnectRoutesOnly: true, VirtualHosts: table.Config().VirtualHosts})
	if err != nil {
		t.Fatal(err)
	}
	if got := nameOf(next.Match(request("CONNECT", "a.test:80", ""))); got != "connect" {
		t.Errorf("recompiled: CONNECT leads to %s, want connect", got)
	}
}

func TestTLSMatch(t *testing.T) {
	yes, no := true, false
	verified := &protocol.ConnMeta{TLS: &protocol.TLS{Peer: &protocol.Certificate{}}}
	anonymous, plaintext := &protocol.ConnMeta{TLS: &protocol.TLS{}}, &protocol.ConnMeta{}
	for _, test := range []struct {
		name                           string
		match                          config.TLSMatch
		verified, anonymous, plaintext bool
	}{
		{"nothing", config.TLSMatch{}, true, true, true},
		{"presented", config.TLSMatch{Presented: &yes}, true, false, false},
		{"not presented", config.TLSMatch{Presented: &no}, false, true, true},
		{"validated", config.TLSMatch{Validated: &yes}, true, false, false},
		{"not validated", config.TLSMatch{Validated: &no}, false, true, true},
		{"both", config.TLSMatch{Presented: &yes, Validated: &no}, false, false, false},
	} {
		table := mustCompile(t, forward("r", config.RouteMatch{TLS: &test.match}))
		for conn, want := range map[*protocol.ConnMeta]bool{verified: test.verified, anonymous: test.anonymous, plaintext: test.plaintext} {
			x := request("GET", "a.test", "/")
			x.Meta.Conn = conn
			if got := table.Match(x) != nil; got != want {
				t.Errorf("%s with %+v: match %v, want %v", test.name, conn.TLS, got, want)
			}
			if got := table.Explain(x).Route != nil; got != want {
				t.Errorf("%s with %+v: explained match %v, want %v", test.name, conn.TLS, got, want)
			}
		}
	}
}

func TestIgnorePathParameters(t *testing.T) {
	table := mustCompileTable(t, &config.RouteTable{IgnorePathParameters: true, VirtualHosts: []*config.VirtualHost{{Name: "v", Domains: []string{"*"}, Routes: []*config.Route{
		forward("a", config.RouteMatch{PathKind: config.PathExact, Path: "/a"}),
		forward("b", config.RouteMatch{PathKind: config.PathExact, Path: "/a/b"}),
	}}}})
	for path, want := range map[string]string{"/a": "a", "/a;x": "a", "/a;x?q": "a", "/a;x/b": "b", "/a;x;y/b;z": "b", "/a/;x": "none", "/a;x/": "none"} {
		if got := nameOf(table.Match(request("GET", "a.test", path))); got != want {
			t.Errorf("%s leads to %s, want %s", path, got, want)
		}
	}
}

func TestRetryConditions(t *testing.T) {
	exact := func(name, value string) config.HeaderMatch {
		return config.HeaderMatch{Name: name, Matcher: &config.ValueMatch{Text: value}}
	}
	r := mustCompile(t, &config.Route{Name: "r", Forward: &config.Forward{Cluster: "c", Retry: &config.RetryPolicy{Extras: &config.RetryExtras{
		RequestHeaders:  []config.HeaderMatch{exact("x-retry", "yes"), exact(":method", "PUT")},
		ResponseHeaders: []config.HeaderMatch{exact("x-again", "a"), {Name: ":status", Matcher: &config.ValueMatch{Kind: config.ValuePrefix, Text: "42"}}},
	}}}}).Routes()[0]
	for _, test := range []struct {
		x    *protocol.Exchange
		want bool
	}{
		{request("GET", "a.test", "/"), false},
		{request("PUT", "a.test", "/"), true},
		{request("GET", "a.test", "/", "x-retry", "no", "X-Retry", "yes"), true},
	} {
		if got := r.AllowsRetries(test.x); got != test.want {
			t.Errorf("%s %v: AllowsRetries = %v, want %v", test.x.Request.Method, headerLines(&test.x.Request.Header), got, test.want)
		}
	}
	x := request("GET", "a.test", "/")
	for status, want := range map[int]bool{200: false, 425: true, 429: true, 503: false} {
		if x.Response.Status = status; r.HasRetriableHeader(x) != want {
			t.Errorf("status %d: HasRetriableHeader = %v, want %v", status, !want, want)
		}
	}
	x.Response.Status = 200
	x.Response.Header.Add("X-Again", "a")
	if !r.HasRetriableHeader(x) {
		t.Error("x-again: HasRetriableHeader = false, want true")
	}
}

func TestResetDelay(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	p := &config.RetryExtras{MaxReset: time.Minute, ResetHeaders: []config.ResetHeader{{Name: "retry-after"}, {Name: "x-reset", UnixTimestamp: true}}}
	for _, test := range []struct {
		headers []string
		want    time.Duration
	}{
		{nil, 0},
		{[]string{"Retry-After", "7"}, 7 * time.Second},
		{[]string{"retry-after", "61"}, 0},
		{[]string{"retry-after", "0"}, 0},
		{[]string{"retry-after", "-1"}, 0},
		{[]string{"retry-after", "Fri, 01 Jan"}, 0},
		{[]string{"x-reset", "1700000030"}, 30 * time.Second},
		{[]string{"x-reset", "1699999999"}, 0},
		{[]string{"retry-after", "x", "x-reset", "1700000005"}, 5 * time.Second},
	} {
		x := request("GET", "a.test", "/")
		for i := 0; i+1 < len(test.headers); i += 2 {
			x.Response.Header.Add(test.headers[i], test.headers[i+1])
		}
		if got := ResetDelay(p, x, now); got != test.want {
			t.Errorf("%q: ResetDelay = %v, want %v", test.headers, got, test.want)
		}
	}
}

// TestMatchTree verifies which route a matcher selects, with the results of Envoy 1.40.
func TestMatchTree(t *testing.T) {
	header := config.MatchInput{Name: "x-h"}
	value := func(name, text string) config.MatchPredicate {
		return config.MatchPredicate{Input: config.MatchInput{Name: name}, Value: &config.ValueMatch{Text: text}}
	}
	not := func(p config.MatchPredicate) config.MatchPredicate { return config.MatchPredicate{Not: &p} }
	to := func(i int) config.MatchResult { return config.MatchResult{First: i, Count: 1} }
	otherwise := to(2)
	for _, test := range []struct {
		name string
		tree config.MatchTree
		want map[string]string // by headers, separated by spaces
	}{
		{"exact", config.MatchTree{Input: header, Exact: map[string]config.MatchResult{"v": to(0), "w": to(1)}}, map[string]string{
			"": "none", "x-h v": "0", "x-h w": "1", "x-h va": "none", "x-h v x-h w": "none",
		}},
		{"joined values", config.MatchTree{Input: header, Exact: map[string]config.MatchResult{"v,w": to(0)}}, map[string]string{"x-h v x-h w": "0"}},
		{"no match", config.MatchTree{Input: header, Exact: map[string]config.MatchResult{"v": to(0)}, NoMatch: &otherwise}, map[string]string{"": "2", "x-h v": "0", "x-h w": "2"}},
		{"the longest prefix", config.MatchTree{Input: header, Prefixes: map[string]config.MatchResult{"v": to(0), "va": to(1)}}, map[string]string{"x-h v": "0", "x-h va": "1", "x-h vab": "1", "x-h w": "none"}},
		{
			"a shorter prefix if the tree of the longest has no match",
			config.MatchTree{Input: header, Prefixes: map[string]config.MatchResult{"v": to(0), "va": {Tree: &config.MatchTree{Input: header, Exact: map[string]config.MatchResult{"vab": to(1)}}}}},
			map[string]string{"x-h vab": "1", "x-h vac": "0"},
		},
		{"rules", config.MatchTree{Rules: []config.MatchRule{{Predicate: value("x-h", "v"), Result: to(0)}, {Predicate: not(value("x-i", "n")), Result: to(1)}}}, map[string]string{
			"x-h v": "0", "": "1", "x-i n": "none", "x-h v x-i n": "0",
		}},
		{"all and any", config.MatchTree{Rules: []config.MatchRule{
			{Predicate: config.MatchPredicate{All: []config.MatchPredicate{value("x-h", "v"), value("x-i", "n")}}, Result: to(0)},
			{Predicate: config.MatchPredicate{Any: []config.MatchPredicate{value("x-h", "v"), value("x-i", "n")}}, Result: to(1)},
		}}, map[string]string{"x-h v x-i n": "0", "x-h v": "1", "x-i n": "1", "": "none"}},
		{"the route does not match", config.MatchTree{Rules: []config.MatchRule{{Predicate: value("x-h", "v"), Result: to(3)}, {Predicate: value("x-h", "v"), Result: to(0)}}}, map[string]string{"x-h v": "none"}},
		{"the second of two routes", config.MatchTree{Rules: []config.MatchRule{{Predicate: value("x-h", "v"), Result: config.MatchResult{First: 3, Count: 2}}}}, map[string]string{"x-h v": "4"}},
		{"empty", config.MatchTree{}, map[string]string{"": "none"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			prefix := config.RouteMatch{PathKind: config.PathPrefix, Path: "/"}
			table := mustCompileTable(t, &config.RouteTable{VirtualHosts: []*config.VirtualHost{{Name: "v", Domains: []string{"*"}, Matcher: &test.tree, Routes: []*config.Route{
				forward("0", prefix), forward("1", config.RouteMatch{}), forward("2", config.RouteMatch{PathKind: config.PathSegments, Path: "/p"}),
				forward("3", config.RouteMatch{PathKind: config.PathExact, Path: "/other"}), forward("4", prefix),
			}}}})
			for headers, want := range test.want {
				x := request("GET", "a.test", "/p/q", strings.Fields(headers)...)
				if got := nameOf(table.Match(x)); got != want {
					t.Errorf("%q leads to %s, want %s", headers, got, want)
				}
				if got := nameOf(table.Explain(x).Route); got != want {
					t.Errorf("%q: explained route %s, want %s", headers, got, want)
				}
			}
		})
	}
	_, err := Compile(&config.RouteTable{VirtualHosts: []*config.VirtualHost{{Name: "v", Domains: []string{"*"}, Matcher: &config.MatchTree{NoMatch: &otherwise}}}})
	if err == nil {
		t.Error("a matcher that selects a missing route compiles")
	}
}

func TestMatchInputs(t *testing.T) {
	x := request("GET", "a.test", "/p?a=1&q=x%20y&q=z", "x-h", "v")
	x.Meta.Conn = &protocol.ConnMeta{
		Local: netip.MustParseAddrPort("[::ffff:10.0.0.1]:443"), Remote: netip.MustParseAddrPort("10.0.0.2:999"), RemoteIP: "10.0.0.2",
		TLS: &protocol.TLS{ServerName: "sni.test", Peer: &protocol.Certificate{Subject: "CN=c", URISANs: []string{"spiffe://a", "spiffe://b"}, DNSSANs: []string{"d.test"}}},
	}
	for _, test := range []struct {
		input config.MatchInput
		want  string
		ok    bool
	}{
		{config.MatchInput{Name: "X-H"}, "v", true},
		{config.MatchInput{Name: "x-none"}, "", false},
		{config.MatchInput{Name: "host"}, "a.test", true},
		{config.MatchInput{Name: ":path"}, "/p?a=1&q=x%20y&q=z", true},
		{config.MatchInput{Kind: config.InputQueryParameter, Name: "q"}, "x y", true},
		{config.MatchInput{Kind: config.InputQueryParameter, Name: "none"}, "", false},
		{config.MatchInput{Kind: config.InputDestinationIP}, "10.0.0.1", true},
		{config.MatchInput{Kind: config.InputDestinationPort}, "443", true},
		{config.MatchInput{Kind: config.InputSourceIP}, "10.0.0.2", true},
		{config.MatchInput{Kind: config.InputSourcePort}, "999", true},
		{config.MatchInput{Kind: config.InputDirectSourceIP}, "10.0.0.2", true},
		{config.MatchInput{Kind: config.InputServerName}, "sni.test", true},
		{config.MatchInput{Kind: config.InputURISAN}, "spiffe://a,spiffe://b", true},
		{config.MatchInput{Kind: config.InputDNSSAN}, "d.test", true},
		{config.MatchInput{Kind: config.InputSubject}, "CN=c", true},
	} {
		if got, ok := inputValue(x, test.input); ok != test.ok || ok && got != test.want {
			t.Errorf("%+v: %q, %v, want %q, %v", test.input, got, ok, test.want, test.ok)
		}
	}
	x.Meta.Conn = &protocol.ConnMeta{}
	for kind := config.InputDestinationIP; kind <= config.InputSubject; kind++ {
		if got, ok := inputValue(x, config.MatchInput{Kind: kind}); ok {
			t.Errorf("input %d of a connection without addresses and TLS: %q, want none", kind, got)
		}
	}
}
