package router

import (
	"slices"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestRequireTLS verifies which requests a virtual host redirects, and the locations, as Envoy 1.40
// responds.
func TestRequireTLS(t *testing.T) {
	mutation := config.HeaderMutation{Add: []config.HeaderValue{{Name: "x-added", Value: "1"}}}
	routes := []*config.Route{forward("r", config.RouteMatch{PathKind: config.PathPrefix, Path: "/x"})}
	table := mustCompileTable(t, &config.RouteTable{LiteralDomains: true, Response: mutation, VirtualHosts: []*config.VirtualHost{
		{Name: "all", Domains: []string{"all.test", "all.test:80"}, RequireTLS: config.TLSRequired, Response: mutation, Routes: routes},
		{Name: "external", Domains: []string{"ext.test"}, RequireTLS: config.TLSRequiredExternal, Routes: routes},
		{Name: "empty", Domains: []string{"empty.test"}, RequireTLS: config.TLSRequired},
		{Name: "none", Domains: []string{"none.test"}, Routes: routes},
	}})
	for _, test := range []struct {
		name, host, path string
		secure           bool
		headers          []string
		route, location  string
	}{
		{"a plaintext request", "all.test", "/x?q=1", false, nil, "all#require_tls", "https://all.test/x?q=1"},
		{"no route has to match", "all.test", "/y", false, nil, "all#require_tls", "https://all.test/y"},
		{"the port stays", "all.test:80", "/x", false, nil, "all#require_tls", "https://all.test:80/x"},
		{"a TLS connection", "all.test", "/x", true, nil, "r", ""},
		{"the proxy in front received TLS", "all.test", "/x", false, []string{"X-Forwarded-Proto", "https"}, "r", ""},
		{"the proxy in front received plaintext", "all.test", "/x", true, []string{"x-forwarded-proto", "http"}, "all#require_tls", "https://all.test/x"},
		{"another case", "all.test", "/x", false, []string{"x-forwarded-proto", "HTTPS"}, "all#require_tls", "https://all.test/x"},
		{"a list", "all.test", "/x", true, []string{"x-forwarded-proto", "https, http"}, "all#require_tls", "https://all.test/x"},
		{"a repeated header", "all.test", "/x", true, []string{"x-forwarded-proto", "https", "x-forwarded-proto", "https"}, "all#require_tls", "https://all.test/x"},
		{"internal requests are redirected, too", "all.test", "/x", false, []string{"x-envoy-internal", "true"}, "all#require_tls", "https://all.test/x"},
		{"EXTERNAL_ONLY and an external request", "ext.test", "/x", false, nil, "external#require_tls", "https://ext.test/x"},
		{"EXTERNAL_ONLY and an internal request", "ext.test", "/x", false, []string{"x-envoy-internal", "true"}, "r", ""},
		{"EXTERNAL_ONLY and another value", "ext.test", "/x", false, []string{"x-envoy-internal", "1"}, "external#require_tls", "https://ext.test/x"},
		{"a virtual host without routes", "empty.test", "/x", false, nil, "empty#require_tls", "https://empty.test/x"},
		{"a virtual host without routes, over TLS", "empty.test", "/x", true, nil, "none", ""},
		{"without require_tls", "none.test", "/x", false, nil, "r", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := request("GET", test.host, test.path, test.headers...)
			x.Meta.Conn = &protocol.ConnMeta{Secure: test.secure}
			r := table.Match(x)
			if nameOf(r) != test.route {
				t.Fatalf("route = %s, want %s", nameOf(r), test.route)
			}
			if e := table.Explain(x); nameOf(e.Route) != test.route {
				t.Errorf("explained route = %s, want %s", nameOf(e.Route), test.route)
			}
			if test.location == "" {
				return
			}
			r.Reply(x)
			if got, want := headerLines(&x.Response.Header), "Location: "+test.location; x.Response.Status != 301 || !slices.Contains(got, want) || slices.Contains(got, "x-added: 1") {
				t.Errorf("reply = %d %q, want 301 %q without x-added", x.Response.Status, got, want)
			}
		})
	}
}

func TestRecompiledTLSRedirects(t *testing.T) {
	hosts := []*config.VirtualHost{
		{Name: "a", Domains: []string{"a.test"}, RequireTLS: config.TLSRequired, Routes: []*config.Route{forward("a", config.RouteMatch{})}},
		{Name: "b", Domains: []string{"b.test"}, RequireTLS: config.TLSRequired},
	}
	table := mustCompileTable(t, &config.RouteTable{VirtualHosts: hosts})
	find := func(table *Table, host string) string {
		x := request("GET", host, "/")
		x.Meta.Conn = &protocol.ConnMeta{}
		return nameOf(table.Match(x))
	}
	changed := *hosts[0]
	changed.Routes = append(slices.Clone(changed.Routes), forward("a2", config.RouteMatch{}))
	next, err := table.Recompile(&config.RouteTable{VirtualHosts: []*config.VirtualHost{&changed, hosts[1]}})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{"a.test": "a#require_tls", "b.test": "b#require_tls"} {
		if got := find(next, host); got != want {
			t.Errorf("%s: route = %s, want %s", host, got, want)
		}
	}
	if old, kept := table.Routes()[1], next.Routes()[2]; old != kept {
		t.Errorf("the redirect of a was compiled again: %p, want %p", kept, old)
	}
	changed.RequireTLS = config.TLSOptional
	if next, err = table.Recompile(&config.RouteTable{VirtualHosts: []*config.VirtualHost{&changed, hosts[1]}}); err != nil {
		t.Fatal(err)
	}
	if got := find(next, "a.test"); got != "a" || len(next.Routes()) != 3 {
		t.Errorf("without require_tls: route = %s of %d, want a of 3", got, len(next.Routes()))
	}
}
