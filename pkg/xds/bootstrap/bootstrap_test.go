package bootstrap

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// otherClusterFields returns the fields that look like cluster names and that CheckClusters does
// not check, for the reasons below.
func otherClusterFields() []string {
	return []string{
		// checkMessage skips a ConfigSource; readGRPCService reads the sources of the bootstrap.
		"envoy.config.core.v3.ApiConfigSource.cluster_names",
		// The cluster is not known before a request, or the field is not supported.
		"envoy.config.route.v3.RouteAction.cluster_header", "envoy.config.route.v3.RouteAction.RequestMirrorPolicy.cluster_header",
		"envoy.config.route.v3.WeightedCluster.ClusterWeight.cluster_header", "envoy.config.route.v3.RouteAction.cluster_specifier_plugin",
		// These fields name the enclosing cluster, or the cluster of the node.
		"envoy.config.endpoint.v3.ClusterLoadAssignment.cluster_name", "envoy.config.core.v3.Node.cluster",
		// Weft ignores these fields.
		"envoy.config.bootstrap.v3.ClusterManager.local_cluster_name", "envoy.config.metrics.v3.StatsdSink.tcp_cluster_name",
		"envoy.config.trace.v3.DatadogConfig.collector_cluster", "envoy.config.trace.v3.LightstepConfig.collector_cluster", "envoy.config.trace.v3.ZipkinConfig.collector_cluster",
	}
}

// TestClusterFieldsAreComplete verifies that clusterFields or otherClusterFields lists every field
// that looks like a cluster name, in the Envoy configuration messages that the test binary links.
func TestClusterFieldsAreComplete(t *testing.T) {
	listed := map[protoreflect.FullName]bool{}
	for _, name := range clusterFields() {
		listed[name] = true
	}
	for _, name := range otherClusterFields() {
		listed[protoreflect.FullName(name)] = true
	}
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		d := m.Descriptor()
		pkg := string(d.ParentFile().Package())
		if !strings.HasPrefix(pkg, "envoy.config.") && !strings.HasPrefix(pkg, "envoy.extensions.") {
			return true
		}
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			looksLikeName := f.Kind() == protoreflect.StringKind && strings.Contains(string(f.Name()), "cluster") ||
				f.IsMap() && strings.Contains(string(f.Name()), "cluster") ||
				f.Name() == "name" && strings.Contains(string(d.Name()), "ClusterWeight")
			if looksLikeName && !listed[f.FullName()] && !strings.HasPrefix(string(f.FullName()), "envoy.config.endpoint.v3.ClusterStats") {
				t.Errorf("%s: neither clusterFields nor otherClusterFields lists this field", f.FullName())
			}
		}
		return true
	})
}

func TestRejectedRuntimeLayers(t *testing.T) {
	for text, want := range map[string]string{
		`{"layers": [{"name": "a"}]}`:                                                                                          "layers[0]: expected exactly one of static_layer, rtds_layer and admin_layer",
		`{"layers": [{"name": "a", "admin_layer": {}, "static_layer": {}}]}`:                                                   "layers[0]: expected exactly one of",
		`{"layers": [{"static_layer": {}}]}`:                                                                                   "layers[0].name: found \"\"",
		`{"layers": [{"name": "a", "admin_layer": {}}, {"name": "a", "admin_layer": {}}]}`:                                     "layers[1].name: found \"a\"",
		`{"layers": [{"name": "a", "disk_layer": {}}]}`:                                                                        "layered_runtime.layers[0].disk_layer: is not supported, expected one of name, static_layer, rtds_layer, admin_layer",
		`{"layers": [{"name": "a", "static_layer": {"b": null}}]}`:                                                             "layers[0].static_layer.b: expected a number",
		`{"layers": [{"name": "a", "static_layer": []}]}`:                                                                      "layers[0].static_layer: ",
		`{"layers": [{"name": "a", "rtds_layer": {"rtds_config": {"ads": {}}}}]}`:                                              "rtds_layer.name: is missing",
		`{"layers": [{"name": "a", "rtds_layer": {"name": "b", "rtds_config": {"path": "/x"}}}]}`:                              "rtds_config: expected ads",
		`{"layers": [{"name": "a", "rtds_layer": {"name": "b", "rtds_config": {"ads": {}, "initial_fetch_timeout": "-1s"}}}]}`: "initial_fetch_timeout: found",
	} {
		b := xdstest.Bootstrap("GRPC")
		b.LayeredRuntime = []byte(text)
		if _, _, err := Read(b, resource.Capabilities{}); err == nil || !strings.HasPrefix(err.Error(), "layered_runtime") || !strings.Contains(err.Error(), want) {
			t.Errorf("Read with layered_runtime %s: error %v, want one with %q", text, err, want)
		}
	}
}

