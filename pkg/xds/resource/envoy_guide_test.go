package resource

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/getaddrinfo/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestControlPlaneRoutes verifies that routes from Envoy's documentation and from Istio, Contour
// and Envoy Gateway are accepted.
func TestControlPlaneRoutes(t *testing.T) {
	for name, text := range map[string]string{
		"Istio default route":           `{"name": "default", "match": {"prefix": "/"}, "route": {"cluster": "c", "timeout": "0s", "retry_policy": {"retry_on": "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes", "num_retries": 2, "retry_host_predicate": [{"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"}}], "host_selection_retry_max_attempts": "5", "retriable_status_codes": [503]}, "max_stream_duration": {"max_stream_duration": "0s", "grpc_timeout_header_max": "0s"}}, "metadata": {"filter_metadata": {"istio": {"config": "/apis/networking.istio.io/v1alpha3/namespaces/d/virtual-service/v"}}}, "decorator": {"operation": "c:80/*"}}`,
		"every header matcher":          `{"match": {"prefix": "/", "headers": [{"name": "a", "exact_match": "b"}, {"name": "a", "prefix_match": "b"}, {"name": "a", "suffix_match": "b"}, {"name": "a", "contains_match": "b"}, {"name": "a", "safe_regex_match": {"google_re2": {}, "regex": "b.*"}}, {"name": "a", "range_match": {"start": "1", "end": "10"}}, {"name": "a", "present_match": true}, {"name": "a", "present_match": false}, {"name": "a", "string_match": {"exact": "b", "ignore_case": true}, "invert_match": true}, {"name": "a", "string_match": {"safe_regex": {"regex": "b"}}, "treat_missing_header_as_empty": true}, {"name": ":method", "string_match": {"exact": "GET"}}, {"name": ":authority", "string_match": {"prefix": "a"}}, {"name": "a"}]}, "route": {"cluster": "c"}}`,
		"every query matcher":           `{"match": {"prefix": "/", "query_parameters": [{"name": "a", "string_match": {"exact": "b"}}, {"name": "a", "string_match": {"safe_regex": {"google_re2": {}, "regex": "^(gold|silver)$"}}}, {"name": "a", "present_match": true}, {"name": "a"}]}, "route": {"cluster": "c"}}`,
		"weighted clusters":             `{"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": [{"name": "a", "weight": 80, "request_headers_to_add": [{"header": {"key": "x", "value": "y"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}], "response_headers_to_remove": ["z"]}, {"name": "b", "weight": 20}], "total_weight": 100, "runtime_key_prefix": "routing.traffic_split.c"}}}`,
		"Istio fault":                   `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "typed_per_filter_config": {"envoy.filters.http.fault": {"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault", "delay": {"fixed_delay": "5s", "percentage": {"numerator": 1000, "denominator": "MILLION"}}, "abort": {"http_status": 500, "percentage": {"numerator": 500000, "denominator": "MILLION"}}}}}`,
		"Istio fault for gRPC":          `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "typed_per_filter_config": {"envoy.filters.http.fault": {"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault", "abort": {"grpc_status": 14, "percentage": {"numerator": 1000000, "denominator": "MILLION"}}}}}`,
		"fault by header":               `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "typed_per_filter_config": {"envoy.filters.http.fault": {"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault", "headers": [{"name": "x-user", "string_match": {"exact": "jason"}}], "upstream_cluster": "c", "abort": {"http_status": 500, "percentage": {"numerator": 50}}}}}`,
		"Istio CORS":                    `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "typed_per_filter_config": {"envoy.filters.http.cors": {"@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy", "allow_origin_string_match": [{"exact": "https://a"}, {"safe_regex": {"regex": ".*"}}], "allow_methods": "GET,POST", "allow_headers": "a,b", "expose_headers": "c", "max_age": "86400", "allow_credentials": true, "filter_enabled": {"default_value": {"numerator": 100}}, "forward_not_matching_preflights": true}}}`,
		"Envoy Gateway CORS":            `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "typed_per_filter_config": {"envoy.filters.http.cors": {"@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy", "allow_credentials": false, "allow_origin_string_match": [{"safe_regex": {"regex": "https://.*\\.test"}}], "forward_not_matching_preflights": false}}}`,
		"mirrors":                       `{"match": {"prefix": "/"}, "route": {"cluster": "c", "request_mirror_policies": [{"cluster": "d", "runtime_fraction": {"default_value": {"numerator": 1000000, "denominator": "MILLION"}}}, {"cluster": "e", "runtime_fraction": {"default_value": {"numerator": 25}, "runtime_key": "k"}, "trace_sampled": false}]}}`,
		"hedge policy":                  `{"match": {"prefix": "/"}, "route": {"cluster": "c", "hedge_policy": {"hedge_on_per_try_timeout": true}, "retry_policy": {"retry_on": "5xx", "per_try_timeout": "0.2s", "num_retries": 3}}}`,
		"Envoy Gateway retries":         `{"match": {"path_separated_prefix": "/a"}, "route": {"cluster": "c", "retry_policy": {"retry_on": "5xx,gateway-error,reset,reset-before-request,retriable-4xx,connect-failure,refused-stream,retriable-status-codes,cancelled,unavailable", "num_retries": 5, "per_try_timeout": "0.25s", "retriable_status_codes": [429, 503], "retry_back_off": {"base_interval": "0.1s", "max_interval": "10s"}, "host_selection_retry_max_attempts": "5", "retry_host_predicate": [{"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"}}]}, "upgrade_configs": [{"upgrade_type": "websocket"}]}}`,
		"Contour WebSocket":             `{"match": {"prefix": "/ws"}, "route": {"cluster": "c", "timeout": "0s", "idle_timeout": "0s", "upgrade_configs": [{"upgrade_type": "websocket"}]}}`,
		"retriable headers":             `{"match": {"prefix": "/"}, "route": {"cluster": "c", "retry_policy": {"retry_on": "retriable-headers", "retriable_headers": [{"name": "x-retry", "string_match": {"exact": "1"}}]}}}`,
		"hash policies":                 `{"match": {"prefix": "/"}, "route": {"cluster": "c", "hash_policy": [{"header": {"header_name": "x-user"}, "terminal": true}, {"cookie": {"name": "s", "ttl": "0s", "path": "/"}}, {"connection_properties": {"source_ip": true}}, {"query_parameter": {"name": "q"}}, {"cookie": {"name": "s", "attributes": [{"name": "SameSite", "value": "Strict"}]}}]}}`,
		"redirect to https":             `{"match": {"prefix": "/"}, "redirect": {"https_redirect": true}}`,
		"Envoy Gateway redirect":        `{"match": {"path": "/a"}, "redirect": {"scheme_redirect": "https", "host_redirect": "b", "port_redirect": 443, "prefix_rewrite": "/b", "response_code": "FOUND", "strip_query": true}}`,
		"redirect by expression":        `{"match": {"safe_regex": {"google_re2": {}, "regex": "^/(\\d+)$"}}, "redirect": {"regex_rewrite": {"pattern": {"google_re2": {}, "regex": "^/(\\d+)$"}, "substitution": "/v/\\1"}}}`,
		"direct response":               `{"match": {"prefix": "/"}, "direct_response": {"status": 503, "body": {"inline_string": "fault filter abort"}}, "response_headers_to_add": [{"header": {"key": "a", "value": "b"}}]}`,
		"direct response without body":  `{"match": {"prefix": "/"}, "direct_response": {"status": 404}}`,
		"rewrites":                      `{"match": {"prefix": "/a/"}, "route": {"cluster": "c", "prefix_rewrite": "/", "host_rewrite_literal": "h", "append_x_forwarded_host": true}}`,
		"rewrite by expression":         `{"match": {"prefix": "/a"}, "route": {"cluster": "c", "regex_rewrite": {"pattern": {"google_re2": {}, "regex": "^/service/([^/]+)(/.*)$"}, "substitution": "\\2/instance/\\1"}, "auto_host_rewrite": true}}`,
		"exact path rewrite":            `{"match": {"path": "/a"}, "route": {"cluster": "c", "prefix_rewrite": "/b"}}`,
		"regex match rewrite":           `{"match": {"safe_regex": {"regex": "/a/.*"}}, "route": {"cluster": "c", "regex_rewrite": {"pattern": {"regex": "^/a"}, "substitution": "/b"}}}`,
		"grpc":                          `{"match": {"prefix": "/helloworld.Greeter", "grpc": {}}, "route": {"cluster": "c", "max_stream_duration": {"grpc_timeout_header_max": "0s"}}}`,
		"runtime fraction":              `{"match": {"prefix": "/", "runtime_fraction": {"default_value": {"numerator": 0, "denominator": "HUNDRED"}, "runtime_key": "routing.traffic_shift.c"}}, "route": {"cluster": "c"}}`,
		"cluster header":                `{"match": {"prefix": "/"}, "route": {"cluster_header": "x-cluster", "cluster_not_found_response_code": "NOT_FOUND"}}`,
		"subset":                        `{"match": {"prefix": "/"}, "route": {"cluster": "c", "metadata_match": {"filter_metadata": {"envoy.lb": {"version": "1.0", "stage": "prod"}}}}}`,
		"format commands":               `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "request_headers_to_add": [{"header": {"key": "a", "value": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"}}, {"header": {"key": "b", "value": "%REQ(x-a?x-b):10%"}}, {"header": {"key": "c", "value": "%PROTOCOL%-100%%"}}, {"header": {"key": "d", "value": "%DOWNSTREAM_PEER_URI_SAN%"}}, {"header": {"key": "e", "value": "%REQUESTED_SERVER_NAME%"}}, {"header": {"key": "f", "value": "%REQ(:AUTHORITY)%"}}], "response_headers_to_add": [{"header": {"key": "x", "value": "%RESPONSE_CODE%"}}, {"header": {"key": "y", "value": "%UPSTREAM_HOST%"}}, {"header": {"key": "x", "value": "%RESP(server)%"}}]}`,
		"START_TIME":                    `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "request_headers_to_add": [{"header": {"key": "x-request-start", "value": "t=%START_TIME(%s.%3f)%"}}]}`,
		"newer format commands":         `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "request_headers_to_add": [{"header": {"key": "a", "value": "%REQUEST_HEADER(x-a)%"}}], "response_headers_to_add": [{"header": {"key": "b", "value": "%UPSTREAM_REMOTE_ADDRESS% %UPSTREAM_PEER_URI_SAN%"}}]}`,
		"rbac of a route":               `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "typed_per_filter_config": {"envoy.filters.http.rbac": {"@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBACPerRoute", "rbac": {"rules": {"policies": {"p": {"permissions": [{"any": true}], "principals": [{"any": true}]}}}}}}}`,
		"local_ratelimit of a route":    `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "typed_per_filter_config": {"envoy.filters.http.local_ratelimit": {"@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit", "stat_prefix": "s", "token_bucket": {"max_tokens": 4, "tokens_per_fill": 4, "fill_interval": "60s"}, "filter_enabled": {"default_value": {"numerator": 100}}, "filter_enforced": {"default_value": {"numerator": 100}}}}}`,
		"ext_authz of a route":          `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "typed_per_filter_config": {"envoy.filters.http.ext_authz": {"@type": "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute", "disabled": true}}}`,
		"ext_authz check settings":      `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "typed_per_filter_config": {"envoy.filters.http.ext_authz": {"@type": "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute", "check_settings": {"context_extensions": {"virtual_host": "v"}}}}}`,
		"csrf of a route":               `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "typed_per_filter_config": {"envoy.filters.http.csrf": {"@type": "type.googleapis.com/envoy.extensions.filters.http.csrf.v3.CsrfPolicy", "filter_enabled": {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}}}}`,
		"header_to_metadata of a route": `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "typed_per_filter_config": {"envoy.filters.http.header_to_metadata": {"@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config", "request_rules": [{"header": "x-version", "on_header_present": {"key": "v"}, "remove": true}]}}}`,
		"header_mutation of a route":    `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "typed_per_filter_config": {"envoy.filters.http.header_mutation": {"@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute", "mutations": {"request_mutations": [{"append": {"header": {"key": "a", "value": "b"}}}]}}}}`,
		"unknown optional filter":       `{"match": {"prefix": "/"}, "route": {"cluster": "c"}, "typed_per_filter_config": {"envoy.filters.http.buffer": {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "is_optional": true, "config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "a"}}}}`,
	} {
		t.Run(name, func(t *testing.T) { readRouteOf(t, text) })
	}
}

