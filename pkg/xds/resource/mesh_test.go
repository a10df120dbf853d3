package resource

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter/stream/istiostats"
	"github.com/weft-proxy/weft/pkg/filter/stream/peermetadata"
	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// meshCapabilities returns testCapabilities with Istio's filters and the node of a sidecar.
func meshCapabilities() Capabilities {
	caps := testCapabilities()
	caps.Filters = append(caps.Filters, istiostats.Factory(), peermetadata.Factory())
	caps.ConnectionFilters = append(caps.ConnectionFilters, istiostats.ConnectionFactory())
	caps.Node = Node{ID: "sidecar~a", Workload: workload.Workload{Name: "web", Namespace: "default"}}
	return caps
}

func TestNodeMetadata(t *testing.T) {
	n := &corev3.Node{}
	if err := protojson.Unmarshal([]byte(`{"id": "sidecar~10.0.0.1~web-1.default~default.svc.cluster.local", "metadata": {
		"NAME": "web-1", "NAMESPACE": "default", "WORKLOAD_NAME": "web", "CLUSTER_ID": "Kubernetes", "OWNER": "kubernetes://x", "ANNOTATIONS": {"app": "none"},
		"LABELS": {"app": "wapp", "version": "v1", "service.istio.io/canonical-name": "wservice", "service.istio.io/canonical-revision": "r1"}}}`), n); err != nil {
		t.Fatal(err)
	}
	want := Node{ID: n.GetId(), Workload: workload.Workload{
		Instance: "web-1", Name: "web", Namespace: "default", Cluster: "Kubernetes", Service: "wservice", Revision: "r1", App: "wapp", Version: "v1", Owner: "kubernetes://x",
	}}
	if got := NodeOf(n); got != want {
		t.Errorf("NodeOf = %+v, want %+v", got, want)
	}
	if got := NodeOf(nil); got != (Node{}) {
		t.Errorf("NodeOf(nil) = %+v, want the zero Node", got)
	}
}

// typedStruct packs settings as Istio does: in a message of the type outer, which names typeName.
func typedStruct(t *testing.T, outer, typeName, json string) *anypb.Any {
	t.Helper()
	s := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(json), s); err != nil {
		t.Fatal(err)
	}
	value, err := proto.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "type.googleapis.com/"+typeName)
	b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), value)
	return &anypb.Any{TypeUrl: "type.googleapis.com/" + outer, Value: b}
}

// statsMessage returns a stats.PluginConfig: no host header fallback, byte counts every 1.5 s,
// request_bytes and tcp_sent_bytes_total dropped, and one label of all metrics removed and one
// added.
func statsMessage() *anypb.Any {
	addText := func(b []byte, number protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), s)
	}
	setTrue := func(b []byte, number protowire.Number) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), 1)
	}
	b := setTrue(nil, 6)
	b = addText(b, 7, "\x08\x01\x10\x80\xca\xb5\xee\x01") // a Duration
	b = addText(b, 8, string(setTrue(addText(nil, 2, "request_bytes"), 5)))
	b = addText(b, 8, string(addText(addText(nil, 3, "source_app"), 1, "")))
	b = addText(b, 8, string(setTrue(addText(nil, 2, "tcp_sent_bytes_total"), 5)))
	return &anypb.Any{TypeUrl: "type.googleapis.com/stats.PluginConfig", Value: b}
}

