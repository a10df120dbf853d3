package resource

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weft-proxy/weft/pkg/config"
)

const (
	customHeader  = `{"name": "a", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.http.original_ip_detection.custom_header.v3.CustomHeaderConfig", "header_name": "X-Real"`
	xffExtension  = `{"name": "a", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.http.original_ip_detection.xff.v3.XffConfig"`
	uuidExtension = `{"typed_config": {"@type": "type.googleapis.com/envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig"`
	earlyMutation = `{"name": "a", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation", "mutations": `
	otherType     = `{"name": "a", "typed_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "a"}}`
)

func TestEnvoyHeaders(t *testing.T) {
	base := config.EnvoyHeaders{RequestID: config.RequestID{Generate: true, Replace: true, ResetTraceReason: true}, Server: config.ServerOverwrite}
	ranges := []netip.Prefix{netip.MustParsePrefix("9.0.0.0/8")}
	for _, test := range []struct {
		name   string
		text   string
		change func(e *config.EnvoyHeaders)
		server string
		err    string // a part of it
	}{
		{"defaults", `{}`, func(*config.EnvoyHeaders) {}, "envoy", ""},
		{"server name", `{"server_name": "mine"}`, func(*config.EnvoyHeaders) {}, "mine", ""},
		{"server name with a line break", `{"server_name": "a\r\nb: c"}`, nil, "", "server_name: contains a line break"},
		{"server is added", `{"server_header_transformation": "APPEND_IF_ABSENT"}`, func(e *config.EnvoyHeaders) { e.Server = config.ServerAdd }, "envoy", ""},
		{"server is kept", `{"server_header_transformation": "PASS_THROUGH"}`, func(e *config.EnvoyHeaders) { e.Server = config.ServerKeep }, "", ""},
		{"no IDs", `{"generate_request_id": false}`, func(e *config.EnvoyHeaders) { e.RequestID.Generate = false }, "envoy", ""},
		{"IDs are preserved", `{"preserve_external_request_id": true, "always_set_request_id_in_response": true}`, func(e *config.EnvoyHeaders) { e.RequestID.Replace, e.RequestID.InResponse = false, true }, "envoy", ""},
		{"UUIDs", `{"request_id_extension": ` + uuidExtension + `, "pack_trace_reason": false}}}`, func(e *config.EnvoyHeaders) { e.RequestID.ResetTraceReason = false }, "envoy", ""},
		{"other IDs", `{"request_id_extension": {"typed_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "a"}}}`, nil, "", "request_id_extension.typed_config: type.googleapis.com/google.protobuf.StringValue is not supported"},
		{"port", `{"append_x_forwarded_port": true}`, func(e *config.EnvoyHeaders) { e.ForwardedPort = true }, "envoy", ""},
		{"scheme", `{"scheme_header_transformation": {"scheme_to_overwrite": "https"}}`, func(e *config.EnvoyHeaders) { e.Scheme = "https" }, "envoy", ""},
		{"invalid scheme", `{"scheme_header_transformation": {"scheme_to_overwrite": "ftp"}}`, nil, "", "scheme_to_overwrite: is \"ftp\""},
		{"scheme of the upstream", `{"scheme_header_transformation": {"match_upstream": true}}`, nil, "", "match_upstream"},
		{"user agent", `{"add_user_agent": true}`, func(e *config.EnvoyHeaders) { e.UserAgent, e.NodeID = "c", "n" }, "envoy", ""},
		{"client address", `{"original_ip_detection_extensions": [` + customHeader + `, "reject_with_status": {"code": 200}}}, ` + customHeader + `, "allow_extension_to_set_address_as_trusted": true}}]}`,
			func(e *config.EnvoyHeaders) {
				e.Detection = []config.ClientDetection{{Header: "x-real", RejectStatus: 403}, {Header: "x-real", Internal: true}}
			}, "envoy", ""},
		{"X-Forwarded-For", `{"original_ip_detection_extensions": [` + xffExtension + `, "xff_num_trusted_hops": 2}}, ` + xffExtension + `, "skip_xff_append": false, "xff_trusted_cidrs": {"cidrs": [{"address_prefix": "9.0.0.0", "prefix_len": 8}]}}}]}`,
			func(e *config.EnvoyHeaders) {
				e.Detection = []config.ClientDetection{{TrustedHops: 2}, {TrustedRanges: ranges, Append: true}}
			}, "envoy", ""},
		{"detection at the edge", `{"use_remote_address": true, "original_ip_detection_extensions": [` + customHeader + `}}]}`, nil, "", "original_ip_detection_extensions: is not allowed with use_remote_address"},
		{"detection and hops", `{"xff_num_trusted_hops": 1, "original_ip_detection_extensions": [` + customHeader + `}}]}`, nil, "", "original_ip_detection_extensions: is not allowed with xff_num_trusted_hops"},
		{"other detection", `{"original_ip_detection_extensions": [` + otherType + `]}`, nil, "", "StringValue is not supported"},
		{"early mutations", `{"early_header_mutation_extensions": [` + earlyMutation + `[{"remove": "a"}, {"append": {"header": {"key": "b", "value": "c"}, "append_action": "ADD_IF_ABSENT"}}]}}]}`,
			func(e *config.EnvoyHeaders) {
				e.EarlyMutations = []config.HeaderMutation{{Remove: []string{"a"}}, {Add: []config.HeaderValue{{Name: "b", Value: "c", If: config.AddIfAbsent, Empty: config.EmptySkipped}}}}
			}, "envoy", ""},
		{"early mutation of the host", `{"early_header_mutation_extensions": [` + earlyMutation + `[{"remove": "Host"}]}}]}`, nil, "", "[0].remove: is \"Host\""},
		{"other early mutation", `{"early_header_mutation_extensions": [` + otherType + `]}`, nil, "", "StringValue is not supported"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := &hcmv3.HttpConnectionManager{}
			if err := protojson.Unmarshal([]byte(test.text), m); err != nil {
				t.Fatal(err)
			}
			r, h := &report{capabilities: Capabilities{Node: Node{ID: "n", Cluster: "c"}}}, config.HTTP1Options{}
			got := fieldReader{report: r}.readEnvoyHeaders(m, &h)
			if test.err != "" {
				if err := r.rejection(); err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %q in it", err, test.err)
				}
				return
			}
			if err := r.rejection(); err != nil {
				t.Fatal(err)
			}
			want := base
			test.change(&want)
			if diff := cmp.Diff(&want, got, cmpopts.EquateComparable(netip.Prefix{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			if h.ServerName != test.server {
				t.Errorf("ServerName %q, want %q", h.ServerName, test.server)
			}
		})
	}
}

func TestRouterHeaders(t *testing.T) {
	for text, want := range map[string]config.RouterHeaders{
		`{}`: {},
		`{"suppress_envoy_headers": true, "respect_expected_rq_timeout": true}`: {Suppress: true, RespectExpectedTimeout: true},
		`{"strict_check_headers": ["X-Envoy-Retry-On", "x-envoy-max-retries"]}`: {StrictChecks: []string{"x-envoy-retry-on", "x-envoy-max-retries"}},
	} {
		got, err := readRouterOf(t, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(&want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: settings (-want +got):\n%s", text, diff)
		}
	}
	if _, err := readRouterOf(t, `{"strict_check_headers": ["x-envoy-retriable-status-codes"]}`); err == nil || !strings.Contains(err.Error(), "strict_check_headers") {
		t.Errorf("error %v, want one about strict_check_headers", err)
	}
}

func readRouterOf(t *testing.T, text string) (*config.RouterHeaders, error) {
	t.Helper()
	m := &routerv3.Router{}
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	r := &report{}
	out := fieldReader{report: r}.readRouter(packed(t, m))
	return out, r.rejection()
}

func TestAttemptHeaders(t *testing.T) {
	table, err := readTableText(t, `name: "t" virtual_hosts: {name: "v" domains: "*" include_request_attempt_count: true
		include_attempt_count_in_response: true include_is_timeout_retry_header: true
		routes: {match: {prefix: "/a"} route: {cluster: "c"}}
		routes: {match: {prefix: "/"} route: {cluster: "c" max_stream_duration: {max_stream_duration: {seconds: 1}}}}}`)
	if err != nil {
		t.Fatal(err)
	}
	for i, hidden := range []bool{false, true} {
		f := table.Config.VirtualHosts[0].Routes[i].Forward
		if want := (config.AttemptHeaders{CountInRequest: true, CountInResponse: true, TimeoutRetry: true}); f.Attempts != want || f.HideTimeout != hidden {
			t.Errorf("route %d: Attempts = %+v, HideTimeout = %t; want %+v, %t", i, f.Attempts, f.HideTimeout, want, hidden)
		}
	}
}
