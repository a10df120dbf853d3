package router

import (
	"math/rand/v2"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestValueMatch(t *testing.T) {
	for _, tt := range []struct {
		name       string
		m          config.ValueMatch
		matches    []string
		mismatches []string
		absent     bool // the result for a missing value
	}{
		{"exact", config.ValueMatch{Text: "a"}, []string{"a"}, []string{"A", "ab", ""}, false},
		{"exact in any case", config.ValueMatch{Text: "a", IgnoreCase: true}, []string{"a", "A"}, []string{"b", ""}, false},
		{"not exact", config.ValueMatch{Text: "a", Invert: true}, []string{"b", ""}, []string{"a"}, false},
		{"not exact, or missing", config.ValueMatch{Text: "a", Invert: true, TreatMissingAsEmpty: true}, []string{"b", ""}, []string{"a"}, true},
		{"empty, or missing", config.ValueMatch{TreatMissingAsEmpty: true}, []string{""}, []string{"a"}, true},
		{"prefix", config.ValueMatch{Kind: config.ValuePrefix, Text: "ab"}, []string{"ab", "abc"}, []string{"a", "Ab", "xab"}, false},
		{"prefix in any case", config.ValueMatch{Kind: config.ValuePrefix, Text: "ab", IgnoreCase: true}, []string{"AB", "aBc"}, []string{"a", "xab"}, false},
		{"suffix", config.ValueMatch{Kind: config.ValueSuffix, Text: "ab"}, []string{"ab", "xab"}, []string{"b", "abc"}, false},
		{"contains", config.ValueMatch{Kind: config.ValueContains, Text: "ab"}, []string{"ab", "xaby"}, []string{"aXb", "xAby"}, false},
		{"contains in any case", config.ValueMatch{Kind: config.ValueContains, Text: "ab", IgnoreCase: true}, []string{"xAby"}, []string{"a"}, false},
		{"expression matches the complete value", config.ValueMatch{Kind: config.ValueRegex, Text: "[0-9]{3}|x"}, []string{"123", "x"}, []string{"1234", "xx", ""}, false},
		{"inverted expression", config.ValueMatch{Kind: config.ValueRegex, Text: "[0-9]{3}", Invert: true}, []string{"1234"}, []string{"123"}, false},
		{"present", config.ValueMatch{Kind: config.ValuePresent}, []string{"", "a"}, nil, false},
		{"not present", config.ValueMatch{Kind: config.ValuePresent, Invert: true}, nil, []string{"", "a"}, true},
		{"range", config.ValueMatch{Kind: config.ValueRange, From: -10, To: 0}, []string{"-10", "-1"}, []string{"0", "-11", "-1x", "", "1.5"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := expressions{}.compileValue(&tt.m)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range tt.matches {
				if !v.Match(s, true) {
					t.Errorf("Match(%q) = false, want true", s)
				}
			}
			for _, s := range tt.mismatches {
				if v.Match(s, true) {
					t.Errorf("Match(%q) = true, want false", s)
				}
			}
			if got := v.Match("", false); got != tt.absent {
				t.Errorf("Match of a missing value = %v, want %v", got, tt.absent)
			}
		})
	}
}

// tableOf returns a table with one virtual host and one route, which has the match m.
func tableOf(t *testing.T, m config.RouteMatch) *Table {
	t.Helper()
	table, err := Compile(&config.RouteTable{Name: "t", VirtualHosts: []*config.VirtualHost{{
		Name: "v", Domains: []string{"*"},
		Routes: []*config.Route{{Name: "r", Match: m, DirectResponse: &config.DirectResponse{Status: 200}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestPathQueryAndPercentageConditions(t *testing.T) {
	percent := func(p float64) *float64 { return &p }
	for _, tt := range []struct {
		name  string
		match config.RouteMatch
		path  string
		want  bool
	}{
		{"segments: the path itself", config.RouteMatch{PathKind: config.PathSegments, Path: "/a"}, "/a", true},
		{"segments: with a query", config.RouteMatch{PathKind: config.PathSegments, Path: "/a"}, "/a?x", true},
		{"segments: below the path", config.RouteMatch{PathKind: config.PathSegments, Path: "/a"}, "/a/b", true},
		{"segments: longer last segment", config.RouteMatch{PathKind: config.PathSegments, Path: "/a"}, "/ab", false},
		{"segments: shorter path", config.RouteMatch{PathKind: config.PathSegments, Path: "/a/b"}, "/a", false},
		{"segments: case-insensitive", config.RouteMatch{PathKind: config.PathSegments, Path: "/a", IgnoreCase: true}, "/A/b", true},
		{"segments: case-sensitive", config.RouteMatch{PathKind: config.PathSegments, Path: "/a"}, "/A/b", false},
		{"prefix in any case", config.RouteMatch{PathKind: config.PathPrefix, Path: "/Ab", IgnoreCase: true}, "/aBc", true},
		{"path in any case", config.RouteMatch{PathKind: config.PathExact, Path: "/Ab", IgnoreCase: true}, "/aB", true},
		{"path in any case, longer path", config.RouteMatch{PathKind: config.PathExact, Path: "/Ab", IgnoreCase: true}, "/aBc", false},
		{"query", config.RouteMatch{Query: []config.QueryMatch{{Name: "v", Matcher: config.ValueMatch{Text: "1"}}}}, "/?a=2&v=1&v=3", true},
		{"query, first parameter of a repeated name", config.RouteMatch{Query: []config.QueryMatch{{Name: "v", Matcher: config.ValueMatch{Text: "3"}}}}, "/?v=1&v=3", false},
		{"query, encoded", config.RouteMatch{Query: []config.QueryMatch{{Name: "a%20b", Matcher: config.ValueMatch{Text: "c%2fd"}}}}, "/?a%20b=c%2fd", true},
		{"query, not decoded", config.RouteMatch{Query: []config.QueryMatch{{Name: "a", Matcher: config.ValueMatch{Text: "b c"}}}}, "/?a=b%20c", false},
		{"query, name is not decoded", config.RouteMatch{Query: []config.QueryMatch{{Name: "a b", Matcher: config.ValueMatch{Kind: config.ValuePresent}}}}, "/?a%20b=c", false},
		{"query, invalid encoding", config.RouteMatch{Query: []config.QueryMatch{{Name: "v", Matcher: config.ValueMatch{Text: "%zz"}}}}, "/?v=%zz", true},
		{"query, present without a value", config.RouteMatch{Query: []config.QueryMatch{{Name: "v", Matcher: config.ValueMatch{Kind: config.ValuePresent}}}}, "/?v", true},
		{"query, missing", config.RouteMatch{Query: []config.QueryMatch{{Name: "v", Matcher: config.ValueMatch{Kind: config.ValuePresent}}}}, "/?w=v", false},
		{"query, no query", config.RouteMatch{Query: []config.QueryMatch{{Name: "v", Matcher: config.ValueMatch{Text: ""}}}}, "/", false},
		{"never", config.RouteMatch{Percentage: percent(0)}, "/", false},
		{"always", config.RouteMatch{Percentage: percent(100)}, "/", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := &protocol.Exchange{Request: protocol.Request{Authority: "h", Path: tt.path, Method: "GET"}}
			if got := tableOf(t, tt.match).Match(x) != nil; got != tt.want {
				t.Errorf("%s matches = %v, want %v", tt.path, got, tt.want)
			}
		})
	}
}

// TestFraction verifies that a fraction matches its share of many requests.
func TestFraction(t *testing.T) {
	percent := 25.0
	table, x, n := tableOf(t, config.RouteMatch{Percentage: &percent}), &protocol.Exchange{Request: protocol.Request{Path: "/"}}, 0
	if table.Match(x) != nil {
		t.Error("a fraction matches without a source of random numbers")
	}
	table.Random = rand.New(rand.NewPCG(1, 2)).Uint64
	const total = 20_000
	for range total {
		if table.Match(x) != nil {
			n++
		}
	}
	if n < total/5 || n > total*3/10 {
		t.Errorf("%d of %d requests match, want about a quarter", n, total)
	}
}

// TestRepeatedHeadersAreNotJoined verifies that a condition tests each value of a repeated header
// separately.
func TestRepeatedHeadersAreNotJoined(t *testing.T) {
	x := &protocol.Exchange{Request: protocol.Request{Path: "/"}}
	x.Request.Header.Add("x-a", "1")
	x.Request.Header.Add("x-A", "2")
	for text, want := range map[string]bool{"1": true, "2": true, "1,2": false} {
		table := tableOf(t, config.RouteMatch{Headers: []config.HeaderMatch{{Name: "X-A", Matcher: &config.ValueMatch{Text: text}}}})
		if got := table.Match(x) != nil; got != want {
			t.Errorf("condition %q matches = %t, want %t", text, got, want)
		}
		inverted := tableOf(t, config.RouteMatch{Headers: []config.HeaderMatch{{Name: "X-A", Matcher: &config.ValueMatch{Text: text, Invert: true}}}})
		if got := inverted.Match(x) != nil; got == want {
			t.Errorf("inverted condition %q matches = %t, want %t", text, got, !want)
		}
	}
}

func TestIgnorePort(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		table, err := Compile(&config.RouteTable{Name: "t", IgnorePort: ignore, VirtualHosts: []*config.VirtualHost{{
			Name: "v", Domains: []string{"a.test", "*.b.test", "[::1]"},
			Routes: []*config.Route{{Name: "r", DirectResponse: &config.DirectResponse{Status: 200}}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, authority := range []string{"a.test:8081", "x.b.test:8081", "[::1]:8081"} {
			x := &protocol.Exchange{Request: protocol.Request{Authority: authority, Scheme: "http", Path: "/"}}
			if got := table.Match(x) != nil; got != ignore {
				t.Errorf("ignoring ports %v: %s matches = %v, want %v", ignore, authority, got, ignore)
			}
		}
	}
}

func TestRedirectsRewritePaths(t *testing.T) {
	for _, tt := range []struct {
		name     string
		match    config.RouteMatch
		redirect config.Redirect
		want     string
	}{
		{"prefix", config.RouteMatch{PathKind: config.PathPrefix, Path: "/old"}, config.Redirect{PrefixRewrite: "/new"}, "http://a.test:81/new/x?q"},
		{"prefix in any case", config.RouteMatch{PathKind: config.PathPrefix, Path: "/OLD", IgnoreCase: true}, config.Redirect{PrefixRewrite: "/new"}, "http://a.test:81/new/x?q"},
		{"below a path", config.RouteMatch{PathKind: config.PathSegments, Path: "/old"}, config.Redirect{PrefixRewrite: "/"}, "http://a.test:81//x?q"},
		{"expression", config.RouteMatch{}, config.Redirect{RegexRewrite: &config.RegexRewrite{Pattern: "/old/(.*)", Substitution: `/\1`}}, "http://a.test:81/x?q"},
		{"without the query", config.RouteMatch{}, config.Redirect{StripQuery: true}, "http://a.test:81/old/x"},
		{"port", config.RouteMatch{}, config.Redirect{Port: 82}, "http://a.test:82/old/x?q"},
		{"default port", config.RouteMatch{}, config.Redirect{Scheme: "https", Port: 443}, "https://a.test/old/x?q"},
		{"port of another host", config.RouteMatch{}, config.Redirect{Host: "b.test", Port: 82}, "http://b.test:82/old/x?q"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, err := Compile(&config.RouteTable{Name: "t", VirtualHosts: []*config.VirtualHost{{
				Name: "v", Domains: []string{"*"}, Routes: []*config.Route{{Name: "r", Match: tt.match, Redirect: &tt.redirect}},
			}}})
			if err != nil {
				t.Fatal(err)
			}
			x := &protocol.Exchange{Request: protocol.Request{Authority: "a.test:81", Scheme: "http", Path: "/old/x?q"}}
			r := table.Match(x)
			if r == nil {
				t.Fatal("no route")
			}
			r.Reply(x)
			if got := x.Response.Header.Get("Location"); got != tt.want {
				t.Errorf("Location = %q, want %q", got, tt.want)
			}
		})
	}
}
