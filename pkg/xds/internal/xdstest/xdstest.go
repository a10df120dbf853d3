// Package xdstest builds the xDS resources and bootstraps that the tests of pkg/xds use.
package xdstest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	csrfv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/csrf/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	dubbov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/dubbo_proxy/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// Resource is a resource as a control plane sends it. In tests a nil body means removal.
type Resource struct {
	URL, Name string
	Body      []byte
}

// PackAny packs m with its type URL.
func PackAny(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// ADSSource returns an ADS config source. wait is its initial_fetch_timeout; 0 means no timeout.
func ADSSource(wait time.Duration) *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   durationpb.New(wait),
	}
}

// Cluster returns a cluster with hosts from the EDS resource endpoints. If secret is not empty, the
// cluster uses TLS with that secret. wait is the initial_fetch_timeout of endpoints.
func Cluster(name, endpoints, secret string, wait time.Duration) Resource {
	m := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{ServiceName: endpoints, EdsConfig: ADSSource(wait)},
	}
	if secret != "" {
		m.TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{
			TypedConfig: PackAny(&tlsv3.UpstreamTlsContext{CommonTlsContext: SDSContext(secret, ADSSource(0))}),
		}}
	}
	return Resource{resource.ClusterType, name, Marshal(m)}
}

// SDSContext returns a TLS context with the secret of that name from a source.
func SDSContext(name string, from *corev3.ConfigSource) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: name, SdsConfig: from}}}
}

// Address returns a port of 127.0.0.1.
func Address(port int) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{
		SocketAddress: &corev3.SocketAddress{Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}}, //nolint:gosec // a port
	}}
}

// Endpoints returns endpoints at ports of 127.0.0.1.
func Endpoints(name string, ports ...int) Resource {
	l := &endpointv3.LocalityLbEndpoints{}
	for _, p := range ports {
		l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: Address(p)}},
		})
	}
	return Resource{resource.EndpointType, name, Marshal(&endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{l}})}
}

// Listener returns a listener with routes from the RDS resource table. If secret is not empty, the
// listener uses TLS with that secret. wait is the initial_fetch_timeout of table.
func Listener(name string, port int, table, secret string, wait time.Duration) Resource {
	chain := &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{
		Name: "http",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: PackAny(&hcmv3.HttpConnectionManager{
			StatPrefix:     name,
			RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: table, ConfigSource: ADSSource(wait)}},
			HttpFilters:    []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: PackAny(&routerv3.Router{})}}},
		})},
	}}}
	if secret != "" {
		chain.TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{
			TypedConfig: PackAny(&tlsv3.DownstreamTlsContext{CommonTlsContext: SDSContext(secret, ADSSource(0))}),
		}}
	}
	return Resource{resource.ListenerType, name, Marshal(&listenerv3.Listener{Name: name, Address: Address(port), FilterChains: []*listenerv3.FilterChain{chain}})}
}

// Routes returns a route table with a direct response, whose body is text, for every request.
func Routes(name, text string) Resource {
	return Resource{resource.RouteType, name, Marshal(&routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{
				Status: 200, Body: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}},
			}},
		}},
	}}})}
}

// Inline returns a data source with b.
func Inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}

// Secret returns a secret with the certificate and key of l.
func Secret(name string, l testpki.Leaf) Resource {
	return Resource{resource.SecretType, name, Marshal(&tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{
		TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: Inline(l.Cert), PrivateKey: Inline(l.Key)},
	}})}
}

// Random returns a random resource. Its body may be nil, which means removal, unless it is a
// secret.
func Random(r *rand.Rand, secrets []Resource) Resource {
	name := func(prefix string, n int) string { return fmt.Sprint(prefix, r.IntN(n)) }
	maybe := func(s string) string {
		if r.IntN(3) == 0 {
			return s
		}
		return ""
	}
	var res Resource
	switch r.IntN(8) {
	case 0:
		res = Cluster(name("c", 3), name("e", 3), maybe(name("s", 3)), time.Duration(r.IntN(2))*time.Hour)
	case 1:
		res = Endpoints(name("e", 3), 1+r.IntN(9))
	case 2:
		res = Listener(name("l", 3), 80+r.IntN(3), name("r", 3), maybe(name("s", 3)), time.Duration(r.IntN(2))*time.Hour)
	case 3:
		res = Routes(name("r", 3), name("text", 5))
	case 4:
		res = Extension(name("x", 3), name("host", 5))
	case 6:
		if res = DubboRoutes(name("d", 2), name("c", 3)); r.IntN(2) == 0 {
			res = DubboListener(name("l", 3), name("d", 2), time.Duration(r.IntN(2))*time.Hour)
		}
	case 5:
		res = FilteredListener(name("l", 3), name("r", 3), time.Duration(r.IntN(2))*time.Hour, name("x", 3), name("x", 3))
	default:
		res = secrets[r.IntN(len(secrets))]
	}
	if r.IntN(4) == 0 && res.URL != resource.SecretType {
		res.Body = nil
	}
	return res
}

// SecuredListener returns a listener whose certificate is a secret from an SDS cluster.
func SecuredListener(name, secret, cluster string) Resource {
	from := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
		ApiType: corev3.ApiConfigSource_GRPC,
		GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster},
		}}},
	}}}
	m := &listenerv3.Listener{}
	if err := proto.Unmarshal(Listener(name, 443, "r", "", 0).Body, m); err != nil {
		panic(err)
	}
	m.FilterChains[0].TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{
		TypedConfig: PackAny(&tlsv3.DownstreamTlsContext{CommonTlsContext: SDSContext(secret, from)}),
	}}
	return Resource{resource.ListenerType, name, Marshal(m)}
}

