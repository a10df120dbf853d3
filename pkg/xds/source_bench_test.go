package xds

import (
	"context"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"strconv"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

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
	return xdstest.Marshal(&endpointv3.ClusterLoadAssignment{ClusterName: "c" + strconv.Itoa(i), Endpoints: []*endpointv3.LocalityLbEndpoints{l}})
}

func edsCluster(i int, timeout time.Duration) []byte {
	return xdstest.Marshal(&clusterv3.Cluster{
		Name: "c" + strconv.Itoa(i), ConnectTimeout: durationpb.New(timeout), ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
	})
}

// newSourceWithClusters returns a Source that has received clusters with their endpoints. *applied
// counts the applied changes that affect only clusters or routes. If onDemand is true, the clusters
// are on demand and unsubscribed.
func newSourceWithClusters(tb testing.TB, clusters int, apiType string, onDemand bool) (s *Source, applied *int) {
	tb.Helper()
	applied = new(int)
	o := Options{
		Bootstrap: xdstest.Bootstrap(apiType),
		Layers: layers.New(func(_ context.Context, d config.Delta) error {
			if !d.Full {
				*applied++
			}
			return nil
		}),
		Log: slog.New(slog.DiscardHandler),
	}
	if onDemand {
		o.Bootstrap.OnDemand = config.XDSOnDemand{Idle: time.Hour, Wait: time.Second}
		o.Clusters, o.Routes = newFakeOnDemand(), newFakeOnDemand()
	}
	s, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.stack.SetFile(tb.Context(), &config.Snapshot{}); err != nil {
		tb.Fatal(err)
	}
	s.handleEvent(tb.Context(), event{channel: s.channels[0], opened: true})
	resources := map[string][]ads.Resource{}
	for i := range clusters {
		name := "c" + strconv.Itoa(i)
		resources[resource.ClusterType] = append(resources[resource.ClusterType], ads.Resource{Name: name, Version: "1", Body: edsCluster(i, time.Second)})
		resources[resource.EndpointType] = append(resources[resource.EndpointType], ads.Resource{Name: name, Version: "1", Body: assignment(i, 1)})
	}
	respondRaw(tb, s, resource.ClusterType, resources[resource.ClusterType]...)
	respondRaw(tb, s, resource.EndpointType, resources[resource.EndpointType]...)
	s.updateSubscriptions() // handles the changes of all clusters
	*applied = 0
	return s, applied
}

// respondRaw makes s handle a response and drops the requests that s queues.
func respondRaw(tb testing.TB, s *Source, url string, resources ...ads.Resource) {
	ch := s.channels[0]
	s.handleEvent(tb.Context(), event{channel: ch, response: &ads.Response{Type: url, Nonce: "n", Resources: resources}})
	ch.queue = ch.queue[:0]
}

// clusterChange is a change of one cluster while others stay the same.
type clusterChange struct {
	name, mode string
	onDemand   bool
	newChange  func(tb testing.TB, s *Source) func(i int) // returns a function that makes change number i
}

func clusterChanges() []clusterChange {
	alternate := func(url string, bodies ...[]byte) func(testing.TB, *Source) func(int) {
		return func(tb testing.TB, s *Source) func(int) {
			return func(i int) {
				respondRaw(tb, s, url, ads.Resource{Name: "c7", Version: strconv.Itoa(i), Body: bodies[i%2]})
			}
		}
	}
	toggle := func(tb testing.TB, s *Source) func(int) {
		requested := s.opts.Clusters.(*fakeOnDemand) //nolint:forcetypeassert // set by newSourceWithClusters
		return func(int) {
			requested.names = append(requested.names, "c7")
			s.subscribeRequested(tb.Context())
			s.unsubscribeIdle(tb.Context(), time.Now().Add(s.opts.Bootstrap.OnDemand.Idle))
			s.channels[0].queue = s.channels[0].queue[:0]
		}
	}
	return []clusterChange{
		{"endpoints", "DELTA_GRPC", false, alternate(resource.EndpointType, assignment(7, 2), assignment(7, 3))},
		{"endpoints with state of the world", "GRPC", false, alternate(resource.EndpointType, assignment(7, 2), assignment(7, 3))},
		{"cluster", "DELTA_GRPC", false, alternate(resource.ClusterType, edsCluster(7, 2*time.Second), edsCluster(7, 3*time.Second))},
		{"subscribe and unsubscribe", "DELTA_GRPC", true, toggle},
	}
}

// BenchmarkOneChange measures a change of one cluster among others, up to the delta for the server.
func BenchmarkOneChange(b *testing.B) {
	for _, c := range clusterChanges() {
		for _, others := range []int{100, 10_000} {
			b.Run(fmt.Sprintf("%s/others=%d", c.name, others), func(b *testing.B) {
				s, applied := newSourceWithClusters(b, others, c.mode, c.onDemand)
				change := c.newChange(b, s)
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					change(i)
				}
				if *applied < b.N {
					b.Fatalf("%d changes were applied, want %d", *applied, b.N)
				}
			})
		}
	}
}

// TestOneChangeCostIsConstant verifies that a change of one cluster allocates about as much among
// two thousand clusters as among ten. Code that visits all clusters allocates memory for their
// names.
func TestOneChangeCostIsConstant(t *testing.T) {
	withoutRace(t)
	const changes = 50
	for _, c := range clusterChanges() {
		t.Run(c.name, func(t *testing.T) {
			cost := func(others int) (bytes uint64) {
				s, applied := newSourceWithClusters(t, others, c.mode, c.onDemand)
				change := c.newChange(t, s)
				var before, after goruntime.MemStats
				goruntime.ReadMemStats(&before)
				for i := range changes {
					change(i)
				}
				goruntime.ReadMemStats(&after)
				if *applied < changes {
					t.Fatalf("%d changes were applied, want %d", *applied, changes)
				}
				return (after.TotalAlloc - before.TotalAlloc) / changes
			}
			if small, large := cost(10), cost(2000); large > small+small/4+2048 {
				t.Errorf("%d bytes with 2000 clusters, %d bytes with 10; want at most a quarter and 2048 bytes more", large, small)
			}
		})
	}
}
