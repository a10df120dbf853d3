package xds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/transport"
)

// bootstrapWith returns Bootstrap with additional JSON fields: source in ads_config, service in
// its gRPC service, envoy in envoy_grpc, and clusters in cds_config.
func bootstrapWith(source, service, envoy, clusters string) config.Bootstrap {
	b := xdstest.Bootstrap("GRPC")
	b.DynamicResources = fmt.Appendf(nil, `{"ads_config": {"api_type": "GRPC"%s, "grpc_services": [{"envoy_grpc": {"cluster_name": "control"%s}%s}]}, "cds_config": {"ads": {}%s}}`,
		source, envoy, service, clusters)
	return b
}

// TestControlPlaneAuthorityAndMetadata verifies the :authority and the initial metadata of a stream
// to the control plane.
func TestControlPlaneAuthorityAndMetadata(t *testing.T) {
	ln := bufconn.Listen(1 << 20)
	came := make(chan metadata.MD, 1)
	g := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		came <- md
		return nil
	}))
	served := make(chan error)
	go func() { served <- g.Serve(ln) }()
	defer func() {
		g.Stop()
		<-served
	}()
	for _, c := range []struct {
		name string
		b    config.Bootstrap
		want map[string][]string
	}{
		{"nothing", xdstest.Bootstrap("GRPC"), map[string][]string{":authority": {"127.0.0.1:1"}, "authorization": nil}},
		{"a name and fields", bootstrapWith("", `, "initial_metadata": [{"key": "Authorization", "value": "Bearer x"}, {"key": "x-a", "value": "1"}, {"key": "x-a", "raw_value": "Mg=="}]`, `, "authority": "xds.test"`, ""),
			map[string][]string{":authority": {"xds.test"}, "authorization": {"Bearer x"}, "x-a": {"1", "2"}}},
	} {
		b, _, err := bootstrap.Read(c.b, resource.Capabilities{})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		to := transport.Dialer{Target: b.Targets[b.ADSCluster], Network: transport.Network{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return ln.DialContext(ctx) }}}
		conn, err := to.Dial()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openStream(t.Context(), conn, adsService(), ads.StateOfTheWorld, b.Node); err != nil {
			t.Fatal(err)
		}
		md := <-came
		for name, want := range c.want {
			if got := md.Get(name); !slices.Equal(got, want) {
				t.Errorf("%s: %s is %q, want %q", c.name, name, got, want)
			}
		}
		_ = conn.Close()
	}
}