// Marshal returns m serialized.
func Marshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// CSRFSettings holds the settings of the csrf filter that the tests read.
type CSRFSettings struct {
	Origins []struct {
		Exact string `key:"exact"`
	} `key:"additional_origins"`
}

// Capabilities returns the capabilities that the resources of the tests need.
func Capabilities() resource.Capabilities {
	return resource.Capabilities{Filters: []filter.StreamFilterFactory{
		{Name: "cors", Config: func() any { return &struct{}{} }},
		{Name: "csrf", Config: func() any { return &CSRFSettings{} }},
	}}
}

// Extension returns settings of the csrf filter with origin as the only additional origin.
func Extension(name, origin string) Resource {
	return Resource{resource.ExtensionType, name, Marshal(&corev3.TypedExtensionConfig{Name: name, TypedConfig: PackAny(&csrfv3.CsrfPolicy{
		AdditionalOrigins: []*matcherv3.StringMatcher{{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: origin}}},
	})})}
}

// FilteredListener returns a listener with routes from table and one HTTP filter for each of the
// ECDS resources whose names are in settings.
func FilteredListener(name, table string, wait time.Duration, settings ...string) Resource {
	hcm := &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: table, ConfigSource: ADSSource(wait)}}}
	for _, s := range settings {
		hcm.HttpFilters = append(hcm.HttpFilters, ecdsFilter(s, wait))
	}
	hcm.HttpFilters = append(hcm.HttpFilters, &hcmv3.HttpFilter{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: PackAny(&routerv3.Router{})}})
	return Resource{resource.ListenerType, name, Marshal(&listenerv3.Listener{Name: name, Address: Address(80), FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: PackAny(hcm)}}},
	}}})}
}

func ecdsFilter(name string, wait time.Duration) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{
		ConfigSource: ADSSource(wait), TypeUrls: []string{PackAny(&csrfv3.CsrfPolicy{}).GetTypeUrl()},
	}}}
}

// Snapshot returns the active resources of s, a state.State.
func Snapshot(s interface{ AppendTo(next *config.Snapshot) }) *config.Snapshot {
	active := &config.Snapshot{}
	s.AppendTo(active)
	return active
}

// ActiveFilters returns the first additional origin of each filter of the active listeners, or
// MISSING for a filter without csrf settings.
func ActiveFilters(s *config.Snapshot) (origins []string) {
	for _, l := range s.Listeners {
		for _, f := range l.FilterChains[0].Proxy.StreamFilters {
			if c, ok := f.Config.(*CSRFSettings); ok {
				origins = append(origins, c.Origins[0].Exact)
			} else {
				origins = append(origins, "MISSING")
			}
		}
	}
	return origins
}

// DubboListener returns a Dubbo listener with routes from a resource of type DubboRouteType.
func DubboListener(name, routes string, wait time.Duration) Resource {
	return Resource{resource.ListenerType, name, Marshal(&listenerv3.Listener{Name: name, Address: Address(20880), FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "dubbo", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: PackAny(&dubbov3.DubboProxy{
			RouteSpecifier: &dubbov3.DubboProxy_Drds{Drds: &dubbov3.Drds{RouteConfigName: routes, ConfigSource: ADSSource(wait)}},
		})}}},
	}}})}
}

// DubboRoutes returns routes that send all calls to a cluster.
func DubboRoutes(name, cluster string) Resource {
	return Resource{resource.DubboRouteType, name, Marshal(&dubbov3.MultipleRouteConfiguration{Name: name, RouteConfig: []*dubbov3.RouteConfiguration{{
		Interface: "*", Routes: []*dubbov3.Route{{Match: &dubbov3.RouteMatch{}, Route: &dubbov3.RouteAction{ClusterSpecifier: &dubbov3.RouteAction_Cluster{Cluster: cluster}}}},
	}}})}
}

// RuntimeLayer returns a runtime layer that sets the key "share", which FractionRoutes uses. A
// string that contains no number is not a percentage, so that the routes use their default.
func RuntimeLayer(name string, share any) Resource {
	v, err := structpb.NewValue(share)
	if err != nil {
		panic(err)
	}
	return Resource{resource.RuntimeType, name, Marshal(&runtimev3.Runtime{Name: name, Layer: &structpb.Struct{Fields: map[string]*structpb.Value{"share": v}}})}
}

// FractionRoutes returns routes that match the percentage of the requests that the runtime key
// "share" sets, 50 by default.
func FractionRoutes(name string) Resource {
	return Resource{resource.RouteType, name, Marshal(&routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
			Match: &routev3.RouteMatch{
				PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"},
				RuntimeFraction: &corev3.RuntimeFractionalPercent{
					RuntimeKey: "share", DefaultValue: &typev3.FractionalPercent{Numerator: 50},
				},
			},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{
				RuntimeKeyPrefix: "weights", Clusters: []*routev3.WeightedCluster_ClusterWeight{{Name: "c0", Weight: wrapperspb.UInt32(1)}},
			}}}},
		}},
	}}})}
}

// ActiveFraction returns the active percentage of FractionRoutes, or -1 without routes.
func ActiveFraction(s *config.Snapshot) float64 {
	for _, t := range s.Routes {
		return *t.VirtualHosts[0].Routes[0].Match.Percentage
	}
	return -1
}

// Secrets returns the secrets that Random can refer to.
func Secrets(t *testing.T) (secrets []Resource) {
	pki := testpki.New(t)
	for i := range 3 {
		secrets = append(secrets, Secret(fmt.Sprint("s", i), pki.Issue(testpki.Spec{})))
	}
	return secrets
}
