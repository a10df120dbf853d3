package explain

import (
	"flag"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/router"
)

var update = flag.Bool("update", false, "write the golden files")

// httpChain returns a filter chain with one proxy filter.
func httpChain(table string, match config.ChainMatch, filters ...string) *config.FilterChain {
	p := &config.Proxy{Downstream: []config.Protocol{config.HTTP1, config.HTTP2}, RouteTable: table}
	for _, f := range filters {
		p.StreamFilters = append(p.StreamFilters, config.Filter{Name: f})
	}
	return &config.FilterChain{Match: match, Proxy: p}
}

func listener(name, address string, chains ...*config.FilterChain) *config.Listener {
	return &config.Listener{Name: name, Network: "tcp", Address: address, Bind: true, FilterChains: chains}
}

// shopConfig returns a configuration that covers the cases of TestExplain.
func shopConfig() *config.Snapshot {
	relay := &config.FilterChain{TCPProxy: &config.TCPProxy{Cluster: "anywhere", Routes: []config.TCPRoute{
		{Cluster: "database", DestinationPorts: []config.PortRange{{First: 3306, Last: 3306}}},
	}}}
	dubbo := &config.FilterChain{
		ConnectionFilters: []config.Filter{{Name: "rbac"}},
		Proxy:             &config.Proxy{Downstream: []config.Protocol{config.Dubbo}, RouteTable: "calls"},
	}
	secure := httpChain("web", config.ChainMatch{ServerNames: []string{"*.shop.test"}, TransportProtocol: config.TransportTLS})
	secure.Name = "secure"
	multiChain := listener("choosing", "0.0.0.0:443", secure, httpChain("other", config.ChainMatch{ServerNames: []string{"a.shop.test"}}))
	multiChain.FilterChains[1].Match.ApplicationProtocols = []string{"h2"}
	out := listener("out", "127.0.0.1:15001", relay)
	out.OriginalDst = config.OriginalDstRedirect
	virtual := listener("virtual", "0.0.0.0:9080", httpChain("web", config.ChainMatch{}))
	virtual.Bind = false
	return &config.Snapshot{
		Listeners: []*config.Listener{
			listener("web", "127.0.0.1:2045", httpChain("web", config.ChainMatch{}, "cors", "rbac")),
			multiChain, listener("calls", "127.0.0.1:2645", dubbo), out, virtual,
		},
		Routes: []*config.RouteTable{webTable(), callTable()},
	}
}

func webTable() *config.RouteTable {
	tenth := 10.0
	forward := func(name string, m config.RouteMatch, f config.Forward) *config.Route {
		return &config.Route{Name: name, Match: m, Forward: &f}
	}
	prefix := func(p string) config.RouteMatch { return config.RouteMatch{PathKind: config.PathPrefix, Path: p} }
	return &config.RouteTable{Name: "web", VirtualHosts: []*config.VirtualHost{
		{Name: "shop", Domains: []string{"shop.test", "*.shop.test"}, Routes: []*config.Route{
			{Name: "old", Match: prefix("/old"), Redirect: &config.Redirect{Code: 302, Path: "/new"}},
			{Name: "health", Match: config.RouteMatch{PathKind: config.PathExact, Path: "/health"}, DirectResponse: &config.DirectResponse{Status: 200}},
			forward("canary", config.RouteMatch{PathKind: config.PathPrefix, Path: "/api/", Percentage: &tenth}, config.Forward{Cluster: "v2"}),
			forward("jason", config.RouteMatch{PathKind: config.PathPrefix, Path: "/api/", Headers: []config.HeaderMatch{{Name: "end-user", Value: "jason"}}},
				config.Forward{Cluster: "subsets", Metadata: map[string]string{"version": "v2"}}),
			forward("api", prefix("/api/"), config.Forward{
				WeightedClusters: []config.WeightedCluster{{Cluster: "v1", Weight: 8}, {Cluster: "v2", Weight: 2}, {Cluster: "gone"}}, PrefixRewrite: "/", Timeout: 3e9,
			}),
			forward("named", prefix("/named"), config.Forward{ClusterVariable: "request_header_to", HostRewrite: "named.test"}),
		}},
		{Name: "all", Domains: []string{"*"}, Routes: []*config.Route{forward("none", prefix("/"), config.Forward{Cluster: "gone"})}},
	}}
}