// readRouteOf reads a route that must be accepted, and also returns the ignored fields.
func readRouteOf(t *testing.T, text string) (route *config.Route, ignored string) {
	t.Helper()
	m := &routev3.Route{}
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	r := &report{capabilities: allCapabilities()}
	route = fieldReader{report: r}.readRoute(m, inheritedSettings{maxDirectBody: defaultDirectResponseBody})
	if err := r.rejection(); err != nil {
		t.Error(err)
	}
	return route, strings.Join(r.ignored, " ")
}

// TestRouteSettings verifies the conversion of route settings to Weft configuration.
func TestRouteSettings(t *testing.T) {
	route, ignored := readRouteOf(t, `{"match": {"prefix": "/"}, "route": {"cluster": "c", "upgrade_configs": [{"upgrade_type": "websocket"}, {"upgrade_type": "CONNECT", "connect_config": {}}]},
		"request_headers_to_add": [{"header": {"key": "a", "value": "%REQUEST_HEADER(x-b)% (%UPSTREAM_REMOTE_ADDRESS%)"}, "append_action": "ADD_IF_ABSENT"}, {"header": {"key": "x-request-start", "value": "t=%START_TIME(%s.%3f)%"}}]}`)
	want := []config.HeaderValue{{Name: "a", Value: "%request_header_x-b% (%upstream_host%)", If: config.AddIfAbsent, Empty: config.EmptySkipped}}
	if diff := cmp.Diff(want, route.Forward.Request.Add); diff != "" {
		t.Errorf("headers, - want + got:\n%s", diff)
	}
	if want := "request_headers_to_add[1]"; ignored != want {
		t.Errorf("ignored is %q, want %q", ignored, want)
	}
}

