package resource

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	dnsclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	gzipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/gzip/compressor/v3"
	compressorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/compressor/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	dubbov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/dubbo_proxy/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// fieldsPage documents how Weft handles each field of the API messages.
const fieldsPage = "../../../docs/xds-fields.md"

// apiMessage is a message of the API, its path in a resource, and a function that reads it.
type apiMessage struct {
	message proto.Message // with its required fields
	path    string        // path of the message in the resource
	read    func(m proto.Message) (ignored []string, err error)
}

// apiMessages returns the messages with which the page begins, in the order of the page.
func apiMessages(t *testing.T) []apiMessage {
	t.Helper()
	listener := func(m *listenerv3.Listener) ([]string, error) {
		l, err := ReadListener(marshaled(t, m), testCapabilities())
		return l.Ignored, err
	}
	chain := func(f proto.Message) *listenerv3.FilterChain {
		return &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{Name: "f", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, f)}}}}
	}
	listenerOf := func(chains ...*listenerv3.FilterChain) *listenerv3.Listener {
		return &listenerv3.Listener{Name: "l", Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/l"}}}, FilterChains: chains}
	}
	hcm := func(change func(m *hcmv3.HttpConnectionManager)) *listenerv3.FilterChain {
		m := &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "r"}}}
		change(m)
		return chain(m)
	}
	const filter = "filter_chains[0].filters[0].typed_config"
	messages := []apiMessage{
		{listenerOf(chain(&tcpv3.TcpProxy{})), "", func(m proto.Message) ([]string, error) { return listener(m.(*listenerv3.Listener)) }},
		{chain(&tcpv3.TcpProxy{}), "filter_chains[0]", func(m proto.Message) ([]string, error) { return listener(listenerOf(m.(*listenerv3.FilterChain))) }},
		{&listenerv3.FilterChainMatch{}, "filter_chains[0].filter_chain_match", func(m proto.Message) ([]string, error) {
			c := chain(&tcpv3.TcpProxy{})
			c.FilterChainMatch = m.(*listenerv3.FilterChainMatch)
			return listener(listenerOf(c))
		}},
		{&hcmv3.HttpConnectionManager{}, filter, func(m proto.Message) ([]string, error) { return listener(listenerOf(chain(m))) }},
		{&corev3.HttpProtocolOptions{}, filter + ".common_http_protocol_options", func(m proto.Message) ([]string, error) {
			return listener(listenerOf(hcm(func(h *hcmv3.HttpConnectionManager) { h.CommonHttpProtocolOptions = m.(*corev3.HttpProtocolOptions) })))
		}},
		{&corev3.Http1ProtocolOptions{}, filter + ".http_protocol_options", func(m proto.Message) ([]string, error) {
			return listener(listenerOf(hcm(func(h *hcmv3.HttpConnectionManager) { h.HttpProtocolOptions = m.(*corev3.Http1ProtocolOptions) })))
		}},
		{&corev3.Http2ProtocolOptions{}, filter + ".http2_protocol_options", func(m proto.Message) ([]string, error) {
			return listener(listenerOf(hcm(func(h *hcmv3.HttpConnectionManager) { h.Http2ProtocolOptions = m.(*corev3.Http2ProtocolOptions) })))
		}},
		{&hcmv3.HttpConnectionManager_UpgradeConfig{UpgradeType: "websocket"}, filter + ".upgrade_configs[0]", func(m proto.Message) ([]string, error) {
			return listener(listenerOf(hcm(func(h *hcmv3.HttpConnectionManager) {
				h.UpgradeConfigs = []*hcmv3.HttpConnectionManager_UpgradeConfig{m.(*hcmv3.HttpConnectionManager_UpgradeConfig)}
			})))
		}},
		{&hcmv3.HttpFilter{Name: "f"}, filter + ".http_filters[0]", func(m proto.Message) ([]string, error) {
			return listener(listenerOf(hcm(func(h *hcmv3.HttpConnectionManager) { h.HttpFilters = []*hcmv3.HttpFilter{m.(*hcmv3.HttpFilter)} })))
		}},
		{&corev3.ExtensionConfigSource{}, filter + ".http_filters[0].config_discovery", func(m proto.Message) ([]string, error) {
			return listener(listenerOf(hcm(func(h *hcmv3.HttpConnectionManager) {
				h.HttpFilters = []*hcmv3.HttpFilter{{Name: "f", ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: m.(*corev3.ExtensionConfigSource)}}}
			})))
		}},
		{&tlsv3.DownstreamTlsContext{}, "filter_chains[0].transport_socket.typed_config", func(m proto.Message) ([]string, error) {
			c := chain(&tcpv3.TcpProxy{})
			c.TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(t, m)}}
			return listener(listenerOf(c))
		}},
		{&routerv3.Router{}, filter + ".http_filters[0].typed_config", func(m proto.Message) ([]string, error) {
			return listener(listenerOf(hcm(func(h *hcmv3.HttpConnectionManager) {
				h.HttpFilters = []*hcmv3.HttpFilter{{Name: "r", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, m)}}}
			})))
		}},
		listenerFilterMessage(t, &tlsinspectorv3.TlsInspector{}), listenerFilterMessage(t, &httpinspectorv3.HttpInspector{}),
		listenerFilterMessage(t, &originaldstv3.OriginalDst{}), listenerFilterMessage(t, &proxyprotocolv3.ProxyProtocol{}),
		{&tcpv3.TcpProxy{}, filter, func(m proto.Message) ([]string, error) { return listener(listenerOf(chain(m))) }},
		{&dubbov3.DubboProxy{}, filter, func(m proto.Message) ([]string, error) { return listener(listenerOf(chain(m))) }},
	}
	return slices.Concat(messages, routeMessages(t), clusterMessages(t))
}

