package router

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestLiteralDomains(t *testing.T) {
	host := func(domains ...string) *config.VirtualHost {
		return &config.VirtualHost{Name: domains[0], Domains: domains, Routes: []*config.Route{{Name: domains[0], DirectResponse: &config.DirectResponse{Status: 200}}}}
	}
	c := &config.RouteTable{Name: "t", LiteralDomains: true, VirtualHosts: []*config.VirtualHost{
		host("a.test"), host("b.test:80"), host("*.w.test"), host("p.test:*"), host("c.test", "c.test."), host("c.test:80"), host("q.*"), host("[::1]"),
	}}
	table, err := Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	for authority, want := range map[string]string{
		"a.test": "a.test", "A.Test": "a.test", "a.test:80": "", "a.test:8080": "", "a.test.": "",
		"b.test": "", "b.test:80": "b.test:80", "b.test:0080": "",
		"x.w.test": "*.w.test", "w.test": "", "x.w.test:80": "", "x.w.test.": "",
		"p.test": "", "p.test:": "", "p.test:1": "p.test:*", "P.test:*": "p.test:*",
		"c.test": "c.test", "c.test.": "c.test", "c.test:80": "c.test:80",
		"q.x:1": "q.*", "q.": "", "[::1]": "[::1]", "[0::1]": "", "": "",
	} {
		x := request("GET", authority, "/")
		got := ""
		if r := table.Match(x); r != nil {
			got = r.VirtualHost
		}
		if got != want {
			t.Errorf("virtual host of %q is %q, want %q", authority, got, want)
		}
		e := table.Explain(x)
		if (e.VirtualHost == nil) != (want == "") || e.VirtualHost != nil && e.VirtualHost.Name != want {
			t.Errorf("Explain(%q) = %v, want %q", authority, e.VirtualHost, want)
		}
	}
	next := *c
	next.LiteralDomains = false
	if table, err = table.Recompile(&next); err == nil {
		t.Errorf("Recompile accepted c.test and c.test. as two domains: %v", table)
	}
	if _, err := Compile(&config.RouteTable{Name: "t", LiteralDomains: true, VirtualHosts: []*config.VirtualHost{host("*x*")}}); err == nil {
		t.Error("the domain *x* was accepted")
	}
	nonLiteral, err := Compile(&config.RouteTable{Name: "t", VirtualHosts: []*config.VirtualHost{host("a.test")}})
	if err != nil {
		t.Fatal(err)
	}
	if literal, err := nonLiteral.Recompile(&config.RouteTable{Name: "t", LiteralDomains: true, VirtualHosts: nonLiteral.Config().VirtualHosts}); err != nil || literal.Match(request("GET", "a.test:80", "/")) != nil {
		t.Errorf("a.test:80 still matches a.test after Recompile with LiteralDomains (%v)", err)
	}
}

func TestLocalRepliesGetRouteHeaders(t *testing.T) {
	mutation := config.HeaderMutation{Add: []config.HeaderValue{{Name: "strict-transport-security", Value: "max-age=1"}}}
	for name, route := range map[string]*config.Route{
		"redirect": {Redirect: &config.Redirect{Scheme: "https"}, Response: mutation},
		"direct":   {DirectResponse: &config.DirectResponse{Status: 200}, Response: mutation},
	} {
		x := request("GET", "a.test", "/")
		compileAndMatch(t, route, x).Reply(x)
		if got := x.Response.Header.Get("strict-transport-security"); got != "max-age=1" {
			t.Errorf("%s: strict-transport-security is %q, want max-age=1", name, got)
		}
	}
}

func TestRegexRewriteToEmptyPath(t *testing.T) {
	for _, test := range []struct {
		keepIfEmpty         bool
		pattern, path, want string
	}{
		{false, "^/zx.*", "/zx/a?b", "/?b"},
		{true, "^/zx.*", "/zx/a?b", "/zx/a?b"},
		{true, "^/zy/", "/zy/?x", "/zy/?x"},
		{true, "^/zy/", "/zy/a?x", "/a?x"},
	} {
		x := request("GET", "a.test", test.path)
		compileAndMatch(t, &config.Route{Forward: &config.Forward{Cluster: "c", RegexRewrite: &config.RegexRewrite{Pattern: test.pattern, KeepIfEmpty: test.keepIfEmpty}}}, x).RewriteRequest(x)
		if x.Request.Path != test.want {
			t.Errorf("%q without %q becomes %q, want %q", test.path, test.pattern, x.Request.Path, test.want)
		}
	}
}
