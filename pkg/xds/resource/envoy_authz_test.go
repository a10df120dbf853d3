package resource

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter/stream/extauthz"
	"github.com/weft-proxy/weft/pkg/filter/stream/jwtauthn"
)

// TestIstioAuthorizationFilters verifies that Weft accepts filters like those that istiod generates
// from AuthorizationPolicy and RequestAuthentication.
func TestIstioAuthorizationFilters(t *testing.T) {
	rbacOf := func(permission, principal string) string {
		return `{"@type": "rbac.v3.RBAC", "rules": {"action": "DENY", "policies": {"ns[a]-policy[b]-rule[0]": {"permissions": [{"and_rules": {"rules": [` + permission + `]}}], "principals": [{"and_ids": {"ids": [` + principal + `]}}]}}}, "shadow_rules_stat_prefix": "istio_dry_run_allow_"}`
	}
	const anyPermission, anyPrincipal = `{"any": true}`, `{"any": true}`
	jwt := func(rest string) string {
		return `{"@type": "jwt_authn.v3.JwtAuthentication", "providers": {"origins-0": {"issuer": "https://a", "local_jwks": {"inline_string": "{\"keys\": [{\"kty\": \"oct\", \"kid\": \"k\", \"k\": \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\", \"alg\": \"HS256\"}]}"}` + rest + `}`
	}
	for name, text := range map[string]string{
		"paths":               rbacOf(`{"or_rules": {"rules": [{"url_path": {"path": {"exact": "/a"}}}, {"url_path": {"path": {"prefix": "/b/"}}}, {"url_path": {"path": {"suffix": "/c"}}}, {"url_path": {"path": {"safe_regex": {"regex": ".+"}}}}]}}`, anyPrincipal),
		"methods":             rbacOf(`{"or_rules": {"rules": [{"header": {"name": ":method", "string_match": {"exact": "GET"}}}, {"header": {"name": ":method", "present_match": true}}, {"header": {"name": ":authority", "string_match": {"exact": "a", "ignore_case": true}}}]}}, {"not_rule": {"or_rules": {"rules": [{"destination_port": 80}, {"destination_ip": {"address_prefix": "10.0.0.1", "prefix_len": 32}}]}}}, {"requested_server_name": {"exact": "a"}}`, anyPrincipal),
		"principals":          rbacOf(anyPermission, `{"or_ids": {"ids": [{"authenticated": {"principal_name": {"exact": "spiffe://cluster.local/ns/a/sa/b"}}}, {"authenticated": {"principal_name": {"safe_regex": {"regex": ".*/ns/a/.*"}}}}]}}, {"not_id": {"or_ids": {"ids": [{"direct_remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}, {"remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}]}}}`),
		"request principal":   rbacOf(anyPermission, `{"metadata": {"filter": "envoy.filters.http.jwt_authn", "path": [{"key": "payload"}, {"key": "iss"}], "value": {"string_match": {"exact": "https://a"}}}}, {"metadata": {"filter": "envoy.filters.http.jwt_authn", "path": [{"key": "payload"}, {"key": "groups"}], "value": {"list_match": {"one_of": {"string_match": {"exact": "g"}}}}}}`),
		"several claims":      rbacOf(anyPermission, `{"metadata": {"filter": "envoy.filters.http.jwt_authn", "path": [{"key": "payload"}, {"key": "groups"}], "value": {"list_match": {"one_of": {"or_match": {"value_matchers": [{"string_match": {"exact": "g"}}, {"string_match": {"exact": "h"}}]}}}}}}`),
		"several issuers":     rbacOf(anyPermission, `{"metadata": {"filter": "envoy.filters.http.jwt_authn", "path": [{"key": "payload"}, {"key": "iss"}], "value": {"or_match": {"value_matchers": [{"string_match": {"exact": "g"}}, {"string_match": {"prefix": "h"}}]}}}}`),
		"dry run":             `{"@type": "rbac.v3.RBAC", "shadow_rules": {"policies": {"p": {"permissions": [{"any": true}], "principals": [{"any": true}]}}}, "shadow_rules_stat_prefix": "istio_dry_run_allow_"}`,
		"audit":               `{"@type": "rbac.v3.RBAC", "rules": {"action": "LOG", "policies": {"p": {"permissions": [{"any": true}], "principals": [{"any": true}]}}}}`,
		"no policies":         `{"@type": "rbac.v3.RBAC", "rules": {}, "rules_stat_prefix": "a"}`,
		"Istio tokens":        jwt(`, "payload_in_metadata": "payload", "normalize_payload_in_metadata": {"space_delimited_claims": ["scope", "permission"]}, "forward": true, "from_headers": [{"name": "x", "value_prefix": "Bearer "}], "from_params": ["t"], "from_cookies": ["c"], "audiences": ["a"], "claim_to_headers": [{"header_name": "x-sub", "claim_name": "sub"}], "forward_payload_header": "x-p"}}, "rules": [{"match": {"prefix": "/"}, "requires": {"requires_any": {"requirements": [{"provider_name": "origins-0"}, {"allow_missing": {}}]}}}], "bypass_cors_preflight": true`),
		"token cache":         jwt(`, "jwt_cache_config": {"jwt_cache_size": 100}, "clock_skew_seconds": 60}}, "rules": [{"match": {"prefix": "/"}, "requires": {"requires_all": {"requirements": [{"provider_name": "origins-0"}]}}}]`),
		"other paths":         jwt(`}}, "rules": [{"match": {"path_separated_prefix": "/a"}, "requires": {"provider_name": "origins-0"}}, {"match": {"path": "/b"}, "requires": {"provider_name": "origins-0"}}]`),
		"requirement by name": jwt(`}}, "rules": [{"match": {"prefix": "/"}, "requirement_name": "r"}], "requirement_map": {"r": {"provider_name": "origins-0"}}`),
		"fetched keys":        `{"@type": "jwt_authn.v3.JwtAuthentication", "providers": {"p": {"issuer": "https://a", "remote_jwks": {"http_uri": {"uri": "https://a/jwks", "cluster": "c", "timeout": "5s"}, "cache_duration": "600s", "async_fetch": {"fast_listener": false}, "retry_policy": {"num_retries": 3}}}}, "rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "p"}}]}`,
		"Istio ext_authz":     `{"@type": "ext_authz.v3.ExtAuthz", "grpc_service": {"envoy_grpc": {"cluster_name": "c", "authority": "a"}, "timeout": "600s"}, "transport_api_version": "V3", "failure_mode_allow": true, "status_on_error": {"code": "Forbidden"}, "stat_prefix": "ext_authz"}`,
		"ext_authz over HTTP": `{"@type": "ext_authz.v3.ExtAuthz", "http_service": {"server_uri": {"uri": "http://a:8000", "cluster": "c", "timeout": "600s"}, "path_prefix": "/check", "authorization_request": {"headers_to_add": [{"key": "a", "value": "b"}]}, "authorization_response": {"allowed_upstream_headers": {"patterns": [{"exact": "a", "ignore_case": true}]}, "allowed_upstream_headers_to_append": {"patterns": [{"exact": "a"}]}, "allowed_client_headers": {"patterns": [{"prefix": "b"}]}, "allowed_client_headers_on_success": {"patterns": [{"prefix": "b"}]}, "dynamic_metadata_from_headers": {"patterns": [{"exact": "a"}]}}}, "allowed_headers": {"patterns": [{"exact": "a"}]}, "transport_api_version": "V3", "clear_route_cache": false}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := readFilter(t, text); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestJWTSettings verifies the conversion of jwt_authn settings to Weft's format.
func TestJWTSettings(t *testing.T) {
	got, err := readFilter(t, `{"@type": "jwt_authn.v3.JwtAuthentication", "providers": {"p": {"clock_skew_seconds": 7, "remote_jwks": {"http_uri": {"uri": "https://a/jwks", "cluster": "c", "timeout": "5s"}}}},
		"rules": [{"match": {"path_separated_prefix": "/a"}, "requirement_name": "r"}], "requirement_map": {"r": {"provider_name": "p"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	c := got.(*jwtauthn.Config)
	want := []jwtauthn.Rule{{Match: jwtauthn.Match{Segments: "/a"}, Requires: &jwtauthn.Requirement{Provider: "p"}}}
	if diff := cmp.Diff(want, c.Rules); diff != "" {
		t.Errorf("rules, - want + got:\n%s", diff)
	}
	if skew := c.Providers["p"].ClockSkew; skew != 7*time.Second {
		t.Errorf("ClockSkew = %v, want 7s", skew)
	}
	_, err = readFilter(t, `{"@type": "jwt_authn.v3.JwtAuthentication", "rules": [{"match": {"prefix": "/"}, "requirement_name": "r"}]}`)
	if err == nil || !strings.Contains(err.Error(), `rules[0].requirement_name: "r" is not in requirement_map`) {
		t.Errorf("undefined requirement name: error %v, want one about r", err)
	}
}

// TestIgnoredJWTSettings verifies that jwt_cache_config, async_fetch and retry_policy are reported
// as ignored.
func TestIgnoredJWTSettings(t *testing.T) {
	settings := filterOf(t, `{"@type": "jwt_authn.v3.JwtAuthentication", "providers": {"p": {"jwt_cache_config": {}, "remote_jwks": {"async_fetch": {}, "retry_policy": {"num_retries": 3},
		"http_uri": {"uri": "https://a/jwks", "cluster": "c", "timeout": "5s"}}}}, "rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "p"}}]}`).GetTypedConfig()
	e, err := ReadExtension(marshaled(t, &corev3.TypedExtensionConfig{Name: "f", TypedConfig: settings}), allCapabilities())
	if err != nil {
		t.Fatal(err)
	}
	const provider = "typed_config.providers[p]."
	want := []string{provider + "jwt_cache_config", provider + "remote_jwks.async_fetch", provider + "remote_jwks.retry_policy"}
	if !slices.Equal(e.Ignored, want) {
		t.Errorf("ignored fields %q, want %q", e.Ignored, want)
	}
}

// TestRouteJWTSettings verifies that a route can disable jwt_authn, or select a requirement.
func TestRouteJWTSettings(t *testing.T) {
	read := func(m *jwtv3.PerRouteConfig) (map[string]any, error) {
		r := &report{capabilities: allCapabilities()}
		return fieldReader{report: r}.readPerFilter(map[string]*anypb.Any{"envoy.filters.http.jwt_authn": packed(t, m)}), r.rejection()
	}
	got, err := read(&jwtv3.PerRouteConfig{RequirementSpecifier: &jwtv3.PerRouteConfig_Disabled{Disabled: true}})
	if err != nil || got["envoy.filters.http.jwt_authn"] != (config.FilterDisabled{}) {
		t.Errorf("disabled by the route: %v, %v, want FilterDisabled", got, err)
	}
	got, err = read(&jwtv3.PerRouteConfig{RequirementSpecifier: &jwtv3.PerRouteConfig_RequirementName{RequirementName: "r"}})
	if c, ok := got["envoy.filters.http.jwt_authn"].(*jwtauthn.Config); err != nil || !ok || c.RequirementName != "r" {
		t.Errorf("requirement of the route: %v, %v, want it", got, err)
	}
	for _, m := range []*jwtv3.PerRouteConfig{{}} {
		if got, err := read(m); err == nil {
			t.Errorf("%v is read as %v, want an error", m, got)
		}
	}
}

func TestExtAuthzSettings(t *testing.T) {
	got, err := readFilter(t, `{"@type": "ext_authz.v3.ExtAuthz", "grpc_service": {"envoy_grpc": {"cluster_name": "c"}, "timeout": "600s"}, "status_on_error": {"code": "ServiceUnavailable"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if c := got.(*extauthz.Config); c.OnError.Code != 503 || c.GRPC.Timeout != 10*time.Minute {
		t.Errorf("status %d after %v, want 503 after 10m", c.OnError.Code, c.GRPC.Timeout)
	}
}
