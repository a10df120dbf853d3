package peer

import (
	"encoding/json"
	"net/netip"
)

// ControlPlane serves the resources of a file as a control plane and returns its address.
type ControlPlane func(file string) (netip.AddrPort, error)

// WeftXDS returns the Weft at the path with the same configuration as Weft, delivered by a control
// plane.
func WeftXDS(name, path string, control ControlPlane) Program {
	return Program{Name: name, Path: path, version: []string{"version"}, configure: func(c Config) ([]string, error) {
		text, err := json.Marshal(resources(c))
		if err != nil {
			return nil, err
		}
		file, err := write(c.Dir, "resources.json", string(text))
		if err != nil {
			return nil, err
		}
		address, err := control(file)
		if err != nil {
			return nil, err
		}
		if text, err = json.Marshal(bootstrap(c, address)); err != nil {
			return nil, err
		}
		file, err = write(c.Dir, "config.json", string(text))
		return WeftStartArgs(file), err
	}}
}

func socket(a netip.AddrPort) object {
	return object{"socket_address": object{"address": a.Addr().String(), "port_value": a.Port()}}
}

// endpoints returns the endpoints of a cluster with one host.
func endpoints(cluster string, a netip.AddrPort) object {
	return object{"cluster_name": cluster, "endpoints": []object{
		{"lb_endpoints": []object{{"endpoint": object{"address": socket(a)}}}},
	}}
}

func fromADS() object { return object{"ads": object{}, "resource_api_version": "V3"} }

// resources returns the xDS resources that are equivalent to a weftConfig with one virtual host and
// one cluster.
func resources(c Config) object {
	const types = "type.googleapis.com/envoy.extensions.filters."
	manager := object{
		"@type":       types + "network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix": "bench", "codec_type": "HTTP1",
		"common_http_protocol_options": object{"idle_timeout": "300s"},
		"rds":                          object{"route_config_name": "routes", "config_source": fromADS()},
		"http_filters":                 []object{{"name": "router", "typed_config": object{"@type": types + "http.router.v3.Router"}}},
	}
	return object{
		"clusters": []object{{
			"name": "origin", "type": "EDS", "lb_policy": "ROUND_ROBIN", "connect_timeout": "10s",
			"eds_cluster_config": object{"eds_config": fromADS()},
		}},
		"endpoints": []object{endpoints("origin", c.Origin)},
		"listeners": []object{{
			"name": "bench", "address": socket(c.Listen),
			"filter_chains": []object{{"filters": []object{{"name": "http", "typed_config": manager}}}},
		}},
		"routes": []object{{"name": "routes", "virtual_hosts": []object{{
			"name": "all", "domains": []string{"*"},
			"routes": []object{{"match": object{"prefix": "/"}, "route": object{"cluster": "origin", "timeout": "60s"}}},
		}}}},
	}
}

// bootstrap returns the configuration file of a Weft that loads its resources from a control plane.
func bootstrap(c Config, control netip.AddrPort) object {
	const plane = "control-plane"
	root := object{
		"servers": []object{{"default_log_level": "ERROR"}},
		"admin":   object{"address": socket(c.Admin)},
		"node":    object{"id": "bench", "cluster": "bench"},
		"dynamic_resources": object{
			"ads_config": object{
				"api_type": "DELTA_GRPC", "transport_api_version": "V3",
				"grpc_services": []object{{"envoy_grpc": object{"cluster_name": plane}}},
			},
			"cds_config": fromADS(), "lds_config": fromADS(),
		},
		"static_resources": object{"clusters": []object{{
			"name": plane, "type": "STATIC", "connect_timeout": "1s", "load_assignment": endpoints(plane, control),
		}}},
	}
	if c.Profile {
		root["pprof"] = object{"debug": true}
	}
	return root
}