func TestLoadReportServerIsStaticCluster(t *testing.T) {
	for text, want := range map[string]string{
		`{"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "control"}}]}`: "",
		`{"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "other"}}]}`:   `cluster_manager.load_stats_config.grpc_services[0].envoy_grpc.cluster_name: "other" is not a cluster of static_resources with an address`,
		`{"api_type": "DELTA_GRPC"}`: "cluster_manager.load_stats_config.api_type: DELTA_GRPC is not supported, expected GRPC",
		`{"api_type": "GRPC"}`:       "cluster_manager.load_stats_config.grpc_services: found 0 services, expected exactly one",
	} {
		b := xdstest.Bootstrap("GRPC")
		b.LoadStats = []byte(text)
		boot, _, err := Read(b, resource.Capabilities{})
		switch {
		case want == "" && (err != nil || boot.LRSCluster != "control"):
			t.Errorf("%s: bootstrap %+v, error %v; want LRSCluster control, no error", text, boot, err)
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("Read with load_stats_config %s: error %v, want %s", text, err, want)
		}
	}
}

// TestFieldErrorOfKeyWithColon verifies that a key of the file that contains ": " stays in the
// path.
func TestFieldErrorOfKeyWithColon(t *testing.T) {
	b := xdstest.Bootstrap("GRPC")
	b.LayeredRuntime = []byte(`{"layers": [{"name": "a", "static_layer": {"b: c": null}}]}`)
	_, _, err := Read(b, resource.Capabilities{})
	const want = "layered_runtime.layers[0].static_layer.b: c"
	var errs FieldErrors
	if !errors.As(err, &errs) || len(errs) != 1 || errs[0].Field != want {
		t.Errorf("Read returns the errors %+v, want one of the field %q", errs, want)
	}
}

// TestEnumNamesInAnyCase verifies that names of enum values are accepted in any case, as in Envoy:
// in fields, lists and messages in an Any.
func TestEnumNamesInAnyCase(t *testing.T) {
	static, err := ReadStatic([]byte(`{"clusters": [{"name": "a", "type": "strict_dns", "lb_policy": "Round_Robin", "common_lb_config": {},
		"health_checks": [{"timeout": "1s", "interval": "1s", "unhealthy_threshold": 1, "healthy_threshold": 1, "http_health_check": {"path": "/", "codec_client_type": "http2"}}]}]}`), resource.Capabilities{CheckRules: true})
	if err != nil {
		t.Fatal(err)
	}
	if c := static.ParsedClusters["a"].Config; c.Type != config.ClusterStrictDNS || c.HealthCheck == nil {
		t.Errorf("cluster %+v, want STRICT_DNS and a health check", c)
	}
	if _, err := ReadStatic([]byte(`{"clusters": [{"name": "a", "type": "strict_dnss"}]}`), resource.Capabilities{}); err == nil || !strings.Contains(err.Error(), `did you mean "STRICT_DNS"?`) {
		t.Errorf("error %v, want a suggestion", err)
	}
}

// TestSingleElementsWithoutList verifies that an element without a list is a list with one element,
// as in Envoy.
func TestSingleElementsWithoutList(t *testing.T) {
	static, err := ReadStatic([]byte(`{"clusters": {"name": "a", "type": "STATIC", "load_assignment": {"cluster_name": "a", "endpoints":
		{"lb_endpoints": {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}}}}}}`), resource.Capabilities{CheckRules: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := static.Targets()["a"].Address; got != "127.0.0.1:1" {
		t.Errorf("the host is %q, want 127.0.0.1:1", got)
	}
}

// TestNumberOfErrors verifies that a large file with a repeated mistake has a limited number of
// errors.
func TestNumberOfErrors(t *testing.T) {
	mistakes := strings.Repeat(`{"nam": 1},`, 20*maxErrors)
	for _, text := range []string{
		`{"listeners": [` + mistakes + `{}]}`,
		`{"listeners": [{"name": "a", "filter_chains": [` + mistakes + `{}]}]}`,
	} {
		_, err := ReadStatic([]byte(text), resource.Capabilities{})
		var errs FieldErrors
		if !errors.As(err, &errs) || len(errs) < maxErrors || len(errs) > maxErrors+10 {
			t.Errorf("%d errors, want about %d", len(errs), maxErrors)
		}
	}
}
