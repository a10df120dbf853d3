package router

import (
	"slices"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// mutationOf returns mutations that show in which order the levels apply.
func mutationOf(level string, remove ...string) config.HeaderMutation {
	return config.HeaderMutation{Remove: remove, Add: []config.HeaderValue{
		{Name: "x-o", Value: level}, {Name: "x-a", Value: level, Append: true}, {Name: "x-absent", Value: level, If: config.AddIfAbsent},
	}}
}

// TestMostSpecificMutationsWin verifies both orders of mutations with the results of Envoy 1.40.
func TestMostSpecificMutationsWin(t *testing.T) {
	table := func(wins bool) *config.RouteTable {
		onRoute := config.Forward{Request: mutationOf("route"), Response: mutationOf("route"), WeightedClusters: []config.WeightedCluster{
			{Cluster: "c", Weight: 1, Request: mutationOf("weighted"), Response: mutationOf("weighted")}}}
		host := &config.VirtualHost{Name: "v", Domains: []string{"*"}, Request: mutationOf("host", "x-rm"), Response: mutationOf("host", "x-rm"), Routes: []*config.Route{
			{Name: "forward", Match: config.RouteMatch{PathKind: config.PathPrefix, Path: "/f"}, Forward: &onRoute},
			{Name: "plain", Match: config.RouteMatch{PathKind: config.PathPrefix, Path: "/p"}, Forward: &config.Forward{Cluster: "c"}},
			{Name: "direct", DirectResponse: &config.DirectResponse{Status: 200}, Response: mutationOf("route")},
		}}
		return &config.RouteTable{MostSpecificMutationsWin: wins, Request: mutationOf("table"), Response: mutationOf("table"), VirtualHosts: []*config.VirtualHost{host}}
	}
	for _, test := range []struct {
		name              string
		wins              bool
		path              string
		values            []string // of x-a, in order
		overwrite, absent string
	}{
		{"least specific", false, "/f", []string{"weighted", "route", "host", "table"}, "table", "weighted"},
		{"most specific", true, "/f", []string{"weighted", "table", "host", "route"}, "route", "weighted"},
		{"least specific, a route without mutations", false, "/p", []string{"host", "table"}, "table", "host"},
		{"most specific, a route without mutations", true, "/p", []string{"table", "host"}, "host", "table"},
		{"least specific, a direct response", false, "/d", []string{"route", "host", "table"}, "table", "route"},
		{"most specific, a direct response", true, "/d", []string{"table", "host", "route"}, "route", "table"},
	} {
		t.Run(test.name, func(t *testing.T) {
			recompiled, err := mustCompileTable(t, table(!test.wins)).Recompile(table(test.wins))
			if err != nil {
				t.Fatal(err)
			}
			for _, compiled := range []*Table{mustCompileTable(t, table(test.wins)), recompiled} {
				x := request("GET", "a.test", test.path, "x-rm", "client")
				r := compiled.Match(x)
				headers := &x.Response.Header
				if r.Config.Forward != nil {
					r.RewriteRequest(x)
					headers = &x.Request.Header
				} else {
					r.Reply(x)
				}
				var values []string
				for name, value := range headers.All() {
					if name == "x-a" {
						values = append(values, value)
					}
				}
				if !slices.Equal(values, test.values) || headers.Get("x-o") != test.overwrite || headers.Get("x-absent") != test.absent || headers.Get("x-rm") != "" {
					t.Errorf("headers = %q, want x-a %q, x-o %s, x-absent %s and no x-rm", headerLines(headers), test.values, test.overwrite, test.absent)
				}
				if r.Config.Forward == nil {
					continue
				}
				r.MutateResponse(x)
				if got := x.Response.Header.Get("x-o"); got != test.overwrite {
					t.Errorf("response header x-o = %s, want %s", got, test.overwrite)
				}
			}
		})
	}
}

// TestRecompiledMutationOrder verifies that a new order applies to routes that did not change.
func TestRecompiledMutationOrder(t *testing.T) {
	table := mustCompileTable(t, &config.RouteTable{VirtualHosts: []*config.VirtualHost{{Name: "v", Domains: []string{"*"}, Request: mutationOf("host"),
		Routes: []*config.Route{{Name: "r", Forward: &config.Forward{Cluster: "c", Request: mutationOf("route")}}}}}})
	changed := *table.Config()
	changed.MostSpecificMutationsWin = true
	next, err := table.Recompile(&changed)
	if err != nil {
		t.Fatal(err)
	}
	for want, compiled := range map[string]*Table{"host": table, "route": next} {
		x := request("GET", "a.test", "/")
		compiled.Match(x).RewriteRequest(x)
		if got := x.Request.Header.Get("x-o"); got != want {
			t.Errorf("x-o = %s, want %s", got, want)
		}
	}
}
