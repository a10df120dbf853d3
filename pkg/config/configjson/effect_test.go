package configjson

import (
	"encoding/json"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// fullConfig is the file to which TestEveryKeyHasAnEffect adds each key. Its values differ from the
// examples in the tags.
const fullConfig = `{
  "servers": [{
    "default_log_path": "/tmp/a.log",
    "listeners": [{
      "name": "in", "address": "127.0.0.1:1",
      "access_logs": [{}],
      "filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "table"}}]}],
      "stream_filters": [{"type": "fault", "config": {}}]
    }],
    "routers": [
      {"router_config_name": "routes", "virtual_hosts": [{"domains": ["other.example"], "routers": []}]},
      {
        "router_config_name": "table",
        "request_headers_to_add": [{"header": {"key": "x-a", "value": "a"}}],
        "response_headers_to_add": [{"header": {"key": "x-b", "value": "b"}}],
        "virtual_hosts": [{
          "name": "all", "domains": ["*"],
          "routers": [{"match": {"prefix": "/a", "headers": [{"name": "x", "value": "y"}], "variables": [{"name": "method", "value": "PUT"}]},
            "route": {"cluster_name": "one", "retry_policy": {}, "hash_policy": [{"header": {"key": "x"}}]}}]
        }]
      }
    ]
  }],
  "cluster_manager": {"clusters": [
    {"name": "spare", "type": "SIMPLE", "circuit_breakers": [{}], "hosts": [{"address": "127.0.0.1:2", "metadata": {"filter_metadata": {}}}]},
    {"name": "one", "hosts": []}, {"name": "shop", "hosts": []}, {"name": "shop-v2", "hosts": []}, {"name": "db", "hosts": []}, {"name": "shadow", "hosts": []}
  ]},
  "admin": {"address": {"socket_address": {"port_value": 3}}},
  "metrics": {"sinks": [{"type": "prometheus", "config": {"port": 4}}], "stats_matcher": {}}
}`

// preparations are patches of fullConfig. Each makes a key, and all keys below it, valid. In a
// patch, null removes a member, the first element of a list is merged into the first element and
// the others are appended, and {"=": value} replaces the old value.
var preparations = []struct{ path, patch string }{
	{"servers[].routers[].router_configs", `{"servers": [{"routers": [{"virtual_hosts": null}]}]}`},
	{"cluster_manager.clusters_configs", `{"cluster_manager": {"clusters": null}, "servers": [{"routers": null, "listeners": null}]}`},
	{"servers[].routers[].virtual_hosts[].routers[]", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [
		{"match": {"prefix": "/a"}, "route": {"cluster_name": "one"}}]}]}]}]}`},
	{".match.path", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"match": {"prefix": null}}]}]}]}]}`},
	{".match.regex", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"match": {"prefix": null}}]}]}]}]}`},
	{".match.headers[]", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"match": {"headers": [{"name": "x", "value": "y"}]}}]}]}]}]}`},
	{".match.variables[]", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"match": {"variables": [{"name": "method", "value": "PUT"}]}}]}]}]}]}`},
	{".match.variables[].regex", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"match": {"variables": [{"value": null}]}}]}]}]}]}`},
	{".route.cluster_variable", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"route": {"cluster_name": null}}]}]}]}]}`},
	{".route.weighted_clusters[]", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"route": {"cluster_name": null,
		"weighted_clusters": [{"cluster": {"name": "one", "weight": 1}}]}}]}]}]}]}`},
	{".regex_rewrite.", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"route": {
		"regex_rewrite": {"pattern": {"regex": "(x)"}, "substitution": "/y"}}}]}]}]}]}`},
	{".hash_policy[].header", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"route": {"hash_policy": [{"header": {"key": "x"}}]}}]}]}]}]}`},
	{".http_cookie.attributes[]", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"route": {"hash_policy": [{"http_cookie": {"name": "x", "attributes": [{"name": "y"}]}}]}}]}]}]}]}`},
	{".hash_policy[].http_cookie", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"route": {"hash_policy": [{"http_cookie": {"name": "x"}}]}}]}]}]}]}`},
	{".hash_policy[].source_ip", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"route": {"hash_policy": [{"header": null}]}}]}]}]}]}`},
	{".hash_policy[].query_parameter.", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"route": {"hash_policy": {"=": [{"query_parameter": {"name": "x"}}]}}}]}]}]}]}`},
	{".retriable_headers[].value", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"route": {"retry_policy": {"retriable_headers": [{"name": "x"}]}}}]}]}]}]}`},
	{"routers[].redirect.", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"route": null, "redirect": {}}]}]}]}]}`},
	{"routers[].direct_response.", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"route": null, "direct_response": {}}]}]}]}]}`},
	{".request_headers_to_add[]", `{"servers": [{"routers": [{"virtual_hosts": [{"routers": [{"route": {
		"request_headers_to_add": [{"header": {"key": "x-a", "value": "a"}}]}}]}]}]}]}`},
	{".config (tcp_proxy)", `{"servers": [{"listeners": [{"stream_filters": null, "filter_chains": [{"filters": [
		{"type": "tcp_proxy", "config": {"=": {"cluster": "one", "routes": [{"cluster": "one"}]}}}]}]}]}]}`},
	{".source_addrs[].address", `{"servers": [{"listeners": [{"filter_chains": [{"filters": [{"config": {"routes": [{"source_addrs": [{"length": 4}]}]}}]}]}]}]}`},
	{".source_addrs[].length", `{"servers": [{"listeners": [{"filter_chains": [{"filters": [{"config": {"routes": [{"source_addrs": [{"address": "10.0.0.0"}]}]}}]}]}]}]}`},
	{".prefix_ranges[].prefix_len", `{"servers": [{"listeners": [{"filter_chains": [{"match": {"prefix_ranges": [{"address_prefix": "10.0.0.0"}]}}]}]}]}`},
	{".config (rbac)", `{"servers": [{"listeners": [{"stream_filters": null, "filter_chains": [{"filters": [
		{"type": "rbac", "config": {"=": {}}}, {"type": "tcp_proxy", "config": {"cluster": "one"}}]}]}]}]}`},
	{".config (udp_proxy)", `{"servers": [{"listeners": [{"network": "udp", "access_logs": null, "stream_filters": null, "filter_chains": [{"filters": [
		{"type": "udp_proxy", "config": {"=": {"cluster": "one"}}}]}]}]}]}`},
	{"stream_filters[].config (payload_limit)", `{"servers": [{"listeners": [{"stream_filters": [{"config": {"max": 1}}]}]}]}`},
	{"extend_config.sub_protocol", `{"servers": [{"listeners": [{"filter_chains": [{"filters": [{"config": {"downstream_protocol": "X", "extend_config": {"sub_protocol": "Http1"}}}]}]}]}]}`},
	{"reset_budget.", `{"servers": [{"listeners": [{"filter_chains": [{"filters": [{"config": {"extend_config": {"http2_reset_budget": {"burst": 7, "per_second": 7}}}}]}]}]}]}`},
	{"listeners[].network", `{"servers": [{"listeners": [{"network": "unix"}]}]}`},
	{"pprof.", `{"pprof": {}}`},
	{"pprof.port_value", `{"pprof": {"debug": true}}`},
	{"pprof.endpoint", `{"pprof": {"debug": true, "port_value": 9090}}`},
	{"admin.address.pipe.", `{"admin": {"address": {"=": {"pipe": {"path": "/run/admin"}}}}}`},
	{"extends[]", `{"extends": [{"type": "dubbo_registry", "config": {"enable": true, "registries": [{"type": "zookeeper", "address": "127.0.0.1:2", "username": "u"}]}}]}`},
	{"(dubbo_registry).enable", `{"extends": [{"config": {"enable": false}}]}`},
	{".token_file", `{"extends": [{"config": {"token": null}}]}`},
	{"xds_cache.", `{"dynamic_resources": {"ads_config": {"api_type": "GRPC"}}, "xds_cache": {"path": "/tmp/xds"}}`},
	{"xds_lazy.", `{"dynamic_resources": {"ads_config": {"api_type": "GRPC"}}, "xds_lazy": {}}`},
	{"cluster_manager.load_stats_config", `{"dynamic_resources": {"ads_config": {"api_type": "GRPC"}}}`},
	{"xds_status.", `{"dynamic_resources": {"ads_config": {"api_type": "GRPC"}}, "xds_status": {"address": "/run/weft/xds"}}`},
	{".original_dst_lb_config.", `{"cluster_manager": {"clusters": [{"type": "ORIGINAL_DST", "hosts": null}]}}`},
	{".original_dst_lb_config.header_name", `{"cluster_manager": {"clusters": [{"original_dst_lb_config": {"use_header": true}}]}}`},
	{"dns_failure_refresh_rate.", `{"cluster_manager": {"clusters": [{"dns_failure_refresh_rate": {"base_interval": "2s"}}]}}`},
	{".source_address.port_value", `{"cluster_manager": {"clusters": [{"upstream_bind_config": {"source_address": {"address": "10.0.0.6"}}}]}}`},
	{"dns_resolver_port", `{"cluster_manager": {"clusters": [{"dns_resolver_file": "resolv.conf"}]}}`},
	{"http_check_config.", `{"cluster_manager": {"clusters": [{"health_check": {"protocol": "Http1"}}]}}`},
	{"outlier_detection.split_external_local_origin_errors", `{"cluster_manager": {"clusters": [{"outlier_detection": {}}]}}`},
}

// keysWithoutEffect lists keys that change neither the model nor a diagnostic, with the reason.
var keysWithoutEffect = map[string]string{
	"$schema":        "only for editors",
	"tracing.driver": "a setting of enable, which causes a warning",
	"tracing.tracer": "a setting of enable, which causes a warning",
	"tracing.config": "a setting of enable, which causes a warning",
	"overload_manager.resource_monitors[].typed_config.@type": "the name determines it",
	"overload_manager.actions[].typed_config.@type":           "the name determines it",

	"servers[].overload_manager.resource_monitors[].typed_config.@type": "the name determines it",
	"servers[].overload_manager.actions[].typed_config.@type":           "the name determines it",
}

// TestEveryKeyHasAnEffect sets every key of the schema, except objects with keys, to the example in
// its tags. A supported key must change the model or the warnings, without an error, unless
// keysWithoutEffect lists it. An unsupported key must be rejected as not supported yet. A key whose
// tag says that it is ignored must cause a warning.
func TestEveryKeyHasAnEffect(t *testing.T) {
	sections := document.Sections("", rootJSON{}, variants(testCapabilities()))
	unsupportedPaths := map[string]bool{} // paths of keys
	for _, section := range sections {
		for i := range section.Keys {
			if k := &section.Keys[i]; k.Unsupported != "" {
				unsupportedPaths[join(section.Path, k.Name)] = true
			}
		}
	}
	count := 0
	for _, section := range sections {
		for i := range section.Keys {
			k := &section.Keys[i]
			value, ok := probe(k)
			if !ok {
				continue // the keys of the object are set separately
			}
			count++
			path := join(section.Path, k.Name)
			t.Run(path, func(t *testing.T) {
				unsupported := false
				for prefix := range unsupportedPaths {
					parent := strings.TrimSuffix(strings.TrimSuffix(path, "[]"), ".")
					unsupported = unsupported || parent == prefix || strings.HasPrefix(path, prefix+".") || strings.HasPrefix(path, prefix+"[]")
				}
				checkEffect(t, section.Path, path, k, value, unsupported)
			})
		}
	}
	if count < 200 {
		t.Errorf("%d keys were set, want at least 200", count)
	}
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// probe returns the example of a leaf key. ok is false for objects with keys and for keys with
// variants.
func probe(k *document.Key) (value any, ok bool) {
	leaf := k.Type
	for leaf.Kind() == reflect.Pointer || leaf.Kind() == reflect.Slice || leaf.Kind() == reflect.Map {
		leaf = leaf.Elem()
	}
	isNode := leaf == reflect.TypeFor[document.Node]()
	switch {
	case leaf.Kind() == reflect.Struct && !isNode && leaf.NumField() == 0:
		return map[string]any{}, true
	case leaf.Kind() == reflect.Struct && !isNode:
		return nil, false
	case isNode && k.Variant != "" && k.Type.Kind() != reflect.Map:
		return nil, false
	}
	if err := json.Unmarshal([]byte(k.Example), &value); err != nil {
		panic("the key " + k.Name + " has no example, or one that is not JSON: " + k.Example)
	}
	return value, true
}

func checkEffect(t *testing.T, object, path string, k *document.Key, value any, unsupported bool) {
	doc := decodeJSON(t, fullConfig)
	for _, p := range slices.Concat(tlsPreparations(), overloadPreparations(), preparations) {
		if strings.Contains(path, p.path) {
			doc = merge(doc, decodeJSON(t, p.patch))
		}
	}
	objectAt(doc, object) // in both documents, so that they differ only in the key
	without, beforeDiags := load(t, doc)
	objectAt(doc, object)[k.Name] = value
	with, afterDiags := load(t, doc)
	if reason := keysWithoutEffect[path]; reason != "" {
		if len(afterDiags) != len(beforeDiags) || !reflect.DeepEqual(without, with) {
			t.Errorf("%s: want no effect (%s), got %v", path, reason, afterDiags)
		}
		return
	}
	text := afterDiags.Error()
	switch {
	case unsupported:
		if !strings.Contains(afterDiags.Errors().Error(), "not supported yet") {
			t.Errorf("%s = %v: want the error \"not supported yet\", got %v", path, value, text)
		}
	case k.IgnoredReason != "":
		if afterDiags.Failed() || !strings.Contains(text, "no effect") {
			t.Errorf("%s = %v: want a warning and no error, got %v", path, value, text)
		}
	case afterDiags.Failed():
		t.Errorf("%s = %v: %v, want no error", path, value, text)
	case reflect.DeepEqual(without, with) && text == beforeDiags.Error():
		delete(objectAt(doc, object), k.Name)
		if _, withoutKey := load(t, doc); k.Required && withoutKey.Failed() {
			return // the example is the only possible value
		}
		t.Errorf("%s = %v changes neither the model nor a diagnostic, want a change (before: %v)", path, value, beforeDiags)
	}
}

func decodeJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("invalid JSON in the test: %v", err)
	}
	return out
}

// merge merges patch into base; see preparations.
func merge(base, patch any) map[string]any {
	return mergeValue(base, patch).(map[string]any) //nolint:forcetypeassert // both are objects
}

func mergeValue(base, patch any) any {
	switch p := patch.(type) {
	case map[string]any:
		if replacement, ok := p["="]; ok {
			return replacement
		}
		b, ok := base.(map[string]any)
		if !ok {
			b = map[string]any{}
		}
		for key, value := range p {
			if value == nil {
				delete(b, key)
				continue
			}
			b[key] = mergeValue(b[key], value)
		}
		return b
	case []any:
		b, ok := base.([]any)
		if !ok || len(b) == 0 {
			b = []any{nil}
		}
		b[0] = mergeValue(b[0], p[0])
		return append(b, p[1:]...)
	}
	return patch
}

// objectAt returns the object at a path of document.Sections and creates missing parents.
func objectAt(doc map[string]any, path string) map[string]any {
	object := doc
	if path == "" {
		return object
	}
	for step := range strings.SplitSeq(path, ".") {
		name, variant, hasVariant := strings.Cut(step, " (")
		name, isList := strings.CutSuffix(name, "[]")
		if hasVariant {
			object["type"] = strings.TrimSuffix(variant, ")")
		}
		var next map[string]any
		if isList {
			elements, _ := object[name].([]any)
			if len(elements) == 0 {
				elements = []any{map[string]any{}}
				object[name] = elements
			}
			next = elements[0].(map[string]any) //nolint:forcetypeassert // an object by the schema
		} else {
			next, _ = object[name].(map[string]any)
			if next == nil {
				next = map[string]any{}
				object[name] = next
			}
		}
		object = next
	}
	return object
}

// load parses a document. The files to which fullConfig, preparations and examples refer are in
// memory.
func load(t *testing.T, doc map[string]any) (*config.Snapshot, document.Diagnostics) {
	t.Helper()
	ca := testpki.New(t)
	leaf := ca.Issue(testpki.Spec{})
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return Parse("file.json", data, testCapabilities(), Options{
		Env: func(string) (string, bool) { return "", false },
		Files: memFS{fstest.MapFS{
			"routes.d/a.json":   {Data: []byte(`{"name": "a", "domains": ["a.example"], "routers": []}`)},
			"resolv.conf":       {Data: []byte("nameserver 10.0.0.1\n")},
			"dubbo.token":       {Data: []byte("t0ken\n")},
			"clusters.d/a.json": {Data: []byte(`{"name": "a", "hosts": [{"address": "127.0.0.1:5"}]}`)},

			"own.pem": {Data: leaf.Cert}, "own.key": {Data: leaf.Key}, "own-ca.pem": {Data: ca.PEM}, "stranger.key": {Data: ca.Issue(testpki.Spec{}).Key},
			"cert.pem": {Data: leaf.Cert}, "key.pem": {Data: leaf.Key}, "ca.pem": {Data: ca.PEM},
		}},
	})
}

// memFS implements Files in memory.
type memFS struct{ fs fstest.MapFS }

// mapFile is a file in a memFS.
type mapFile = fstest.MapFile

func (m memFS) ReadFile(name string) ([]byte, error)       { return m.fs.ReadFile(name) }
func (m memFS) ReadDir(name string) ([]fs.DirEntry, error) { return m.fs.ReadDir(name) }