// TestConfigSourceFields verifies that ignored fields of config sources are reported, and that
// unsupported and invalid ones are rejected.
func TestConfigSourceFields(t *testing.T) {
	const ads, service, cds = "dynamic_resources.ads_config", "dynamic_resources.ads_config.grpc_services[0]", "dynamic_resources.cds_config"
	for name, c := range map[string]struct {
		b       config.Bootstrap
		wrong   bootstrap.FieldErrors
		ignored []string
	}{
		"as ever": {bootstrapWith(`, "transport_api_version": "V3", "set_node_on_first_message_only": true`, "", `, "skip_envoy_headers": true`, `, "resource_api_version": "V3"`), nil, nil},
		"without effect": {bootstrapWith(`, "rate_limit_settings": {}, "request_timeout": "1s"`, `, "timeout": "1s", "retry_policy": {}`, `, "max_receive_message_length": 5`, ""), nil,
			[]string{ads + ".rate_limit_settings", ads + ".request_timeout", service + ".retry_policy", service + ".timeout", service + ".envoy_grpc.max_receive_message_length"}},
		"how long the first clusters are waited for": {bootstrapWith("", "", "", `, "initial_fetch_timeout": "0s"`), nil, nil},
		"a wait that is no time":                     {bootstrapWith("", "", "", `, "initial_fetch_timeout": "-1s"`), bootstrap.FieldErrors{{Field: cds + ".initial_fetch_timeout", Reason: "found seconds:-1, expected a duration"}}, nil},
		"another version":                            {bootstrapWith(`, "transport_api_version": "V2"`, "", "", ""), bootstrap.FieldErrors{{Field: ads + ".transport_api_version", Reason: "V2 is not supported, expected V3"}}, nil},
		"resources of another version":               {bootstrapWith("", "", "", `, "resource_api_version": "V2"`), bootstrap.FieldErrors{{Field: cds + ".resource_api_version", Reason: "V2 is not supported, expected V3"}}, nil},
		"an authority of resources":                  {bootstrapWith("", "", "", `, "authorities": [{"name": "a"}]`), bootstrap.FieldErrors{{Field: cds + ".authorities", Reason: "is not supported"}}, nil},
		"who looks at resources":                     {bootstrapWith(`, "config_validators": [{"name": "v"}]`, "", "", ""), bootstrap.FieldErrors{{Field: ads + ".config_validators", Reason: "is not supported"}}, nil},
		"fields that are not text": {bootstrapWith("", `, "initial_metadata": [{"key": "x-a", "value": "%REQ(s3cret)%"}, {"key": "grpc-timeout", "value": "1"}, {"key": "x-a", "raw_value": "/w=="}, {"key": "x-bin", "value": "1"}]`, "", ""), bootstrap.FieldErrors{
			{Field: service + ".initial_metadata[0].value", Reason: "variables are not supported"}, {Field: service + ".initial_metadata[1].key", Reason: `found "grpc-timeout", expected a gRPC metadata key for a text value`},
			{Field: service + ".initial_metadata[2].value", Reason: "expected printable ASCII"}, {Field: service + ".initial_metadata[3].key", Reason: `found "x-bin", expected a gRPC metadata key for a text value`},
		}, nil},
		"another client": {config.Bootstrap{StaticResources: xdstest.Bootstrap("GRPC").StaticResources, DynamicResources: []byte(`{"ads_config": {"api_type": "GRPC", "grpc_services": [{"google_grpc": {"target_uri": "a", "stat_prefix": "s"}}]}}`)},
			bootstrap.FieldErrors{{Field: service + ".google_grpc", Reason: "is not supported"}}, nil},
		"load that is told otherwise": {withLoadStats(bootstrapWith("", "", `, "authority": "a"`, ""), ""),
			bootstrap.FieldErrors{{Field: "cluster_manager.load_stats_config.grpc_services[0].envoy_grpc", Reason: "authority and initial_metadata differ from those that dynamic_resources sets for the same cluster"}}, nil},
		"load that is told alike": {withLoadStats(bootstrapWith("", "", `, "authority": "a"`, ""), `, "authority": "a"`), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, ignored, err := MergeStatic(&config.Snapshot{Bootstrap: c.b}, xdstest.Capabilities())
			var wrong bootstrap.FieldErrors
			errors.As(err, &wrong)
			if diff := cmp.Diff(c.wrong, wrong); diff != "" || (err != nil) != (c.wrong != nil) {
				t.Errorf("rejected with %v (-want +got):\n%s", err, diff)
			}
			var fields []string
			for _, p := range ignored {
				fields = append(fields, p.Field)
			}
			slices.Sort(fields)
			slices.Sort(c.ignored)
			if !slices.Equal(fields, c.ignored) {
				t.Errorf("without effect are %v, want %v", fields, c.ignored)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error has the value of a field: %v", err)
			}
		})
	}
}

// TestUnusedAddressesAndSecretsAreReported verifies the warnings about the second address of a
// control plane and about a secret without a name.
func TestUnusedAddressesAndSecretsAreReported(t *testing.T) {
	b := xdstest.Bootstrap("GRPC")
	const one = `{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}}}`
	two := `{"name": "control", "load_assignment": {"cluster_name": "control", "endpoints": [{"lb_endpoints": [` + fmt.Sprintf(one, 1) + ", " + fmt.Sprintf(one, 2) + `]}]}}`
	b.StaticResources = xdstest.StaticResourcesJSON([]string{two}, nil, []string{xdstest.SecretJSON(t, "")})
	_, ignored, err := MergeStatic(&config.Snapshot{Bootstrap: b}, xdstest.Capabilities())
	want := bootstrap.FieldErrors{
		{Field: "dynamic_resources.ads_config.grpc_services[0].envoy_grpc.cluster_name", Reason: `"control" has 2 addresses: only the first one is used`},
		{Field: "static_resources.secrets[0]", Reason: "has no name: nothing can refer to it"},
	}
	if diff := cmp.Diff(want, ignored); diff != "" || err != nil {
		t.Errorf("warned is %v (-want +got):\n%s", err, diff)
	}
}

// withLoadStats returns b with load reports to the control plane; envoy has additional JSON fields
// of envoy_grpc.
func withLoadStats(b config.Bootstrap, envoy string) config.Bootstrap {
	b.LoadStats = fmt.Appendf(nil, `{"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "control"%s}}]}`, envoy)
	return b
}
