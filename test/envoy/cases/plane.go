package cases

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/weft-proxy/weft/test/envoy/ads"
	"github.com/weft-proxy/weft/test/envoy/client"
)

// PlaneVariant is a variant of the protocol between a proxy and its control plane.
type PlaneVariant string

// The variants.
const (
	StateOfTheWorld PlaneVariant = "GRPC"
	Delta           PlaneVariant = "DELTA_GRPC"
)

// PlaneVariants returns all variants.
func PlaneVariants() []PlaneVariant { return []PlaneVariant{StateOfTheWorld, Delta} }

// Feature returns the name of the feature.
func (v PlaneVariant) Feature() string {
	if v == Delta {
		return "ads.delta"
	}
	return "ads.sotw"
}

// PlaneStep is a set of resources that a control plane serves, and paths that clients then request.
// The resources are YAML lists; in them, $listener stands for the port of the listener.
type PlaneStep struct {
	Name                                   string
	Clusters, Endpoints, Listeners, Routes string
	Paths                                  []string
}

const (
	planeListener = `
- name: l
  address: {socket_address: {address: 127.0.0.1, port_value: $listener}}
  filter_chains:
  - filters:
    - name: envoy.filters.network.http_connection_manager
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        stat_prefix: p
        %s
        http_filters:
        - {name: envoy.filters.http.router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
`
	planeCluster = `
- name: %[1]s
  type: EDS
  connect_timeout: 1s
  eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}
`
	planeEndpoint = `
- cluster_name: %s
  endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $%s}}}}]}]
`
	planeRoutes = `
- name: r
  virtual_hosts:
  - {name: v, domains: ['*'], routes: [%s]}
`
	rds = "rds: {route_config_name: r, config_source: {ads: {}, resource_api_version: V3}}"
)

// PlaneSteps returns the steps in their order.
func PlaneSteps() []PlaneStep {
	listener := fmt.Sprintf(planeListener, rds)
	cluster := func(name string) string { return fmt.Sprintf(planeCluster, name) }
	endpoint := func(name, origin string) string { return fmt.Sprintf(planeEndpoint, name, origin) }
	routes := func(text string) string { return fmt.Sprintf(planeRoutes, text) }
	const all = "{match: {prefix: /}, route: {cluster: x}}"
	const both = "{match: {prefix: /b}, route: {cluster: y}}, " + all
	inline := fmt.Sprintf(planeListener, "route_config: {name: i, virtual_hosts: [{name: v, domains: ['*'], routes: [{match: {prefix: /}, direct_response: {status: 299}}]}]}")
	paths := []string{"/a", "/b"}
	two := cluster("x") + cluster("y")
	hosts := endpoint("x", "o2") + endpoint("y", "o3")
	return []PlaneStep{
		{"all types", cluster("x"), endpoint("x", "o1"), listener, routes(all), paths},
		{"other endpoints", cluster("x"), endpoint("x", "o2"), listener, routes(all), paths},
		{"a cluster and a route", two, hosts, listener, routes(both), paths},
		{"invalid regular expression in a route", two, hosts, listener, routes("{match: {safe_regex: {regex: '('}}, route: {cluster: x}}"), paths},
		{"valid routes again", two, hosts, listener, routes(all), paths},
		{"a cluster without a required field", two + "- {name: z, type: EDS, connect_timeout: 1s}\n", hosts, listener, routes(both), paths},
		{"a cluster with a negative timeout", two + "- {name: z, type: STATIC, connect_timeout: -1s}\n", hosts, listener, routes(all), paths},
		{"a listener with an unknown cluster", two, hosts, listener, routes("{match: {prefix: /}, route: {cluster: unknown}}"), paths},
		{"endpoints without hosts", two, "- {cluster_name: x}\n" + endpoint("y", "o3"), listener, routes(both), paths},
		{"a removed cluster", cluster("x"), endpoint("x", "o2"), listener, routes(both), paths},
		{"no listener", cluster("x"), endpoint("x", "o2"), "", "", paths},
		{"a listener with its own routes", cluster("x"), endpoint("x", "o2"), inline, "", paths},
		{"a listener without filter chains", cluster("x"), endpoint("x", "o2"), `
- name: l
  address: {socket_address: {address: 127.0.0.1, port_value: $listener}}
`, "", paths},
		{"all types again", cluster("x"), endpoint("x", "o1"), listener, routes(all), paths},
		{"a static cluster", `
- name: x
  type: STATIC
  connect_timeout: 1s
  load_assignment: {cluster_name: x, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $o4}}}}]}]}
`, "", listener, routes(all), paths},
		{"nothing", "", "", "", "", paths},
	}
}

// Cases returns a case for the resources that the proxies reject, and one for each path.
func (s *PlaneStep) Cases(v PlaneVariant, number int) []*Case {
	id := func(i int) string { return fmt.Sprintf("%s.%d-%d", v.Feature(), number, i) }
	list := []*Case{{ID: id(0), Label: s.Name + ": rejected types"}}
	for i, path := range s.Paths {
		list = append(list, &Case{ID: id(i + 1), Label: s.Name + ": " + path, Script: client.Script{
			Kind: client.HTTP1, Method: "GET", Path: path, Host: "a.test", Timeout: 2 * time.Second,
		}})
	}
	return list
}

// Resources returns the resources of the step for a proxy.
func (s *PlaneStep) Resources(a *Addresses) (ads.Resources, error) {
	ports := maps.Clone(a.Origins)
	for _, port := range a.Listeners {
		ports["listener"] = port
	}
	var r ads.Resources
	for _, list := range []struct {
		text string
		out  *[][]byte
	}{{s.Clusters, &r.Clusters}, {s.Endpoints, &r.Endpoints}, {s.Listeners, &r.Listeners}, {s.Routes, &r.Routes}} {
		resources, err := parse[[]any](s.Name, list.text)
		if err != nil {
			return r, err
		}
		for _, one := range resources {
			text, err := json.Marshal(a.replace(one, ports))
			if err != nil {
				return r, err
			}
			*list.out = append(*list.out, text)
		}
	}
	return r, nil
}

// PlaneBootstrap returns a bootstrap file for a node with a control plane.
func PlaneBootstrap(v PlaneVariant, node string, admin, plane int) map[string]any {
	source := object{"ads": object{}, "resource_api_version": "V3"}
	return object{
		"node":  object{"id": node, "cluster": "c"},
		"admin": object{"address": socketAddress(admin)},
		"dynamic_resources": object{
			"ads_config": object{
				"api_type": string(v), "transport_api_version": "V3",
				"grpc_services": []any{object{"envoy_grpc": object{"cluster_name": "plane"}}},
			},
			"cds_config": source, "lds_config": source,
		},
		"static_resources": object{"clusters": []any{object{
			"name": "plane", "type": "STATIC", "connect_timeout": "1s",
			"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
				"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
				"explicit_http_config": object{"http2_protocol_options": object{}},
			}},
			"load_assignment": object{"cluster_name": "plane", "endpoints": []any{object{"lb_endpoints": []any{object{
				"endpoint": object{"address": socketAddress(plane)},
			}}}}},
		}}},
	}
}
