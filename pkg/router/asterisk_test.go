package router

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestOptionsAsteriskMatchesRoot verifies that "*" takes the route of "/" unless a route
// matches "*" (RFC 9112 3.2.4), and that Explain agrees.
func TestOptionsAsteriskMatchesRoot(t *testing.T) {
	route := func(name string, kind config.PathKind, path string) *config.Route {
		return &config.Route{Name: name, Match: config.RouteMatch{PathKind: kind, Path: path}, Forward: &config.Forward{Cluster: "app", PrefixRewrite: "/x"}}
	}
	catchAll := route("all", config.PathPrefix, "/")
	for name, test := range map[string]struct {
		routes []*config.Route
		want   string // "": none
	}{
		"a catch-all prefix":          {[]*config.Route{route("a", config.PathPrefix, "/a"), catchAll}, "all"},
		"an expression for all paths": {[]*config.Route{route("regex", config.PathRegex, "/.*")}, "regex"},
		"a route for the asterisk":    {[]*config.Route{catchAll, route("own", config.PathExact, "*")}, "own"},
		"other paths only":            {[]*config.Route{route("a", config.PathPrefix, "/a")}, ""},
	} {
		table, err := Compile(&config.RouteTable{Name: "t", VirtualHosts: []*config.VirtualHost{{Name: "v", Domains: []string{"*"}, Routes: test.routes}}})
		if err != nil {
			t.Fatal(err)
		}
		x := &protocol.Exchange{}
		x.Request.Method, x.Request.Authority, x.Request.Path = "OPTIONS", "h", "*"
		got := ""
		if r := table.Match(x); r != nil {
			got = r.Config.Name
			r.RewriteRequest(x)
		}
		if got != test.want || x.Request.Path != "*" {
			t.Errorf("%s: OPTIONS * takes route %q with path %q, want %q with *", name, got, x.Request.Path, test.want)
		}
		if e := table.Explain(x); (e.Route == nil) != (test.want == "") || e.Route != nil && e.Route.Config.Name != test.want {
			t.Errorf("%s: Explain chooses route %s, want %q", name, nameOf(e.Route), test.want)
		}
	}
}