func TestIstioFilters(t *testing.T) {
	node := meshCapabilities().Node
	const metadata, stats = "io.istio.http.peer_metadata.Config", "stats.PluginConfig"
	const udpa, xds = "udpa.type.v1.TypedStruct", "xds.type.v3.TypedStruct"
	for _, test := range []struct {
		name    string
		packed  *anypb.Any
		inbound bool
		want    any // nil if the filter is ignored
		ignored []string
	}{
		{name: "client sidecar", packed: typedStruct(t, udpa, metadata, `{"upstream_discovery": [{"istio_headers": {}}, {"workload_discovery": {}}], "upstream_propagation": [{"istio_headers": {"skip_external_clusters": true}}]}`),
			want: &peermetadata.Config{UpstreamDiscovery: true, UpstreamPropagation: true, SkipExternalClusters: true, Node: node.ID, Workload: node.Workload}},
		{name: "server sidecar", packed: typedStruct(t, xds, metadata, `{"downstream_discovery": [{"istio_headers": {}}], "downstream_propagation": [{"istio_headers": {}}]}`),
			want: &peermetadata.Config{DownstreamDiscovery: true, DownstreamPropagation: true, Node: node.ID, Workload: node.Workload}},
		{name: "unsupported discovery method", packed: typedStruct(t, udpa, metadata, `{"downstream_discovery": [{"workload_discovery": {}}]}`), ignored: []string{"[istio.stats]"}},
		{name: "outbound stats", packed: typedStruct(t, udpa, stats, `{"metrics": [{"dimensions": {"a": "b"}, "tags_to_remove": ["source_app"]}], "definitions": [{"name": "x"}]}`),
			want:    &istiostats.Config{Reporter: "source", Workload: node.Workload, Overrides: []istiostats.Override{{Remove: []string{"source_app"}}}},
			ignored: []string{"typed_config.definitions", "typed_config.metrics[0].dimensions"}},
		{name: "inbound stats", packed: statsMessage(), inbound: true,
			want: &istiostats.Config{Reporter: "destination", NoFallback: true, Workload: node.Workload, Overrides: []istiostats.Override{
				{Name: "request_bytes", Drop: true, Remove: []string{}}, {Remove: []string{"source_app"}},
			}},
			ignored: []string{"typed_config.metrics[1].dimensions"}},
		{name: "malformed settings", packed: &anypb.Any{TypeUrl: "type.googleapis.com/" + udpa, Value: []byte{0xff}}, ignored: []string{"[istio.stats]"}},
		{name: "other filter type", packed: typedStruct(t, udpa, "envoy.extensions.filters.http.wasm.v3.Wasm", `{}`), ignored: []string{"[istio.stats]"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &report{capabilities: meshCapabilities()}
			list := []*hcmv3.HttpFilter{
				{Name: "istio.stats", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: test.packed}},
				{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: routerFilter}}},
			}
			out := &config.Proxy{}
			fieldReader{report: r}.readHTTPFilters(list, out, &Listener{Config: &config.Listener{Ingress: test.inbound}})
			if err := r.rejection(); err != nil {
				t.Fatal(err)
			}
			var got any
			for _, f := range out.StreamFilters {
				if f.Name != mirrorFilter {
					got = f.Config
				}
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("the filter is %+v, want %+v", got, test.want)
			}
			for i := range r.ignored {
				r.ignored[i] = strings.TrimPrefix(r.ignored[i], "[0].")
				r.ignored[i] = strings.TrimPrefix(r.ignored[i], "[0]")
			}
			slices.Sort(r.ignored)
			if !slices.Equal(r.ignored, test.ignored) {
				t.Errorf("ignored fields %q, want %q", r.ignored, test.ignored)
			}
		})
	}
}

func TestIstioTCPStats(t *testing.T) {
	node := meshCapabilities().Node
	const udpa, stats = "udpa.type.v1.TypedStruct", "stats.PluginConfig"
	tcpProxy := packed(t, &tcpv3.TcpProxy{StatPrefix: "x", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "app"}})
	hcm := packed(t, &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{Name: "r"}},
		HttpFilters:    []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: routerFilter}}}},
	})
	empty := &anypb.Any{TypeUrl: "type.googleapis.com/" + stats}
	for _, test := range []struct {
		name    string
		filters []*anypb.Any // the istio.stats filters and the terminal filter
		inbound bool
		want    any // nil if the filter is ignored
		ignored []string
	}{
		{name: "outbound", filters: []*anypb.Any{empty, tcpProxy},
			want: &istiostats.ConnectionConfig{Reporter: "source", Workload: node.Workload, ReportingDuration: 5 * time.Second, Overrides: []istiostats.ConnectionOverride{}}},
		{name: "inbound", filters: []*anypb.Any{statsMessage(), tcpProxy}, inbound: true,
			want: &istiostats.ConnectionConfig{Reporter: "destination", Workload: node.Workload, ReportingDuration: 1500 * time.Millisecond, Overrides: []istiostats.ConnectionOverride{
				{Remove: []string{"source_app"}}, {Name: "tcp_sent_bytes_total", Drop: true, Remove: []string{}},
			}},
			ignored: []string{"[0].typed_config.metrics[1].dimensions"}},
		{name: "TypedStruct", filters: []*anypb.Any{typedStruct(t, udpa, stats, `{"tcp_reporting_duration": "0.5s", "definitions": [{"name": "x"}]}`), tcpProxy},
			want:    &istiostats.ConnectionConfig{Reporter: "source", Workload: node.Workload, ReportingDuration: time.Second / 2, Overrides: []istiostats.ConnectionOverride{}},
			ignored: []string{"[0].typed_config.definitions"}},
		{name: "duplicate filter", filters: []*anypb.Any{empty, empty, tcpProxy},
			want:    &istiostats.ConnectionConfig{Reporter: "source", Workload: node.Workload, ReportingDuration: 5 * time.Second, Overrides: []istiostats.ConnectionOverride{}},
			ignored: []string{"[1][istio.stats]"}},
		{name: "before an HTTP connection manager", filters: []*anypb.Any{empty, hcm}, ignored: []string{"[0][istio.stats]"}},
		{name: "other filter type", filters: []*anypb.Any{typedStruct(t, udpa, "envoy.extensions.filters.http.wasm.v3.Wasm", `{}`), tcpProxy}, ignored: []string{"[0][istio.stats]"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &report{capabilities: meshCapabilities()}
			var list []*listenerv3.Filter
			for _, packed := range test.filters {
				list = append(list, &listenerv3.Filter{Name: "istio.stats", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed}})
			}
			list[len(list)-1].Name = "last"
			out := &config.FilterChain{}
			fieldReader{report: r}.readNetworkFilters(list, out, &Listener{Config: &config.Listener{Ingress: test.inbound}})
			if err := r.rejection(); err != nil {
				t.Fatal(err)
			}
			var got any
			for _, f := range out.ConnectionFilters {
				got = f.Config
			}
			if !reflect.DeepEqual(got, test.want) || len(out.ConnectionFilters) > 1 {
				t.Errorf("the filters are %+v, the last %+v, want %+v", out.ConnectionFilters, got, test.want)
			}
			if ignored := slices.DeleteFunc(r.ignored, func(s string) bool { return strings.Contains(s, "stat_prefix") }); !slices.Equal(ignored, test.ignored) {
				t.Errorf("ignored fields %q, want %q", ignored, test.ignored)
			}
		})
	}
}