// httpFilterMessages returns the settings of the supported HTTP filters.
func httpFilterMessages(t *testing.T) (out []apiMessage) {
	t.Helper()
	for i := range filterMappings {
		for _, m := range filterMappings[i].messages {
			out = append(out, apiMessage{withRequiredFields(t, m), "typed_config", func(m proto.Message) ([]string, error) {
				e, err := ReadExtension(marshaled(t, &corev3.TypedExtensionConfig{Name: "f", TypedConfig: packed(t, m)}), allCapabilities())
				return e.Ignored, err
			}})
		}
	}
	return out
}

// withRequiredFields returns m with the extension that a compressor requires.
func withRequiredFields(t *testing.T, m proto.Message) proto.Message {
	t.Helper()
	if _, ok := m.(*compressorv3.Compressor); ok {
		return &compressorv3.Compressor{CompressorLibrary: &corev3.TypedExtensionConfig{Name: "gzip", TypedConfig: packed(t, &gzipv3.Gzip{})}}
	}
	return m
}

// listenerFilterMessage returns the settings of a listener filter.
func listenerFilterMessage(t *testing.T, m proto.Message) apiMessage {
	t.Helper()
	return apiMessage{m, "listener_filters[0].typed_config", func(m proto.Message) ([]string, error) {
		l, err := ReadListener(marshaled(t, &listenerv3.Listener{Name: "l", ListenerFilters: []*listenerv3.ListenerFilter{
			{Name: "f", ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: packed(t, m)}},
		}}), testCapabilities())
		return l.Ignored, err
	}}
}

