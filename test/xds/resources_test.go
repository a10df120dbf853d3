package xds

import (
	"net"
	"strconv"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// resourceSet holds the resources of a control plane; the keys are their names.
type resourceSet struct {
	clusters, endpoints, listeners, routes, filters, layers map[string]types.Resource
}

func newResourceSet() *resourceSet {
	return &resourceSet{
		clusters: map[string]types.Resource{}, endpoints: map[string]types.Resource{}, listeners: map[string]types.Resource{},
		routes: map[string]types.Resource{}, filters: map[string]types.Resource{}, layers: map[string]types.Resource{},
	}
}

// put adds or replaces resources by their names.
func (s *resourceSet) put(resources ...types.Resource) {
	for _, r := range resources {
		s.byType(r)[cache.GetResourceName(r)] = r
	}
}

func (s *resourceSet) byType(r types.Resource) map[string]types.Resource {
	switch r.(type) {
	case *clusterv3.Cluster:
		return s.clusters
	case *endpointv3.ClusterLoadAssignment:
		return s.endpoints
	case *listenerv3.Listener:
		return s.listeners
	case *routev3.RouteConfiguration:
		return s.routes
	case *corev3.TypedExtensionConfig:
		return s.filters
	case *runtimev3.Runtime:
		return s.layers
	}
	panic("xds: a resource of an unknown type: " + cache.GetResourceName(r))
}

// removeCluster removes a cluster and its endpoints.
func (s *resourceSet) removeCluster(name string) {
	delete(s.clusters, name)
	delete(s.endpoints, name)
}

func (s *resourceSet) snapshot(version int) (*cache.Snapshot, error) {
	list := func(m map[string]types.Resource) (out []types.Resource) {
		for _, r := range m {
			out = append(out, r)
		}
		return out
	}
	return cache.NewSnapshot(strconv.Itoa(version), map[resource.Type][]types.Resource{
		resource.ClusterType:         list(s.clusters),
		resource.EndpointType:        list(s.endpoints),
		resource.ListenerType:        list(s.listeners),
		resource.RouteType:           list(s.routes),
		resource.ExtensionConfigType: list(s.filters),
		resource.RuntimeType:         list(s.layers),
	})
}

func fromADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

// edsCluster returns an EDS cluster whose endpoints have the same name.
func edsCluster(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ConnectTimeout:       durationpb.New(5 * time.Second),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: fromADS()},
	}
}

// endpointsOf returns the endpoints of a cluster.
func endpointsOf(cluster string, addresses ...string) *endpointv3.ClusterLoadAssignment {
	l := &endpointv3.LocalityLbEndpoints{}
	for _, a := range addresses {
		l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socketAddress(a)}},
		})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: cluster, Endpoints: []*endpointv3.LocalityLbEndpoints{l}}
}

func socketAddress(address string) *corev3.Address {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		panic(err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		panic(err)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(n)},
	}}}
}

// httpListener returns an HTTP listener with a route table by RDS.
func httpListener(name, address, routes string, filters ...*hcmv3.HttpFilter) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: name, Address: socketAddress(address), TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: mustAny(&hcmv3.HttpConnectionManager{
				StatPrefix:     name,
				RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: routes, ConfigSource: fromADS()}},
				HttpFilters: append(filters, &hcmv3.HttpFilter{
					Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: mustAny(&routerv3.Router{})},
				}),
			})},
		}}}},
	}
}

func mustAny(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// routeTable returns a route table with one virtual host for all domains.
func routeTable(name string, routes ...*routev3.Route) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: routes}}}
}

// routeTo returns a route from a prefix to a cluster.
func routeTo(prefix, cluster string) *routev3.Route {
	return &routev3.Route{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: prefix}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
	}
}

// directRoute returns a route with a direct response for a path.
func directRoute(path, text string) *routev3.Route {
	return &routev3.Route{
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: path}},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{
			Status: 200, Body: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}},
		}},
	}
}
