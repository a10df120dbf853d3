package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// untaggedClusterKeys returns the filter settings that mention clusters but need not name an existing
// cluster, with the reason.
func untaggedClusterKeys() map[string]string {
	const ownCluster = "the cluster of this process, which it reports to other proxies"
	return map[string]string{
		"ext_authz: grpc_service.envoy_grpc.authority":    "a host",
		"ext_authz: http_service.server_uri.uri":          "an address",
		"istio_stats of connections: workload.cluster":    ownCluster,
		"istio_stats: workload.cluster":                   ownCluster,
		"jwt_authn: providers.*.remote_jwks.http_uri.uri": "an address",
		"mirror: cluster_header":                          "a header",
		"mirror: more.*.cluster_header":                   "a header",
		"mirror: more.*.upstream_protocol":                "a protocol",
		"mirror: upstream_protocol":                       "a protocol",
		"peer_metadata: skip_external_clusters":           "a boolean",
		"peer_metadata: workload.cluster":                 ownCluster,
	}
}

// TestFilterClustersMustExist verifies that every setting that names an unknown cluster gets a
// diagnostic with its position: an error if the filter calls the cluster, else a warning.
func TestFilterClustersMustExist(t *testing.T) {
	const text = `
servers:
- listeners:
  - name: in
    address: 127.0.0.1:1
    filter_chains: [{filters: [{type: proxy, config: {downstream_protocol: Http1, router_config_name: t}}]}]
    stream_filters:
    - {type: ext_authz, config: {http_service: {server_uri: {uri: "http://a.test", cluster: shop1}}}}
    - {type: ext_authz, config: {grpc_service: {cluster: shop2}}}
    - {type: ext_authz, config: {grpc_service: {envoy_grpc: {cluster_name: shop3}}}}
    - {type: fault, config: {upstream_cluster: shop4, abort: {status: 503, percentage: 100}}}
    - {type: healthcheck, config: {endpoint: /healthz, cluster_min_healthy_percentages: {shop: 50, shop5: 50}}}
    - {type: jwt_authn, config: {providers: {a: {remote_jwks: {http_uri: {uri: "http://a.test/keys", cluster: shop6}}}, b: {remote_jwks: {http_uri: {uri: "http://a.test/keys", cluster: shop}}}}}}
    - {type: mirror, config: {cluster: shop7, more: [{cluster: shop}, {cluster: shop8}]}}
  routers: [{router_config_name: t, virtual_hosts: []}]
cluster_manager: {clusters: [{name: shop, hosts: [{address: "127.0.0.1:2"}]}]}
`
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, diagnostics := source{path: path}.open()
	if file != nil {
		t.Error("the file is accepted, want diagnostics")
	}
	var want strings.Builder
	count := 0
	for path, refers := range clusterKeys() {
		if !refers {
			continue
		}
		count++
		if name, _, _ := strings.Cut(path, ":"); !strings.Contains(text, name) {
			t.Errorf("the test does not cover %s", path)
		}
	}
	for i, position := range []string{
		"8:93: %s[0].config.http_service.server_uri.cluster", "9:58: %s[1].config.grpc_service.cluster",
		"10:76: %s[2].config.grpc_service.envoy_grpc.cluster_name", "11:48: warning: %s[3].config.upstream_cluster",
		"12:107: warning: %s[4].config.cluster_min_healthy_percentages.shop5", "13:111: %s[5].config.providers.a.remote_jwks.http_uri.cluster",
		"14:40: %s[6].config.cluster", "14:81: %s[6].config.more[1].cluster",
	} {
		fmt.Fprintf(&want, "%s:"+position+": unknown cluster \"shop%d\"; did you mean \"shop\"?\n", path, "servers[0].listeners[0].stream_filters", i+1)
	}
	if got := diagnostics.Error() + "\n"; got != want.String() || strings.Count(got, "\n") != count {
		t.Errorf("diagnostics\n%s, want %d lines\n%s", got, count, want.String())
	}
}

// TestClusterKeysAreTagged verifies that each filter setting that may name a cluster either has
// the tag refers:"cluster", which makes check validate it, or is in untaggedClusterKeys.
func TestClusterKeysAreTagged(t *testing.T) {
	keys, untagged := clusterKeys(), untaggedClusterKeys()
	for _, path := range slices.Sorted(maps.Keys(keys)) {
		switch _, listed := untagged[path]; {
		case !keys[path] && !listed:
			t.Errorf("%s: add the tag refers:\"cluster\" if the setting names a cluster, else an entry in untaggedClusterKeys", path)
		case keys[path] && listed:
			t.Errorf("%s has the tag refers:\"cluster\", want it removed from untaggedClusterKeys", path)
		}
	}
	for path := range untagged {
		if _, ok := keys[path]; !ok {
			t.Errorf("%s is not a setting of a filter", path)
		}
	}
}

// clusterKeys returns the settings of all filters that may name a cluster; true: they have the tag
// refers:"cluster".
func clusterKeys() map[string]bool {
	settings := map[string]any{}
	for _, f := range streamFilters() {
		settings[f.Name] = f.Config()
	}
	for _, cf := range connectionFilters() {
		settings[cf.Name+" of connections"] = cf.Config()
	}
	keys := map[string]bool{}
	for name, prototype := range settings {
		for path, refers := range clusterPaths(reflect.TypeOf(prototype), nil) {
			keys[name+": "+path] = refers
		}
	}
	return keys
}

// clusterPaths returns the paths of the keys of a type that concern clusters, judging by their
// tags, their names or, for strings, by their documentation; true: they have the tag
// refers:"cluster".
func clusterPaths(typ reflect.Type, outer []reflect.Type) map[string]bool {
	paths := map[string]bool{}
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || slices.Contains(outer, typ) || typ == reflect.TypeFor[document.Node]() {
		return paths
	}
	for _, k := range document.Keys(reflect.New(typ).Interface()) {
		if k.Unsupported != "" || k.IgnoredReason != "" {
			continue
		}
		path, inner, named := k.Name, k.Type, strings.Contains(k.Name, "cluster")
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
			switch inner.Kind() {
			case reflect.Slice:
				path += ".*"
			case reflect.Map:
				path += ".*"
				if named {
					path += "="
				}
			default:
			}
			inner = inner.Elem()
		}
		if k.RefersTo != "" || named || inner.Kind() == reflect.String && strings.Contains(strings.ToLower(k.Doc), "cluster") {
			paths[path] = k.RefersTo == "cluster"
		}
		for subpath, refers := range clusterPaths(inner, append(outer, typ)) {
			paths[path+"."+subpath] = refers
		}
	}
	return paths
}