// TestControlPlaneClusters is TestControlPlaneRoutes for clusters.
func TestControlPlaneClusters(t *testing.T) {
	const http2 = `"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": {"http2_protocol_options": {"connection_keepalive": {"interval": "30s", "timeout": "5s"}}}}}`
	const hosts = `"type": "STRICT_DNS", "load_assignment": {"cluster_name": "c", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "www.envoyproxy.io", "port_value": 443}}}}]}]}`
	for name, text := range map[string]string{
		"Envoy quick start":        `{"name": "service_envoyproxy_io", "connect_timeout": "30s", "type": "LOGICAL_DNS", "dns_lookup_family": "V4_ONLY", "lb_policy": "ROUND_ROBIN", "load_assignment": {"cluster_name": "c", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "www.envoyproxy.io", "port_value": 443}}}}]}]}, "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "sni": "www.envoyproxy.io"}}}`,
		"go-control-plane example": `{"name": "c", "connect_timeout": "5s", "type": "LOGICAL_DNS", "lb_policy": "ROUND_ROBIN", "load_assignment": {"cluster_name": "c", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"protocol": "TCP", "address": "www.envoyproxy.io", "port_value": 80}}}}]}]}, "dns_lookup_family": "V4_ONLY"}`,
		"Istio":                    `{"name": "outbound|80||a.default.svc.cluster.local", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}, "service_name": "outbound|80||a.default.svc.cluster.local"}, "connect_timeout": "10s", "lb_policy": "LEAST_REQUEST", "circuit_breakers": {"thresholds": [{"max_connections": 4294967295, "max_pending_requests": 4294967295, "max_requests": 4294967295, "max_retries": 4294967295, "track_remaining": true}]}, "common_lb_config": {"locality_weighted_lb_config": {}, "healthy_panic_threshold": {}}, "metadata": {"filter_metadata": {"istio": {"services": [{"host": "a", "name": "a", "namespace": "default"}]}}}, "outlier_detection": {"consecutive_5xx": 7, "interval": "300s", "base_ejection_time": "900s", "enforcing_consecutive_5xx": 100, "enforcing_success_rate": 0}}`,
		"Istio consistent hash":    `{"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}, "lb_policy": "RING_HASH", "ring_hash_lb_config": {"minimum_ring_size": "1024"}}`,
		"Istio Maglev":             `{"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}, "lb_policy": "MAGLEV", "maglev_lb_config": {"table_size": "65537"}}`,
		"Istio passthrough":        `{"name": "PassthroughCluster", "type": "ORIGINAL_DST", "connect_timeout": "10s", "lb_policy": "CLUSTER_PROVIDED", ` + `"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "use_downstream_protocol_config": {"http_protocol_options": {}, "http2_protocol_options": {}}}}}`,
		"Istio slow start":         `{"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}, "lb_policy": "LEAST_REQUEST", "least_request_lb_config": {"slow_start_config": {"slow_start_window": "30s", "aggression": {"default_value": 1, "runtime_key": ""}, "min_weight_percent": {"value": 10}}, "choice_count": 3, "active_request_bias": {"default_value": 1.5, "runtime_key": "k"}}}`,
		"typed least_request":      `{"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3"}}, "load_balancing_policy": {"policies": [{"typed_extension_config": {"name": "envoy.load_balancing_policies.least_request", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest", "locality_lb_config": {"locality_weighted_lb_config": {}}}}}]}}`,
		"typed round_robin":        `{"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}, "load_balancing_policy": {"policies": [{"typed_extension_config": {"name": "envoy.load_balancing_policies.round_robin", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin", "slow_start_config": {"slow_start_window": "10s"}, "locality_lb_config": {"zone_aware_lb_config": {"min_cluster_size": "1", "routing_enabled": {"value": 100}}}}}}]}}`,
		"typed random":             `{"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}, "load_balancing_policy": {"policies": [{"typed_extension_config": {"name": "r", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.random.v3.Random"}}}]}}`,
		"typed maglev":             `{"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}, "load_balancing_policy": {"policies": [{"typed_extension_config": {"name": "r", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.maglev.v3.Maglev", "table_size": "65537", "consistent_hashing_lb_config": {"use_hostname_for_hashing": false}}}}]}}`,
		"typed ring_hash":          `{"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}, "load_balancing_policy": {"policies": [{"typed_extension_config": {"name": "r", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash", "hash_function": "XX_HASH", "minimum_ring_size": "1024"}}}]}}`,
		"HTTP health check":        `{"name": "c", ` + hosts + `, "health_checks": [{"timeout": "1s", "interval": "60s", "interval_jitter": "1s", "unhealthy_threshold": 3, "healthy_threshold": 3, "http_health_check": {"path": "/healthz", "host": "h", "expected_statuses": [{"start": "200", "end": "300"}], "request_headers_to_add": [{"header": {"key": "a", "value": "b"}}]}}]}`,
		"gRPC health check":        `{"name": "c", ` + hosts + `, "health_checks": [{"timeout": "1s", "interval": "5s", "unhealthy_threshold": 3, "healthy_threshold": 2, "grpc_health_check": {"service_name": "s", "authority": "a"}}]}`,
		"TCP health check":         `{"name": "c", ` + hosts + `, "health_checks": [{"timeout": "1s", "interval": "5s", "no_traffic_interval": "5s", "unhealthy_threshold": 3, "healthy_threshold": 2, "tcp_health_check": {}}]}`,
		"outlier detection":        `{"name": "c", ` + hosts + `, "outlier_detection": {"consecutive_5xx": 5, "consecutive_gateway_failure": 0, "enforcing_consecutive_gateway_failure": 100, "interval": "3s", "base_ejection_time": "30s", "max_ejection_percent": 10, "split_external_local_origin_errors": true, "failure_percentage_threshold": 85}}`,
		"circuit breakers":         `{"name": "c", ` + hosts + `, "circuit_breakers": {"thresholds": [{"priority": "DEFAULT", "max_connections": 1000000000, "max_pending_requests": 1000000000, "max_requests": 1000000000, "max_retries": 1000000000}, {"priority": "HIGH", "max_connections": 1000000000, "retry_budget": {"budget_percent": {"value": 25}, "min_retry_concurrency": 10}}]}}`,
		"HTTP/2 with keepalive":    `{"name": "c", ` + hosts + `, ` + http2 + `, "upstream_connection_options": {"tcp_keepalive": {"keepalive_probes": 3, "keepalive_time": 30, "keepalive_interval": 5}}, "per_connection_buffer_limit_bytes": 32768}`,
		"http2_protocol_options":   `{"name": "c", ` + hosts + `, "http2_protocol_options": {}}`,
		"auto SNI":                 `{"name": "c", ` + hosts + `, "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "upstream_http_protocol_options": {"auto_sni": true, "auto_san_validation": true}, "common_http_protocol_options": {"idle_timeout": "1s", "max_connection_duration": "10s"}, "explicit_http_config": {"http_protocol_options": {"header_key_format": {"proper_case_words": {}}}}}}, "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "common_tls_context": {"validation_context": {"trusted_ca": {"filename": "/etc/ssl/certs/ca-certificates.crt"}, "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": "www.envoyproxy.io"}}]}, "alpn_protocols": ["h2"], "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"}}}}}`,
		"Istio mutual TLS":         `{"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}, "transport_socket_matches": [{"name": "tlsMode-istio", "match": {"tlsMode": "istio"}, "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "common_tls_context": {"alpn_protocols": ["istio-peer-exchange", "istio", "h2"], "tls_params": {"tls_minimum_protocol_version": "TLSv1_2", "tls_maximum_protocol_version": "TLSv1_3"}, "tls_certificate_sds_secret_configs": [{"name": "default", "sds_config": {"api_config_source": {"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "sds-grpc"}}], "set_node_on_first_message_only": true, "transport_api_version": "V3"}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}}], "combined_validation_context": {"default_validation_context": {"match_subject_alt_names": [{"exact": "spiffe://cluster.local/ns/a/sa/b"}]}, "validation_context_sds_secret_config": {"name": "ROOTCA", "sds_config": {"api_config_source": {"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "sds-grpc"}}], "set_node_on_first_message_only": true, "transport_api_version": "V3"}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}}}}, "sni": "outbound_.80_._.a"}}}, {"name": "tlsMode-disabled", "match": {}, "transport_socket": {"name": "envoy.transport_sockets.raw_buffer", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"}}}]}`,
		"subsets":                  `{"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}, "lb_subset_config": {"fallback_policy": "DEFAULT_SUBSET", "default_subset": {"stage": "prod"}, "subset_selectors": [{"keys": ["v", "stage"]}, {"keys": ["stage"]}]}}`,
		"DNS resolvers":            `{"name": "c", ` + hosts + `, "respect_dns_ttl": true, "dns_refresh_rate": "5s", "typed_dns_resolver_config": {"name": "envoy.network.dns_resolver.cares", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig", "resolvers": [{"socket_address": {"protocol": "UDP", "address": "8.8.8.8", "port_value": 53}}], "dns_resolver_options": {"use_tcp_for_dns_lookups": true, "no_default_search_domain": true}}}}`,
		"getaddrinfo":              `{"name": "c", ` + hosts + `, "typed_dns_resolver_config": {"name": "g", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.getaddrinfo.v3.GetAddrInfoDnsResolverConfig"}}}`,
		"unix socket":              `{"name": "c", "type": "STATIC", "load_assignment": {"cluster_name": "c", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": "/tmp/s"}}}}]}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			m := &clusterv3.Cluster{}
			if err := protojson.Unmarshal([]byte(text), m); err != nil {
				t.Fatal(err)
			}
			body, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ReadCluster(body, Capabilities{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestControlPlaneEndpoints is TestControlPlaneRoutes for endpoints.
func TestControlPlaneEndpoints(t *testing.T) {
	for name, text := range map[string]string{
		"Istio":                 `{"cluster_name": "c", "endpoints": [{"locality": {"region": "r", "zone": "z"}, "lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}, "health_check_config": {}}, "health_status": "HEALTHY", "metadata": {"filter_metadata": {"istio": {"workload": "a;b;c;d;e"}, "envoy.transport_socket_match": {"tlsMode": "istio"}}}, "load_balancing_weight": 1}], "load_balancing_weight": 1}], "policy": {"overprovisioning_factor": 140}}`,
		"Istio dual stack":      `{"cluster_name": "c", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}, "additional_addresses": [{"address": {"socket_address": {"address": "::1", "port_value": 80}}}]}}]}]}`,
		"drops":                 `{"cluster_name": "c", "endpoints": [], "policy": {"drop_overloads": [{"category": "lb", "drop_percentage": {"numerator": 10}}], "endpoint_stale_after": "0s"}}`,
		"health check hostname": `{"cluster_name": "c", "endpoints": [{"priority": 1, "lb_endpoints": [{"endpoint": {"hostname": "h", "address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}, "health_check_config": {"hostname": "h", "disable_active_health_check": false}}}]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			m := &endpointv3.ClusterLoadAssignment{}
			if err := protojson.Unmarshal([]byte(text), m); err != nil {
				t.Fatal(err)
			}
			body, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ReadLoadAssignment(body, Capabilities{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestControlPlaneListeners is TestControlPlaneRoutes for listeners.
func TestControlPlaneListeners(t *testing.T) {
	const router = `{"name": "envoy.filters.http.router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}`
	const address = `"address": {"socket_address": {"address": "0.0.0.0", "port_value": 10000}}`
	manager := func(rest string) string {
		return `{"name": "l", ` + address + `, "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "s", "rds": {"route_config_name": "r", "config_source": {"ads": {}, "resource_api_version": "V3"}}, ` + rest + `}}]}]}`
	}
	for name, text := range map[string]string{
		"edge proxy":     `{"name": "listener_https", "address": {"socket_address": {"protocol": "TCP", "address": "0.0.0.0", "port_value": 443}}, "listener_filters": [{"name": "tls_inspector", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"}}], "per_connection_buffer_limit_bytes": 32768, "filter_chains": [{"filter_chain_match": {"server_names": ["example.com", "www.example.com"]}, "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", "common_tls_context": {"tls_certificates": [{"certificate_chain": {"filename": "certs/servercert.pem"}, "private_key": {"filename": "certs/serverkey.pem"}}]}}}, "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "ingress_http", "use_remote_address": true, "normalize_path": true, "merge_slashes": true, "path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT", "common_http_protocol_options": {"idle_timeout": "3600s"}, "http2_protocol_options": {"max_concurrent_streams": 100, "initial_stream_window_size": 65536, "initial_connection_window_size": 1048576}, "stream_idle_timeout": "300s", "request_timeout": "300s", "http_filters": [` + router + `], "route_config": {"virtual_hosts": [{"name": "default", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "service_foo", "idle_timeout": "15s"}}]}]}}}]}]}`,
		"upgrades":       manager(`"upgrade_configs": [{"upgrade_type": "websocket"}, {"upgrade_type": "CONNECT"}], "http_filters": [` + router + `]`),
		"access logs":    manager(`"access_log": [{"name": "envoy.access_loggers.file", "filter": {"status_code_filter": {"comparison": {"op": "GE", "value": {"default_value": 400, "runtime_key": "k"}}}}, "typed_config": {"@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog", "path": "/dev/stdout", "log_format": {"json_format": {"start_time": "%START_TIME%", "method": "%REQ(:METHOD)%", "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%", "duration": "%DURATION%"}}}}], "http_filters": [` + router + `]`),
		"Istio":          manager(`"server_name": "istio-envoy", "use_remote_address": false, "forward_client_cert_details": "APPEND_FORWARD", "set_current_client_cert_details": {"subject": true, "dns": true, "uri": true}, "upgrade_configs": [{"upgrade_type": "websocket"}], "generate_request_id": true, "stream_idle_timeout": "0s", "normalize_path": true, "request_id_extension": {"typed_config": {"@type": "type.googleapis.com/envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig", "use_request_id_for_trace_sampling": true}}, "path_with_escaped_slashes_action": "KEEP_UNCHANGED", "proxy_100_continue": true, "server_header_transformation": "PASS_THROUGH", "http_filters": [` + router + `]`),
		"Envoy Gateway":  manager(`"http2_protocol_options": {"initial_connection_window_size": 1048576, "initial_stream_window_size": 65536, "max_concurrent_streams": 100}, "merge_slashes": true, "normalize_path": true, "path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT", "server_header_transformation": "PASS_THROUGH", "use_remote_address": true, "http_filters": [` + router + `]`),
		"Contour":        manager(`"http_protocol_options": {"accept_http_10": true}, "common_http_protocol_options": {"idle_timeout": "60s"}, "use_remote_address": true, "normalize_path": true, "preserve_external_request_id": true, "merge_slashes": true, "delayed_close_timeout": "1s", "drain_timeout": "5s", "http_filters": [{"name": "envoy.filters.http.grpc_stats", "typed_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "a"}}, ` + router + `]`),
		"tcp":            `{"name": "l", ` + address + `, "filter_chains": [{"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "s", "cluster": "c", "idle_timeout": "0s"}}]}]}`,
		"proxy protocol": `{"name": "l", ` + address + `, "listener_filters": [{"name": "envoy.filters.listener.proxy_protocol", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol"}}], "filter_chains": [{"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "s", "cluster": "c"}}]}]}`,
		"network rbac":   `{"name": "l", ` + address + `, "filter_chains": [{"filters": [{"name": "envoy.filters.network.rbac", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC", "stat_prefix": "tcp.", "rules": {"action": "DENY", "policies": {"p": {"permissions": [{"and_rules": {"rules": [{"or_rules": {"rules": [{"destination_port": 80}]}}]}}], "principals": [{"and_ids": {"ids": [{"or_ids": {"ids": [{"authenticated": {"principal_name": {"exact": "spiffe://cluster.local/ns/a/sa/b"}}}, {"source_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}, {"direct_remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}]}}]}}]}}}}}, {"name": "envoy.filters.network.tcp_proxy", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "s", "cluster": "c"}}]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			m := &listenerv3.Listener{}
			if err := protojson.Unmarshal([]byte(text), m); err != nil {
				t.Fatal(err)
			}
			body, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ReadListener(body, allCapabilities()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRequestMutationsWithoutRequest verifies that a route that sends no request upstream reports
// its request header mutations as ignored.
func TestRequestMutationsWithoutRequest(t *testing.T) {
	const add, remove = `"request_headers_to_add": [{"header": {"key": "a", "value": "b"}}]`, `"request_headers_to_remove": ["c"]`
	for fields, want := range map[string]string{
		add:                 "request_headers_to_add",
		remove:              "request_headers_to_remove",
		add + ", " + remove: "request_headers_to_add request_headers_to_remove",
	} {
		for _, action := range []string{`"direct_response": {"status": 200}`, `"redirect": {"host_redirect": "h"}`} {
			if _, ignored := readRouteOf(t, `{"match": {"prefix": "/"}, `+action+", "+fields+`}`); ignored != want {
				t.Errorf("%s, %s: ignored is %q, want %q", action, fields, ignored, want)
			}
		}
	}
}