func callTable() *config.RouteTable {
	return &config.RouteTable{Name: "calls", VirtualHosts: []*config.VirtualHost{{Name: "any", Domains: []string{"*"}, Routes: []*config.Route{
		{Name: "grey", Match: config.RouteMatch{Headers: []config.HeaderMatch{{Name: "service", Value: "org.Pay"}, {Name: "group", Value: "grey"}}}, Forward: &config.Forward{Cluster: "v2"}},
		{Name: "tagged", Match: config.RouteMatch{Headers: []config.HeaderMatch{{Name: "tag", Value: "^a", Regex: true}}}, Forward: &config.Forward{Cluster: "v2"}},
		{Name: "pay", Match: config.RouteMatch{Headers: []config.HeaderMatch{{Name: "service", Value: "org.Pay"}}}, Forward: &config.Forward{Cluster: "v1"}},
	}}}}
}

// currentState returns the current state of a cluster that shopConfig refers to, or nil if the
// cluster does not exist.
func currentState(name string) *Upstream {
	c := &config.Cluster{Name: name, LBPolicy: config.RoundRobin}
	hosts := func(list ...UpstreamHost) *Upstream { return &Upstream{Config: c, Hosts: list} }
	switch name {
	case "v1":
		return hosts(UpstreamHost{Address: "10.0.0.1:80", Weight: 1}, UpstreamHost{Address: "10.0.0.2:80", Weight: 1, DownReason: "failing checks"},
			UpstreamHost{Address: "10.0.1.1:80", Weight: 1, Priority: 1, Locality: "eu/b/"})
	case "v2":
		return hosts(UpstreamHost{Address: "10.0.0.3:80", Weight: 5, DownReason: "ejected"}, UpstreamHost{Address: "10.0.1.3:80", Weight: 1, Priority: 1})
	case "subsets":
		c.Subsets.Selectors = [][]string{{"version"}}
		return hosts(UpstreamHost{Address: "10.0.0.4:80", Weight: 1, Metadata: map[string]string{"version": "v1"}},
			UpstreamHost{Address: "10.0.0.5:80", Weight: 1, Metadata: map[string]string{"version": "v2"}})
	case "anywhere":
		c.LBPolicy = config.LBOriginalDst
		return hosts()
	case "database":
		return hosts()
	}
	return nil
}

