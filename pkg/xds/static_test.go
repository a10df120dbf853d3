package xds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/status"
)

// TestStaticResourcesWithoutControlPlane verifies that static resources are active without a
// control plane.
func TestStaticResourcesWithoutControlPlane(t *testing.T) {
	file := config.Bootstrap{StaticResources: xdstest.StaticResourcesJSON(
		[]string{xdstest.ControlPlaneJSON},
		[]string{
			xdstest.DirectResponseListenerJSON("inline", 80),
			xdstest.ListenerJSON("", 81, `{"name": "tcp", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "s", "cluster": "control"}}`, ""),
			xdstest.ListenerJSON(`"name": "dubbo", `, 82, `{"name": "dubbo", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.dubbo_proxy.v3.DubboProxy",
				"stat_prefix": "s", "route_config": [{"name": "d", "interface": "*", "routes": [{"match": {"method": {"name": {"exact": "m"}}}, "route": {"cluster": "control"}}]}]}}`, ""),
			xdstest.ListenerJSON(`"name": "secured", `, 83, fmt.Sprintf(xdstest.HTTPManagerJSON, fmt.Sprintf(xdstest.InlineRoutesJSON, xdstest.DirectResponseJSON)), ", "+xdstest.SDSTransportSocketJSON),
		},
		[]string{xdstest.SecretJSON(t, "mine")},
	)}
	s, active := newTestSourceFrom(t, file, slog.New(slog.DiscardHandler))
	var names []string
	for _, l := range active.Listeners {
		names = append(names, l.Name)
	}
	if want := []string{"127.0.0.1:81", "dubbo", "inline", "secured"}; !slices.Equal(names, want) || len(active.Clusters) != 1 {
		t.Errorf("active: listeners %v and %d clusters, want %v and 1", names, len(active.Clusters), want)
	}
	if secured := active.Listeners[3].FilterChains[0].TLS; len(secured) != 1 || secured[0].Certificate.Text == "" {
		t.Errorf("TLS of the secured listener = %+v, want one certificate", secured)
	}
	if st := s.Status(); len(st.ControlPlanes) != 0 || len(st.Warming) != 0 || !s.Ready() {
		t.Errorf("status %+v, ready %t; want no control planes, ready", st, s.Ready())
	}
	synctest.Test(t, func(t *testing.T) { // Run ends with its context
		s, _ := newTestSourceFrom(t, file, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

// TestSecretsWithoutControlPlane verifies that a static listener gets its certificate from an SDS
// cluster when there is no control plane.
func TestSecretsWithoutControlPlane(t *testing.T) {
	socketJSON := strings.Replace(xdstest.SDSTransportSocketJSON, `"name": "mine"`, `"name": "mine", "sds_config": {"api_config_source": {"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "control"}}]}}`, 1)
	s, active := newTestSourceFrom(t, config.Bootstrap{StaticResources: xdstest.StaticResourcesJSON([]string{xdstest.ControlPlaneJSON}, []string{
		xdstest.ListenerJSON(`"name": "secured", `, 83, fmt.Sprintf(xdstest.HTTPManagerJSON, fmt.Sprintf(xdstest.InlineRoutesJSON, xdstest.DirectResponseJSON)), ", "+socketJSON),
	}, nil)}, slog.New(slog.DiscardHandler))
	if len(s.channels) != 1 || len(active.Listeners) != 0 || s.Ready() {
		t.Fatalf("%d channels, %d active listeners, ready %t; want 1, 0, false", len(s.channels), len(active.Listeners), s.Ready())
	}
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondWith(t, s, xdstest.Secret("mine", testpki.New(t).Issue(testpki.Spec{})))
	if len(active.Listeners) != 1 || !s.Ready() {
		t.Errorf("%d active listeners, ready %t; want 1, true", len(active.Listeners), s.Ready())
	}
	if p := s.Status().ControlPlanes; len(p) != 1 || p[0].Serves != status.ServesSecrets || len(p[0].Types) != 1 || p[0].Types[0].Resources != 1 {
		t.Errorf("control planes in the status: %+v, want one that serves one secret", p)
	}
	if list, err := s.Dump(status.DumpOptions{Resource: "dynamic_active_secrets"}); err != nil || !strings.Contains(xdstest.CompactJSON(t, list), `"name":"mine"`) {
		t.Errorf("dump = %v, %v, want the secret", list, err)
	}
}

// TestBootstrapErrors verifies that New and MergeStatic return the same errors.
func TestBootstrapErrors(t *testing.T) {
	tests := map[string]struct {
		static, dynamic string
		want            []string
	}{
		"unknown field": {`{"clusters": [{"name": "a", "load_assignment": {"cluster_name": "a", "endpoints": [{}, {"no": 1}]}}]}`, "",
			[]string{`static_resources.clusters[0].load_assignment.endpoints[1].no: unknown field "no"`}},
		"field below a key with dots": {`{"clusters": [{"name": "a", "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "no": 1}}}]}`, "",
			[]string{`static_resources.clusters[0].typed_extension_protocol_options[envoy.extensions.upstreams.http.v3.HttpProtocolOptions].no: unknown field "no"`}},
		"value of the wrong type": {`{"listeners": [{"name": "a"}, {"name": "b", "address": {"socket_address": {"port_value": "http"}}}]}`, "",
			[]string{`static_resources.listeners[1].address.socket_address.port_value: found the string "http", expected a whole number from 0 to 4294967295`,
				"static_resources.listeners[0].address: expected socket_address or pipe", "static_resources.listeners[0].filter_chains: is empty", "static_resources.listeners[1].filter_chains: is empty"}},
		"unknown member":               {`{"endpoints": []}`, "", []string{"static_resources.endpoints: is not supported, expected one of clusters, listeners, secrets"}},
		"number instead of a list":     {`{"listeners": 5}`, "", []string{"static_resources.listeners: expected a list"}},
		"duplicate name":               {`{"clusters": [{"name": "a"}, {"name": "a"}]}`, "", []string{`static_resources.clusters[1]: duplicate name "a"`}},
		"two listeners without a name": {`{"listeners": [` + xdstest.ListenerJSON("", 80, fmt.Sprintf(xdstest.HTTPManagerJSON, xdstest.ADSRoutesJSON), "") + "," + xdstest.ListenerJSON("", 80, fmt.Sprintf(xdstest.HTTPManagerJSON, xdstest.ADSRoutesJSON), "") + `]}`, "", []string{`static_resources.listeners[1]: duplicate name "127.0.0.1:80"`}},
		"unsupported field": {`{"listeners": [{"name": "a", "address": {"pipe": {"path": "/a"}}, "udp_listener_config": {}, "filter_chains": [{}]}]}`, "",
			[]string{"static_resources.listeners[0].udp_listener_config: is not supported", "static_resources.listeners[0].filter_chains[0].filters: the chain has no terminal filter, such as http_connection_manager or tcp_proxy"}},
		"unsupported filter": {`{"listeners": [` + xdstest.ListenerJSON(`"name": "a", `, 80, `{"name": "n", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy", "stat_prefix": "s"}}`, "") + `]}`, "",
			[]string{"static_resources.listeners[0].filter_chains[0].filters[0]: n (type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy) is not supported"}},
		"routes without a control plane": {`{"listeners": [` + xdstest.HTTPListenerJSON("a", 80, xdstest.ADSRoutesJSON) + `]}`, "",
			[]string{"static_resources.listeners[0]: refers to resources of a control plane, but dynamic_resources.ads_config does not define one"}},
		"endpoints without a control plane": {`{"clusters": [{"name": "a", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}}]}`, "",
			[]string{"static_resources.clusters[0]: refers to resources of a control plane, but dynamic_resources.ads_config does not define one"}},
		"missing secret": {`{"listeners": [` + xdstest.ListenerJSON(`"name": "a", `, 80, fmt.Sprintf(xdstest.HTTPManagerJSON, fmt.Sprintf(xdstest.InlineRoutesJSON, xdstest.DirectResponseJSON)), ", "+xdstest.SDSTransportSocketJSON) + `]}`, "",
			[]string{`static_resources.listeners[0]: secret "mine" is not defined in static_resources.secrets, and there is no control plane`}},
		"several errors": {`{"clusters": [{"name": "a", "type": "EDS", "eds_cluster_config": {"eds_config": {"path": "/a"}}}], "listeners": [{"no": 1}], "secrets": [{"name": "s", "generic_secret": {}}]}`, "",
			[]string{"static_resources.secrets[0]", "static_resources.clusters[0]", "static_resources.listeners[0].no"}},
		"missing control plane": {`{"clusters": [` + xdstest.ControlPlaneJSON + `]}`, `{"ads_config": {"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "b"}}]}}`,
			[]string{`dynamic_resources.ads_config.grpc_services[0].envoy_grpc.cluster_name: "b" is not a cluster of static_resources with an address`}},
		"both spellings of a key": {`{"clusters": [` + xdstest.ControlPlaneJSON + `]}`, `{"ads_config": {}, "adsConfig": {}}`,
			[]string{"dynamic_resources.ads_config: is another spelling of adsConfig: use only one of them", "dynamic_resources.ads_config.api_type: is missing, expected GRPC or DELTA_GRPC"}},
		"both spellings of a nested key": {`{"clusters": [` + xdstest.ControlPlaneJSON + `]}`, `{"adsConfig": {"apiType": "GRPC", "api_type": "GRPC"}}`,
			[]string{`dynamic_resources.ads_config.api_type: duplicate field "api_type"`}},
		"list instead of an object": {`[]`, "", []string{"static_resources: expected an object"}},
		"files without paths": {"", `{"cds_config": {"path": ""}, "lds_config": {"path_config_source": {}}}`,
			[]string{"dynamic_resources.cds_config.path: is empty", "dynamic_resources.lds_config.path_config_source.path: is missing"}},
		"REST": {"", `{"cds_config": {"api_config_source": {"api_type": "REST"}}, "lds_config": {"api_config_source": {"api_type": "AGGREGATED_GRPC"}}}`,
			[]string{"dynamic_resources.cds_config.api_config_source.api_type: REST is not supported, expected GRPC or DELTA_GRPC", "dynamic_resources.lds_config.api_config_source.api_type: AGGREGATED_GRPC is not supported, expected GRPC or DELTA_GRPC"}},
		"server that is no static cluster": {"", `{"cds_config": {"api_config_source": {"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "b"}}]}}}`,
			[]string{`dynamic_resources.cds_config.api_config_source.grpc_services[0].envoy_grpc.cluster_name: "b" is not a cluster of static_resources with an address`}},
		"no source":                   {"", `{"cds_config": {"self": {}}}`, []string{"dynamic_resources.cds_config: expected ads, path_config_source or api_config_source"}},
		"file and ADS":                {"", `{"cds_config": {"path": "/a"}, "lds_config": {"ads": {}}}`, []string{"dynamic_resources: ads_config is missing"}},
		"ADS and file":                {"", `{"cds_config": {"ads": {}}, "lds_config": {"path": "/a"}}`, []string{"dynamic_resources: ads_config is missing"}},
		"no control plane":            {"", `{"cds_config": {"ads": {}}}`, []string{"dynamic_resources: ads_config is missing"}},
		"ads_config without api_type": {"", `{"ads_config": {}}`, []string{"dynamic_resources.ads_config.api_type: is missing, expected GRPC or DELTA_GRPC"}},
		"null resource":               {`{"clusters": [null, 5]}`, "", []string{"static_resources.clusters[0]: expected an object", "static_resources.clusters[1]: expected an object"}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			b := config.Bootstrap{StaticResources: []byte(c.static), DynamicResources: []byte(c.dynamic)}
			_, err := New(Options{Bootstrap: b, Layers: layers.New(nil), Capabilities: xdstest.Capabilities(), Log: slog.New(slog.DiscardHandler)})
			_, _, mergeErr := MergeStatic(&config.Snapshot{Bootstrap: b}, xdstest.Capabilities())
			var problems bootstrap.FieldErrors
			if !errors.As(err, &problems) || mergeErr == nil || mergeErr.Error() != err.Error() {
				t.Fatalf("New: %v; MergeStatic: %v; want the same errors", err, mergeErr)
			}
			if len(problems) != len(c.want) {
				t.Errorf("%d errors, want %d: %v", len(problems), len(c.want), problems)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %s", err, want)
				}
			}
		})
	}
}

// TestBootstrapCamelCaseKeys verifies that camelCase keys mean the same as snake_case keys, and
// that both spellings of one key are rejected. The dump redacts metadata with camelCase keys, too.
func TestBootstrapCamelCaseKeys(t *testing.T) {
	b := xdstest.LayeredBootstrap("GRPC")
	want, _, err := bootstrap.Read(b, resource.Capabilities{})
	if err != nil {
		t.Fatal(err)
	}
	b.DynamicResources = []byte(`{"adsConfig": {"apiType": "GRPC", "grpcServices": [{"envoyGrpc": {"clusterName": "control"}}]}, "cdsConfig": {"ads": {}}, "ldsConfig": {"ads": {}}}`)
	b.LayeredRuntime = []byte(`{"layers": [{"name": "file", "staticLayer": {"share": 10}}, {"name": "one", "rtdsLayer": {"name": "one", "rtdsConfig": {"ads": {}, "initialFetchTimeout": "1s"}}},
		{"name": "two", "rtdsLayer": {"name": "two", "rtdsConfig": {"ads": {}}}}, {"name": "admin", "staticLayer": null, "adminLayer": {}}]}`)
	got, _, err := bootstrap.Read(b, resource.Capabilities{})
	if err != nil {
		t.Fatal(err)
	}
	if got.ADSCluster != want.ADSCluster || got.Mode != want.Mode || got.Subscriptions != want.Subscriptions || !reflect.DeepEqual(got.Layers, want.Layers) || len(got.Layers) != 4 {
		t.Errorf("bootstrap = %+v, want %+v", got, want)
	}
	b.LayeredRuntime = []byte(`{"layers": [{"name": "file", "staticLayer": {}, "static_layer": {}}]}`)
	if _, _, err := bootstrap.Read(b, resource.Capabilities{}); err == nil || err.Error() != "layered_runtime.layers[0].static_layer: is another spelling of staticLayer: use only one of them" {
		t.Errorf("both spellings of one key: error %v, want one about static_layer", err)
	}
	b = xdstest.Bootstrap("GRPC")
	b.DynamicResources = []byte(`{"adsConfig": {"apiType": "GRPC", "grpcServices": [{"envoyGrpc": {"clusterName": "control"}, "initialMetadata": [{"key": "authorization", "value": "s3cret"}]}]}}`)
	s, _ := newTestSourceFrom(t, b, slog.New(slog.DiscardHandler))
	if dump := xdstest.CompactJSON(t, bootstrapDump(t, s)); strings.Contains(dump, "s3cret") || !strings.Contains(dump, "ads_config") {
		t.Errorf("dump = %s, want ads_config without the secret", dump)
	}
}

// bootstrapDump returns the bootstrap in the dump of s.
func bootstrapDump(t *testing.T, s *Source) []json.RawMessage {
	t.Helper()
	list, err := s.Dump(status.DumpOptions{Resource: "bootstrap"})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestMergeStaticReportsIgnoredFields verifies that MergeStatic reports ignored fields and merges
// only the static resources that need no control plane.
func TestMergeStaticReportsIgnoredFields(t *testing.T) {
	unsupportedLog := `{"name": "log", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.access_loggers.wasm.v3.WasmAccessLog", "config": {"x": 1}}}`
	b := xdstest.Bootstrap("GRPC")
	b.StaticResources = xdstest.StaticResourcesJSON([]string{xdstest.ControlPlaneJSON}, []string{
		xdstest.HTTPListenerJSON("now", 80, fmt.Sprintf(xdstest.InlineRoutesJSON, xdstest.DirectResponseJSON)+`, "access_log": [`+unsupportedLog+`]`), xdstest.HTTPListenerJSON("later", 81, xdstest.ADSRoutesJSON),
	}, nil)
	b.LayeredRuntime = []byte(`{"layers": [{"name": "a", "static_layer": {"overload": {"global_downstream_max_connections": 5}}}]}`)
	merged, ignored, err := MergeStatic(&config.Snapshot{Bootstrap: b, Clusters: []*config.Cluster{{Name: "own"}}}, xdstest.Capabilities())
	if err != nil {
		t.Fatal(err)
	}
	if len(merged.Listeners) != 1 || merged.Listeners[0].Name != "now" || len(merged.Routes) != 1 || len(merged.Clusters) != 2 {
		t.Errorf("%d listeners, %d tables and %d clusters, want 1, 1 and 2", len(merged.Listeners), len(merged.Routes), len(merged.Clusters))
	}
	const filter = "static_resources.listeners[%d].filter_chains[0].filters[0].typed_config."
	want := bootstrap.FieldErrors{
		{Field: fmt.Sprintf(filter, 0) + "stat_prefix"}, {Field: fmt.Sprintf(filter, 0) + "access_log[0][log]"}, {Field: fmt.Sprintf(filter, 1) + "stat_prefix"},
		{Field: "layered_runtime.layers[0].static_layer.overload.global_downstream_max_connections"},
	}
	if diff := cmp.Diff(want, ignored); diff != "" {
		t.Errorf("ignored (-want +got):\n%s", diff)
	}
	if _, _, err := MergeStatic(&config.Snapshot{Bootstrap: b, Listeners: []*config.Listener{{Name: "now"}}}, xdstest.Capabilities()); err == nil || err.Error() != `static_resources.listeners[0]: the file also defines the name "now"` {
		t.Errorf("listener with the name of a static one: error %v, want a name conflict", err)
	}
}

// TestControlPlaneCannotChangeStaticResources verifies that static resources can refer to resources
// of a control plane, which can neither replace nor remove them.
func TestControlPlaneCannotChangeStaticResources(t *testing.T) {
	for _, apiType := range []string{"GRPC", "DELTA_GRPC"} {
		t.Run(apiType, func(t *testing.T) {
			b := xdstest.Bootstrap(apiType)
			b.StaticResources = xdstest.StaticResourcesJSON([]string{
				xdstest.ControlPlaneJSON, `{"name": "fed", "type": "EDS", "eds_cluster_config": {"service_name": "e", "eds_config": {"ads": {}, "initial_fetch_timeout": "0s"}}}`,
			}, []string{
				xdstest.DirectResponseListenerJSON("own", 80), xdstest.HTTPListenerJSON("fed", 81, xdstest.ADSRoutesJSON),
				xdstest.ListenerJSON(`"name": "secured", `, 83, fmt.Sprintf(xdstest.HTTPManagerJSON, fmt.Sprintf(xdstest.InlineRoutesJSON, xdstest.DirectResponseJSON)), ", "+xdstest.SDSTransportSocketJSON),
			}, []string{xdstest.SecretJSON(t, "mine")})
			s, active := newTestSourceFrom(t, b, slog.New(slog.DiscardHandler))
			ch := s.channels[0]
			for url, want := range map[string][]string{resource.RouteType: {"r"}, resource.EndpointType: {"e"}, resource.SecretType: nil} {
				if _, names := ch.client.Subscription(url); !slices.Equal(names, want) {
					t.Errorf("subscribed to %s %v, want %v", url, names, want)
				}
			}
			if len(active.Listeners) != 2 || s.Ready() {
				t.Errorf("%d active listeners, ready %t; want the 2 without dependencies, false", len(active.Listeners), s.Ready())
			}
			s.handleEvent(t.Context(), event{channel: ch, opened: true})
			respondWith(t, s, xdstest.Endpoints("e", 1), xdstest.Routes("r", "x"), xdstest.Cluster("c", "e", "", 0), xdstest.Listener("l", 90, "r", "mine", 0))
			if len(active.Listeners) != 4 || len(active.Clusters) != 3 || !s.Ready() {
				t.Errorf("%d active listeners and %d clusters, ready %t; want 4, 3, true", len(active.Listeners), len(active.Clusters), s.Ready())
			}
			respondWith(t, s, xdstest.Listener("own", 99, "r", "", 0), xdstest.Cluster("fed", "others", "", 0))
			for url, name := range map[string]string{resource.ListenerType: "own", resource.ClusterType: "fed"} {
				if got := rejectReason(t, s, url, name); !strings.Contains(got, "static_resources also defines this name") {
					t.Errorf("%s %s: rejected with %q, want a conflict with static_resources", url, name, got)
				}
			}
			empty := &ads.Response{Nonce: "n", Version: "2"}
			for _, url := range []string{resource.ListenerType, resource.ClusterType} {
				removal := *empty
				removal.Type = url
				if apiType == "DELTA_GRPC" {
					removal.Removed = []string{"l", "c", "own", "fed", "secured", "control"}
				}
				s.handleEvent(t.Context(), event{channel: ch, response: &removal})
			}
			if len(active.Listeners) != 3 || len(active.Clusters) != 2 {
				t.Errorf("%d active listeners and %d clusters, want those of the file, 3 and 2", len(active.Listeners), len(active.Clusters))
			}
			respondWith(t, s, xdstest.Listener("again", 90, "r", "mine", 0))
			if len(active.Listeners) != 4 {
				t.Error("a new listener cannot use the static secret after the removal of the other listeners")
			}
		})
	}
}

// TestChangedStaticResourcesApplyImmediately verifies that SetFile applies changed static
// resources immediately, and that the previous ones stay active after an error.
func TestChangedStaticResourcesApplyImmediately(t *testing.T) {
	b := config.Bootstrap{StaticResources: xdstest.StaticResourcesJSON([]string{xdstest.ControlPlaneJSON}, []string{xdstest.DirectResponseListenerJSON("a", 80), xdstest.DirectResponseListenerJSON("b", 81)}, nil)}
	var active config.Snapshot
	var applyErr error
	s, _ := newTestSourceWith(t, b, slog.New(slog.DiscardHandler), func(o *Options) {
		o.Layers = layers.New(func(_ context.Context, d config.Delta) error {
			next := d.Next()
			if applyErr != nil && len(next.Listeners) == 1 {
				return applyErr
			}
			active = *next
			return nil
		})
	})
	previousListeners := map[string]*config.Listener{}
	for _, l := range active.Listeners {
		previousListeners[l.Name] = l
	}
	change := func(listeners ...string) error {
		return s.stack.SetFile(t.Context(), &config.Snapshot{Bootstrap: config.Bootstrap{StaticResources: xdstest.StaticResourcesJSON([]string{xdstest.ControlPlaneJSON}, listeners, nil)}})
	}
	if err := change(xdstest.DirectResponseListenerJSON("a", 80), xdstest.DirectResponseListenerJSON("b", 82), xdstest.DirectResponseListenerJSON("c", 83)); err != nil {
		t.Fatal(err)
	}
	names := func() (list []string) {
		for _, l := range active.Listeners {
			list = append(list, l.Name+" "+l.Address)
		}
		return list
	}
	if want := []string{"a 127.0.0.1:80", "b 127.0.0.1:82", "c 127.0.0.1:83"}; !slices.Equal(names(), want) {
		t.Errorf("active: %v, want %v", names(), want)
	}
	if active.Listeners[0] != previousListeners["a"] {
		t.Error("an unchanged listener was recreated")
	}
	want := names()
	if err := change(xdstest.DirectResponseListenerJSON("a", 84), xdstest.HTTPListenerJSON("b", 82, xdstest.ADSRoutesJSON)); err == nil || !slices.Equal(names(), want) {
		t.Errorf("SetFile with an invalid file: error %v, active %v; want an error, %v", err, names(), want)
	}
	applyErr = errors.New("the port is in use")
	if err := change(xdstest.DirectResponseListenerJSON("a", 85)); err == nil || !slices.Equal(names(), want) {
		t.Errorf("SetFile with a failing Apply: error %v, active %v; want an error, %v", err, names(), want)
	}
	applyErr = nil
	if err := change(); err != nil || len(names()) != 0 {
		t.Errorf("SetFile without listeners: error %v, active %v; want neither", err, names())
	}
}

// TestFileCannotReuseControlPlaneNames verifies that SetFile rejects static resources with names
// of the control plane's resources, and logs changes that take effect after a restart.
func TestFileCannotReuseControlPlaneNames(t *testing.T) {
	var log bytes.Buffer
	b := xdstest.Bootstrap("DELTA_GRPC")
	b.StaticResources = xdstest.StaticResourcesJSON([]string{xdstest.ControlPlaneJSON}, []string{xdstest.DirectResponseListenerJSON("own", 80)}, nil)
	s, active := newTestSourceFrom(t, b, slog.New(slog.NewTextHandler(&log, nil)))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondWith(t, s, xdstest.Cluster("c", "e", "", 0), xdstest.Listener("l", 90, "r", "", 0), xdstest.Endpoints("e", 1), xdstest.Routes("r", "x"))
	change := func(clusters, listeners []string) error {
		next := b
		next.StaticResources = xdstest.StaticResourcesJSON(clusters, listeners, nil)
		return s.stack.SetFile(t.Context(), &config.Snapshot{Bootstrap: next})
	}
	for want, err := range map[string]error{
		`static_resources.listeners[1]: the control plane also defines the name "l"`: change([]string{xdstest.ControlPlaneJSON}, []string{xdstest.DirectResponseListenerJSON("own", 81), xdstest.DirectResponseListenerJSON("l", 90)}),
		`static_resources.clusters[1]: the control plane also defines the name "c"`:  change([]string{xdstest.ControlPlaneJSON, `{"name": "c"}`}, nil),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("SetFile: %v, want %s", err, want)
		}
	}
	if len(active.Listeners) != 2 || len(active.Clusters) != 2 || active.Listeners[1].Address != "127.0.0.1:80" {
		t.Errorf("active: %+v, want the previous configuration", active)
	}
	if strings.Contains(log.String(), "restart") {
		t.Errorf("log %s, want no line about a restart", &log)
	}
	if err := change([]string{strings.Replace(xdstest.ControlPlaneJSON, `"port_value": 1`, `"port_value": 2`, 1)}, []string{xdstest.DirectResponseListenerJSON("own", 80)}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "the address or TLS of a control plane changed: restart Weft") {
		t.Errorf("log %s, want a line about the changed address of the control plane", &log)
	}
}

// TestStaticListenerInitialFetchTimeout verifies that a static listener waits for its routes no
// longer than initial_fetch_timeout.
func TestStaticListenerInitialFetchTimeout(t *testing.T) {
	b := xdstest.Bootstrap("GRPC")
	b.DynamicResources = []byte(regexp.MustCompile(`,\s*"cds_config".*`).ReplaceAllString(string(b.DynamicResources), "}"))
	b.StaticResources = xdstest.StaticResourcesJSON([]string{xdstest.ControlPlaneJSON}, []string{xdstest.HTTPListenerJSON("fed", 81, strings.Replace(xdstest.ADSRoutesJSON, `"0s"`, `"3s"`, 1))}, nil)
	s, active := newTestSourceFrom(t, b, slog.New(slog.DiscardHandler))
	if len(active.Listeners) != 0 || s.Ready() {
		t.Fatal("the listener does not wait for its routes")
	}
	s.state.Checkpoint()
	if _, next := s.state.Reconcile(time.Now().Add(4 * time.Second)); !next.IsZero() || !s.Ready() {
		t.Errorf("the listener waits until %v, ready %t; want no wait, ready", next, s.Ready())
	}
}

// TestStaticResourcesInDumpAndCSDS verifies that the dump and CSDS report static resources, and
// that the dump has no private keys.
func TestStaticResourcesInDumpAndCSDS(t *testing.T) {
	s, _ := newTestSourceFrom(t, config.Bootstrap{StaticResources: xdstest.StaticResourcesJSON([]string{xdstest.ControlPlaneJSON}, []string{xdstest.DirectResponseListenerJSON("a", 80)}, []string{xdstest.SecretJSON(t, "mine")})}, slog.New(slog.DiscardHandler))
	for part, want := range map[string]string{
		"static_listeners": `"name":"a"`, "static_clusters": `"name":"control"`, "static_secrets": `"name":"mine"`, "bootstrap": `"listeners"`,
	} {
		list, err := s.Dump(status.DumpOptions{Resource: part})
		if err != nil {
			t.Fatal(err)
		}
		text := xdstest.CompactJSON(t, list)
		if !strings.Contains(text, want) || strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("%s: %s, want %s without private keys", part, text, want)
		}
	}
	static := 0
	for _, r := range s.statusSnapshot().ClientConfig(true).GetGenericXdsConfigs() {
		if r.GetIsStaticResource() && r.GetXdsConfig() != nil {
			static++
		}
	}
	if static != 3 {
		t.Errorf("CSDS reports %d static resources, want 3", static)
	}
}

// FuzzMergeStatic verifies that MergeStatic returns either a snapshot or FieldErrors.
func FuzzMergeStatic(f *testing.F) {
	f.Add(xdstest.StaticResourcesJSON([]string{xdstest.ControlPlaneJSON}, []string{xdstest.DirectResponseListenerJSON("a", 80)}, nil))
	f.Add(xdstest.StaticResourcesJSON([]string{xdstest.ControlPlaneJSON}, []string{xdstest.HTTPListenerJSON("b", 81, xdstest.ADSRoutesJSON)}, nil))
	f.Add([]byte(`{"listeners": [{"name": "a", "no": 1}], "clusters": {}, "secrets": [{"name": "s"}]}`))
	f.Add([]byte(`{"clusters": [{"typed_extension_protocol_options": {"a": {"@type": "x/y", "z": [1]}}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		merged, _, err := MergeStatic(&config.Snapshot{Bootstrap: config.Bootstrap{StaticResources: text}}, xdstest.Capabilities())
		var problems bootstrap.FieldErrors
		if (merged == nil) == (err == nil) || err != nil && !errors.As(err, &problems) {
			t.Errorf("MergeStatic = %v, %v, want a snapshot or FieldErrors", merged, err)
		}
	})
}
