package resource

import (
	"strings"
	"testing"

	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/filter/stream/extauthz"
	"github.com/weft-proxy/weft/pkg/filter/stream/fault"
	"github.com/weft-proxy/weft/pkg/filter/stream/headermutation"
	"github.com/weft-proxy/weft/pkg/filter/stream/healthcheck"
	"github.com/weft-proxy/weft/pkg/filter/stream/localratelimit"
)

// TestEnvoyDocumentationFilters verifies that filter settings from Envoy's documentation are
// accepted.
func TestEnvoyDocumentationFilters(t *testing.T) {
	for _, text := range []string{
		`{"@type": "cors.v3.Cors"}`,
		`{"@type": "fault.v3.HTTPFault", "max_active_faults": 100, "abort": {"http_status": 503, "percentage": {"numerator": 0, "denominator": "HUNDRED"}}, "delay": {"fixed_delay": "3s", "percentage": {"numerator": 0, "denominator": "HUNDRED"}}}`,
		`{"@type": "rbac.v3.RBAC", "rules": {"action": "ALLOW", "policies": {"p": {"permissions": [{"and_rules": {"rules": [{"header": {"name": ":method", "string_match": {"exact": "GET"}}}, {"url_path": {"path": {"prefix": "/products"}}}, {"or_rules": {"rules": [{"destination_port": 80}, {"destination_port": 443}]}}]}}], "principals": [{"any": true}]}}}}`,
		`{"@type": "jwt_authn.v3.JwtAuthentication", "providers": {"p": {"issuer": "https://example.com", "audiences": ["a"], "from_headers": [{"name": "x-jwt"}], "from_params": ["token"], "forward": true, "payload_in_metadata": "p", "remote_jwks": {"http_uri": {"uri": "https://example.com/jwks.json", "cluster": "c", "timeout": "1s"}, "cache_duration": "300s"}}}, "rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "p"}}]}`,
		`{"@type": "csrf.v3.CsrfPolicy", "filter_enabled": {"default_value": {"numerator": 100, "denominator": "HUNDRED"}, "runtime_key": "csrf.enabled"}, "additional_origins": [{"safe_regex": {"regex": "a.*"}}]}`,
		`{"@type": "ext_authz.v3.ExtAuthz", "grpc_service": {"envoy_grpc": {"cluster_name": "c"}, "timeout": "0.5s"}, "include_peer_certificate": true}`,
		`{"@type": "ext_authz.v3.ExtAuthz", "http_service": {"server_uri": {"uri": "127.0.0.1:10003", "cluster": "c", "timeout": "0.25s"}, "authorization_request": {"headers_to_add": [{"key": "a", "value": "b"}]}, "authorization_response": {"allowed_upstream_headers": {"patterns": [{"exact": "a"}]}}}, "failure_mode_allow": false, "with_request_body": {"max_request_bytes": 1024, "allow_partial_message": true}}`,
		`{"@type": "local_ratelimit.v3.LocalRateLimit", "stat_prefix": "s", "token_bucket": {"max_tokens": 10000, "tokens_per_fill": 1000, "fill_interval": "1s"}, "filter_enabled": {"runtime_key": "local_rate_limit_enabled", "default_value": {"numerator": 100, "denominator": "HUNDRED"}}, "filter_enforced": {"runtime_key": "local_rate_limit_enforced", "default_value": {"numerator": 100, "denominator": "HUNDRED"}}, "response_headers_to_add": [{"append_action": "OVERWRITE_IF_EXISTS_OR_ADD", "header": {"key": "x-local-rate-limit", "value": "true"}}], "local_rate_limit_per_downstream_connection": false}`,
		`{"@type": "header_to_metadata.v3.Config", "request_rules": [{"header": "x-version", "on_header_present": {"metadata_namespace": "envoy.lb", "key": "version", "type": "STRING"}, "on_header_missing": {"metadata_namespace": "envoy.lb", "key": "default", "value": "true", "type": "STRING"}, "remove": false}]}`,
		`{"@type": "header_mutation.v3.HeaderMutation", "mutations": {"request_mutations": [{"append": {"header": {"key": "a", "value": "b"}, "append_action": "APPEND_IF_EXISTS_OR_ADD"}}, {"remove": "c"}], "response_mutations": [{"remove": "d"}]}}`,
		`{"@type": "health_check.v3.HealthCheck", "pass_through_mode": false, "headers": [{"name": ":path", "string_match": {"exact": "/healthz"}}], "cluster_min_healthy_percentages": {"c": {"value": 25.5}}}`,
		`{"@type": "health_check.v3.HealthCheck", "pass_through_mode": true, "cache_time": "2.5s", "headers": [{"name": ":path", "string_match": {"exact": "/healthz"}}]}`,
	} {
		if _, err := readFilter(t, text); err != nil {
			t.Errorf("%s: error %v, want none", text, err)
		}
	}
}

// readFilter reads an HTTP filter and returns its settings in Weft's type.
func readFilter(t *testing.T, text string) (any, error) {
	t.Helper()
	r := &report{capabilities: allCapabilities()}
	out := &config.Proxy{}
	list := []*hcmv3.HttpFilter{filterOf(t, text), {Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &routerv3.Router{})}}}
	fieldReader{report: r}.readHTTPFilters(list, out, &Listener{})
	if err := r.rejection(); err != nil {
		return nil, err
	}
	return out.StreamFilters[0].Config, nil
}

