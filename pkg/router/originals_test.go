package router

import (
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestOriginals(t *testing.T) {
	table, err := Compile(&config.RouteTable{Name: "t", VirtualHosts: []*config.VirtualHost{{Name: "v", Domains: []string{"*"}, Routes: []*config.Route{{
		Name: "r", Match: config.RouteMatch{PathKind: config.PathPrefix, Path: "/a"},
		Forward: &config.Forward{Cluster: "c", PrefixRewrite: "/b", HostRewrite: "new.test", Request: config.HeaderMutation{
			Remove: []string{"X-Gone"}, Add: []config.HeaderValue{{Name: "x-set", Value: "1"}, {Name: "x-added", Value: "1", Append: true}},
		}},
	}}}}})
	if err != nil {
		t.Fatal(err)
	}
	route := table.Routes()[0]
	for _, test := range []struct {
		name  string
		route *Route
		want  string
	}{
		{"MOSN", route, "x-mosn-original-path: /a/1"},
		{"Envoy", route.WithEnvoyOriginals(), "x-envoy-original-host: old.test x-envoy-original-path: /a/1?q"},
		{"none", route.WithoutOriginals(), ""},
		{"other settings", route.WithEnvoyOriginals().WithForward(&config.Forward{Cluster: "d"}), "x-envoy-original-host: old.test x-envoy-original-path: /a/1?q"},
	} {
		x := new(protocol.Exchange)
		x.Reset()
		x.Request.Method, x.Request.Authority, x.Request.Path = "GET", "old.test", "/a/1?q"
		test.route.RewriteRequest(x)
		var got []string
		for name, value := range x.Request.Header.All() {
			if strings.Contains(name, "original") {
				got = append(got, name+": "+value)
			}
		}
		if text := strings.Join(got, " "); text != test.want || x.Request.Path != "/b/1?q" || x.Request.Authority != "new.test" {
			t.Errorf("%s: headers %q, target %s%s; want %q, new.test/b/1?q", test.name, text, x.Request.Authority, x.Request.Path, test.want)
		}
	}
	if f := route.WithForward(&config.Forward{Cluster: "d"}).Config.Forward; f.Cluster != "d" || route.Config.Forward.Cluster != "c" {
		t.Errorf("WithForward: clusters %s and %s, want d and c", f.Cluster, route.Config.Forward.Cluster)
	}
	for name, want := range map[string]bool{"x-gone": true, "X-Set": true, "x-added": false, "x-other": false} {
		if got := route.ChangesRequestHeader(name); got != want {
			t.Errorf("ChangesRequestHeader(%q) = %t, want %t", name, got, want)
		}
	}
}
