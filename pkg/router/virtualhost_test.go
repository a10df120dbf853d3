package router

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestVirtualHostHeader verifies which virtual host a header chooses, with the results of Envoy
// 1.40.
func TestVirtualHostHeader(t *testing.T) {
	host := func(domain string) *config.VirtualHost {
		return &config.VirtualHost{Name: domain, Domains: []string{domain}, Routes: []*config.Route{forward(domain, config.RouteMatch{})}}
	}
	all := []*config.VirtualHost{host("one.test"), host("*.two.test"), host("host.test"), host("p.test:80"), host("*")}
	for _, test := range []struct {
		name       string
		header     string
		hosts      []*config.VirtualHost
		ignorePort bool
		headers    []string
		want       string
	}{
		{"a domain", "x-vh", all, false, []string{"X-VH", "one.test"}, "one.test"},
		{"another case", "X-Vh", all, false, []string{"x-vh", "ONE.test"}, "one.test"},
		{"a suffix", "x-vh", all, false, []string{"x-vh", "a.two.test"}, "*.two.test"},
		{"a domain with a port", "x-vh", all, false, []string{"x-vh", "p.test:80"}, "p.test:80"},
		{"a missing port", "x-vh", all, false, []string{"x-vh", "p.test"}, "*"},
		{"a port", "x-vh", all, false, []string{"x-vh", "one.test:80"}, "*"},
		{"an ignored port", "x-vh", all, true, []string{"x-vh", "one.test:80"}, "one.test"},
		{"an unknown domain", "x-vh", all, false, []string{"x-vh", "zzz"}, "*"},
		{"an empty value", "x-vh", all, false, []string{"x-vh", ""}, "*"},
		{"the first of two values", "x-vh", all, false, []string{"x-vh", "one.test", "x-vh", "host.test"}, "one.test"},
		{"no header", "x-vh", all, false, nil, "none"},
		{"no header and only *", "x-vh", all[4:], false, nil, "*"},
		{"no header and no *", "x-vh", all[:1], false, nil, "none"},
		{"host", "host", all, false, nil, "host.test"},
		{":authority", ":Authority", all, false, nil, "host.test"},
		{":path", ":path", []*config.VirtualHost{host("/one")}, false, nil, "/one"},
		{"an unknown pseudo-header", ":x", all, false, nil, "none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			table := mustCompileTable(t, &config.RouteTable{LiteralDomains: true, VirtualHostHeader: test.header, IgnorePort: test.ignorePort, VirtualHosts: test.hosts})
			x := request("GET", "host.test", "/one", test.headers...)
			if got := nameOf(table.Match(x)); got != test.want {
				t.Errorf("virtual host = %s, want %s", got, test.want)
			}
			if got := nameOf(table.Explain(x).Route); got != test.want {
				t.Errorf("explained virtual host = %s, want %s", got, test.want)
			}
			if n := testing.AllocsPerRun(10, func() { table.Find(x) }); n != 0 && test.header != ":Authority" {
				t.Errorf("Find allocates %v times, want 0", n)
			}
		})
	}
}
