package peer

import (
	"encoding/json"
	"fmt"

	"github.com/weft-proxy/weft/test/bench/certs"
)

// Envoy returns the Envoy at the path, with one worker thread. Of the RPC protocols it supports
// Dubbo.
func Envoy(path string) Program {
	return Program{Name: "envoy", Path: path, version: []string{"--version"}, configure: func(c Config) ([]string, error) {
		root, err := envoyBootstrap(c)
		if err != nil {
			return nil, err
		}
		file, err := writeJSON(c.Dir, "envoy.json", root)
		return EnvoyStartArgs(file), err
	}}
}

// EnvoyStartArgs returns the arguments that make Envoy run the file.
func EnvoyStartArgs(path string) []string {
	return []string{"--concurrency", "1", "--disable-hot-restart", "-l", "error", "-c", path}
}

func writeJSON(dir, name string, root object) (string, error) {
	text, err := json.MarshalIndent(root, "", " ")
	if err != nil {
		return "", err
	}
	return write(dir, name, string(text))
}

const (
	typePrefix    = "type.googleapis.com/envoy."
	filterTypes   = typePrefix + "extensions.filters."
	httpOptions   = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	unlimitedUint = 1_000_000_000 // of limits that the other programs under test do not have
)

// envoyBootstrap returns a bootstrap file with one listener and one cluster.
func envoyBootstrap(c Config) (object, error) {
	var filter object
	switch {
	case c.HTTP.Sidecar:
		filter = httpManager(c, sidecarHosts(), sidecarFilters())
	case c.Protocol == nil:
		filter = httpManager(c, []object{allPaths()}, nil)
	case c.Protocol.Name() == "dubbo":
		filter = dubboProxy()
	default:
		return nil, fmt.Errorf("%s: %w", c.Protocol.Name(), ErrNotSupported)
	}
	chain := object{"filters": []object{filter}}
	if c.HTTP.MutualTLS || c.HTTP.Sidecar {
		chain["transport_socket"] = downstreamTLS(c.Certificates)
	}
	return object{
		"admin": object{"address": socket(c.Admin)},
		"static_resources": object{
			"listeners": []object{{"name": "bench", "address": socket(c.Listen), "filter_chains": []object{chain}}},
			"clusters":  []object{originCluster(c)},
		},
	}, nil
}

// originCluster returns the cluster of the origin, without limits.
func originCluster(c Config) object {
	cluster := object{
		"name": "origin", "type": "STATIC", "connect_timeout": "5s", "load_assignment": endpoints("origin", c.Origin),
		"circuit_breakers": object{"thresholds": []object{{
			"max_connections": unlimitedUint, "max_pending_requests": unlimitedUint, "max_requests": unlimitedUint, "max_retries": unlimitedUint,
		}}},
	}
	if c.HTTP.OriginHTTP2 {
		cluster["typed_extension_protocol_options"] = object{httpOptions: object{
			"@type": typePrefix + "extensions.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": object{"http2_protocol_options": object{}},
		}}
	}
	if c.HTTP.Sidecar {
		cluster["outlier_detection"] = object{"consecutive_5xx": 5, "interval": "10s", "base_ejection_time": "30s", "max_ejection_percent": 50}
	}
	return cluster
}

// httpManager returns an HTTP connection manager with virtual hosts and filters before the router.
func httpManager(c Config, hosts, filters []object) object {
	manager := object{
		"@type":       filterTypes + "network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix": "bench", "codec_type": "AUTO",
		"common_http_protocol_options": object{"idle_timeout": "300s"},
		"stream_idle_timeout":          "0s",
		"route_config":                 object{"name": "routes", "virtual_hosts": hosts},
		"http_filters": append(filters, object{
			"name": "envoy.filters.http.router", "typed_config": object{"@type": filterTypes + "http.router.v3.Router"},
		}),
	}
	if c.HTTP.Sidecar {
		manager["access_log"] = []object{jsonLog()}
	}
	return object{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
}

// allPaths returns a virtual host that forwards all requests to the origin.
func allPaths() object {
	return object{"name": "all", "domains": []string{"*"}, "routes": []object{toOrigin(object{"prefix": "/"})}}
}

func toOrigin(match object) object {
	return object{"match": match, "route": object{"cluster": "origin", "timeout": "0s"}}
}

func downstreamTLS(c certs.Dir) object {
	return object{"name": "envoy.transport_sockets.tls", "typed_config": object{
		"@type":                      typePrefix + "extensions.transport_sockets.tls.v3.DownstreamTlsContext",
		"require_client_certificate": true,
		"common_tls_context": object{
			"tls_params": object{"tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3"},
			"tls_certificates": []object{{
				"certificate_chain": object{"filename": c.Certificate()}, "private_key": object{"filename": c.Key()},
			}},
			"validation_context": object{"trusted_ca": object{"filename": c.CA()}},
			"alpn_protocols":     []string{"http/1.1"},
		},
	}}
}

// dubboProxy returns Envoy's filter for Dubbo, which forwards all calls to the origin. Its router is
// the default.
func dubboProxy() object {
	return object{"name": "envoy.filters.network.dubbo_proxy", "typed_config": object{
		"@type":       filterTypes + "network.dubbo_proxy.v3.DubboProxy",
		"stat_prefix": "bench", "protocol_type": "Dubbo", "serialization_type": "Hessian2",
		"route_config": []object{{"name": "routes", "interface": "*", "routes": []object{{
			"match": object{"method": object{"name": object{"safe_regex": object{"regex": ".*"}}}},
			"route": object{"cluster": "origin"},
		}}}},
	}}
}
