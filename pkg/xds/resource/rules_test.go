package resource

import (
	"errors"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// TestRulesOfTheAPI verifies that a violated rule rejects a resource, with the path of the field in
// the spelling of the API and a reason without names of Go types.
func TestRulesOfTheAPI(t *testing.T) {
	caps := Capabilities{CheckRules: true}
	readCluster := func(b []byte) error { _, err := ReadCluster(b, caps); return err }
	readListener := func(b []byte) error { _, err := ReadListener(b, caps); return err }
	readRoutes := func(b []byte) error { _, err := ReadRoutes(b, caps); return err }
	for _, c := range []struct {
		name, json string
		m          proto.Message
		read       func([]byte) error
		want       []string
	}{
		{"length", `{"load_assignment": {}}`, &clusterv3.Cluster{}, readCluster, []string{"load_assignment.cluster_name: is empty", "name: is missing"}},
		{
			"element of a list", `{"name": "c", "load_assignment": {"cluster_name": "c", "endpoints": [{"load_balancing_weight": 0}]}}`, &clusterv3.Cluster{}, readCluster,
			[]string{"load_assignment.endpoints[0].load_balancing_weight: expected a value greater than or equal to 1"},
		},
		{
			"duration", `{"name": "c", "connect_timeout": "0s"}`, &clusterv3.Cluster{}, readCluster,
			[]string{"connect_timeout: expected a value greater than 0s"},
		},
		{
			"required member", `{"name": "c", "health_checks": [{}]}`, &clusterv3.Cluster{}, readCluster,
			[]string{
				"health_checks[0].healthy_threshold: is missing", "health_checks[0].interval: is missing", "health_checks[0].timeout: is missing",
				"health_checks[0].unhealthy_threshold: is missing", "health_checks[0]: expected http_health_check, tcp_health_check or grpc_health_check",
			},
		},
		{
			"message in an Any", `{"name": "l", "address": {"pipe": {"path": "/a"}}, "filter_chains": [{"filters": [{"name": "h", "typed_config":
				{"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "cluster": "c"}}]}]}`,
			&listenerv3.Listener{}, readListener, []string{"filter_chains[0].filters[0].typed_config.stat_prefix: is empty"},
		},
		{
			"part of a route table", `{"name": "r", "virtual_hosts": [{"name": "v", "domains": ["a"], "routes": [
				{"match": {"prefix": "/"}, "route": {"cluster": "c", "retry_policy": {"retry_back_off": {}}}}]}, {"domains": ["b"]}, {"name": "w"}]}`,
			&routev3.RouteConfiguration{}, readRoutes,
			[]string{"virtual_hosts[0].routes[0].route.retry_policy.retry_back_off.base_interval: is missing", "virtual_hosts[1].name: is empty", "virtual_hosts[2].domains: is empty"},
		},
		{
			"pattern", `{"name": "r", "request_headers_to_add": [{"header": {"key": "a\nb", "value": "c"}}]}`, &routev3.RouteConfiguration{}, readRoutes,
			[]string{`request_headers_to_add[0].header.key: does not match regex pattern "^[^\x00\n\r]*$"`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := protojson.Unmarshal([]byte(c.json), c.m); err != nil {
				t.Fatal(err)
			}
			body, err := proto.Marshal(c.m)
			if err != nil {
				t.Fatal(err)
			}
			var rejected RejectedError
			errors.As(c.read(body), &rejected)
			var got []string
			for _, r := range rejected {
				got = append(got, r.String())
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("the resource is rejected for\n%q, want\n%q", got, c.want)
			}
		})
	}
}

func TestReasonsOfRules(t *testing.T) {
	for reason, want := range map[string]string{
		"value is required and must not be nil.":                "is missing",
		"value must contain at least 2 item(s)":                 "expected at least 2 elements",
		"value must contain no more than 1 item(s)":             "expected at most 1 element",
		"value length must be at least 1 bytes":                 "is empty",
		"value length must be at most 16 runes":                 "expected at most 16 characters",
		"value length must be at least 1 characters":            "is empty",
		"value must be one of the defined enum values":          "is not a defined value",
		"value must be inside range [1, 10]":                    "expected a value inside range [1, 10]",
		"value must not be in list [CONNECT]":                   "expected a value not in list [CONNECT]",
		"repeated value must contain unique items":              "has the same element twice",
		"value does not have prefix \"/\"":                      "does not have prefix \"/\"",
		"value length must be between 1 and 5 runes, inclusive": "length must be between 1 and 5 runes, inclusive",
	} {
		if got := ruleReason(reason); got != want {
			t.Errorf("ruleReason(%q) = %q, want %q", reason, got, want)
		}
	}
}