func TestHeaderMutationsToAddAndRemove(t *testing.T) {
	const mutation = `{"@type": "header_mutation.v3.HeaderMutation", "mutations": `
	tests := map[string]struct {
		settings string
		want     *headermutation.Config
		err      string
	}{
		"requests and responses": {
			settings: mutation + `{"request_mutations": [{"remove": "c"}, {"append": {"header": {"key": "a", "value": "%REQ(x-b)%"}, "keep_empty_value": true}}],
				"response_mutations": [{"append": {"header": {"key": "d", "value": "50%%"}, "append_action": "ADD_IF_ABSENT"}}, {"remove": "e"}]}}`,
			want: &headermutation.Config{
				RequestAdd:     []filter.HeaderAddition{{Header: filter.HeaderField{Key: "a", Value: "%request_header_x-b%"}, Append: true}},
				RequestRemove:  []string{"c"},
				ResponseAdd:    []filter.HeaderAddition{{Header: filter.HeaderField{Key: "d", Value: "50%%"}, Append: true, Action: "ADD_IF_ABSENT"}},
				ResponseRemove: []string{"e"},
				Inherit:        true,
			},
		},
		"route settings": {
			settings: `{"@type": "header_mutation.v3.HeaderMutationPerRoute", "mutations": {"request_mutations": [{"remove": "c"}]}}`,
			want:     &headermutation.Config{RequestRemove: []string{"c"}, Inherit: true},
		},
		"no mutations": {
			settings: `{"@type": "header_mutation.v3.HeaderMutation"}`,
			want:     &headermutation.Config{Inherit: true},
		},
		"removal after addition": {
			settings: mutation + `{"request_mutations": [{"append": {"header": {"key": "X-A", "value": "b"}}}, {"remove": "x-a"}]}}`,
			want: &headermutation.Config{
				RequestAdd:   []filter.HeaderAddition{{Header: filter.HeaderField{Key: "X-A", Value: "b"}, Append: true}},
				RequestSteps: []headermutation.Step{{Remove: []string{"x-a"}}},
				Inherit:      true,
			},
		},
		"unsupported mutation": {
			settings: mutation + `{"response_mutations": [{"remove_on_match": {"key_matcher": {"prefix": "x-"}}}]}}`,
			err:      "mutations.response_mutations[0]: only append and remove are supported",
		},
		"query parameters": {
			settings: mutation + `{"query_parameter_mutations": [{"remove": "a"}]}}`,
			err:      "query_parameter_mutations",
		},
		"invalid command": {
			settings: mutation + `{"request_mutations": [{"append": {"header": {"key": "a", "value": "%NONE%"}}}]}}`,
			err:      "mutations.request_mutations[0].append: header.value: %NONE% is not supported",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := readFilter(t, tt.settings)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(tt.want), got); diff != "" {
				t.Errorf("settings, - want + got:\n%s", diff)
			}
		})
	}
}

func TestAdaptedFilterSettings(t *testing.T) {
	got, err := readFilter(t, `{"@type": "health_check.v3.HealthCheck", "pass_through_mode": false, "headers": [{"name": "a"}], "cluster_min_healthy_percentages": {"c": {"value": 25.5}, "d": {}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"c": 25.5, "d": 0}, got.(*healthcheck.Config).MinHealthy); diff != "" {
		t.Errorf("percentages, - want + got:\n%s", diff)
	}
	got, err = readFilter(t, `{"@type": "local_ratelimit.v3.LocalRateLimit", "stat_prefix": "s", "token_bucket": {"max_tokens": 1, "fill_interval": "1s"}, "response_headers_to_add": [{"append_action": "OVERWRITE_IF_EXISTS_OR_ADD", "header": {"key": "a", "value": "%PROTOCOL%"}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []filter.HeaderAddition{{Header: filter.HeaderField{Key: "a", Value: "%version%"}, Append: true, Action: "OVERWRITE_IF_EXISTS_OR_ADD"}}
	if diff := cmp.Diff(want, got.(*localratelimit.Config).ResponseAdd); diff != "" {
		t.Errorf("headers, - want + got:\n%s", diff)
	}
	got, err = readFilter(t, `{"@type": "ext_authz.v3.ExtAuthz", "http_service": {"server_uri": {"uri": "127.0.0.1:10003", "cluster": "c", "timeout": "0.25s"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if uri := got.(*extauthz.Config).HTTP.Server.URI; uri != "http://127.0.0.1:10003" {
		t.Errorf("URI = %q, want http://127.0.0.1:10003", uri)
	}
}

func TestFaultSettings(t *testing.T) {
	got, err := readFilter(t, `{"@type": "fault.v3.HTTPFault", "headers": [{"name": "a"}, {"name": "b", "string_match": {"prefix": "c"}}], "abort": {"grpc_status": 14, "percentage": {"numerator": 1000000, "denominator": "MILLION"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	present, prefix, status := true, "c", 14
	want := &fault.Config{
		Abort: fault.Abort{Status: 503, GRPC: &status, Percent: 100},
		Headers: []fault.HeaderMatch{
			{HeaderMatcherConfig: match.HeaderMatcherConfig{Name: "a", Present: &present}},
			{HeaderMatcherConfig: match.HeaderMatcherConfig{Name: "b", String: &match.StringMatcherConfig{Prefix: &prefix}}},
		},
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("settings, - want + got:\n%s", diff)
	}
}

// filterOf returns an HTTP filter with the settings in text.
func filterOf(t testing.TB, text string) *hcmv3.HttpFilter {
	t.Helper()
	const types = "type.googleapis.com/envoy.extensions.filters.http."
	settings := &anypb.Any{}
	if err := protojson.Unmarshal([]byte(`{"@type": "`+types+text[len(`{"@type": "`):]), settings); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &hcmv3.HttpFilter{Name: "it", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: settings}}
}
