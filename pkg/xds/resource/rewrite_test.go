package resource

import (
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter/stream/mirror"
)

func TestHostRewrites(t *testing.T) {
	for text, want := range map[string]config.Forward{
		`host_rewrite_literal: "b.test"`:    {HostRewrite: "b.test"},
		`auto_host_rewrite: {value: true}`:  {AutoHostRewrite: true},
		`auto_host_rewrite: {value: false}`: {},
		`host_rewrite_header: "x-host"`:     {AutoHostRewriteHeader: "x-host"},
		`host_rewrite_path_regex: {pattern: {regex: "^/([^/]+)/.*$"} substitution: "\\1"}`: {
			HostRewritePath: &config.RegexRewrite{Pattern: "^/([^/]+)/.*$", Substitution: `\1`},
		},
	} {
		table, err := ReadRoutes(routeConfig(t, `match: {prefix: "/"} route: {cluster: "c" timeout: {} `+text+`}`), Capabilities{})
		if err != nil {
			t.Errorf("%s: error %v, want none", text, err)
			continue
		}
		want.Cluster, want.ClusterNotFoundStatus = "c", 503
		if diff := cmp.Diff(&want, table.Config.VirtualHosts[0].Routes[0].Forward); diff != "" {
			t.Errorf("%s is read as - want + got:\n%s", text, diff)
		}
	}
}

// TestMirrorPolicyPrecedence verifies that the policies of a route replace those of its virtual
// host, which replace those of the table.
func TestMirrorPolicyPrecedence(t *testing.T) {
	m := &routev3.RouteConfiguration{}
	if err := prototext.Unmarshal([]byte(`name: "t" request_mirror_policies: {cluster: "of table"}
		virtual_hosts: {name: "a" domains: "a" request_mirror_policies: {cluster: "of host"}
			routes: {match: {prefix: "/own"} route: {cluster: "c" request_mirror_policies: {cluster: "of route"}}}
			routes: {match: {prefix: "/"} route: {cluster: "c"}}}
		virtual_hosts: {name: "b" domains: "b"
			routes: {match: {prefix: "/none"} direct_response: {status: 200}}
			routes: {match: {prefix: "/"} route: {cluster: "c"}}}`), m); err != nil {
		t.Fatal(err)
	}
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	table, err := ReadRoutes(body, testCapabilities())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range table.Config.VirtualHosts {
		for _, r := range v.Routes {
			cluster := "none"
			if c, ok := r.Filters[mirrorFilter].(*mirror.Config); ok {
				cluster = c.Cluster
			}
			got = append(got, cluster)
		}
	}
	if diff := cmp.Diff([]string{"of route", "of host", "none", "of table"}, got); diff != "" {
		t.Errorf("mirror clusters, - want + got:\n%s", diff)
	}
}

func TestMirrorClusterHeader(t *testing.T) {
	read := func(policies string) (*RouteTable, error) {
		return readTableText(t, `virtual_hosts: {name: "v" domains: "*" routes: {match: {prefix: "/"} route: {cluster: "c" `+policies+`}}}`)
	}
	table, err := read(`request_mirror_policies: {cluster_header: "x-a"} request_mirror_policies: {cluster: "b"} request_mirror_policies: {cluster_header: "x-c"}`)
	if err != nil {
		t.Fatal(err)
	}
	got := table.Config.VirtualHosts[0].Routes[0].Filters[mirrorFilter].(*mirror.Config)
	if got.ClusterHeader != "x-a" || got.Cluster != "" || len(got.Additional) != 2 || got.Additional[0].Cluster != "b" || got.Additional[1].ClusterHeader != "x-c" {
		t.Errorf("settings of the mirror filter = %+v, want x-a, b and x-c", got)
	}
	for _, policy := range []string{`request_mirror_policies: {}`, `request_mirror_policies: {cluster: "a" cluster_header: "b"}`} {
		const want = "routes[0].route.request_mirror_policies[0]: exactly one of cluster and cluster_header is required"
		if _, err := read(policy); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", policy, err, want)
		}
	}
}
