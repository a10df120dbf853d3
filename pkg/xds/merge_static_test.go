package xds

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
)

// TestConfigSourceFields verifies that ignored fields of config sources are reported, and that
// unsupported and invalid ones are rejected.
func TestConfigSourceFields(t *testing.T) {
	const ads, service, cds = "dynamic_resources.ads_config", "dynamic_resources.ads_config.grpc_services[0]", "dynamic_resources.cds_config"
	for name, c := range map[string]struct {
		b        config.Bootstrap
		rejected bootstrap.FieldErrors
		ignored  []string
	}{
		"supported fields": {xdstest.BootstrapWith(`, "transport_api_version": "V3", "set_node_on_first_message_only": true`, "", `, "skip_envoy_headers": true`, `, "resource_api_version": "V3"`), nil, nil},
		"ignored fields": {xdstest.BootstrapWith(`, "rate_limit_settings": {}, "request_timeout": "1s"`, `, "timeout": "1s", "retry_policy": {}`, `, "max_receive_message_length": 5`, ""), nil,
			[]string{ads + ".rate_limit_settings", ads + ".request_timeout", service + ".retry_policy", service + ".timeout", service + ".envoy_grpc.max_receive_message_length"}},
		"initial_fetch_timeout":             {xdstest.BootstrapWith("", "", "", `, "initial_fetch_timeout": "0s"`), nil, nil},
		"negative initial_fetch_timeout":    {xdstest.BootstrapWith("", "", "", `, "initial_fetch_timeout": "-1s"`), bootstrap.FieldErrors{{Field: cds + ".initial_fetch_timeout", Reason: "found seconds:-1, expected a duration"}}, nil},
		"unsupported transport_api_version": {xdstest.BootstrapWith(`, "transport_api_version": "V2"`, "", "", ""), bootstrap.FieldErrors{{Field: ads + ".transport_api_version", Reason: "V2 is not supported, expected V3"}}, nil},
		"unsupported resource_api_version":  {xdstest.BootstrapWith("", "", "", `, "resource_api_version": "V2"`), bootstrap.FieldErrors{{Field: cds + ".resource_api_version", Reason: "V2 is not supported, expected V3"}}, nil},
		"authorities":                       {xdstest.BootstrapWith("", "", "", `, "authorities": [{"name": "a"}]`), bootstrap.FieldErrors{{Field: cds + ".authorities", Reason: "is not supported"}}, nil},
		"config_validators":                 {xdstest.BootstrapWith(`, "config_validators": [{"name": "v"}]`, "", "", ""), bootstrap.FieldErrors{{Field: ads + ".config_validators", Reason: "is not supported"}}, nil},
		"invalid initial_metadata": {xdstest.BootstrapWith("", `, "initial_metadata": [{"key": "x-a", "value": "%REQ(s3cret)%"}, {"key": "grpc-timeout", "value": "1"}, {"key": "x-a", "raw_value": "/w=="}, {"key": "x-bin", "value": "1"}]`, "", ""), bootstrap.FieldErrors{
			{Field: service + ".initial_metadata[0].value", Reason: "variables are not supported"}, {Field: service + ".initial_metadata[1].key", Reason: `found "grpc-timeout", expected a gRPC metadata key for a text value`},
			{Field: service + ".initial_metadata[2].value", Reason: "expected printable ASCII"}, {Field: service + ".initial_metadata[3].key", Reason: `found "x-bin", expected a gRPC metadata key for a text value`},
		}, nil},
		"google_grpc": {config.Bootstrap{StaticResources: xdstest.Bootstrap("GRPC").StaticResources, DynamicResources: []byte(`{"ads_config": {"api_type": "GRPC", "grpc_services": [{"google_grpc": {"target_uri": "a", "stat_prefix": "s"}}]}}`)},
			bootstrap.FieldErrors{{Field: service + ".google_grpc", Reason: "is not supported"}}, nil},
		"different load_stats_config": {withLoadStats(xdstest.BootstrapWith("", "", `, "authority": "a"`, ""), ""),
			bootstrap.FieldErrors{{Field: "cluster_manager.load_stats_config.grpc_services[0].envoy_grpc", Reason: "authority or initial_metadata differs from the value that dynamic_resources sets for the same cluster"}}, nil},
		"equal load_stats_config": {withLoadStats(xdstest.BootstrapWith("", "", `, "authority": "a"`, ""), `, "authority": "a"`), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, ignored, err := MergeStatic(&config.Snapshot{Bootstrap: c.b}, xdstest.Capabilities())
			var rejected bootstrap.FieldErrors
			errors.As(err, &rejected)
			if diff := cmp.Diff(c.rejected, rejected); diff != "" || (err != nil) != (c.rejected != nil) {
				t.Errorf("rejected with %v (-want +got):\n%s", err, diff)
			}
			var fields []string
			for _, p := range ignored {
				fields = append(fields, p.Field)
			}
			slices.Sort(fields)
			slices.Sort(c.ignored)
			if !slices.Equal(fields, c.ignored) {
				t.Errorf("ignored fields %v, want %v", fields, c.ignored)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %v, want one without secret values", err)
			}
		})
	}
}

// TestUnusedAddressesAndSecretsAreReported verifies that MergeStatic warns about the second address
// of a control plane and about a secret without a name.
func TestUnusedAddressesAndSecretsAreReported(t *testing.T) {
	b := xdstest.Bootstrap("GRPC")
	const endpointJSON = `{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}}}`
	clusterJSON := `{"name": "control", "load_assignment": {"cluster_name": "control", "endpoints": [{"lb_endpoints": [` + fmt.Sprintf(endpointJSON, 1) + ", " + fmt.Sprintf(endpointJSON, 2) + `]}]}}`
	b.StaticResources = xdstest.StaticResourcesJSON([]string{clusterJSON}, nil, []string{xdstest.SecretJSON(t, "")})
	_, ignored, err := MergeStatic(&config.Snapshot{Bootstrap: b}, xdstest.Capabilities())
	want := bootstrap.FieldErrors{
		{Field: "dynamic_resources.ads_config.grpc_services[0].envoy_grpc.cluster_name", Reason: `"control" has 2 addresses: only the first one is used`},
		{Field: "static_resources.secrets[0]", Reason: "has no name: nothing can refer to it"},
	}
	if diff := cmp.Diff(want, ignored); diff != "" || err != nil {
		t.Errorf("error %v, warnings (-want +got):\n%s", err, diff)
	}
}

// withLoadStats returns b with load reports to the control plane; envoy contains additional JSON
// fields of envoy_grpc.
func withLoadStats(b config.Bootstrap, envoy string) config.Bootstrap {
	b.LoadStats = fmt.Appendf(nil, `{"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "control"%s}}]}`, envoy)
	return b
}
