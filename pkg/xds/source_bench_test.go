package xds

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// bootstrapText is of a control plane that nobody connects to.
func bootstrapText(form string) config.Bootstrap {
	return config.Bootstrap{
		Node: []byte(`{"id": "test"}`),
		Dynamic: fmt.Appendf(nil, `{"ads_config": {"api_type": %q, "grpc_services": [{"envoy_grpc": {"cluster_name": "control"}}]},
			"cds_config": {"ads": {}}, "lds_config": {"ads": {}}}`, form),
		Static: []byte(`{"clusters": [{"name": "control", "load_assignment": {"cluster_name": "control", "endpoints": [
			{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}}]}]}}]}`),
	}
}

func assignment(i, weight int) []byte {
	l := &endpointv3.LocalityLbEndpoints{}
	for e := range 10 {
		l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
				SocketAddress: &corev3.SocketAddress{Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(10_000 + e)}},
			}}}},
			LoadBalancingWeight: wrapperspb.UInt32(uint32(weight)),
		})
	}
	return serialized(&endpointv3.ClusterLoadAssignment{ClusterName: "c" + strconv.Itoa(i), Endpoints: []*endpointv3.LocalityLbEndpoints{l}})
}

func serialized(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// BenchmarkEndpointChanges is what one change of the endpoints of a cluster costs beside
// others that stay, until the server is told.
func BenchmarkEndpointChanges(b *testing.B) {
	for _, others := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			ctx, applied := context.Background(), 0
			s, err := New(Options{
				Bootstrap:     bootstrapText("DELTA_GRPC"),
				Apply:         func(context.Context, *config.Snapshot) error { return nil },
				ApplyClusters: func(context.Context, []*config.Cluster, func() *config.Snapshot) error { applied++; return nil },
				Log:           slog.New(slog.DiscardHandler),
			})
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Rebase(ctx, &config.Snapshot{}); err != nil {
				b.Fatal(err)
			}
			f := s.feeds[0]
			s.handle(ctx, event{feed: f, opened: true})
			clusters := &ads.Response{Type: resource.ClusterType, Nonce: "1"}
			hosts := &ads.Response{Type: resource.EndpointType, Nonce: "2"}
			for i := range others {
				name := "c" + strconv.Itoa(i)
				clusters.Resources = append(clusters.Resources, ads.Resource{Name: name, Version: "1", Body: serialized(&clusterv3.Cluster{
					Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
				})})
				hosts.Resources = append(hosts.Resources, ads.Resource{Name: name, Version: "1", Body: assignment(i, 1)})
			}
			s.handle(ctx, event{feed: f, response: clusters})
			s.handle(ctx, event{feed: f, response: hosts})
			bodies := [][]byte{assignment(7, 2), assignment(7, 3)}
			before := applied
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				s.handle(ctx, event{feed: f, response: &ads.Response{Type: resource.EndpointType, Nonce: "n", Resources: []ads.Resource{
					{Name: "c7", Version: strconv.Itoa(i), Body: bodies[i%2]},
				}}})
				f.queue = f.queue[:0]
			}
			if applied-before != b.N {
				b.Fatalf("%d changes were applied, want %d", applied-before, b.N)
			}
		})
	}
}
