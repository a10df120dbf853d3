package resource

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// BenchmarkReadListener reads a listener with five HTTP filters before the router.
func BenchmarkReadListener(b *testing.B) {
	m := &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "r"}}}
	for _, text := range []string{
		`{"@type": "fault.v3.HTTPFault", "max_active_faults": 100, "abort": {"http_status": 503, "percentage": {"numerator": 0, "denominator": "HUNDRED"}}, "delay": {"fixed_delay": "3s", "percentage": {"numerator": 0, "denominator": "HUNDRED"}}}`,
		`{"@type": "rbac.v3.RBAC", "rules": {"action": "ALLOW", "policies": {"p": {"permissions": [{"and_rules": {"rules": [{"header": {"name": ":method", "string_match": {"exact": "GET"}}}, {"url_path": {"path": {"prefix": "/products"}}}, {"or_rules": {"rules": [{"destination_port": 80}, {"destination_port": 443}]}}]}}], "principals": [{"any": true}]}}}}`,
		`{"@type": "jwt_authn.v3.JwtAuthentication", "providers": {"p": {"issuer": "https://example.com", "audiences": ["a"], "from_headers": [{"name": "x-jwt"}], "from_params": ["token"], "forward": true, "payload_in_metadata": "p", "remote_jwks": {"http_uri": {"uri": "https://example.com/jwks.json", "cluster": "c", "timeout": "1s"}, "cache_duration": "300s"}}}, "rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "p"}}]}`,
		`{"@type": "ext_authz.v3.ExtAuthz", "http_service": {"server_uri": {"uri": "127.0.0.1:10003", "cluster": "c", "timeout": "0.25s"}, "authorization_request": {"headers_to_add": [{"key": "a", "value": "b"}]}, "authorization_response": {"allowed_upstream_headers": {"patterns": [{"exact": "a"}]}}}, "failure_mode_allow": false, "with_request_body": {"max_request_bytes": 1024, "allow_partial_message": true}}`,
		`{"@type": "header_to_metadata.v3.Config", "request_rules": [{"header": "x-version", "on_header_present": {"metadata_namespace": "envoy.lb", "key": "version", "type": "STRING"}, "on_header_missing": {"metadata_namespace": "envoy.lb", "key": "default", "value": "true", "type": "STRING"}, "remove": false}]}`,
	} {
		f := filterOf(b, text)
		f.Name = text[:20]
		m.HttpFilters = append(m.HttpFilters, f)
	}
	m.HttpFilters = append(m.HttpFilters, &hcmv3.HttpFilter{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(b, &routerv3.Router{})}})
	body := serialized(b, &listenerv3.Listener{
		Name:         "l",
		Address:      &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/l"}}},
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(b, m)}}}}},
	})
	caps := allCapabilities()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadListener(body, caps); err != nil {
			b.Fatal(err)
		}
	}
}