// TestIstioSidecarsExchangeMetadata verifies that the peer metadata filters of the capture have the
// settings for the direction of their listener, and that both directions occur.
func TestIstioSidecarsExchangeMetadata(t *testing.T) {
	found := map[bool]int{}
	for _, body := range capturedResources(t, "02-LDS.pb") {
		l, err := ReadListener(body, meshCapabilities())
		if err != nil {
			t.Fatal(err)
		}
		for c := range l.Config.Chains() {
			if c.Proxy == nil {
				continue
			}
			for _, f := range c.Proxy.StreamFilters {
				settings, ok := f.Config.(*peermetadata.Config)
				if !ok {
					continue
				}
				found[l.Config.Ingress]++
				if inbound := l.Config.Ingress; settings.DownstreamDiscovery != inbound || settings.DownstreamPropagation != inbound || settings.UpstreamPropagation == inbound || settings.UpstreamDiscovery == inbound || settings.Node == "" {
					t.Errorf("%s: %+v, want downstream settings: %t, upstream settings: %t", l.Config.Name, settings, inbound, !inbound)
				}
			}
		}
	}
	if found[true] == 0 || found[false] == 0 {
		t.Errorf("filters by direction: %v, want some inbound and some outbound", found)
	}
}

func TestIstioWorkloadMetadata(t *testing.T) {
	meshes := map[string]config.Mesh{}
	for _, body := range capturedResources(t, "01-CDS.pb") {
		c, err := ReadCluster(body, Capabilities{})
		if err != nil {
			t.Fatal(err)
		}
		meshes[c.Config.Name] = c.Config.Mesh
	}
	const reviews = "reviews.default.svc.cluster.local"
	for name, want := range map[string]config.Mesh{
		"outbound|9080|v1|" + reviews:        {Host: reviews, Name: reviews},
		"outbound|80||external.example.test": {Host: "external.example.test", Name: "external.example.test", External: true},
		"BlackHoleCluster":                   {},
	} {
		if got := meshes[name]; got != want {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
	for _, body := range capturedResources(t, "03-EDS.pb") {
		a, err := ReadLoadAssignment(body, Capabilities{})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range a.Endpoints {
			if w, ok := workload.Parse(h.Workload); !ok || w.Namespace != "default" || w.Cluster != "Kubernetes" {
				t.Errorf("workload of %s = %q, want one in the namespace default of cluster Kubernetes", h.Address, h.Workload)
			}
		}
	}
	if got := workloadText(&corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		istioNamespace: {Fields: map[string]*structpb.Value{"workload": structpb.NewStringValue("a;b")}},
	}}); got != "" {
		t.Errorf("workloadText of an invalid workload = %q, want none", got)
	}
}

func TestClusterServiceShortName(t *testing.T) {
	m := &corev3.Metadata{}
	if err := protojson.Unmarshal([]byte(`{"filter_metadata": {"istio": {"disable_mx": true, "services": [{"host": "a.b.c"}]}}}`), m); err != nil {
		t.Fatal(err)
	}
	if got, want := meshOf(m), (config.Mesh{Host: "a.b.c", Name: "a", NoPeerMetadata: true}); got != want {
		t.Errorf("meshOf = %+v, want %+v", got, want)
	}
}