func routeMessages(t *testing.T) []apiMessage {
	t.Helper()
	table := func(m *routev3.RouteConfiguration) ([]string, error) {
		r, err := ReadRoutes(marshaled(t, m), testCapabilities())
		return r.Ignored, err
	}
	host := func(v *routev3.VirtualHost) ([]string, error) {
		return table(&routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{v}})
	}
	route := func(r *routev3.Route) ([]string, error) {
		return host(&routev3.VirtualHost{Name: "v", Domains: []string{"*"}, Routes: []*routev3.Route{r}})
	}
	forward := func(a *routev3.RouteAction) ([]string, error) {
		return route(&routev3.Route{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}, Action: &routev3.Route_Route{Route: a}})
	}
	clusterC := &routev3.RouteAction_Cluster{Cluster: "c"}
	const action = "virtual_hosts[0].routes[0].route"
	return []apiMessage{
		{&routev3.RouteConfiguration{Name: "r"}, "", func(m proto.Message) ([]string, error) { return table(m.(*routev3.RouteConfiguration)) }},
		{&routev3.VirtualHost{Name: "v", Domains: []string{"*"}}, "virtual_hosts[0]", func(m proto.Message) ([]string, error) { return host(m.(*routev3.VirtualHost)) }},
		{&routev3.Route{}, "virtual_hosts[0].routes[0]", func(m proto.Message) ([]string, error) { return route(m.(*routev3.Route)) }},
		{&routev3.RouteMatch{}, "virtual_hosts[0].routes[0].match", func(m proto.Message) ([]string, error) {
			return route(&routev3.Route{Match: m.(*routev3.RouteMatch), Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: clusterC}}})
		}},
		{&routev3.RouteAction{ClusterSpecifier: clusterC}, action, func(m proto.Message) ([]string, error) { return forward(m.(*routev3.RouteAction)) }},
		{&routev3.WeightedCluster{}, action + ".weighted_clusters", func(m proto.Message) ([]string, error) {
			return forward(&routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: m.(*routev3.WeightedCluster)}})
		}},
		{&routev3.WeightedCluster_ClusterWeight{Name: "c"}, action + ".weighted_clusters.clusters[0]", func(m proto.Message) ([]string, error) {
			return forward(&routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_WeightedClusters{
				WeightedClusters: &routev3.WeightedCluster{Clusters: []*routev3.WeightedCluster_ClusterWeight{m.(*routev3.WeightedCluster_ClusterWeight)}},
			}})
		}},
		{&routev3.RetryPolicy{}, action + ".retry_policy", func(m proto.Message) ([]string, error) {
			return forward(&routev3.RouteAction{ClusterSpecifier: clusterC, RetryPolicy: m.(*routev3.RetryPolicy)})
		}},
		{&routev3.HedgePolicy{}, action + ".hedge_policy", func(m proto.Message) ([]string, error) {
			return forward(&routev3.RouteAction{ClusterSpecifier: clusterC, HedgePolicy: m.(*routev3.HedgePolicy)})
		}},
		{&routev3.RouteAction_RequestMirrorPolicy{Cluster: "m"}, action + ".request_mirror_policies[0]", func(m proto.Message) ([]string, error) {
			return forward(&routev3.RouteAction{ClusterSpecifier: clusterC, RequestMirrorPolicies: []*routev3.RouteAction_RequestMirrorPolicy{m.(*routev3.RouteAction_RequestMirrorPolicy)}})
		}},
		{&routev3.DirectResponseAction{Status: 200}, "virtual_hosts[0].routes[0].direct_response", func(m proto.Message) ([]string, error) {
			return route(&routev3.Route{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}, Action: &routev3.Route_DirectResponse{
				DirectResponse: m.(*routev3.DirectResponseAction),
			}})
		}},
	}
}