func TestExplain(t *testing.T) {
	for name, query := range map[string]string{
		"a redirect":                               "url=http://shop.test/old/1?a=b&listener=web",
		"a local reply":                            "url=http://127.0.0.1:2045/health&header=Host:shop.test",
		"weights and fractions":                    "url=http://shop.test:2045/api/x&header=Host:shop.test",
		"a header and labels":                      "url=http://shop.test/api/x&header=end-user:jason&listener=web",
		"a cluster by a variable":                  "url=http://shop.test/named&header=to:v1&listener=web",
		"a variable without a value":               "url=http://shop.test/named&listener=web",
		"no route":                                 "url=http://shop.test/&listener=web",
		"an unknown cluster":                       "url=http://other.test/&listener=web",
		"an unknown listener":                      "url=http://shop.test/&listener=nowhere",
		"a filter chain by server name":            "url=https://www.shop.test/old",
		"unknown table of the most specific chain": "url=https://a.shop.test/old",
		"no filter chain":                          "url=http://shop.test/&to=10.0.0.1:443",
		"a virtual listener":                       "url=http://shop.test:9080/health",
		"redirected to the catch-all listener":     "url=http://10.9.9.9/",
		"redirected to a cluster without hosts":    "url=http://10.9.9.9:3306/",
		"an RPC request":                           "call=org.Pay/pay&group=blue&attachment=tag=b",
		"an RPC request with a group":              "call=org.Pay/pay&group=grey&version=1.0",
		"an RPC request to an HTTP listener":       "call=org.Pay/pay&listener=web",
		"a protocol without a listener":            "call=org.Pay/pay&protocol=tars",
	} {
		t.Run(name, func(t *testing.T) {
			values, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			q, err := Parse(values)
			if err != nil {
				t.Fatal(err)
			}
			got := Explain(shopConfig(), currentState, q).Text()
			file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "_")+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil { //nolint:gosec // golden files are world-readable
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file) //nolint:gosec // the path is in testdata
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("Explain(%s):\n%s\nwant:\n%s", query, got, want)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	for query, want := range map[string]string{
		"":                                  "url or call is required",
		"url=http://a/&call=a/b":            "url and call are mutually exclusive",
		"url=ftp://a/":                      `url: "ftp://a/" is not valid, expected http://host/path or https://host/path`,
		"url=http://a:99999/":               `url: "99999" is not a valid port`,
		"url=http://a/&header=x":            `header: "x" is not valid, expected name:value`,
		"call=service":                      `call: "service" is not valid, expected service/method`,
		"call=s/m&attachment=x":             `attachment: "x" is not valid, expected name=value`,
		"url=http://a/&to=a":                `to: "a" is not valid, expected ip:port`,
		"url=http://a/&from=a":              `from: "a" is not valid, expected ip or ip:port`,
		"url=http://a/&colour=red":          `unknown parameter "colour", expected one of url, call, `,
		"url=http://a/&from=10.0.0.1&sni=A": "",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if _, err := Parse(values); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("Parse(%s) = %s, want %s", query, got, want)
		}
	}
}

func TestSubsetFallbacks(t *testing.T) {
	u := &Upstream{
		Config: &config.Cluster{Subsets: config.Subsets{Selectors: [][]string{{"v"}}, Default: map[string]string{"v": "1"}}},
		Hosts:  []UpstreamHost{{Address: "a", Metadata: map[string]string{"v": "1"}}, {Address: "b", Metadata: map[string]string{"v": "2"}}},
	}
	for _, tt := range []struct {
		name     string
		fallback config.SubsetFallback
		labels   map[string]string
		want     string // candidates
	}{
		{"matching subset", config.NoFallback, map[string]string{"v": "2"}, "b"},
		{"no subset, no fallback", config.NoFallback, map[string]string{"v": "3"}, ""},
		{"any", config.AnyEndpoint, map[string]string{"v": "3"}, "ab"},
		{"default subset", config.DefaultSubset, nil, "a"},
		{"labels without a selector", config.AnyEndpoint, map[string]string{"w": "1"}, "ab"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u.Config.Subsets.Fallback = tt.fallback
			var got []string
			for _, h := range describeCluster(func(string) *Upstream { return u }, "c", 100, tt.labels, nil).Hosts {
				if h.Candidate {
					got = append(got, h.Address)
				}
			}
			if strings.Join(got, "") != tt.want {
				t.Errorf("candidates %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFromConfigHosts(t *testing.T) {
	u := FromConfig(&config.Cluster{Hosts: []config.Host{
		{Address: "a", Weight: 1, Locality: config.Locality{Region: "eu", Zone: "a"}},
		{Address: "b", Weight: 1, Health: config.HostUnhealthy},
	}})
	c := describeCluster(func(string) *Upstream { return u }, "c", 100, nil, nil)
	if len(c.Hosts) != 2 || !c.Hosts[0].Candidate || c.Hosts[0].Locality != "eu/a/" || c.Hosts[1].Candidate {
		t.Errorf("hosts: %+v, want one candidate, in eu/a/, and another host", c.Hosts)
	}
	u.Panic = true
	if c := describeCluster(func(string) *Upstream { return u }, "c", 100, nil, nil); !c.Hosts[1].Candidate {
		t.Error("a down host is not a candidate in panic mode")
	}
}

// TestAuthorityOfAttempts verifies that the authority of an action follows the precedence of the
// host rewrites, and that RPC requests keep theirs.
func TestAuthorityOfAttempts(t *testing.T) {
	for _, tt := range []struct {
		forward  config.Forward
		protocol config.Protocol
		want     string
	}{
		{config.Forward{AutoHostRewrite: true}, config.HTTP1, "the name of the host"},
		{config.Forward{AutoHostRewrite: true, HostRewrite: "b.test"}, config.HTTP1, "b.test"},
		{config.Forward{AutoHostRewrite: true, AutoHostRewriteHeader: "x-host"}, config.HTTP1, "a.test"},
		{config.Forward{AutoHostRewrite: true}, config.Dubbo, "a.test"},
	} {
		tt.forward.Cluster = "v1"
		table, err := router.Compile(&config.RouteTable{Name: "t", VirtualHosts: []*config.VirtualHost{{
			Name: "all", Domains: []string{"*"}, Routes: []*config.Route{{Name: "r", Forward: &tt.forward}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		q := &Query{Protocol: tt.protocol, Method: "GET", Scheme: "http", Authority: "a.test", Path: "/s/m"}
		if a := describeAction(table.Routes()[0], currentState, q.newExchange(tt.protocol, "in")); a.Authority != tt.want {
			t.Errorf("%s request of %+v has the authority %q, want %q", tt.protocol, tt.forward, a.Authority, tt.want)
		}
	}
}

// TestTargetsAreNormalized verifies that Explain applies the rules of the listener to the target
// before it chooses a route.
func TestTargetsAreNormalized(t *testing.T) {
	for _, tt := range []struct {
		rules config.TargetNormalization
		url   string
		want  string // contained in the text
	}{
		{config.TargetNormalization{}, "http://shop.test/x/../health", `result: no route of the virtual host matches`},
		{config.TargetNormalization{NormalizePath: true}, "http://shop.test/x/../health", `route "health": all its conditions match`},
		{config.TargetNormalization{NormalizePath: true}, "http://shop.test/x/../health", `target normalized to "shop.test" "/health"`},
		{config.TargetNormalization{StripPort: config.StripAnyPort}, "http://shop.test:81/health", `route "health": all its conditions match`},
		{config.TargetNormalization{EscapedSlashes: config.RejectEscapedSlashes}, "http://shop.test/a%2Fb", `result: the request fails with malformed_request: the path has an encoded slash`},
		{config.TargetNormalization{EscapedSlashes: config.RedirectEscapedSlashes}, "http://shop.test/a%2Fb", `result: the listener redirects the request to /a/b, with status 307`},
	} {
		c := shopConfig()
		c.Listeners[0].FilterChains[0].Proxy.Targets = tt.rules
		q, err := Parse(url.Values{KeyURL: {tt.url}, KeyListener: {"web"}})
		if err != nil {
			t.Fatal(err)
		}
		if text := Explain(c, currentState, q).Text(); !strings.Contains(text, tt.want) {
			t.Errorf("Explain of %s with %+v:\n%s\nwant a text that contains %s", tt.url, tt.rules, text, tt.want)
		}
	}
}

// TestTextShortensLongLists verifies that Text shortens long lists but always prints the chosen
// route.
func TestTextShortensLongLists(t *testing.T) {
	c := shopConfig()
	vh := &config.VirtualHost{Name: "long", Domains: []string{"long.test"}}
	for i := range 50 {
		r := &config.Route{Name: string(rune('A' + i)), Match: config.RouteMatch{PathKind: config.PathExact, Path: "/no"}, DirectResponse: &config.DirectResponse{Status: 404}}
		if i == 49 {
			r = &config.Route{Name: "last", DirectResponse: &config.DirectResponse{Status: 200}}
		}
		vh.Routes = append(vh.Routes, r)
	}
	c.Routes[0].VirtualHosts = append(c.Routes[0].VirtualHosts, vh)
	q := &Query{Listener: "web", Protocol: config.HTTP1, Method: "GET", Scheme: "http", Authority: "long.test", Path: "/", Source: netip.MustParseAddrPort("10.0.0.1:1")}
	text := Explain(c, currentState, q).Text()
	if !strings.Contains(text, `route "last": all its conditions match`) || !strings.Contains(text, "and 29 other routes") {
		t.Errorf("want the route last and \"and 29 other routes\" in the text:\n%s", text)
	}
}
