package peer

import (
	"fmt"
	"net/netip"
)

// This file has configurations that Envoy and Weft read from the same bootstrap file.

// WeftBootstrap returns the Weft at the path, configured by the bootstrap file that Envoy gets.
func WeftBootstrap(name, path string) Program {
	return Program{Name: name, Path: path, version: []string{"version"}, configure: func(c Config) ([]string, error) {
		root, err := envoyBootstrap(c)
		if err != nil {
			return nil, err
		}
		file, err := writeJSON(c.Dir, "bootstrap.json", root)
		return WeftStartArgs(file), err
	}}
}

const (
	sidecarPolicies = 20
	sidecarRoutes   = 200
)

// sidecarHosts returns a virtual host with many routes. The last one matches all requests.
func sidecarHosts() []object {
	var routes []object
	for i := range sidecarRoutes - 1 {
		routes = append(routes, toOrigin(object{"prefix": fmt.Sprintf("/service-%03d/", i)}))
	}
	return []object{{"name": "all", "domains": []string{"*"}, "routes": append(routes, toOrigin(object{"prefix": "/"})), "typed_per_filter_config": object{
		"envoy.filters.http.cors": object{
			"@type":                     filterTypes + "http.cors.v3.CorsPolicy",
			"allow_origin_string_match": []object{{"exact": "https://app.example.test"}}, "allow_methods": "GET,POST", "max_age": "600",
		},
	}}}
}

// sidecarFilters returns the filters of a sidecar. They allow all requests of the benchmark.
func sidecarFilters() []object {
	always := object{"default_value": object{"numerator": 100}}
	policies := object{}
	for i := range sidecarPolicies {
		path := fmt.Sprintf("/admin-%02d/", i)
		if i == sidecarPolicies-1 {
			path = "/b/"
		}
		policies[fmt.Sprintf("policy-%02d", i)] = object{
			"permissions": []object{{"and_rules": object{"rules": []object{
				{"url_path": object{"path": object{"prefix": path}}},
				{"header": object{"name": ":method", "string_match": object{"exact": "GET"}}},
			}}}},
			"principals": []object{{"direct_remote_ip": object{"address_prefix": "127.0.0.0", "prefix_len": 8}}},
		}
	}
	filter := func(name, message string, config object) object {
		config["@type"] = filterTypes + "http." + message
		return object{"name": "envoy.filters.http." + name, "typed_config": config}
	}
	return []object{
		filter("cors", "cors.v3.Cors", object{}),
		filter("fault", "fault.v3.HTTPFault", object{"abort": object{"http_status": 503, "percentage": object{"numerator": 0}}}),
		filter("rbac", "rbac.v3.RBAC", object{"rules": object{"action": "ALLOW", "policies": policies}}),
		filter("local_ratelimit", "local_ratelimit.v3.LocalRateLimit", object{
			"stat_prefix":    "limit",
			"token_bucket":   object{"max_tokens": unlimitedUint, "tokens_per_fill": unlimitedUint, "fill_interval": "1s"},
			"filter_enabled": always, "filter_enforced": always,
		}),
		filter("header_mutation", "header_mutation.v3.HeaderMutation", object{"mutations": object{
			"request_mutations":  []object{{"append": object{"header": object{"key": "x-sidecar", "value": "bench"}}}, {"remove": "x-internal"}},
			"response_mutations": []object{{"append": object{"header": object{"key": "x-served-by", "value": "bench"}}}},
		}}),
	}
}

// jsonLog returns an access log in JSON. Its lines are rendered, but not stored.
func jsonLog() object {
	return object{"name": "envoy.access_loggers.file", "typed_config": object{
		"@type": typePrefix + "extensions.access_loggers.file.v3.FileAccessLog",
		"path":  "/dev/null",
		"log_format": object{"json_format": object{
			"start_time": "%START_TIME%", "method": "%REQ(:METHOD)%", "path": "%REQ(:PATH)%", "protocol": "%PROTOCOL%", "authority": "%REQ(:AUTHORITY)%",
			"status": "%RESPONSE_CODE%", "flags": "%RESPONSE_FLAGS%", "duration": "%DURATION%", "bytes_received": "%BYTES_RECEIVED%", "bytes_sent": "%BYTES_SENT%",
			"cluster": "%UPSTREAM_CLUSTER%", "host": "%UPSTREAM_HOST%", "client": "%DOWNSTREAM_REMOTE_ADDRESS%", "user_agent": "%REQ(USER-AGENT)%",
			"request_id": "%REQ(X-REQUEST-ID)%",
		}},
	}}
}

// BootstrapScale returns the path of a bootstrap file with many clusters and routes, and the path
// that its last route matches. That route forwards to the origin. The hosts of the other clusters are
// distinct addresses without a listener.
func BootstrapScale(c Config, s Scale) (file, target string, err error) {
	clusters := []object{originCluster(c)}
	for i := 1; i < s.Clusters; i++ {
		name := fmt.Sprintf("service-%05d", i)
		address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, byte(1 + i/62500), byte(i / 250 % 250), byte(1 + i%250)}), 8080)
		clusters = append(clusters, object{"name": name, "type": "STATIC", "connect_timeout": "5s", "load_assignment": endpoints(name, address)})
	}
	perHost := s.Routes / s.Domains
	var hosts []object
	for d := range s.Domains {
		var routes []object
		for r := range perHost {
			match := object{"path": fmt.Sprintf("/api/v1/resource-%d/item", r)}
			if r%2 == 1 {
				match = object{"prefix": fmt.Sprintf("/api/v1/collection-%d/", r)}
			}
			name := fmt.Sprintf("service-%05d", 1+(d*perHost+r)%(s.Clusters-1))
			routes = append(routes, object{"match": match, "route": object{"cluster": name}})
		}
		domains := []string{fmt.Sprintf("host-%04d.example.test", d)}
		if d == s.Domains-1 {
			domains = append(domains, "*")
			routes[len(routes)-1] = object{"match": object{"path": scaleTarget}, "route": object{"cluster": "origin", "prefix_rewrite": "/b/1024"}}
		}
		hosts = append(hosts, object{"name": fmt.Sprintf("host-%04d", d), "domains": domains, "routes": routes})
	}
	root := object{
		"admin": object{"address": socket(c.Admin)},
		"static_resources": object{
			"listeners": []object{{
				"name": "bench", "address": socket(c.Listen), "filter_chains": []object{{"filters": []object{httpManager(c, hosts, nil)}}},
			}},
			"clusters": clusters,
		},
	}
	file, err = writeJSON(c.Dir, "scale.json", root)
	return file, scaleTarget, err
}