func clusterMessages(t *testing.T) []apiMessage {
	t.Helper()
	cluster := func(m *clusterv3.Cluster) ([]string, error) {
		c, err := ReadCluster(marshaled(t, m), Capabilities{})
		return c.Ignored, err
	}
	hosts := func(m *endpointv3.ClusterLoadAssignment) ([]string, error) {
		a, err := ReadLoadAssignment(marshaled(t, m), Capabilities{})
		return a.Ignored, err
	}
	return []apiMessage{
		{&clusterv3.Cluster{Name: "c"}, "", func(m proto.Message) ([]string, error) { return cluster(m.(*clusterv3.Cluster)) }},
		{&dnsclusterv3.DnsCluster{}, "cluster_type.typed_config", func(m proto.Message) ([]string, error) {
			custom := &clusterv3.Cluster_CustomClusterType{Name: clusterTypeDNS, TypedConfig: packed(t, m)}
			return cluster(&clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: custom}})
		}},
		{&clusterv3.OutlierDetection{}, "outlier_detection", func(m proto.Message) ([]string, error) {
			return cluster(&clusterv3.Cluster{Name: "c", OutlierDetection: m.(*clusterv3.OutlierDetection)})
		}},
		{&clusterv3.CircuitBreakers_Thresholds{}, "circuit_breakers.thresholds[0]", func(m proto.Message) ([]string, error) {
			return cluster(&clusterv3.Cluster{Name: "c", CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{m.(*clusterv3.CircuitBreakers_Thresholds)}}})
		}},
		{&corev3.HealthCheck{}, "health_checks[0]", func(m proto.Message) ([]string, error) {
			return cluster(&clusterv3.Cluster{Name: "c", HealthChecks: []*corev3.HealthCheck{m.(*corev3.HealthCheck)}})
		}},
		{&corev3.HealthCheck_TcpHealthCheck{Receive: []*corev3.HealthCheck_Payload{{Payload: &corev3.HealthCheck_Payload_Text{Text: "50"}}}}, "health_checks[0].tcp_health_check", func(m proto.Message) ([]string, error) {
			check := &corev3.HealthCheck{HealthChecker: &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: m.(*corev3.HealthCheck_TcpHealthCheck)}}
			return cluster(&clusterv3.Cluster{Name: "c", HealthChecks: []*corev3.HealthCheck{check}})
		}},
		{&corev3.BindConfig{}, "upstream_bind_config", func(m proto.Message) ([]string, error) {
			return cluster(&clusterv3.Cluster{Name: "c", UpstreamBindConfig: m.(*corev3.BindConfig)})
		}},
		{&corev3.UpstreamHttpProtocolOptions{}, "typed_extension_protocol_options[" + protocolOptions + "].upstream_http_protocol_options", func(m proto.Message) ([]string, error) {
			o := &httpv3.HttpProtocolOptions{
				UpstreamHttpProtocolOptions: m.(*corev3.UpstreamHttpProtocolOptions),
				UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
					ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{},
				}},
			}
			return cluster(&clusterv3.Cluster{Name: "c", TypedExtensionProtocolOptions: map[string]*anypb.Any{protocolOptions: packed(t, o)}})
		}},
		{&tlsv3.UpstreamTlsContext{}, "transport_socket.typed_config", func(m proto.Message) ([]string, error) {
			return cluster(&clusterv3.Cluster{Name: "c", TransportSocket: &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(t, m)}}})
		}},
		{&tlsv3.CommonTlsContext{}, "transport_socket.typed_config.common_tls_context", func(m proto.Message) ([]string, error) {
			return cluster(&clusterv3.Cluster{Name: "c", TransportSocket: &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{
				TypedConfig: packed(t, &tlsv3.UpstreamTlsContext{CommonTlsContext: m.(*tlsv3.CommonTlsContext)}),
			}}})
		}},
		{&endpointv3.ClusterLoadAssignment{ClusterName: "c"}, "", func(m proto.Message) ([]string, error) { return hosts(m.(*endpointv3.ClusterLoadAssignment)) }},
		{&endpointv3.LocalityLbEndpoints{}, "endpoints[0]", func(m proto.Message) ([]string, error) {
			return hosts(&endpointv3.ClusterLoadAssignment{ClusterName: "c", Endpoints: []*endpointv3.LocalityLbEndpoints{m.(*endpointv3.LocalityLbEndpoints)}})
		}},
	}
}

