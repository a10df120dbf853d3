package router

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the golden files")

// explainTable returns a table with routes for all types of conditions except arguments of calls.
func explainTable(t *testing.T) *Table {
	t.Helper()
	third := 33.3
	value := func(name string, m config.ValueMatch) config.RouteMatch {
		return config.RouteMatch{Headers: []config.HeaderMatch{{Name: name, Matcher: &m}}}
	}
	return mustCompileTable(t, &config.RouteTable{Name: "shop", VirtualHosts: []*config.VirtualHost{
		{Name: "all", Domains: []string{"*"}, Routes: []*config.Route{forward("any", config.RouteMatch{})}},
		{Name: "shop", Domains: []string{"shop.test", "*.shop.test"}, Routes: []*config.Route{
			forward("exact", config.RouteMatch{PathKind: config.PathExact, Path: "/cart"}),
			forward("prefix", config.RouteMatch{PathKind: config.PathPrefix, Path: "/api/"}),
			forward("below", config.RouteMatch{PathKind: config.PathSegments, Path: "/API", IgnoreCase: true}),
			forward("regex", config.RouteMatch{PathKind: config.PathRegex, Path: "^/v[0-9]+/"}),
			forward("post of jason", config.RouteMatch{Headers: []config.HeaderMatch{{Name: "method", Value: "POST"}, {Name: "x-user", Value: "jason"}}}),
			forward("any user", config.RouteMatch{Headers: []config.HeaderMatch{{Name: "x-user", Value: ".*"}}}),
			forward("tester", config.RouteMatch{Headers: []config.HeaderMatch{{Name: "x-team", Value: "^test", Regex: true}}}),
			forward("not team a", value("x-team", config.ValueMatch{Kind: config.ValueExact, Text: "a", Invert: true})),
			forward("no team", value("x-team", config.ValueMatch{Kind: config.ValuePresent, Invert: true})),
			forward("team b", value("x-team", config.ValueMatch{Kind: config.ValuePrefix, Text: "B", IgnoreCase: true})),
			forward("team of z", value("x-team", config.ValueMatch{Kind: config.ValueSuffix, Text: "z"})),
			forward("team with z", value("x-team", config.ValueMatch{Kind: config.ValueContains, Text: "z"})),
			forward("all z", value("x-team", config.ValueMatch{Kind: config.ValueRegex, Text: "z+"})),
			forward("numbered", value("x-team", config.ValueMatch{Kind: config.ValueRange, From: 1, To: 10})),
			forward("page 2", config.RouteMatch{Query: []config.QueryMatch{{Name: "page", Matcher: config.ValueMatch{Text: "2"}}}}),
			forward("variables", config.RouteMatch{Variables: []config.VariableMatch{
				{Name: "method", Value: "PUT", Or: true}, {Name: "scheme", Value: "https"}, {Name: "authority", Value: "^x", Regex: true},
			}}),
			forward("a third", config.RouteMatch{Percentage: &third}),
			forward("rest", config.RouteMatch{PathKind: config.PathPrefix, Path: "/"}),
			forward("never", config.RouteMatch{}),
		}},
	}})
}

// lines formats e as lines of text.
func (e *Explanation) lines() string {
	var b strings.Builder
	host := "none"
	if e.VirtualHost != nil {
		host = fmt.Sprintf("%s by %s", e.VirtualHost.Name, e.Domain)
	}
	fmt.Fprintf(&b, "%s: virtual host %s\n", e.Authority, host)
	for _, other := range e.OtherVirtualHosts {
		fmt.Fprintf(&b, "  not %s %q\n", other.VirtualHost.Name, other.Domain)
	}
	for _, r := range e.Routes {
		fmt.Fprintf(&b, "  %s: %s\n", r.Route.Config.Name, [...]string{"rejected", "taken", fmt.Sprintf("taken by %v %%", r.Percent), "later"}[r.Outcome])
		for _, reason := range r.Reasons {
			fmt.Fprintf(&b, "    %s\n", reason)
		}
	}
	return b.String()
}

func TestExplainRoutesThatDoNotMatch(t *testing.T) {
	table := explainTable(t)
	var got strings.Builder
	for _, x := range []*protocol.Exchange{
		request("GET", "shop.test", "/?page=1", "X-Team", "a"),
		request("GET", "www.SHOP.test", "/"),
		request("POST", "shop.test", "/api/v1", "x-user", "bob", "x-team", "b", "x-team", "c"),
		request("GET", "other.test", "/"),
	} {
		fmt.Fprintf(&got, "%s %s%s\n%s\n", x.Request.Method, x.Request.Authority, x.Request.Path, table.Explain(x).lines())
	}
	const golden = "testdata/explain.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil { //nolint:gosec // golden files are world-readable
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("explanations:\n%s\nwant:\n%s", got.String(), want)
	}
}

// TestExplainAgreesWithMatch verifies that Explain and Match agree for many requests.
func TestExplainAgreesWithMatch(t *testing.T) {
	table := explainTable(t)
	for _, sample := range []uint64{0, 1<<64 - 1} { // a fraction matches with the first sample, not with the second
		table.Random = func() uint64 { return sample }
		for _, method := range []string{"GET", "PUT", "POST"} {
			for _, authority := range []string{"shop.test", "a.shop.test", "other.test"} {
				for _, path := range []string{"/", "/cart", "/api/x", "/Api", "/apis", "/v1/", "/?page=2"} {
					for _, team := range []string{"", "a", "b", "5", "z", "testers"} {
						x := request(method, authority, path)
						if team != "" {
							x.Request.Header.Add("x-team", team)
						}
						e, want := table.Explain(x), table.Match(x)
						got := e.Route
						for _, r := range e.Routes {
							if r.Outcome == Sampled && sample == 0 {
								got = r.Route
								break
							}
						}
						if got != want {
							t.Errorf("%s %s%s of team %q: Explain chooses %s, want %s, the route of Match", method, authority, path, team, nameOf(got), nameOf(want))
						}
					}
				}
			}
		}
	}
}

func TestNoVirtualHostIsExplained(t *testing.T) {
	table := mustCompileTable(t, &config.RouteTable{Name: "t", IgnorePort: true, VirtualHosts: []*config.VirtualHost{
		{Name: "a", Domains: []string{"a.test"}, Routes: []*config.Route{forward("r", config.RouteMatch{})}},
	}})
	e := table.Explain(request("GET", "b.test:81", "/"))
	if e.VirtualHost != nil || e.Route != nil || len(e.Routes) != 0 || len(e.OtherVirtualHosts) != 1 || e.Authority != "b.test" {
		t.Errorf("Explain = %+v; want only the authority b.test and one other virtual host", e)
	}
}