func marshaled(t *testing.T, m proto.Message) []byte {
	t.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// fillField sets a field to a value that is not its default.
func fillField(m protoreflect.Message, f protoreflect.FieldDescriptor) {
	value := func(f protoreflect.FieldDescriptor, newMessage func() protoreflect.Value) protoreflect.Value {
		switch f.Kind() {
		case protoreflect.BoolKind:
			return protoreflect.ValueOfBool(true)
		case protoreflect.StringKind:
			return protoreflect.ValueOfString("x")
		case protoreflect.BytesKind:
			return protoreflect.ValueOfBytes([]byte("x"))
		case protoreflect.EnumKind:
			return protoreflect.ValueOfEnum(f.Enum().Values().Get(f.Enum().Values().Len() - 1).Number())
		case protoreflect.Uint32Kind:
			return protoreflect.ValueOfUint32(1)
		case protoreflect.Int32Kind:
			return protoreflect.ValueOfInt32(1)
		case protoreflect.Int64Kind:
			return protoreflect.ValueOfInt64(1)
		case protoreflect.Uint64Kind:
			return protoreflect.ValueOfUint64(1)
		case protoreflect.DoubleKind:
			return protoreflect.ValueOfFloat64(1)
		case protoreflect.MessageKind:
			return newMessage()
		default:
			panic(fmt.Sprintf("fillField has no value for the kind %v of %v", f.Kind(), f.FullName()))
		}
	}
	switch {
	case f.IsList():
		list := m.Mutable(f).List()
		list.Append(value(f, list.NewElement))
	case f.IsMap():
		entries := m.Mutable(f).Map()
		entries.Set(value(f.MapKey(), nil).MapKey(), value(f.MapValue(), entries.NewValue))
	default:
		m.Set(f, value(f, func() protoreflect.Value { return m.NewField(f) }))
	}
}

// unreportedFields returns fields that Weft ignores without a report, because control planes often
// set them.
func unreportedFields() []string {
	return []string{
		"envoy.config.route.v3.RouteConfiguration.metadata",
		"envoy.config.route.v3.VirtualHost.metadata", "envoy.config.route.v3.Route.metadata", "envoy.config.route.v3.Route.decorator",
		"envoy.extensions.filters.http.fault.v3.HTTPFault.disable_downstream_cluster_stats",
	}
}

// support returns how Weft handles a field: "supported", unless the field is reported as ignored or
// is rejected whatever its value is.
func (m apiMessage) support(f protoreflect.FieldDescriptor) string {
	if support, ok := manualSupport()[f.FullName()]; ok {
		return support
	}
	filled := proto.Clone(m.message)
	fillField(filled.ProtoReflect(), f)
	ignored, err := m.read(filled)
	path := strings.TrimPrefix(m.path+"."+string(f.Name()), ".")
	var rejected RejectedError
	errors.As(err, &rejected)
	switch {
	case slices.ContainsFunc(rejected, func(r Rejection) bool {
		return r.Path == path && (strings.HasPrefix(r.Reason, unsupported) || strings.HasPrefix(r.Reason, "unknown key ") || strings.HasSuffix(r.Reason, " is not supported yet"))
	}):
		return "**rejected**"
	case slices.Contains(ignored, path):
		return "ignored"
	case slices.Contains(unreportedFields(), string(f.FullName())):
		return "ignored, not reported"
	}
	return "supported"
}

// staticOnly is the support of a field that the readers ignore without a report, and that package
// bootstrap evaluates in static resources.
const staticOnly = "supported in `static_resources`; otherwise ignored, not reported"

// byMember is the support of a field that has no effect itself. Weft ignores or rejects the fields
// of its message.
const byMember = "ignored or rejected, depending on the fields of its message, which has a table"

// nestedHeading precedes the nested messages.
const nestedHeading = `
# Nested messages

These messages are fields of the messages above. If several messages contain a message, its table describes
the first use; in other messages the support may differ. If Weft does not support a member of a oneof, it
rejects or ignores the message that contains the member.
`

// TestEveryFieldIsDocumented verifies that the page documents every field of its messages. A new
// field in the API makes the test fail, so that a maintainer decides how Weft handles the field: by
// default Weft ignores it, which is wrong for a restriction.
func TestEveryFieldIsDocumented(t *testing.T) {
	var out strings.Builder
	out.WriteString(`# Fields of xDS

This page lists every field of the most common xDS messages, and how Weft handles it.
[The rule](xds.md#what-weft-supports) decides between *ignored* and **rejected**:

- *supported*: the field takes effect. Weft may reject some of its values; the NACK has the reason.
- *ignored*: the field has no effect. ` + "`/config_dump`" + ` lists it, unless it is *not reported*.
- **rejected**: Weft rejects a resource with the field, whatever its value is.

` + "Run `go test ./pkg/xds/resource -run EveryFieldIsDocumented -update` to write this page." + `
`)
	top := apiMessages(t)
	outer := slices.Concat(top, httpFilterMessages(t))
	for i, m := range slices.Concat(outer, nestedMessages(top)) {
		if i == len(outer) {
			out.WriteString(nestedHeading)
		}
		d := m.message.ProtoReflect().Descriptor()
		bySupport := map[string][]string{}
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			support := m.support(f)
			bySupport[support] = append(bySupport[support], "`"+string(f.Name())+"`")
		}
		if d.Fields().Len() == 0 {
			continue
		}
		fmt.Fprintf(&out, "\n## %s\n\n| fields | support |\n|---|---|\n", strings.TrimPrefix(string(d.FullName()), "envoy."))
		for _, support := range []string{"supported", staticOnly, byMember, "ignored", "ignored, not reported", "**rejected** in listeners", "**rejected**"} {
			if names := bySupport[support]; len(names) > 0 {
				slices.Sort(names)
				fmt.Fprintf(&out, "| %s | %s |\n", strings.Join(names, ", "), support)
			}
		}
	}
	if *update {
		if err := os.WriteFile(fieldsPage, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	page, err := os.ReadFile(fieldsPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != out.String() {
		t.Errorf("%s differs from the behavior of the readers. Its text must be:\n%s", fieldsPage, out.String())
	}
}

func TestUpgradeTypes(t *testing.T) {
	for text, want := range map[string]string{
		`upgrade_type: "websocket"`:                         "",
		`upgrade_type: "WebSocket" enabled: {value: true}`:  "",
		`upgrade_type: "websocket" enabled: {value: false}`: "",
		`upgrade_type: "CONNECT"`:                           "",
		`enabled: {value: true}`:                            "rejected [0].upgrade_type: is required",
		`upgrade_type: "connect-udp"`:                       "rejected [0].upgrade_type: connect-udp is not supported",
		`upgrade_type: "websocket" filters: {name: "f"}`:    "rejected [0].filters: is not supported",
	} {
		u := &hcmv3.HttpConnectionManager_UpgradeConfig{}
		if err := prototext.Unmarshal([]byte(text), u); err != nil {
			t.Fatal(err)
		}
		r := &report{}
		rules := fieldReader{report: r}.readUpgrades([]*hcmv3.HttpConnectionManager_UpgradeConfig{u})
		got := strings.Join(r.ignored, " ")
		if got != "" {
			got = "ignored " + got
		}
		if err := r.rejection(); err != nil {
			got += "rejected " + err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		if denied := rules.Rules[0].Denied; denied != (u.GetEnabled() != nil && !u.GetEnabled().GetValue()) || rules.Rules[0].Protocol != lower(u.GetUpgradeType()) {
			t.Errorf("%s: rule %+v", text, rules.Rules[0])
		}
	}
}
